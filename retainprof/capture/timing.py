"""The timing pass: wall and process-CPU nanoseconds of every call, without the profiler.

All strategies take turns in rounds of random order, so that a drift of the machine's speed meets all of them alike and
comparisons can be made inside a round. The clocks are read right before and right after the engine; the CPU clock, which
is a system call, is read outside the wall-clock interval.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from retainprof.analysis.stats import is_narrow
from retainprof.capture.device import synchroniser
from retainprof.capture.observe import Observer
from retainprof.capture.step import StepRunner
from retainprof.collector import collected
from retainprof.records import CallError

__all__ = ["Clock", "Measurement", "StepTimes", "Stopped", "TimingPlan", "timer_for"]

Clock = Literal["cpu", "wall"]
Stopped = Literal["narrow", "budget", "rounds", "interrupted"]
CHECK_SECONDS = 1.0
STABLE = 0.05
COLLECT_SECONDS = 0.2
_wall = time.perf_counter_ns
_cpu = time.process_time_ns


@dataclass
class StepTimes:
    """Raw samples of one strategy, in ns, one entry a round; calls by index. Device times stay empty on the CPU."""

    step_wall: list[int] = field(default_factory=list)
    step_cpu: list[int] = field(default_factory=list)
    forward_wall: list[int] = field(default_factory=list)
    forward_cpu: list[int] = field(default_factory=list)
    call_wall: list[list[int]] = field(default_factory=list)
    call_cpu: list[list[int]] = field(default_factory=list)
    call_device: list[list[int]] = field(default_factory=list)
    error: CallError | None = None

    def series(self) -> Iterator[list[int]]:
        """Every list of samples."""
        yield from (self.step_wall, self.step_cpu, self.forward_wall, self.forward_cpu)
        yield from (*self.call_wall, *self.call_cpu, *self.call_device)


class Timer(Observer):
    """Times one step at a time; ``keep`` moves the last step's numbers into the samples."""

    def __init__(self, calls: int) -> None:
        self.times = StepTimes(call_wall=[[] for _ in range(calls)], call_cpu=[[] for _ in range(calls)])
        self._wall = [0] * calls
        self._cpu = [0] * calls
        self._forward = [0, 0]
        self._step = [0, 0]
        self._from = [0, 0]
        self._call_from = [0, 0]

    def step_begin(self) -> None:
        self._forward = [0, 0]
        self._step = [_wall(), _cpu()]

    def step_end(self) -> None:
        self._step = [_wall() - self._step[0], _cpu() - self._step[1]]

    def forward_begin(self, segment: int) -> None:  # noqa: ARG002
        self._from = [_wall(), _cpu()]

    def forward_end(self, segment: int) -> None:  # noqa: ARG002
        self._forward[0] += _wall() - self._from[0]
        self._forward[1] += _cpu() - self._from[1]

    def call_begin(self, index: int) -> None:  # noqa: ARG002
        start = self._call_from
        start[1] = _cpu()
        start[0] = _wall()

    def call_end(self, index: int) -> None:
        end = _wall()
        start = self._call_from
        self._cpu[index] = _cpu() - start[1]
        self._wall[index] = end - start[0]

    @property
    def last_step_ns(self) -> int:
        """Wall time of the last step."""
        return self._step[0]

    def keep(self, calls: int | None = None) -> None:
        """Count the last step as a sample; where a call raised, only the ``calls`` before it."""
        times = self.times
        if calls is None:
            times.step_wall.append(self._step[0])
            times.step_cpu.append(self._step[1])
        times.forward_wall.append(self._forward[0])
        times.forward_cpu.append(self._forward[1])
        for i in range(len(self._wall))[:calls]:
            times.call_wall[i].append(self._wall[i])
            times.call_cpu[i].append(self._cpu[i])


class DeviceTimer(Timer):
    """A timer for an accelerator: waits for it before and after each part, and has the device time each call itself."""

    def __init__(self, calls: int, device: torch.device) -> None:
        super().__init__(calls)
        self._wait = synchroniser(device)
        self._events = [torch.Event(device, enable_timing=True) for _ in range(2)]
        self._device = [0] * calls
        self.times.call_device = [[] for _ in range(calls)]

    def step_begin(self) -> None:
        self._wait()
        super().step_begin()

    def step_end(self) -> None:
        self._wait()
        super().step_end()

    def forward_begin(self, segment: int) -> None:
        self._wait()
        super().forward_begin(segment)

    def forward_end(self, segment: int) -> None:
        self._wait()
        super().forward_end(segment)

    def call_begin(self, index: int) -> None:
        self._wait()
        super().call_begin(index)
        self._events[0].record()

    def call_end(self, index: int) -> None:
        self._events[1].record()
        self._wait()
        super().call_end(index)
        self._device[index] = round(self._events[0].elapsed_time(self._events[1]) * 1e6)

    def keep(self, calls: int | None = None) -> None:
        super().keep(calls)
        for i in range(len(self._device))[:calls]:
            self.times.call_device[i].append(self._device[i])


def timer_for(runner: StepRunner) -> Timer:
    """The timer that fits the runner's device."""
    device, calls = runner.workload.device, len(runner.specs)
    return Timer(calls) if device.type == "cpu" else DeviceTimer(calls, device)


@dataclass(frozen=True)
class TimingPlan:
    """How long to measure: ``rounds`` None means until the intervals are narrow; ``budget_s`` ends it in any case."""

    rounds: int | None
    warmup: int
    budget_s: float
    clock: Clock
    baseline: int  # which runner the others are compared with


class Measurement:
    """The rounds of a timing pass; readable at any moment, so that an interrupt loses nothing."""

    def __init__(self, runners: Sequence[StepRunner], plan: TimingPlan, seed: int) -> None:
        self.runners, self.plan = tuple(runners), plan
        self.timers = [timer_for(runner) for runner in runners]
        self.rounds = self.warmup_rounds = 0
        self.seconds = 0.0
        self.stopped_by: Stopped = "interrupted"
        self._random = random.Random(seed)
        self._collected = 0.0

    def run(self, tick: Callable[[int, float], None]) -> None:
        """Warm up, then measure; ``tick(rounds, share of the work done)`` after each round."""
        started = time.monotonic()
        try:
            with collected():
                gc.freeze()  # nested passes find new objects: modules that were imported since
                self._warm_up(started)
                gc.collect()
                gc.freeze()  # what the warm-up imported and cached, too: each collection after a round is then short
                self._measure(started, tick)
        finally:
            self.seconds = time.monotonic() - started
            self._forget_half_round()

    def _measure(self, started: float, tick: Callable[[int, float], None]) -> None:
        checked = time.monotonic()
        while not self._spent(started):
            self._round(keep=True)
            tick(self.rounds, self._share(started))
            if self.plan.rounds is None and time.monotonic() - checked > CHECK_SECONDS:
                if self._narrow():
                    self.stopped_by = "narrow"
                    return
                checked = time.monotonic()

    def _whole(self) -> list[int]:
        """Strategies whose steps end without an error."""
        return [i for i, timer in enumerate(self.timers) if timer.times.error is None]

    def _warm_up(self, started: float) -> None:
        """At least ``warmup`` rounds, then on until the step times no longer fall, at most a fifth of the budget."""
        while True:
            before = self._latest()
            for _ in range(max(1, self.plan.warmup)):
                self._round(keep=False)
                self.warmup_rounds += 1
            after = self._latest()
            if any(before) and all(now > (1 - STABLE) * past for now, past in zip(after, before, strict=True)):
                return
            if time.monotonic() - started > self.plan.budget_s / 5:
                return

    def _latest(self) -> list[int]:
        return [timer.last_step_ns for timer in self.timers]

    def _round(self, *, keep: bool) -> None:
        for i in self._random.sample(range(len(self.runners)), len(self.runners)):
            runner, timer = self.runners[i], self.timers[i]
            error = timer.times.error = runner.run(timer)
            if keep and (error is None or error.call is not None):
                timer.keep(None if error is None else error.call)
            runner.rest()
        if time.monotonic() - self._collected > COLLECT_SECONDS:  # cycles that steps leave, between rounds
            gc.collect(1)  # all that is new since the last time
            self._collected = time.monotonic()
        if keep:
            self.rounds += 1

    def _forget_half_round(self) -> None:
        """After an interrupt: samples of a round that not every strategy ended are of no use for pairs."""
        for timer in self.timers:
            for samples in timer.times.series():
                del samples[self.rounds :]

    def _spent(self, started: float) -> bool:
        if self.plan.rounds is not None and self.rounds >= self.plan.rounds:
            self.stopped_by = "rounds"
            return True
        if time.monotonic() - started >= self.plan.budget_s and self.rounds >= min(3, self.plan.rounds or 3):
            self.stopped_by = "budget"
            return True
        return False

    def _share(self, started: float) -> float:
        by_time = (time.monotonic() - started) / self.plan.budget_s
        by_rounds = 0.0 if self.plan.rounds is None else self.rounds / self.plan.rounds
        return min(1.0, max(by_time, by_rounds))

    def _narrow(self) -> bool:
        """Whether every ratio that will be reported has an interval no wider than 1% of it."""
        return all(is_narrow(top, bottom) for top, bottom in self._ratios())

    def _ratios(self) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        cpu = self.plan.clock == "cpu"
        active = self._whole()
        for i in active:
            times = self.timers[i].times
            if i != self.plan.baseline and self.plan.baseline in active:
                base = self.timers[self.plan.baseline].times
                yield (times.step_cpu, base.step_cpu) if cpu else (times.step_wall, base.step_wall)
            calls = times.call_cpu if cpu else times.call_wall
            for later in calls[1:]:
                yield later, calls[0]
