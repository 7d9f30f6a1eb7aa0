"""Compares two runs or two traces as the command line asks: reading, report, files, conditions."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from retainprof import store
from retainprof.analysis.compare import Clock, clock_of
from retainprof.analysis.runs import RunComparison, check, compare, of_result, of_trace, parse
from retainprof.errors import ConditionFailed, UsageError

if TYPE_CHECKING:
    from retainprof.analysis.runs.records import Side

__all__ = ["CompareOptions", "compare_paths"]

PIPED_WIDTH = 160  # columns of a report that goes to a file or another program


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
    base, contender, clock = _sides(options.base, options.contender)
    found = compare(base, contender, clock, anyway=options.anyway)
    found = msgspec.structs.replace(found, conditions=tuple(check(one, found) for one in conditions))
    _write(found, options)
    failed = [one for one in found.conditions if one.holds]
    if failed:
        raise ConditionFailed("; ".join(f"{one.condition}: {one.reason}" for one in failed))
    return 0


def _sides(base: Path, contender: Path) -> tuple[Side, Side, Clock]:
    """Both sides, on the clock that both rest on: wall time unless CPU time decides in both."""
    names = _names(base, contender)
    if _is_trace(base) or _is_trace(contender):
        return _side(base, names[0]), _side(contender, names[1]), "wall"
    results = store.read(base), store.read(contender)
    clock: Clock = "cpu" if all(clock_of(result) == "cpu" for result in results) else "wall"
    return of_result(results[0], names[0], clock), of_result(results[1], names[1], clock), clock


def _names(base: Path, contender: Path) -> tuple[str, str]:
    """Short names, unless they are the same."""
    return (str(base), str(contender)) if base.name == contender.name else (base.name, contender.name)


def _is_trace(path: Path) -> bool:
    return path.is_file() and path.name != "result.json"


def _side(path: Path, name: str) -> Side:
    if not _is_trace(path):
        return of_result(store.read(path), name, "wall")
    from retainprof.trace import analyze, read

    return of_trace(analyze(read(path)), name)


def _write(found: RunComparison, options: CompareOptions) -> None:
    from retainprof.report import comparison

    if options.json is not None:
        _put(options.json, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if options.markdown is not None:
        _put(options.markdown, comparison.markdown(found).encode())
    if "-" not in (options.json, options.markdown):
        console = Console(soft_wrap=False)
        if not console.is_terminal:
            console = Console(width=PIPED_WIDTH)
        comparison.render(found, console, full=options.full)


def _put(where: str, data: bytes) -> None:
    if where == "-":
        sys.stdout.write(data.decode())
    else:
        store.write_atomic(Path(where), data)
