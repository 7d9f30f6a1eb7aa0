"""Runs and traces as sides of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from retainprof.analysis.compare import Clock, deciding
from retainprof.analysis.runs.ranks import distinct_ranks
from retainprof.analysis.runs.records import Lane, LaterRatio, Point, Side
from retainprof.analysis.stats import summarise
from retainprof.records import CallResult, Result, Samples, StrategyResult

if TYPE_CHECKING:
    from retainprof.trace import TraceReport

__all__ = ["of_result", "of_traces"]

_PROGRAM = ("model", "batch", "losses", "shared")


def of_result(result: Result, name: str, clock: Clock) -> Side:
    """A run's side, with times on ``clock``. Strategies that failed are left out."""
    program = {key: result.scenario.get(key) for key in _PROGRAM}
    return Side(
        name=name,
        environment=result.environment,
        program=msgspec.json.encode(program, order="deterministic").decode(),
        device=result.environment.device != "cpu",
        profiled=False,
        lanes=tuple(_lane(strategy, clock) for strategy in result.strategies if strategy.status == "ok"),
    )


def _lane(strategy: StrategyResult, clock: Clock) -> Lane:
    return Lane(
        name=strategy.name,
        step_ns=strategy.step.cpu_ns if clock == "cpu" else strategy.step.wall_ns,
        peak_bytes=strategy.step.peak_bytes,
        calls=tuple(_point(call, clock) for call in strategy.calls),
        later=tuple(
            LaterRatio(call=found.call, ratio=deciding(found.ratio_cpu, found.ratio_wall, clock))
            for found in strategy.first_vs_later
        ),
    )


def _point(call: CallResult, clock: Clock) -> Point:
    return Point(
        index=call.index,
        time_ns=call.cpu_ns if clock == "cpu" else call.wall_ns,
        kernels=call.kernels,
        retained_bytes_after=call.retained_bytes_after,
        kernel_rows=call.kernel_rows,
    )


def of_traces(named: Sequence[tuple[str, TraceReport]], name: str, device_name: str = "") -> Side:
    """The side of one or several traces, each with the name of its lane: profiled wall times, a sample a step.

    Steps themselves have no times there.
    """
    reports = [report for _, report in named]
    ranks = distinct_ranks(reports)
    return Side(
        name=name,
        environment=None,
        program="",
        device=any(report.file.kernels for report in reports),
        profiled=True,
        lanes=tuple(_trace_lane(lane, report) for lane, report in named),
        device_name=device_name,
        ranks=() if ranks is None else tuple(sorted(ranks)),
    )


def _trace_lane(name: str, report: TraceReport) -> Lane:
    by_index = {found.index: [call for call in report.calls if call.index == found.index] for found in report.by_call}
    points = tuple(
        Point(
            index=found.index,
            time_ns=summarise([call.profiled_wall_ns for call in by_index[found.index]]),
            kernels=by_index[found.index][-1].kernels,
            retained_bytes_after=by_index[found.index][-1].retained_bytes_after,
            kernel_rows=found.kernel_rows,
        )
        for found in report.by_call
    )
    later = tuple(LaterRatio(call=found.call, ratio=found.profiled_ratio_wall) for found in report.first_vs_later)
    return Lane(name=name, step_ns=Samples(), peak_bytes=None, calls=points, later=later)
