"""Everything that a trace says about its backward calls, as records: the file that ``retainprof analyze --json`` writes.

Times are those of a profiled run: they say why, not how long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from retainprof._version import __version__
from retainprof.analysis.kernels import diff
from retainprof.analysis.stats import median_interval, paired_ratio
from retainprof.records import Accumulate, DeviceTimes, Interval, KernelDiff, KernelRow, RangePass, Ratio, Record
from retainprof.trace.behind import NodeCost, node_costs
from retainprof.trace.calls import Calls, find_calls
from retainprof.trace.facts import Facts
from retainprof.trace.figures import FileFigures, RangeFigures, file_figures, range_figures
from retainprof.trace.group import distinct
from retainprof.trace.held import Held, held
from retainprof.trace.kernels import KernelTable
from retainprof.trace.measure import Span, kernel_table, measure
from retainprof.trace.trace import Trace

__all__ = ["CallKernels", "KernelChange", "LaterCall", "TraceCall", "TraceReport", "analyze"]

SCHEMA: Final = 1
INTERVALS_SHOWN: Final = 40  # kernels of a comparison, largest difference first, that get an interval


class TraceCall(Record, frozen=True, kw_only=True):
    """One call of one step. Fields that ``result.json`` has as well mean the same."""

    step: int
    index: int
    label: str
    thread: str
    start_ns: int
    profiled_wall_ns: int
    nodes: int
    ops: int
    kernels: int
    copies_and_sets: int
    accumulate: Accumulate
    fan_in_adds: int
    forward_ops_in_backward: int
    allocated_bytes: int | None
    freed_bytes: int | None
    net_bytes: int | None
    peak_bytes: int | None
    retained_bytes_before: int | None  # made in the step's forward and alive when the call begins
    retained_bytes_after: int | None
    last_node: str | None
    nodes_shared_with_earlier: int  # by sequence number: without AccumulateGrad, which has none
    graph: int  # index of the first call of the step that went over the same graph
    device: DeviceTimes | None
    figures: RangeFigures


class CallKernels(Record, frozen=True, kw_only=True):
    """Calls of one index over all steps: kernels (medians over steps) and nodes (of the last step)."""

    index: int
    label: str
    steps: int
    profiled_wall_ns: float
    profiled_wall_ci95: Interval
    device_busy_ns: float | None
    kernel_rows: tuple[KernelRow, ...]
    nodes: tuple[NodeCost, ...]


class KernelChange(KernelDiff, frozen=True, kw_only=True):
    """One kernel, first against later; ``difference_ns`` is the median over steps of later - first, where steps allow it."""

    difference_ns: float | None = None
    difference_ci95: Interval | None = None


class LaterCall(Record, frozen=True, kw_only=True):
    """Call 0 against a later one, paired within steps; ratios are later / first, of profiled times."""

    call: int
    steps: int
    profiled_ratio_wall: Ratio | None
    profiled_ratio_device_busy: Ratio | None
    kernels: tuple[KernelChange, ...]


class TraceReport(Record, frozen=True, kw_only=True):
    """One trace file."""

    schema: int = SCHEMA
    retainprof: str = __version__
    trace: str
    rank: int | None
    found_by: str  # label | engine
    steps_by: str
    steps: int
    file: FileFigures
    calls: tuple[TraceCall, ...]
    by_call: tuple[CallKernels, ...]
    first_vs_later: tuple[LaterCall, ...]
    retained: tuple[Held, ...]
    notes: tuple[str, ...]


def analyze(trace: Trace, label: re.Pattern[str] | None = None) -> TraceReport:
    """All of it; ``label`` finds the annotations that are calls (else ours, the usual ones, or the engine's own events)."""
    facts = Facts(trace)
    calls = find_calls(facts, label)
    table = kernel_table(facts, calls.ranges)
    retained = held(facts, calls)
    listed = _calls(facts, calls, retained)
    return TraceReport(
        trace=trace.path.name,
        rank=trace.rank,
        found_by=calls.found_by,
        steps_by=calls.steps_by,
        steps=int(calls.step.max(initial=-1)) + 1,
        file=(figures := file_figures(facts)),
        calls=listed,
        by_call=_by_call(calls, listed, table, node_costs(facts, calls)),
        first_vs_later=_first_vs_later(calls, listed, table),
        retained=retained,
        notes=(*trace.notes, *_notes(facts, calls, figures, label)),
    )


def _calls(facts: Facts, calls: Calls, retained: Sequence[Held]) -> tuple[TraceCall, ...]:
    columns = (calls.step, calls.index, calls.shared, calls.graph, calls.marks.start, calls.marks.end)
    steps, indices, shared, graphs, starts, ends = (column.tolist() for column in columns)
    spans = [Span(calls.names[i], steps[i], starts[i], ends[i]) for i in range(len(calls))]
    passes = measure(facts, spans, with_rows=False)
    figures = range_figures(facts, calls.marks)
    kept = {one.step: (one.after_forward_bytes, *one.after_call_bytes) for one in retained}
    return tuple(
        _call(passes[i], figures[i], indices[i], shared[i], indices[graphs[i]], kept.get(steps[i]))
        for i in range(len(calls))
    )


def _call(
    seen: RangePass, figures: RangeFigures, index: int, shared: int, graph: int, kept: tuple[int, ...] | None
) -> TraceCall:
    return TraceCall(
        step=seen.step,
        index=index,
        label=seen.label,
        thread=figures.thread,
        start_ns=seen.start_ns,
        profiled_wall_ns=seen.duration_ns,
        nodes=seen.nodes,
        ops=seen.ops,
        kernels=seen.kernels,
        copies_and_sets=seen.copies_and_sets,
        accumulate=seen.accumulate,
        fan_in_adds=seen.fan_in_adds,
        forward_ops_in_backward=seen.forward_ops_in_backward,
        allocated_bytes=seen.allocated_bytes,
        freed_bytes=seen.freed_bytes,
        net_bytes=seen.net_bytes,
        peak_bytes=seen.peak_bytes,
        retained_bytes_before=None if kept is None else kept[index],
        retained_bytes_after=None if kept is None else kept[index + 1],
        last_node=seen.last_node,
        nodes_shared_with_earlier=shared,
        graph=graph,
        device=seen.device,
        figures=figures,
    )


def _by_call(
    calls: Calls, listed: Sequence[TraceCall], table: KernelTable, nodes: Sequence[tuple[NodeCost, ...]]
) -> tuple[CallKernels, ...]:
    found = []
    for index in distinct(calls.index).tolist():
        rows = np.flatnonzero(calls.index == index).tolist()
        wall, interval = median_interval([listed[row].profiled_wall_ns for row in rows])
        busy = [device.busy_ns for row in rows if (device := listed[row].device) is not None]
        found.append(
            CallKernels(
                index=index,
                label=listed[rows[0]].label,
                steps=len(rows),
                profiled_wall_ns=wall,
                profiled_wall_ci95=interval,
                device_busy_ns=median_interval(busy)[0] if busy else None,
                kernel_rows=table.typical(rows),
                nodes=nodes[rows[-1]],
            )
        )
    return tuple(found)


def _first_vs_later(calls: Calls, listed: Sequence[TraceCall], table: KernelTable) -> tuple[LaterCall, ...]:
    firsts = {int(calls.step[row]): row for row in np.flatnonzero(calls.index == 0).tolist()}
    found = []
    for index in range(1, int(calls.index.max(initial=0)) + 1):
        later = np.flatnonzero(calls.index == index).tolist()
        first = [firsts[int(calls.step[row])] for row in later]
        found.append(
            LaterCall(
                call=index,
                steps=len(later),
                profiled_ratio_wall=paired_ratio(
                    [listed[row].profiled_wall_ns for row in later], [listed[row].profiled_wall_ns for row in first]
                ),
                profiled_ratio_device_busy=paired_ratio(_busy(listed, later), _busy(listed, first)),
                kernels=_changes(table, first, later),
            )
        )
    return tuple(found)


def _busy(listed: Sequence[TraceCall], rows: Sequence[int]) -> list[int]:
    return [0 if (device := listed[row].device) is None else device.busy_ns for row in rows]


def _changes(table: KernelTable, first: Sequence[int], later: Sequence[int]) -> tuple[KernelChange, ...]:
    """Every kernel of either call, differences first; the first ones with the interval of their difference."""
    rows = diff(table.typical(first), table.typical(later))
    differences = table.over(later)[1] - table.over(first)[1]
    kinds = {(kind.name, kind.shapes, kind.leaf): i for i, kind in enumerate(table.kinds)}
    found = []
    for number, row in enumerate(rows):
        middle, interval = None, None
        if number < INTERVALS_SHOWN and len(first) > 1:
            middle, interval = median_interval(differences[:, kinds[row.name, row.shapes, row.leaf]].tolist())
        values = {name: getattr(row, name) for name in KernelDiff.__struct_fields__}
        found.append(KernelChange(**values, difference_ns=middle, difference_ci95=interval))
    return tuple(found)


def _notes(facts: Facts, calls: Calls, figures: FileFigures, label: re.Pattern[str] | None) -> list[str]:
    """What could not be attributed, and what a reader has to know of how the calls were found."""
    notes = []
    if label is not None and calls.found_by == "engine":
        notes.append(f"no annotation matches {label.pattern!r}: calls were found by the engine's events")
    if not len(calls):
        notes.append("no backward call was found")
    elif calls.found_by == "engine" and not figures.engine_events:
        notes.append("the trace has no engine events: calls were found by its node operators")
    if figures.orphans:
        notes.append(
            f"{figures.orphans} of {len(facts.trace.device)} device events have no launch in the trace and belong to no call"
            f" ({figures.orphans_launched_before} were launched before it began)"
        )
    if figures.frees_of_unknown_birth:
        notes.append(f"{figures.frees_of_unknown_birth} frees are of memory from before the trace")
    if figures.memory_events and not facts.births.told.any():
        notes.append("memory events have no addresses: what stays alive can't be told")
    return notes
