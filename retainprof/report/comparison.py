"""A comparison of two runs as rows, on a terminal and as Markdown for a pull request. Picks and formats; computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from retainprof.analysis.runs import RunComparison
from retainprof.analysis.stats import FEWEST_PAIRS
from retainprof.records import KernelStatus, Ratio, Verdict
from retainprof.report.markdown import table, text
from retainprof.report.rows import Column, visible
from retainprof.trace.shapes import short_name
from retainprof.units import MISSING, ratio, show_bytes, show_count, show_ns

__all__ = ["markdown", "render"]

KERNELS_SHOWN: Final = 4
TIMES: Final = (
    Column("strategy", number=False),
    Column("call"),
    Column("base"),
    Column("contender"),
    Column("/ base"),
    Column("95% interval"),
    Column("verdict", number=False),
    Column("kernels"),
    Column("held after / peak"),
)
KERNELS: Final = (
    Column("strategy", number=False),
    Column("call"),
    Column("kernel", number=False),
    Column("shapes", number=False),
    Column("base"),
    Column("contender"),
    Column("status", number=False),
)
STATUS: Final[dict[KernelStatus, str]] = {
    "only_first": "removed",
    "only_later": "added",
    "changed": "changed",
    "same": "same",
}
DRIFT: Final = "Two runs are measured at different times: how a machine's speed drifts between them is in no interval."
PROFILED: Final = "Times are profiled ones: they say why, not how long."


def render(found: RunComparison, console: Console, *, full: bool = False) -> None:
    """Print the comparison."""
    console.print(
        Text.assemble(("contender ", "dim"), visible(found.contender), (" against base ", "dim"), visible(found.base))
    )
    for warning in found.warnings:
        console.print(Text(f"warning: {visible(warning)}", style="yellow"))
    _print_table(console, TIMES, [*_times(found)])
    kernels = [*_kernels(found, None if full else KERNELS_SHOWN)]
    if kernels:
        _print_table(console, KERNELS, kernels)
    for line in _only(found):
        console.print(Text(visible(line), style="yellow"))
    for checked in found.conditions:
        style = "bold red" if checked.holds else "green"
        said = "holds" if checked.holds else "does not hold"
        console.print(Text(f"{visible(checked.condition)}: {said}: {visible(checked.reason)}", style=style))
    console.print(Text(PROFILED if found.profiled else DRIFT, style="dim"))


def markdown(found: RunComparison) -> str:
    """The comparison for a pull request; ends with a newline."""
    kernels = [*_kernels(found, KERNELS_SHOWN)]
    parts = [
        f"## {text(found.contender)} against {text(found.base)}",
        "\n".join(f"> {text(warning)}" for warning in found.warnings),
        table(TIMES, _times(found)),
        f"### Kernels\n\n{table(KERNELS, kernels)}" if kernels else "",
        "\n".join(f"* {text(line)}" for line in _only(found)),
        "\n".join(
            f"* {'**holds**' if one.holds else 'does not hold'}: {text(one.condition)}: {text(one.reason)}"
            for one in found.conditions
        ),
        PROFILED if found.profiled else DRIFT,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _times(found: RunComparison) -> Iterator[tuple[str, ...]]:
    """A row for the step (where it has times) and one for each call."""
    for strategy in found.strategies:
        peak = _change(show_bytes(strategy.base_peak_bytes), show_bytes(strategy.contender_peak_bytes))
        times = _time(strategy.base_ns, strategy.contender_ns, strategy.ratio, strategy.verdict)
        name = visible(strategy.strategy)
        if strategy.base_ns is not None or strategy.contender_ns is not None:
            yield name, "step", *times, "", peak
            name = ""
        for call in strategy.calls:
            times = _time(call.base_ns, call.contender_ns, call.ratio, call.verdict)
            kernels = _change(show_count(call.base_kernels), show_count(call.contender_kernels))
            held = _change(show_bytes(call.base_retained_bytes), show_bytes(call.contender_retained_bytes))
            yield name, str(call.call), *times, kernels, held
            name = ""


def _change(base: str, contender: str) -> str:
    return contender if base == contender else f"{base} to {contender}"


def _time(base: float | None, contender: float | None, found: Ratio | None, said: Verdict) -> tuple[str, ...]:
    low, high = ("", "") if found is None else (ratio(end)[:-1] for end in found.ci95)
    interval = MISSING if found is None else f"{low} to {high}"
    return (
        show_ns(base),
        show_ns(contender),
        ratio(None if found is None else found.median),
        interval,
        _said(found, said),
    )


def _said(found: Ratio | None, said: Verdict) -> str:
    if found is None:
        return MISSING
    if found.pairs < FEWEST_PAIRS:
        return f"only {found.pairs} samples"
    return "not significant" if said == "cannot_tell" else said


def _kernels(found: RunComparison, limit: int | None) -> Iterator[tuple[str, ...]]:
    """Kernels that differ, of each call the first ``limit``."""
    for strategy in found.strategies:
        for call in strategy.calls:
            rows = [row for row in call.kernels if row.status != "same" and (row.leaf or limit is None)]
            for row in rows[:limit]:
                counts = show_count(row.first_count), show_count(row.later_count)
                names = visible(row.name if limit is None else short_name(row.name)), visible(row.shapes)
                yield visible(strategy.strategy), str(call.call), *names, *counts, STATUS[row.status]
            if limit is not None and len(rows) > limit:
                yield visible(strategy.strategy), str(call.call), f"… {len(rows) - limit} more", "", "", "", ""


def _only(found: RunComparison) -> list[str]:
    return [
        *(f"{name}: only in {found.base}" for name in found.only_base),
        *(f"{name}: only in {found.contender}" for name in found.only_contender),
    ]


def _print_table(console: Console, columns: Sequence[Column], body: Sequence[Sequence[str]]) -> None:
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for i, column in enumerate(columns):
        needed = max([cell_len(column.head), *(cell_len(row[i]) for row in body)])
        grid.add_column(
            column.head,
            justify="right" if column.number else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=needed if column.number else None,  # a number is shown whole or not at all
        )
    for row in body:
        grid.add_row(*map(Text, row))
    console.print(grid)
    console.print()
