"""A run folder made of analyzed traces: what ``tensorboard --logdir`` and our tab show of a run, without its timing.

NAME-YYYYMMDD-HHMMSS/
    result.json     the fields of a run's; all times in it are profiled ones
    report.md, report.html
    traces/TRACE/   the trace, under a name that torch-tb-profiler finds; several ranks of one job lie together in traces/ranks
    tb/TRACE/       event files
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from retainprof import labels, store
from retainprof.analysis.findings import find
from retainprof.analysis.runs.as_result import TraceLane, as_result
from retainprof.analysis.runs.ranks import distinct_ranks, rank_of, side_by_side
from retainprof.errors import StoreError
from retainprof.records import Result
from retainprof.store import RunFolder
from retainprof.trace_reading import Analyzed, lane_names

__all__ = ["write_folder"]

_WORKER: Final = re.compile(r"(.+?)_\d+(?:\.\d+)?\.pt\.trace\.json(?:\.gz)?")
_GZIP: Final = b"\x1f\x8b"


def write_folder(found: Sequence[Analyzed], out: Path) -> Path:
    """Make a folder for these traces in ``out`` and return it. Traces are linked (copied to other file systems).

    Raises:
        StoreError: it can't be written.
    """
    name = _stem(found[0].path) if len(found) == 1 else found[0].path.absolute().parent.name
    folder = store.create(out, name)
    titles = [_stem(found[0].path)] if len(found) == 1 else lane_names(found)[0]
    ranks = distinct_ranks([one.report for one in found]) is not None and len(found) > 1
    lanes = [_lane(one, title, folder, "ranks" if ranks else title) for one, title in zip(found, titles, strict=True)]
    result = as_result(name, lanes)
    result = msgspec.structs.replace(result, findings=find(result))
    folder.write_result(result)
    _reports(result, lanes, folder)
    return folder.root


def _lane(one: Analyzed, title: str, folder: RunFolder, group: str) -> TraceLane:
    target = folder.root / "traces" / folder.slug(group)
    try:
        target.mkdir(parents=True, exist_ok=True)
        path = target / _worker_name(one, target)
        _link(one.path, path)
    except OSError as e:
        raise StoreError(f"cannot put {one.path} into {target}: {e.strerror or e}") from e
    return TraceLane(title, one.report, folder.relative(path), one.device_name)


def _reports(result: Result, lanes: Sequence[TraceLane], folder: RunFolder) -> None:
    from retainprof.analysis.answers import answers
    from retainprof.report import event_files, html, markdown, ranks, traces

    answered, now = answers(result), time.time()
    reports = [lane.report for lane in lanes]
    text = f"{markdown.render(result, answered)}\n{traces.markdown([lane.name for lane in lanes], reports)}"
    if calls := side_by_side(reports):
        text += "\n" + ranks.markdown(calls)
    store.write_atomic(folder.root / "report.md", text.encode())
    store.write_atomic(folder.root / "report.html", html.render(result, answered).encode())
    for lane, strategy in zip(lanes, result.strategies, strict=True):
        event_files.write_trace(folder.events / folder.slug(lane.name), strategy, lane.report, now)
    event_files.write_report(folder.events / "report", text, now)


def _stem(path: Path) -> str:
    """A file's name without the endings of traces and without dots."""
    name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".trace").removesuffix(".pt")
    return labels.slug(name).replace(".", "-").strip("-") or "trace"


def _worker_name(one: Analyzed, folder: Path) -> str:
    """``HOST_RANK.TIME.pt.trace.json[.gz]``: what torch-tb-profiler takes for a worker, with the file's own time."""
    named = _WORKER.fullmatch(one.path.name)
    host = labels.slug(named[1]).replace(".", "-") if named else _stem(one.path)
    with one.path.open("rb") as file:
        ending = ".gz" if file.read(2) == _GZIP else ""
    start, rank = one.path.stat().st_mtime_ns, rank_of(one.report) or 0
    names = (f"{host}_{rank}.{start + n}.pt.trace.json{ending}" for n in range(1 << 20))
    return next(name for name in names if not (folder / name).exists())


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)
