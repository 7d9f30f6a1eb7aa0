"""Traces as the result of a run that was only profiled: the same field names, no times of an unprofiled step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import TYPE_CHECKING, Final

from retainprof import labels
from retainprof._version import __version__
from retainprof.records import (
    CallResult,
    Environment,
    FirstVsLater,
    HeldByNode,
    KernelDiff,
    KernelRow,
    Result,
    Retained,
    StrategyResult,
)

if TYPE_CHECKING:
    from retainprof.trace import TraceReport
    from retainprof.trace.held import Held
    from retainprof.trace.report import TraceCall

__all__ = ["TRACE_PHASE", "TraceLane", "as_result", "is_of_traces"]

TRACE_PHASE: Final = "trace"  # the one finished pass of such a result
_COPIED: Final = (
    *("nodes", "ops", "kernels", "copies_and_sets", "accumulate", "fan_in_adds", "forward_ops_in_backward"),
    *("allocated_bytes", "freed_bytes", "net_bytes", "peak_bytes", "retained_bytes_before", "retained_bytes_after"),
    *("label", "index"),
)
_UNKNOWN: Final = "unknown"
_SAID: Final = "read from traces: times are profiled ones, so that no verdict rests on them"


@dataclass(frozen=True)
class TraceLane:
    """A trace that stands for a strategy: its name there, and where the trace lies relative to the run folder."""

    name: str
    report: TraceReport
    path: str
    device_name: str


def is_of_traces(result: Result) -> bool:
    """Whether ``as_result`` made it."""
    return result.phases == (TRACE_PHASE,)


def as_result(name: str, lanes: Sequence[TraceLane]) -> Result:
    """A result with a strategy for each trace.

    ``profiled_wall_ns`` of a call is the median over the trace's steps; counts and bytes are those of its last step, as in
    a run. ``retained_bytes_*`` are what the step's first forward made and is still alive: less than in a run where a later
    forward or a call itself (a gradient at a cut) makes what the graph holds. What no trace tells (FLOPs, gradients,
    shared AccumulateGrad nodes, all unprofiled times) is None, empty or, for the flags, False.
    """
    notes = [f"{lane.name}: {note}" for lane in lanes for note in lane.report.notes]
    return Result(
        retainprof=__version__,
        scenario={"name": name, "traces": [lane.report.trace for lane in lanes]},
        environment=_environment(lanes),
        status="ok",
        strategies=tuple(_strategy(lane) for lane in lanes),
        phases=(TRACE_PHASE,),
        message="; ".join([_SAID, *notes]),
    )


def _environment(lanes: Sequence[TraceLane]) -> Environment:
    on_device = any(lane.report.file.kernels for lane in lanes)
    return Environment(
        python=_UNKNOWN,
        torch=_UNKNOWN,
        device="accelerator" if on_device else "cpu",
        device_name=", ".join(dict.fromkeys(lane.device_name for lane in lanes if lane.device_name)),
        threads=0,
        interop_threads=0,
        platform=_UNKNOWN,
        cpu=_UNKNOWN,
        cpus=0,
        dtype=_UNKNOWN,
        world_size=len(lanes),
    )


def _strategy(lane: TraceLane) -> StrategyResult:
    report = lane.report
    kernels = {found.index: found.kernel_rows for found in report.by_call}
    return StrategyResult(
        name=lane.name,
        kind=TRACE_PHASE,
        calls=tuple(_call(report, index, rows) for index, rows in kernels.items()),
        retained=_retained(report.retained[-1]) if report.retained else Retained(),
        first_vs_later=tuple(
            FirstVsLater(
                call=later.call,
                ratio_cpu=None,
                ratio_wall=None,
                verdict="cannot_tell",
                kernels=tuple(_difference(row) for row in later.kernels),
            )
            for later in report.first_vs_later
        ),
        traces=(lane.path,),
    )


def _call(report: TraceReport, index: int, rows: tuple[KernelRow, ...]) -> CallResult:
    steps = [call for call in report.calls if call.index == index]
    last = steps[-1]
    return CallResult(
        losses=_losses(last),
        kind="backward",
        retain_graph=False,
        create_graph=False,
        profiled_wall_ns=median_high(call.profiled_wall_ns for call in steps),
        in_trace_ns=(last.start_ns, last.start_ns + last.profiled_wall_ns),
        kernel_rows=rows,
        **{name: getattr(last, name) for name in _COPIED},
    )


def _losses(call: TraceCall) -> tuple[str, ...]:
    """What the call's label says, as far as it says anything."""
    ours = labels.parse(call.label)
    said = call.label if ours is None else ours.slug
    return (said.strip("# "),) if said else ()


def _difference(row: KernelDiff) -> KernelDiff:
    return KernelDiff(**{name: getattr(row, name) for name in KernelDiff.__struct_fields__})


def _retained(held: Held) -> Retained:
    """Grouped by the operator that made it: which node keeps it, a trace doesn't tell."""
    rows = (
        HeldByNode(
            node=f"made by {row.made_by}" if row.made_by else "",
            module="",
            bytes=row.bytes,
            storages=row.storages,
            freed_in_call=row.freed_in_call,
        )
        for row in held.releases
    )
    return Retained(after_forward_bytes=held.after_forward_bytes, by_node=tuple(rows))
