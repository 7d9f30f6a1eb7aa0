"""Trace files named on the command line, read and analyzed one after the other, with progress."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retainprof.analysis.runs.ranks import rank_of
from retainprof.errors import TraceError
from retainprof.trace import TraceReport, analyze, read
from retainprof.trace.files import trace_files

__all__ = ["Analyzed", "analyzed", "lane_names"]


@dataclass(frozen=True)
class Analyzed:
    """One trace file and what it says; ``device_name`` is the accelerator that it names, "" where it names none."""

    path: Path
    report: TraceReport
    device_name: str


def analyzed(paths: Sequence[Path], label: re.Pattern[str] | None = None, *, quiet: bool = False) -> list[Analyzed]:
    """Every trace, in order of rank; a file of a folder that is no trace is passed over with a word.

    Raises:
        TraceError: a named file is no trace, or none of the files is.
    """
    from retainprof.report.progress import Progress

    found = []
    with Progress("traces", quiet=quiet) as bar:
        for path, named in trace_files(paths):
            bar.phase("reading", path.name)
            try:
                found.append(_one(path, label, bar.tick))
            except TraceError as e:
                if named:
                    raise
                print(f"retainprof: passed over: {e}", file=sys.stderr)
    if not found:
        raise TraceError("no trace among the files of " + ", ".join(map(str, paths)))
    return sorted(found, key=lambda one: (one.report.rank is not None, one.report.rank or 0))


def _one(path: Path, label: re.Pattern[str] | None, tick: Callable[[float, str], None]) -> Analyzed:
    size = max(path.stat().st_size, 1)
    trace = read(path, lambda done: tick(done / size, path.name))
    return Analyzed(path, analyze(trace, label), _device_name(trace.meta))


def _device_name(meta: dict[str, Any]) -> str:
    """Names of the devices that Kineto writes down, each once."""
    listed = meta.get("deviceProperties")
    devices = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return ", ".join(dict.fromkeys(str(one["name"]) for one in devices if one.get("name")))


def lane_names(*sides: Sequence[Analyzed]) -> list[list[str]]:
    """Names of the traces of each side, in the same words on all: by rank, folder, folder and rank, or file.

    The first of these that tells the traces of every side apart; ``trace`` where each side has only one.
    """
    if all(len(side) == 1 for side in sides):
        return [["trace"] for _ in sides]
    for words in (_by_rank, _by_folder, _by_folder_and_rank, _by_file):
        named = [[words(one) for one in side] for side in sides]
        if all(all(names) and len(set(names)) == len(names) for names in named):
            return named
    return [[str(one.path) for one in side] for side in sides]


def _by_rank(one: Analyzed) -> str:
    rank = rank_of(one.report)
    return "" if rank is None else f"rank {rank}"


def _by_folder(one: Analyzed) -> str:
    return one.path.parent.name


def _by_folder_and_rank(one: Analyzed) -> str:
    rank = _by_rank(one)
    return f"{_by_folder(one)} {rank}" if rank else ""


def _by_file(one: Analyzed) -> str:
    return one.path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
