"""Analyzes trace files as the command line asks: progress, reports, files."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from retainprof.errors import StoreError, TraceError
from retainprof.trace import TraceReport, analyze, read
from retainprof.trace.files import trace_files

__all__ = ["AnalyzeOptions", "analyze_files"]

PIPED_WIDTH = 160  # columns of a report that goes to a file or another program


@dataclass(frozen=True)
class AnalyzeOptions:
    """What the command line asks for; ``json`` is a file name, or ``-`` for standard output alone."""

    traces: tuple[Path, ...]
    label: re.Pattern[str] | None = None
    json: str | None = None
    csv: Path | None = None
    full: bool = False
    quiet: bool = False


def analyze_files(options: AnalyzeOptions) -> int:
    """Every trace, one after the other; a file of a folder that is no trace is passed over with a word. Returns 0.

    Raises:
        TraceError: a named file is no trace, or none of a folder is.
        StoreError: an output can't be written.
    """
    reports = _reports(options)
    if not reports:
        raise TraceError("no trace among the files of " + ", ".join(map(str, options.traces)))
    if options.json is not None:
        _write_json(reports, options.json)
    if options.csv is not None:
        _write_csv(reports, options.csv)
    if not options.quiet and options.json != "-":
        _print(reports, options.full)
    return 0


def _reports(options: AnalyzeOptions) -> list[TraceReport]:
    from retainprof.report.progress import Progress

    found = []
    files = trace_files(options.traces)
    with Progress("traces", quiet=options.quiet) as bar:
        for path, named in files:
            size = max(path.stat().st_size, 1)
            bar.phase("reading", path.name)

            def tell(done: int, size: int = size, name: str = path.name) -> None:
                bar.tick(done / size, name)

            try:
                found.append(analyze(read(path, tell), options.label))
            except TraceError as e:
                if named:
                    raise
                print(f"retainprof: passed over: {e}", file=sys.stderr)
    return sorted(found, key=lambda report: (report.rank is not None, report.rank or 0))


def _write_json(reports: Sequence[TraceReport], target: str) -> None:
    """One object for one trace, a list for several."""
    value = reports[0] if len(reports) == 1 else reports
    text = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    if target == "-":
        sys.stdout.write(text.decode())
    else:
        _write(Path(target), text.decode())


def _write_csv(reports: Sequence[TraceReport], folder: Path) -> None:
    from retainprof.report.traces import call_csv, kernel_csv

    for name, make in (("calls", call_csv), ("kernels", kernel_csv)):
        tables = [make(report) for report in reports]
        rest = [table.partition("\n")[2] for table in tables[1:]]
        _write(folder / f"{name}.csv", "".join([tables[0], *rest]))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise StoreError(f"{path}: cannot be written: {e.strerror or e}") from e


def _print(reports: Sequence[TraceReport], full: bool) -> None:
    from retainprof.report.traces import render

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED_WIDTH)
    for number, report in enumerate(reports):
        if number:
            console.rule()
        render(report, console, full=full)
