"""Contender against base: strategies and calls by name and position, kernels by name and shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from retainprof.analysis.compare import Clock
from retainprof.analysis.kernels import diff
from retainprof.analysis.runs.records import CallChange, Lane, Point, RunComparison, Side, StrategyChange
from retainprof.analysis.stats import serial_interval, verdict
from retainprof.errors import UsageError
from retainprof.records import Environment, Ratio, Samples

__all__ = ["compare", "independent_ratio"]

_REFUSED = ("device", "dtype")  # times, kernels and bytes of different ones say nothing about each other
_WARNED = ("device_name", "torch", "threads", "interop_threads", "cpu", "cpus", "cuda", "world_size")


def compare(base: Side, contender: Side, clock: Clock, *, anyway: bool = False) -> RunComparison:
    """What changed from ``base`` to ``contender``.

    Raises UsageError where device, dtype, ranks or kind (run or trace) differ, unless ``anyway``: then that is a warning;
    and where traces have no name in common.
    """
    refused, warned = _differences(base, contender)
    if refused and not anyway:
        raise UsageError(
            f"{base.name} and {contender.name} cannot be compared: {'; '.join(refused)}",
            hint="--anyway compares them all the same",
        )
    bases, contenders = ({lane.name: lane for lane in side.lanes} for side in (base, contender))
    strategies = tuple(_strategy(bases[name], lane) for name, lane in contenders.items() if name in bases)
    if not strategies and base.profiled and contender.profiled:
        raise UsageError(f"nothing to compare: traces {', '.join(bases)} against {', '.join(contenders)}")
    counts = (
        f"{found.strategy}: {found.base_calls} calls against {found.contender_calls}; the rest is not compared"
        for found in strategies
        if found.base_calls != found.contender_calls
    )
    return RunComparison(
        base=base.name,
        contender=contender.name,
        clock=clock,
        profiled=base.profiled or contender.profiled,
        warnings=(*refused, *warned, *counts),
        strategies=strategies,
        only_base=tuple(name for name in bases if name not in contenders),
        only_contender=tuple(name for name in contenders if name not in bases),
    )


def independent_ratio(contender: Sequence[int], base: Sequence[int]) -> Ratio | None:
    """Median of ``contender`` / median of ``base`` (ns), measured apart from each other; None where either is empty.

    The intervals of the two medians are joined on the logarithm (G. Y. Zou and A. Donner, Construction of confidence
    limits about effect measures: a general approach, Statistics in Medicine 27, 2008). ``pairs`` is the smaller number
    of samples. What differs between two times of day is in no interval.
    """
    logs = [[math.log(ns) for ns in samples if ns > 0] for samples in (contender, base)]
    if not logs[0] or not logs[1]:
        return None
    (top, (top_low, top_high)), (bottom, (bottom_low, bottom_high)) = (serial_interval(one) for one in logs)
    middle = top - bottom
    low = middle - math.hypot(top - top_low, bottom_high - bottom)
    high = middle + math.hypot(top_high - top, bottom - bottom_low)
    return Ratio(median=math.exp(middle), ci95=(math.exp(low), math.exp(high)), pairs=min(map(len, logs)))


def _strategy(base: Lane, contender: Lane) -> StrategyChange:
    ratio = _ratio(base.step_ns, contender.step_ns)
    calls = {point.index: point for point in base.calls}
    last = contender.calls[-1] if contender.calls else None
    return StrategyChange(
        strategy=contender.name,
        base_ns=base.step_ns.median,
        contender_ns=contender.step_ns.median,
        ratio=ratio,
        verdict=verdict(ratio),
        base_peak_bytes=base.peak_bytes,
        contender_peak_bytes=contender.peak_bytes,
        calls=tuple(_call(calls[point.index], point) for point in contender.calls if point.index in calls),
        later=contender.later,
        retained_after_last_bytes=None if last is None else last.retained_bytes_after,
        base_calls=len(base.calls),
        contender_calls=len(contender.calls),
    )


def _call(base: Point, contender: Point) -> CallChange:
    ratio = _ratio(base.time_ns, contender.time_ns)
    both = base.kernel_rows and contender.kernel_rows
    return CallChange(
        call=contender.index,
        base_ns=base.time_ns.median,
        contender_ns=contender.time_ns.median,
        ratio=ratio,
        verdict=verdict(ratio),
        base_kernels=base.kernels,
        contender_kernels=contender.kernels,
        base_retained_bytes=base.retained_bytes_after,
        contender_retained_bytes=contender.retained_bytes_after,
        kernels=diff(base.kernel_rows, contender.kernel_rows) if both else (),
    )


def _ratio(base: Samples, contender: Samples) -> Ratio | None:
    return independent_ratio(contender.samples, base.samples)


def _differences(base: Side, contender: Side) -> tuple[list[str], list[str]]:
    """What forbids the comparison, and what a reader has to know."""
    if base.profiled != contender.profiled:
        return ["one is a run, the other a trace, whose times are profiled ones"], []
    if base.environment is None or contender.environment is None:
        return _trace_differences(base, contender)
    refused = _fields(base.environment, contender.environment, _REFUSED)
    warned = _fields(base.environment, contender.environment, _WARNED)
    if base.program != contender.program:
        warned.append("the scenarios differ in model, batch or losses")
    return refused, warned


def _trace_differences(base: Side, contender: Side) -> tuple[list[str], list[str]]:
    """Traces tell little of what they were made on: whether there is a device, its name, and the ranks."""
    refused, warned = [], []
    if base.device != contender.device:
        refused.append("only one of the two has kernels on a device")
    elif base.device_name and contender.device_name and base.device_name != contender.device_name:
        warned.append(f"device name: {base.device_name} against {contender.device_name}")
    several = max(len(base.lanes), len(contender.lanes)) > 1
    if several and base.ranks != contender.ranks:
        refused.append(f"ranks: {_listed(base.ranks)} against {_listed(contender.ranks)}")
    return refused, warned


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) or "unknown or repeated ones"


def _fields(base: Environment, contender: Environment, names: Sequence[str]) -> list[str]:
    pairs = ((name, getattr(base, name), getattr(contender, name)) for name in names)
    return [f"{name.replace('_', ' ')}: {one} against {other}" for name, one, other in pairs if one != other]
