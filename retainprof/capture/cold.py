"""The cold pass: the first step of a process that has run nothing yet, several times, each call by itself.

On the CPU one worker process imports torch and forks a child for every sample; such a child is as cold as a process of
its own and costs no import (``benchmarks/cold.py`` compares the two). Where an accelerator is used every sample is a
process of its own: a fork does not survive an initialised device.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from retainprof.errors import CaptureError

if TYPE_CHECKING:
    from retainprof.scenario import Imports, Scenario

__all__ = ["ColdRequest", "ColdStep", "Worker", "measure_cold"]


class ColdStep(msgspec.Struct, frozen=True, kw_only=True):
    """The first step of one process: ns of the step, its forward and each call, and page faults of each call.

    ``error`` is None or the text of what was raised; the numbers are then of no use.
    """

    strategy: int
    step_wall_ns: int = 0
    forward_wall_ns: int = 0
    call_wall_ns: tuple[int, ...] = ()
    call_minor_faults: tuple[int, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class ColdRequest:
    """What a worker is asked to measure: ``repeats`` first steps of each strategy (by its place in the scenario)."""

    scenario: Scenario
    imports: Imports
    device: str
    threads: int
    strategies: tuple[int, ...]
    repeats: int
    start: Literal["fork", "spawn"]

    @property
    def samples(self) -> int:
        """How many processes will be measured."""
        return self.repeats * len(self.strategies)


class Worker:
    """A process that imports torch and then waits for a request: begun early, it is ready when it is needed.

    A context manager; leaving it ends the process, which has a group of its own, with all its children.
    """

    module = "retainprof.capture.cold_worker"

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH", "")])])
        self._words = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it at once; may be called again."""
        process = self._process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for stream in (process.stdin, process.stdout, self._words):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a request it did not live to read
                stream.close()

    def measure(self, request: ColdRequest, meanwhile: Callable[[], None] = lambda: None) -> Iterator[ColdStep]:
        """One :class:`ColdStep` a process; nothing is measured before ``meanwhile()`` is over. To be called once.

        Raises:
            CaptureError: the worker died without an answer; its own last words are in the hint.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died early; its status and last words are told below
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            meanwhile()
            process.stdin.close()  # go
        seen = 0
        for line in process.stdout:
            seen += 1
            yield msgspec.json.decode(line, type=ColdStep)
        if process.wait() != 0 or seen < request.samples:
            self._words.seek(0)
            last = self._words.read().strip().splitlines()[-3:]
            raise CaptureError(
                f"a cold process ended with status {process.returncode} after {seen} of {request.samples} samples",
                hint="\n".join(last) or "set measure.cold to 0 to leave the cold pass out",
            )


def measure_cold(
    request: ColdRequest,
    tick: Callable[[int, int], None],
    meanwhile: Callable[[], None] = lambda: None,
    ready: Worker | None = None,
) -> Iterator[ColdStep]:
    """Yield one :class:`ColdStep` a process; ``tick(done, samples)`` after each.

    ``meanwhile()`` is called while the first worker gets ready to measure. ``ready`` is a worker begun before, if any.

    Raises:
        CaptureError: a worker died without an answer; its own last words are in the hint.
    """
    done = 0
    for part in _parts(request):
        with ready or Worker() as worker:
            work, ready, meanwhile = meanwhile, None, lambda: None
            for step in worker.measure(part, work):
                done += 1
                tick(done, request.samples)
                yield step


def _parts(request: ColdRequest) -> Iterator[ColdRequest]:
    """One worker for all where it can fork, one for every sample where it cannot."""
    if request.start == "fork" and hasattr(os, "fork"):
        yield request
        return
    for _ in range(request.repeats):
        for index in request.strategies:
            yield ColdRequest(
                scenario=request.scenario,
                imports=request.imports,
                device=request.device,
                threads=request.threads,
                strategies=(index,),
                repeats=1,
                start="spawn",
            )
