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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import msgspec

from retainprof.errors import CaptureError

if TYPE_CHECKING:
    from retainprof.scenario import Imports, Scenario

__all__ = ["ColdRequest", "ColdStep", "measure_cold"]


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


def measure_cold(
    request: ColdRequest, tick: Callable[[int, int], None], meanwhile: Callable[[], None] = lambda: None
) -> Iterator[ColdStep]:
    """Yield one :class:`ColdStep` a process; ``tick(done, samples)`` after each.

    ``meanwhile()`` is called once, while the first worker imports torch and before it measures anything.

    Raises:
        CaptureError: a worker died without an answer; its own last words are in the hint.
    """
    done = 0
    for n, part in enumerate(_parts(request)):
        for step in _worker(part, meanwhile if n == 0 else lambda: None):
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


def _worker(request: ColdRequest, meanwhile: Callable[[], None]) -> Iterator[ColdStep]:
    with tempfile.TemporaryFile("w+") as words, _running(words) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        meanwhile()
        with contextlib.suppress(BrokenPipeError):  # it died early; its status and last words are told below
            pickle.dump(request, process.stdin)
            process.stdin.close()
        seen = 0
        for line in process.stdout:
            seen += 1
            yield msgspec.json.decode(line, type=ColdStep)
        if process.wait() != 0 or seen < request.samples:
            words.seek(0)
            last = words.read().strip().splitlines()[-3:]
            raise CaptureError(
                f"a cold process ended with status {process.returncode} after {seen} of {request.samples} samples",
                hint="\n".join(last) or "set measure.cold to 0 to leave the cold pass out",
            )


@contextmanager
def _running(words: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process group of its own, ended with all its children whatever happens."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "retainprof.capture.cold_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
