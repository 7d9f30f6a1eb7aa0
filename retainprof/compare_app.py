"""Compares two runs, traces or folders of traces as the command line asks: reading, report, files, conditions."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console

from retainprof import store
from retainprof.analysis.compare import Clock, clock_of
from retainprof.analysis.runs import RunComparison, check, compare, of_result, of_traces, parse
from retainprof.analysis.runs.as_result import is_of_traces
from retainprof.errors import ConditionFailed, UsageError
from retainprof.records import Result
from retainprof.trace_reading import Analyzed, analyzed, lane_names

if TYPE_CHECKING:
    from retainprof.analysis.runs.records import Side

__all__ = ["CompareOptions", "compare_paths"]

PIPED_WIDTH = 160  # columns of a report that goes to a file or another program
PEEKED_BYTES: Final = 200
_RESULT: Final = re.compile(rb'\s*\{\s*"schema"\s*:\s*\d+\s*,\s*"retainprof"\s*:')


@dataclass(frozen=True)
class CompareOptions:
    """What the command line asks for; files may be ``-`` for standard output alone."""

    base: Path
    contender: Path
    fail_on: tuple[str, ...] = ()
    json: str | None = None
    markdown: str | None = None
    anyway: bool = False
    full: bool = False
    label: re.Pattern[str] | None = None
    quiet: bool = False


def compare_paths(options: CompareOptions) -> int:
    """Compare, report, then check the conditions. Returns 0.

    Raises:
        ConditionFailed: a condition holds; its message is the reason.
        UsageError: the two can't be compared, or a condition can't be read or told.
        StoreError, TraceError: one of them can't be read.
    """
    if options.json == options.markdown == "-":
        raise UsageError("only one of --json and --markdown can go to standard output")
    conditions = [parse(text) for text in options.fail_on]
    base, contender, clock = _sides(options)
    found = compare(base, contender, clock, anyway=options.anyway)
    found = msgspec.structs.replace(found, conditions=tuple(check(one, found) for one in conditions))
    _write(found, options)
    failed = [one for one in found.conditions if one.holds]
    if failed:
        raise ConditionFailed("; ".join(f"{one.condition}: {one.reason}" for one in failed))
    return 0


def _sides(options: CompareOptions) -> tuple[Side, Side, Clock]:
    """Both sides, on the clock that both rest on: wall time unless CPU time decides in both."""
    paths = options.base, options.contender
    base, contender = (_run_or_traces(path, options) for path in paths)
    names = _names(*paths)
    if isinstance(base, Result) and isinstance(contender, Result):
        clock: Clock = "cpu" if clock_of(base) == clock_of(contender) == "cpu" else "wall"
        return of_result(base, names[0], clock), of_result(contender, names[1], clock), clock
    lanes = lane_names(*(side for side in (base, contender) if not isinstance(side, Result)))[::-1]
    sides = [
        of_result(side, name, "wall") if isinstance(side, Result) else _of_traces(side, lanes.pop(), name)
        for side, name in zip((base, contender), names, strict=True)
    ]
    return sides[0], sides[1], "wall"


def _names(base: Path, contender: Path) -> tuple[str, str]:
    """Short names, unless they are the same."""
    return (str(base), str(contender)) if base.name == contender.name else (base.name, contender.name)


def _run_or_traces(path: Path, options: CompareOptions) -> Result | list[Analyzed]:
    """The result of a run, or every trace of a file or folder; a folder that ``analyze`` wrote stands for its traces."""
    if path.is_dir() and not (path / "result.json").exists():
        runs = [found.parent.name for found in sorted(path.glob("*/result.json"))]
        if runs:
            raise UsageError(f"{path} holds runs: {', '.join(runs[:4])}", hint="name one of them")
    elif path.is_dir() or _is_result(path):
        result = store.read(path)
        if not is_of_traces(result):
            return result
        path = (path if path.is_dir() else path.parent) / "traces"
    return analyzed([path], options.label, quiet=options.quiet)


def _is_result(path: Path) -> bool:
    """Whether a file is a ``result.json``, whatever its name."""
    if path.name == "result.json" or not path.is_file():
        return path.name == "result.json"
    with path.open("rb") as file:
        return _RESULT.match(file.read(PEEKED_BYTES)) is not None


def _of_traces(found: Sequence[Analyzed], lanes: Sequence[str], name: str) -> Side:
    devices = ", ".join(dict.fromkeys(one.device_name for one in found if one.device_name))
    return of_traces(list(zip(lanes, (one.report for one in found), strict=True)), name, devices)


def _write(found: RunComparison, options: CompareOptions) -> None:
    from retainprof.report import comparison

    if options.json is not None:
        _put(options.json, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if options.markdown is not None:
        _put(options.markdown, comparison.markdown(found).encode())
    if not options.quiet and "-" not in (options.json, options.markdown):
        console = Console(soft_wrap=False)
        if not console.is_terminal:
            console = Console(width=PIPED_WIDTH)
        comparison.render(found, console, full=options.full)


def _put(where: str, data: bytes) -> None:
    if where == "-":
        sys.stdout.write(data.decode())
    else:
        store.write_atomic(Path(where), data)
