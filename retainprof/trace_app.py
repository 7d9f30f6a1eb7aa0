"""Analyzes trace files as the command line asks: progress, reports, files."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from retainprof.analysis.runs.ranks import RankCall, side_by_side
from retainprof.errors import StoreError
from retainprof.trace import TraceReport
from retainprof.trace_reading import analyzed

__all__ = ["AnalyzeOptions", "analyze_files"]

PIPED_WIDTH = 160  # columns of a report that goes to a file or another program


@dataclass(frozen=True)
class AnalyzeOptions:
    """What the command line asks for; ``json`` is a file name, or ``-`` for standard output alone."""

    traces: tuple[Path, ...]
    label: re.Pattern[str] | None = None
    json: str | None = None
    csv: Path | None = None
    out: Path | None = None
    full: bool = False
    quiet: bool = False


def analyze_files(options: AnalyzeOptions) -> int:
    """Every trace, one after the other; a file of a folder that is no trace is passed over with a word. Returns 0.

    Raises:
        TraceError: a named file is no trace, or none of a folder is.
        StoreError: an output can't be written.
    """
    found = analyzed(options.traces, options.label, quiet=options.quiet)
    reports = [one.report for one in found]
    ranks = side_by_side(reports)
    if options.json is not None:
        _write_json(reports, ranks, options.json)
    if options.csv is not None:
        _write_csv(reports, ranks, options.csv)
    folder = None
    if options.out is not None:
        from retainprof.trace_folder import write_folder

        folder = write_folder(found, options.out)
    if not options.quiet and options.json != "-":
        _print(reports, ranks, options.full, folder)
    return 0


def _write_json(reports: Sequence[TraceReport], ranks: Sequence[RankCall], target: str) -> None:
    """One object for one trace; for several ``{traces: [such objects], ranks: [calls side by side]}``."""
    value = reports[0] if len(reports) == 1 else {"schema": 1, "traces": reports, "ranks": ranks}
    text = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    if target == "-":
        sys.stdout.write(text.decode())
    else:
        _write(Path(target), text.decode())


def _write_csv(reports: Sequence[TraceReport], ranks: Sequence[RankCall], folder: Path) -> None:
    from retainprof.report.ranks import rank_csv
    from retainprof.report.trace_csv import call_csv, kernel_csv

    if ranks:
        _write(folder / "ranks.csv", rank_csv(ranks))

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


def _print(reports: Sequence[TraceReport], ranks: Sequence[RankCall], full: bool, folder: Path | None) -> None:
    from retainprof.report import ranks as rank_table
    from retainprof.report.traces import render

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED_WIDTH)
    for number, report in enumerate(reports):
        if number:
            console.rule()
        render(report, console, full=full)
    if ranks:
        console.rule()
        rank_table.render(ranks, console, full=full)
    if folder is not None:
        console.print(Text(f"written to {folder}: tensorboard --logdir {folder.parent}", style="dim"), soft_wrap=True)
