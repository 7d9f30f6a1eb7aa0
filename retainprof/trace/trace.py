"""Reads a trace file into a :class:`Trace`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retainprof.collector import collected
from retainprof.errors import TraceError
from retainprof.trace.blocks import Blocks
from retainprof.trace.build import Builder, LossyClockError, joined
from retainprof.trace.columns import Allocations, Device, Launches, Marks, Operators
from retainprof.trace.names import Ident
from retainprof.trace.stream import EventStream

__all__ = ["Trace", "read"]

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Trace:
    """A trace as columns; ``notes`` says in words what of the file could not be used.

    ``names``, ``dims`` (JSON of ``Input Dims``), ``grids`` (grid and block) and ``threads`` (pid, tid) are what the
    numbers in the columns stand for. ``modules`` are the ``nn.Module`` frames, where the trace was made with stacks.
    """

    path: Path
    events: int
    names: tuple[str, ...]
    dims: tuple[bytes, ...]
    grids: tuple[tuple[bytes, bytes], ...]
    threads: tuple[tuple[Ident, Ident], ...]
    operators: Operators
    launches: Launches
    device: Device
    marks: Marks
    device_marks: Marks
    modules: Marks
    memory: Allocations
    meta: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def rank(self) -> int | None:
        """The rank that the trace says it is of."""
        found = self.meta.get("distributedInfo")
        rank = found.get("rank") if isinstance(found, dict) else None
        return rank if isinstance(rank, int) else None


def read(path: Path, progress: Progress | None = None) -> Trace:
    """The trace in ``path``, plain or compressed; ``progress`` is told the number of bytes read from the file.

    Raises TraceError where the file can't be read or is no trace.
    """
    with collected():  # there are no cycles, but lists enough to look for them often
        try:
            return _read(path, progress, as_text=False)
        except LossyClockError:
            return _read(path, progress, as_text=True)


def _read(path: Path, progress: Progress | None, as_text: bool) -> Trace:
    blocks = Blocks(path, progress)
    stream = EventStream(blocks, str(path), as_text)
    builder = Builder()
    for events in stream:
        builder.add(events)
    if not builder.events:
        raise TraceError(f"{path}: is a trace without events", hint="a schedule without step() writes nothing")
    notes = [*stream.notes, *_said(blocks.broken)]
    if builder.without_time:
        notes.append(f"{builder.without_time} events have no time and are left out")
    return _trace(path, builder, {**stream.head, **stream.tail}, notes)


def _said(text: str) -> Iterable[str]:
    return (text,) if text else ()


def _trace(path: Path, builder: Builder, meta: dict[str, Any], notes: Iterable[str]) -> Trace:
    return Trace(
        path=path,
        events=builder.events,
        operators=joined(builder.operators, Operators),
        launches=joined(builder.launches, Launches),
        device=joined(builder.device, Device),
        marks=joined(builder.marks, Marks),
        device_marks=joined(builder.device_marks, Marks),
        modules=joined(builder.modules, Marks),
        memory=joined(builder.memory, Allocations),
        names=tuple(builder.names),
        dims=tuple(builder.dims),
        grids=tuple(builder.grids),
        threads=tuple(builder.threads.idents),
        meta=meta,
        notes=tuple(notes),
    )
