"""From what a session measured to a :class:`Result`. Pure: nothing is run, timed or written here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from retainprof import labels
from retainprof._version import __version__
from retainprof.analysis.stats import summarise
from retainprof.capture.bytes import Point
from retainprof.capture.cold import ColdStep
from retainprof.capture.evidence import Evidence
from retainprof.capture.held import retained
from retainprof.capture.memory import why_rss_differs
from retainprof.capture.session import Measured
from retainprof.capture.timing import StepTimes
from retainprof.records import (
    CallResult,
    CallSpec,
    ForwardResult,
    RangePass,
    ResidentSet,
    Result,
    Samples,
    Status,
    StepResult,
    StrategyResult,
    Timing,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from retainprof.scenario import Scenario

__all__ = ["assemble"]


def assemble(
    scenario: Scenario, measured: Measured, status: Status, message: str, relative: Callable[[Path], str]
) -> Result:
    """The result of what is there; parts that were not reached stay None or empty. ``relative`` shortens trace paths."""
    return Result(
        retainprof=__version__,
        scenario=scenario.model_dump(mode="json", by_alias=True, exclude={"source"}),
        environment=measured.environment,
        status=status,
        strategies=tuple(_strategy(measured, i, relative) for i in range(len(measured.runners))),
        timing=_timing(measured),
        phases=tuple(measured.phases),
        phase_seconds={name: round(seconds, 3) for name, seconds in measured.phase_seconds.items()},
        message="\n".join([*([message] if message else []), *measured.warnings]),
    )


def _timing(measured: Measured) -> Timing | None:
    timing = measured.timing
    if timing is None:
        return None
    return Timing(
        rounds=timing.rounds,
        warmup_rounds=timing.warmup_rounds,
        seconds=round(timing.seconds, 3),
        stopped_by=timing.stopped_by,
        threads=measured.environment.threads,
        clock=timing.plan.clock,
    )


def _strategy(measured: Measured, index: int, relative: Callable[[Path], str]) -> StrategyResult:
    runner, evidence = measured.runners[index], measured.evidence[index]
    times = StepTimes() if measured.timing is None else measured.timing.timers[index].times
    cold = [step for step in measured.cold if step.strategy == index and step.error is None]
    error = evidence.error or times.error
    return StrategyResult(
        name=runner.strategy.title,
        kind=runner.strategy.kind,
        status="failed" if error else "ok",
        error=error,
        options=runner.strategy.options(),
        step=_step(times, cold, evidence),
        forward=_forward(times, cold, evidence),
        calls=tuple(_call(spec, times, cold, evidence) for spec in runner.specs),
        retained=retained(evidence),
        gradients=measured.gradients[index],
        traces=() if evidence.trace_path is None else (relative(evidence.trace_path),),
    )


def _samples(ns: Sequence[int]) -> Samples:
    return _summarised(tuple(ns))


@lru_cache(maxsize=4096)
def _summarised(ns: tuple[int, ...]) -> Samples:
    """A result is assembled after every pass, mostly from the samples of the pass before."""
    return summarise(ns)


def _step(times: StepTimes, cold: Sequence[ColdStep], evidence: Evidence) -> StepResult:
    return StepResult(
        wall_ns=_samples(times.step_wall),
        cpu_ns=_samples(times.step_cpu),
        cold_wall_ns=_samples([step.step_wall_ns for step in cold]),
        peak_bytes=evidence.timeline.peak_bytes,
        flops=None if evidence.flops is None else evidence.flops.step,
        forwards=None if evidence.books is None else evidence.books.forwards,
        rss=_rss(evidence),
        device_memory=None if evidence.books is None else evidence.books.device_memory,
        timeline=evidence.timeline.points,
        bands=evidence.timeline.bands,
    )


def _rss(evidence: Evidence) -> ResidentSet | None:
    """The resident set while the losses were dropped, beside what the ledger says was dropped."""
    books = evidence.books
    if books is None or not books.points:
        return None
    start, last, dropped = (books.rss.get(name) for name in ("start", "last", "dropped"))
    if start is None or last is None or dropped is None:
        return None
    allocated = -books.held[books.points[-1]].total_bytes
    return ResidentSet(
        at_start_bytes=start,
        after_forward_bytes=books.rss.get("forward"),
        after_last_call_bytes=last,
        drop_change_bytes=dropped - last,
        drop_allocated_change_bytes=allocated,
        note=why_rss_differs(allocated, dropped - last),
    )


def _forward(times: StepTimes, cold: Sequence[ColdStep], evidence: Evidence) -> ForwardResult:
    parts = evidence.forward
    return ForwardResult(
        wall_ns=_samples(times.forward_wall),
        cpu_ns=_samples(times.forward_cpu),
        cold_wall_ns=_samples([step.forward_wall_ns for step in cold]),
        runs=1 if evidence.books is None else evidence.books.forwards,
        nodes=sum(part.nodes for part in parts) if parts else None,
        ops=sum(part.ops for part in parts) if parts else None,
        net_bytes=sum(part.net_bytes or 0 for part in parts) if parts else None,
        flops=None if evidence.flops is None else evidence.flops.forward,
    )


def _call(spec: CallSpec, times: StepTimes, cold: Sequence[ColdStep], evidence: Evidence) -> CallResult:
    i = spec.index
    device = times.call_device[i] if times.call_device else None
    seen = evidence.calls.get(i)
    plain = CallResult(
        index=i,
        losses=spec.losses,
        kind=spec.kind,
        retain_graph=spec.retain_graph,
        create_graph=spec.create_graph,
        label=labels.make("call", i, spec.what or "+".join(spec.losses)),
        what=spec.what,
        weights=spec.weights,
        zero_grad_before=spec.zero_grad_before,
        sgd_before=spec.sgd_before,
        wall_ns=_samples(times.call_wall[i] if times.call_wall else ()),
        cpu_ns=_samples(times.call_cpu[i] if times.call_cpu else ()),
        device_ns=None if device is None else _samples(device),
        cold_wall_ns=_samples([step.call_wall_ns[i] for step in cold]),
        cold_minor_faults=tuple(step.call_minor_faults[i] for step in cold if step.call_minor_faults),
        flops=None if evidence.flops is None else evidence.flops.calls.get(i),
        head_flops=None if evidence.flops is None else evidence.flops.heads.get(i),
    )
    counted = _counted(seen)
    if spec.create_graph and counted:
        counted["forward_ops_in_backward"] = None  # every operator of such a call makes a node, recomputed or not
    return msgspec.structs.replace(plain, **counted, **_bytes(evidence, i, seen), **_needs(evidence, i))


def _needs(evidence: Evidence, call: int) -> dict[str, Any]:
    needs = evidence.needs
    return {"retain_needed": needs.needed.get(call), "needless_retain_bytes": needs.bytes_kept.get(call)}


def _bytes(evidence: Evidence, call: int, seen: RangePass | None) -> dict[str, Any]:
    """Retained, pinned and gradient bytes around one call, and the three sums that must come out as 0."""
    books, before, after = evidence.books, Point("before", call), Point("after", call)
    if books is None or after not in books.gradients:
        return {}
    then, now = books.gradients[before], books.gradients[after]
    earlier, later = evidence.released.get(before), evidence.released.get(after)
    found: dict[str, Any] = {
        "nodes_shared_with_earlier": books.shared_with_earlier(call),
        "params_written": books.written.get(call, ()),
        "returned_grad_bytes": now.returned_bytes,
        "grad_bytes_after": now.grad_bytes,
        "params_with_grad_after": now.parameters,
        "inputs_with_grad_after": now.inputs,
        "grad_sum_after": now.sum,
        "grad_abs_sum_after": now.abs_sum,
    }
    if earlier is None or later is None:
        return found
    was_pinned, is_pinned = earlier.cleared - then.all_bytes, later.cleared - now.all_bytes
    found |= {
        "retained_bytes_before": earlier.dropped,
        "retained_bytes_after": later.dropped,
        "pinned_by_grads_bytes": is_pinned,
        "residue_bytes": later.dropped - books.held[after].total_bytes,
        "pinned_residue_bytes": is_pinned - books.pinned[after].total_bytes,
    }
    if seen is not None and seen.net_bytes is not None:
        gained = now.all_bytes - then.all_bytes
        explained = gained + later.dropped - earlier.dropped + is_pinned - was_pinned
        found["unexplained_bytes"] = seen.net_bytes - explained
    return found


def _counted(seen: RangePass | None) -> dict[str, Any]:
    if seen is None:
        return {}
    return {
        "profiled_wall_ns": seen.duration_ns,
        "nodes": seen.nodes,
        "ops": seen.ops,
        "kernels": seen.kernels,
        "copies_and_sets": seen.copies_and_sets,
        "accumulate": seen.accumulate,
        "fan_in_adds": seen.fan_in_adds,
        "forward_ops_in_backward": seen.forward_ops_in_backward,
        "allocated_bytes": seen.allocated_bytes,
        "freed_bytes": seen.freed_bytes,
        "net_bytes": seen.net_bytes,
        "peak_bytes": seen.peak_bytes,
        "kernel_rows": seen.kernel_rows,
    }
