"""The worker of the cold pass: reads a request from standard input, writes a line of JSON for each measured process."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import pkgutil
import random
import sys
import time
import traceback
from functools import partial
from typing import IO, Final

import msgspec
import torch

from retainprof import zoo
from retainprof.capture.build import build_runner, build_workload
from retainprof.capture.cold import ColdRequest, ColdStep
from retainprof.capture.cold_pages import Runs, own_pages, written_pages
from retainprof.capture.timing import Timer, timer_for

SCOUT_SECONDS: Final = 1.0

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


def _scout(request: ColdRequest) -> dict[int, Runs]:
    """The pages that a first step of each strategy writes; a strategy that the scouts had no time for is left out."""
    begun, found = time.monotonic(), dict[int, Runs]()
    for index in request.strategies:
        if time.monotonic() - begun < SCOUT_SECONDS:
            pages = written_pages(partial(_quiet_step, request, index))
            if pages:
                found[index] = pages
    return found


def _quiet_step(request: ColdRequest, index: int) -> None:
    with contextlib.suppress(Exception):  # the child that is measured will tell it
        first_step(request, index)


def _import_ours() -> None:
    """Modules of this project that every child would import else; none of them runs torch when it is imported."""
    importlib.import_module("retainprof.scenario.build")
    for module in pkgutil.iter_modules(zoo.__path__):
        importlib.import_module(f"{zoo.__name__}.{module.name}")


def _forked(request: ColdRequest, index: int, out: IO[bytes], pages: Runs | None) -> int:
    """Measure in a child; returns its process number once it has answered. It is gone well before the next one measures."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            own_pages(pages)
            _answer(request, index, out)
            os.close(writing)
        finally:
            os._exit(0)
    os.close(writing)
    os.read(reading, 1)  # nothing: the child let go of its end
    os.close(reading)
    return child


def main() -> None:
    """Measure what standard input asks for; the model's own prints go to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request: ColdRequest = pickle.load(sys.stdin.buffer)
    forks = request.start == "fork"
    _import_ours()
    pages = _scout(request) if forks and request.samples > 1 else {}
    sys.stdin.buffer.read()  # until the asking process is quiet
    shuffled, children = random.Random(request.scenario.seed), list[int]()
    for _ in range(request.repeats):
        for index in shuffled.sample(request.strategies, len(request.strategies)):
            if not forks:
                _answer(request, index, out)
                continue
            children.append(_forked(request, index, out, pages.get(index)))
            if len(children) > 1:
                os.waitpid(children.pop(0), 0)


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)  # all is said; taking torch apart would only take time
