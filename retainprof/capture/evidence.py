"""The evidence pass of one strategy: why a call costs what it does, and every byte. Never how long.

Four kinds of step, all from the same state: one under the FLOP counter, one whose graph is walked, a few under the
profiler whose trace is kept, and one for each point at which dropping the losses is measured.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_high

import msgspec

from retainprof import labels, trace
from retainprof.analysis.kernels import merge
from retainprof.capture.bytes import Books, Point, Released, keep_books, measure_released
from retainprof.capture.flops import StepFlops, count_flops
from retainprof.capture.labelled import LabelObserver, Recorder
from retainprof.capture.needs import Needs, find_needs, left_after, without_needless
from retainprof.capture.step import StepRunner
from retainprof.capture.timeline import Timeline, timeline
from retainprof.collector import collected
from retainprof.records import CallError, RangePass

__all__ = ["Evidence", "EvidencePlan", "gather"]


@dataclass(frozen=True)
class EvidencePlan:
    """How to profile; ``trace_path`` None means that the trace is read and thrown away."""

    steps: int
    record_shapes: bool
    with_stack: bool
    rank: int = 0
    world_size: int = 1
    trace_path: Callable[[int], Path] | None = None


@dataclass(frozen=True)
class Lean:
    """The same step without the needless flags: peak above the level before the forward, and bytes held at its end."""

    peak_bytes: int | None
    left_bytes: int | None


@dataclass
class Evidence:
    """What was found; a part that has not been reached is None."""

    calls: dict[int, RangePass] = field(default_factory=dict)
    forward: tuple[RangePass, ...] = ()
    flops: StepFlops | None = None
    books: Books | None = None
    needs: Needs = field(default_factory=Needs)
    lean: Lean | None = None
    released: dict[Point, Released] = field(default_factory=dict)
    trace_path: Path | None = None
    error: CallError | None = None
    timeline: Timeline = field(default_factory=Timeline)


def gather(runner: StepRunner, plan: EvidencePlan, evidence: Evidence) -> None:
    """Fill ``evidence`` part by part, so that an interrupt keeps what is there."""
    with collected():
        evidence.books = keep_books(runner)
        evidence.needs = find_needs(runner)
        evidence.flops = count_flops(runner)
        _profile(runner, plan, evidence)
        recorder = _recorder(runner, plan, record_shapes=False)
        evidence.released = measure_released(runner, evidence.books, recorder)
        lean = without_needless(runner, evidence.needs)
        if lean is not None:
            evidence.lean = _measure_lean(lean, recorder)


def _measure_lean(lean: StepRunner, recorder: Recorder) -> Lean:
    """Peak of a profiled step without the needless flags, and what its losses still hold at the end."""
    observer = LabelObserver(tuple(spec.what or "+".join(spec.losses) for spec in lean.specs))

    def step(number: int) -> None:  # noqa: ARG001
        lean.run(observer)
        lean.drop()
        lean.clear()

    with tempfile.TemporaryDirectory(prefix="retainprof-") as folder:
        path = Path(folder) / "lean.json"
        recorder.record(1, step, path)
        seen = timeline(trace.read(path), on_cpu=lean.workload.device.type == "cpu")
    return Lean(peak_bytes=seen.peak_bytes, left_bytes=left_after(lean))


def _recorder(runner: StepRunner, plan: EvidencePlan, *, record_shapes: bool) -> Recorder:
    return Recorder(
        runner.workload.device,
        record_shapes=record_shapes,
        with_stack=plan.with_stack and record_shapes,
        rank=plan.rank,
        world=plan.world_size,
    )


def _profile(runner: StepRunner, plan: EvidencePlan, evidence: Evidence) -> None:
    observer = LabelObserver(tuple(spec.what or "+".join(spec.losses) for spec in runner.specs))

    def step(number: int) -> None:  # noqa: ARG001
        evidence.error = runner.run(observer)
        runner.drop()
        runner.clear()

    with tempfile.TemporaryDirectory(prefix="retainprof-") as folder:
        if plan.trace_path is None:
            path = Path(folder) / "trace.json"
        else:
            path = evidence.trace_path = plan.trace_path(time.time_ns())
        recorder = _recorder(runner, plan, record_shapes=plan.record_shapes)
        recorder.record(plan.steps, step, path)
        written = trace.read(path)
        evidence.timeline = timeline(written, on_cpu=runner.workload.device.type == "cpu")
        _read(trace.passes(written), evidence)


def _read(passes: Sequence[RangePass], evidence: Evidence) -> None:
    calls: dict[int, list[RangePass]] = {}
    forward: dict[int, list[RangePass]] = {}
    for found in passes:
        seen = labels.parse(found.label)
        if seen is None or seen.index is None:
            continue
        if seen.phase == "call":
            calls.setdefault(seen.index, []).append(found)
        elif seen.phase == "forward":
            forward.setdefault(seen.index, []).append(found)
    evidence.calls = {index: _merged(steps) for index, steps in sorted(calls.items())}
    evidence.forward = tuple(_merged(steps) for _, steps in sorted(forward.items()))
    error = evidence.error
    if error is not None and error.call in evidence.calls:
        evidence.error = _with_operator(error, evidence.calls[error.call].last_node)


def _with_operator(error: CallError, operator: str | None) -> CallError:
    return msgspec.structs.replace(error, operator=operator)


def _merged(steps: Sequence[RangePass]) -> RangePass:
    """The last step's counts and bytes, the median duration, kernel times as medians over the steps."""
    return msgspec.structs.replace(
        steps[-1],
        duration_ns=median_high(found.duration_ns for found in steps),
        kernel_rows=tuple(merge([found.kernel_rows for found in steps])),
    )
