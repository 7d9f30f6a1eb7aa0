"""The worker of the cold pass: reads a request from standard input, writes a line of JSON for each measured process."""

from __future__ import annotations

import os
import pickle
import random
import sys
import traceback
from typing import IO

import msgspec
import torch

from retainprof.capture.build import build_runner, build_workload
from retainprof.capture.cold import ColdRequest, ColdStep
from retainprof.capture.cold_pages import own_pages
from retainprof.capture.timing import Timer, timer_for

try:
    import resource
except ImportError:  # not on this platform: page faults are then left out
    resource = None  # type: ignore[assignment]


def _faults() -> int:
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class FaultCounter(Timer):
    """Counts page faults of each call around the clocks of an inner timer."""

    def __init__(self, inner: Timer, calls: int) -> None:
        super().__init__(calls)
        self.inner = inner
        self.faults = [0] * calls

    def step_begin(self) -> None:
        self.inner.step_begin()

    def step_end(self) -> None:
        self.inner.step_end()

    def forward_begin(self, segment: int) -> None:
        self.inner.forward_begin(segment)

    def forward_end(self, segment: int) -> None:
        self.inner.forward_end(segment)

    def call_begin(self, index: int) -> None:
        self.faults[index] = -_faults()
        self.inner.call_begin(index)

    def call_end(self, index: int) -> None:
        self.inner.call_end(index)
        self.faults[index] += _faults()


def first_step(request: ColdRequest, index: int) -> ColdStep:
    """Build the model and run one step of one strategy; the first thing that this process does."""
    torch.set_num_threads(request.threads)
    workload = build_workload(request.scenario, request.imports, torch.device(request.device))
    runner = build_runner(request.scenario, request.scenario.strategies[index], workload)
    counter = FaultCounter(timer_for(runner), len(runner.specs))
    error = runner.run(counter)
    if error is not None:
        return ColdStep(strategy=index, error=f"{error.type}: {error.message}")
    counter.inner.keep()
    times = counter.inner.times
    return ColdStep(
        strategy=index,
        step_wall_ns=times.step_wall[0],
        forward_wall_ns=times.forward_wall[0],
        call_wall_ns=tuple(wall[0] for wall in times.call_wall),
        call_minor_faults=() if resource is None else tuple(counter.faults),
    )


def _answer(request: ColdRequest, index: int, out: IO[bytes]) -> None:
    try:
        step = first_step(request, index)
    except Exception as e:  # noqa: BLE001 - whatever the user's code raises is told, not lost
        traceback.print_exc()
        step = ColdStep(strategy=index, error=f"{type(e).__name__}: {e}")
    out.write(msgspec.json.encode(step) + b"\n")
    out.flush()


def _forked(request: ColdRequest, index: int, out: IO[bytes]) -> None:
    child = os.fork()
    if child == 0:
        try:
            own_pages()
            _answer(request, index, out)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def main() -> int:
    """Measure what standard input asks for; the model's own prints go to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request: ColdRequest = pickle.load(sys.stdin.buffer)
    measured = _forked if request.start == "fork" else _answer
    shuffled = random.Random(request.scenario.seed)
    for _ in range(request.repeats):
        for index in shuffled.sample(request.strategies, len(request.strategies)):
            measured(request, index, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
