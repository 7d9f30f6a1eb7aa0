"""Steps under torch.profiler: one label a forward, loss and call, and the trace that comes out, checked to be readable."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from retainprof import labels
from retainprof.capture.observe import Observer
from retainprof.capture.profiler_private import enter_annotation, leave_annotation, profiler_is_active
from retainprof.errors import CaptureError, StoreError

__all__ = ["LabelObserver", "Recorder", "label"]


@contextmanager
def label(phase: labels.Phase, index: int | None = None, name: str = "") -> Iterator[None]:
    """A safe label around a block."""
    with record_function(labels.make(phase, index, name)):
        yield


class LabelObserver(Observer):
    """Puts a label around every forward part, loss and call; ``names`` are the calls' slugs by index."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._calls = [labels.make("call", index, name) for index, name in enumerate(names)]
        self._open: list[Any] = []
        self._losses = 0

    def step_begin(self) -> None:
        self._losses = 0

    def forward_begin(self, segment: int) -> None:
        self._open.append(enter_annotation(labels.make("forward", segment)))

    def forward_end(self, segment: int) -> None:  # noqa: ARG002
        leave_annotation(self._open.pop())

    def loss_begin(self, name: str) -> None:
        self._open.append(enter_annotation(labels.make("loss", self._losses, name)))
        self._losses += 1

    def loss_end(self, name: str) -> None:  # noqa: ARG002
        leave_annotation(self._open.pop())

    def call_begin(self, index: int) -> None:
        self._open.append(enter_annotation(self._calls[index]))

    def call_end(self, index: int) -> None:  # noqa: ARG002
        leave_annotation(self._open.pop())

    def call_failed(self, index: int) -> None:  # noqa: ARG002
        leave_annotation(self._open.pop())

    def step_end(self) -> None:
        while self._open:  # the forward raised
            leave_annotation(self._open.pop())


class Recorder:
    """Profiles a number of steps and writes their trace.

    The profiler starts before the first forward (started later, it would report frees as 0 bytes) and has seen ``warmup``
    steps before the first that it keeps.
    """

    def __init__(
        self, device: torch.device, *, record_shapes: bool, with_stack: bool, rank: int = 0, world: int = 1
    ) -> None:
        self._activities = [ProfilerActivity.CPU]
        extra = {"cuda": "CUDA", "xpu": "XPU"}.get(device.type)
        if extra is not None:
            self._activities.append(getattr(ProfilerActivity, extra))
        self._record_shapes, self._with_stack = record_shapes, with_stack
        self._distributed = msgspec.json.encode({"backend": "none", "rank": rank, "world_size": world}).decode()

    def record(self, steps: int, step: Callable[[int], None], path: Path, warmup: int = 1) -> None:
        """Profile ``warmup + steps`` calls of ``step(number)`` and write the kept ones to ``path`` (gzip if so named).

        Raises:
            CaptureError: another profiler is active, or no trace came out.
            StoreError: the trace cannot be written.
        """
        if profiler_is_active():
            raise CaptureError(
                "another profiler is active in this process",
                hint="end it before retainprof runs: of two nested profilers one gets no events",
            )
        plan = schedule(wait=0, warmup=warmup, active=steps, repeat=1) if warmup else None
        with profile(
            activities=self._activities,
            profile_memory=True,
            record_shapes=self._record_shapes,
            with_stack=self._with_stack,
            schedule=plan,
            acc_events=False,
        ) as profiler:
            # HTA looks for the text `"rank": `, with the space
            profiler.add_metadata_json("distributedInfo", self._distributed.replace(":", ": ").replace(",", ", "))
            for number in range(warmup + steps):
                step(number)
                if warmup and number < warmup + steps - 1:
                    profiler.step()
        _export(profiler, path)


def _export(profiler: Any, path: Path) -> None:
    """Write the trace to a temporary name, check that it parses, rename. torch itself is silent about a full disk."""
    with tempfile.TemporaryDirectory(prefix="retainprof-") as folder:
        plain = Path(folder) / "trace.json"
        try:
            profiler.export_chrome_trace(str(plain))
        except RuntimeError as e:
            raise CaptureError(f"the profiler exported no trace: {e}") from e
        _check(plain)
        try:
            _move(plain, path)
        except OSError as e:
            raise StoreError(f"cannot write {path}: {e.strerror or e}") from e


class _Trace(msgspec.Struct, rename="camel"):
    trace_events: list[msgspec.Raw]


def _check(plain: Path) -> None:
    try:
        events = msgspec.json.decode(plain.read_bytes(), type=_Trace).trace_events
    except OSError as e:
        raise CaptureError(
            f"the profiler left no trace: {e.strerror or e}", hint="is the temporary folder full?"
        ) from e
    except msgspec.MsgspecError as e:
        raise CaptureError(
            f"the profiler left a trace that is not JSON: {e}", hint="is the temporary folder full?"
        ) from e
    if not events:
        raise CaptureError("the profiler left a trace without events")


def _move(plain: Path, path: Path) -> None:
    """To ``path`` by way of a temporary name in its parent's folder, so that its own folder holds whole traces only."""
    temporary = path.parent.parent / f".{path.name}.tmp"
    try:
        with plain.open("rb") as source:
            if path.suffix == ".gz":
                with gzip.GzipFile(temporary, "wb", compresslevel=6, mtime=0) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            else:
                with temporary.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
