"""What traces say, on a terminal and as Markdown. Picks and formats; computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from retainprof.records import Ratio
from retainprof.report import markdown as marked
from retainprof.report.rows import Column, visible
from retainprof.trace.behind import NodeCost
from retainprof.trace.held import Held
from retainprof.trace.report import CallKernels, KernelChange, LaterCall, TraceCall, TraceReport
from retainprof.trace.shapes import short_name
from retainprof.units import MISSING, ratio, show_bytes, show_count, show_interval_ns, show_ns

__all__ = ["markdown", "render"]

CALLS_SHOWN: Final = 12
ROWS_SHOWN: Final = 6
ALL: Final = 10**9
STATUS: Final = {"only_first": "only call 0", "only_later": "only later", "changed": "changed", "same": "same"}
FOUND: Final = {"label": "by their labels", "engine": "by the engine's events (no label round them)"}


def render(report: TraceReport, console: Console, *, full: bool = False) -> None:
    """Print one trace's report; ``full`` shows every row and the kernels' full names."""
    _head(report, console)
    if report.calls:
        limit = ALL if full else ROWS_SHOWN
        _calls(report.calls, console, ALL if full else CALLS_SHOWN)
        for later in report.first_vs_later[: limit if full else 2]:
            _changes(later, console, limit, full)
        if report.first_vs_later[2:] and not full:
            console.print(f"… {len(report.first_vs_later) - 2} later calls more: --full")
        for call in report.by_call if full else report.by_call[:1]:
            _nodes(call, console, limit)
        for held in report.retained if full else report.retained[-1:]:
            _held(held, console, limit)
    for note in report.notes:
        console.print(Text(f"note: {visible(note)}", style="yellow"))


def _head(report: TraceReport, console: Console) -> None:
    file = report.file
    rank = "" if report.rank is None else f", rank {report.rank}"
    title = Text(visible(report.trace), style="bold")
    title.append(f"{rank}: {show_count(file.events)} events, {show_count(file.kernels)} device kernels", style="")
    console.print(title)
    if report.calls:
        found = FOUND[report.found_by]
        console.print(
            f"{show_count(len(report.calls))} backward calls in {show_count(report.steps)} steps, found {found}; "
            f"steps by {report.steps_by}. Times are profiled: they say why, not how long."
        )


def _table(title: str, heads: Sequence[str], texts: int = 1) -> Table:
    """A table whose first ``texts`` columns are words, the others numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    for number, head in enumerate(heads):
        words = number < texts
        table.add_column(head, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return table


def _calls(calls: Sequence[TraceCall], console: Console, limit: int) -> None:
    heads = ("step", "call", "wall", "device busy", "idle", "kernels", "copies", "nodes", "s/c/a", "fan-in", "again")
    table = _table("Calls", (*heads, "shared", "net", "peak", "retained after"), texts=0)
    for call in calls[:limit]:
        device, did = call.device, call.accumulate
        table.add_row(
            str(call.step),
            str(call.index),
            show_ns(call.profiled_wall_ns),
            show_ns(None if device is None else device.busy_ns),
            show_ns(None if device is None else device.idle_ns),
            show_count(call.kernels),
            show_count(call.copies_and_sets),
            show_count(call.nodes),
            f"{did.stolen}/{did.copied}/{did.added + did.sparse_added}",
            show_count(call.fan_in_adds),
            show_count(call.forward_ops_in_backward),
            show_count(call.nodes_shared_with_earlier),
            show_bytes(call.net_bytes),
            show_bytes(call.peak_bytes),
            show_bytes(call.retained_bytes_after),
        )
    console.print(table)
    if len(calls) > limit:
        console.print(f"… {show_count(len(calls) - limit)} calls more: --full, or --csv FOLDER")
    console.print(
        Text(
            "s/c/a: gradients stolen, copied, added; again: forward operators that ran again; shared: nodes that an "
            "earlier call of the step went through; retained: made in the step's forward, still alive",
            style="dim",
        )
    )


def _changes(later: LaterCall, console: Console, limit: int, full: bool) -> None:
    wall = _said(later.profiled_ratio_wall)
    title = f"Call {later.call} against call 0: wall {wall} (profiled, median of {show_count(later.steps)} steps)"
    different = [row for row in later.kernels if row.status != "same" and (row.leaf or full)]
    table = _table(
        title, ("kernel", "shapes", "", "call 0", "call " + str(later.call), "time", "time", "difference"), 3
    )
    for row in different[:limit]:
        table.add_row(*_change(row, full))
    if different:
        console.print(table)
    else:
        console.print(f"{title}: the same kernels, equally often")
    if len(different) > limit:
        console.print(f"… {show_count(len(different) - limit)} kernels more that differ: --full")


def _said(found: Ratio | None) -> str:
    return MISSING if found is None else ratio(found.median)


def _change(row: KernelChange, full: bool) -> tuple[str, ...]:
    return (
        visible(row.name if full else short_name(row.name)),
        visible(row.shapes),
        STATUS[row.status],
        show_count(row.first_count),
        show_count(row.later_count),
        show_ns(row.first_self_ns),
        show_ns(row.later_self_ns),
        show_ns(row.later_self_ns - row.first_self_ns),
    )


def _nodes(call: CallKernels, console: Console, limit: int) -> None:
    title = f"Call {call.index}: nodes, and the forward behind them"
    table = _table(title, ("node", "forward", "module", "evaluated", "kernels", "kernel time"), 3)
    for cost in call.nodes[:limit]:
        table.add_row(*_node(cost))
    console.print(table)


def _node(cost: NodeCost) -> tuple[str, ...]:
    return (
        visible(cost.node) or "(outside every node)",
        visible(cost.forward_op),
        visible(cost.module),
        show_count(cost.evaluations),
        show_count(cost.kernels),
        show_ns(cost.kernel_ns),
    )


def _held(held: Held, console: Console, limit: int) -> None:
    after = ", ".join(show_bytes(size) for size in held.after_call_bytes[:limit])
    title = f"Step {held.step}: the forward leaves {show_bytes(held.after_forward_bytes)}; after each call {after}"
    table = _table(title, ("made by", "freed in", "by", "bytes", "storages"), 3)
    for row in held.releases[:limit]:
        where = "" if row.freed_in_call is None else f"call {row.freed_in_call}"
        table.add_row(
            visible(row.made_by), where, visible(row.freed_by), show_bytes(row.bytes), show_count(row.storages)
        )
    console.print(table)


MARKED: Final = (
    Column("trace", number=False),
    Column("call"),
    Column("label", number=False),
    Column("steps"),
    Column("profiled wall"),
    Column("95% interval"),
    Column("device busy"),
)


def markdown(names: Sequence[str], reports: Sequence[TraceReport]) -> str:
    """The profiled times of each call, and what a reader has to know of each trace; ends with a newline."""
    named = [*zip(names, reports, strict=True)]
    rows = [
        (
            visible(name),
            str(call.index),
            visible(call.label),
            show_count(call.steps),
            show_ns(call.profiled_wall_ns),
            show_interval_ns(call.profiled_wall_ci95),
            show_ns(call.device_busy_ns),
        )
        for name, report in named
        for call in report.by_call
    ]
    notes = [f"* {marked.text(name)}: {marked.text(note)}" for name, report in named for note in report.notes]
    parts = ["## Profiled calls", marked.table(MARKED, rows), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part) + "\n"
