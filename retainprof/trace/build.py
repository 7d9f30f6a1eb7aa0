"""Events into columns, list by list, so that no event outlives its list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Final

import numpy as np

from retainprof.trace.clock import EXACT_US, MISSING_NS, from_doubles, from_texts
from retainprof.trace.columns import (
    KERNEL,
    MEMCPY,
    MEMSET,
    Allocations,
    Column,
    Device,
    Launches,
    Marks,
    Operators,
    join,
)
from retainprof.trace.event import Batch, Instant, Span, TextInstant, TextSpan
from retainprof.trace.names import Interned, Threads

__all__ = ["Builder", "LossyClockError"]

AnySpan = Span | TextSpan
AnyEvent = AnySpan | Instant | TextInstant
MEMORY: Final = "[memory]"
MODULE: Final = "nn.Module: "
_DEVICE_KINDS: Final = {
    "kernel": KERNEL,
    "Kernel": KERNEL,  # with a capital: 2021
    "concurrent_kernel": KERNEL,
    "mtia_ccp_events": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
_OPERATORS: Final = {"cpu_op", "Operator", "hpu_op"}


class LossyClockError(Exception):
    """Times that doubles of microseconds can't hold: the events have to be read again as text."""


class Builder:
    """Collects columns; every list of events goes through :meth:`add`."""

    def __init__(self) -> None:
        self.names: Interned[str] = Interned({"": 0})
        self.dims: Interned[bytes] = Interned({b"": 0})
        self.grids: Interned[tuple[bytes, bytes]] = Interned({(b"", b""): 0})
        self.threads = Threads()
        self.events = self.without_time = 0
        self.operators: list[Operators] = []
        self.launches: list[Launches] = []
        self.device: list[Device] = []
        self.marks: list[Marks] = []
        self.device_marks: list[Marks] = []
        self.modules: list[Marks] = []
        self.memory: list[Allocations] = []

    def add(self, batch: Batch) -> None:
        """Take over some events. Raises LossyClockError where their times would be rounded."""
        self.events += batch.count
        groups: dict[str, list[AnySpan]] = defaultdict(list)
        for span in batch.spans:
            groups[span.cat].append(span)
        for category, group in groups.items():
            take = self._taker(category)
            if take is not None:
                take(category, group)
        memory = [event for event in batch.instants if event.name == MEMORY]
        if memory:
            self._add_memory(memory)

    def _taker(self, category: str) -> Callable[[str, list[AnySpan]], None] | None:
        if category in _OPERATORS:
            return self._add_operators
        if category in _DEVICE_KINDS:
            return self._add_device
        if category == "Runtime" or category.endswith(("_runtime", "_driver")):
            return self._add_launches
        others = {
            "user_annotation": self._add_marks,
            "gpu_user_annotation": self._add_device_marks,
            "python_function": self._add_modules,
        }
        return others.get(category)

    def _spans(self, group: list[AnySpan]) -> tuple[list[AnySpan], Marks]:
        """The events that have a start, and their columns; a length that is missing or negative is 0."""
        start, us = _times(group), np.array([event.dur for event in group], np.float64)
        if (start == MISSING_NS).any():
            self.without_time += int((start == MISSING_NS).sum())
            group, start, us = _only(start != MISSING_NS, group, start, us)
        names = self.names
        return group, Marks(
            start=start,
            end=start + np.maximum(from_doubles(us), 0),
            name=np.array([names[event.name] for event in group], np.int32),
            thread=self._threads(group),
        )

    def _threads(self, group: Sequence[AnyEvent]) -> Column:
        threads, process = self.threads, {event.pid for event in group}
        if len(process) == 1:  # as a rule; saves a pair for each event
            (pid,) = process
            known = {tid: threads[pid, tid] for tid in {event.tid for event in group}}
            return np.array([known[event.tid] for event in group], np.int32)
        return np.array([threads[event.pid, event.tid] for event in group], np.int32)

    def _add_operators(self, _: str, group: list[AnySpan]) -> None:
        group, spans = self._spans(group)
        args, dims = [event.args for event in group], self.dims
        self.operators.append(
            Operators(
                **vars(spans),
                sequence=_integers([a.sequence for a in args]),
                forward_thread=_integers([a.forward_thread for a in args]),
                dims=np.array([*map(dims.__getitem__, map(bytes, [a.dims for a in args]))], np.int32),
            )
        )

    def _add_launches(self, _: str, group: list[AnySpan]) -> None:
        group, spans = self._spans(group)
        self.launches.append(Launches(**vars(spans), correlation=_integers([e.args.correlation for e in group])))

    def _add_device(self, category: str, group: list[AnySpan]) -> None:
        group, spans = self._spans(group)
        args, grids = [event.args for event in group], self.grids
        self.device.append(
            Device(
                **vars(spans),
                kind=np.full(len(group), _DEVICE_KINDS[category], np.int8),
                correlation=_integers([a.correlation for a in args]),
                grid=np.array([grids[bytes(a.grid), bytes(a.block)] for a in args], np.int32),
            )
        )

    def _add_marks(self, _: str, group: list[AnySpan]) -> None:
        self.marks.append(self._spans(group)[1])

    def _add_device_marks(self, _: str, group: list[AnySpan]) -> None:
        self.device_marks.append(self._spans(group)[1])

    def _add_modules(self, _: str, group: list[AnySpan]) -> None:
        modules = [event for event in group if event.name.startswith(MODULE)]
        if modules:
            self.modules.append(self._spans(modules)[1])

    def _add_memory(self, group: list[Instant | TextInstant]) -> None:
        start, args = _times(group), [event.args for event in group]
        found = Allocations(
            start=start,
            thread=self._threads(group),
            nbytes=_integers([a.nbytes for a in args], missing=0),
            address=_integers([a.address for a in args]),
            device_type=_integers([a.device_type for a in args], np.int16),
            device_id=_integers([a.device_id for a in args], np.int16),
            total=_integers([a.total for a in args]),
        )
        timed = start != MISSING_NS
        self.without_time += len(group) - int(timed.sum())
        self.memory.append(found if timed.all() else found.take(timed))


def _times(group: Sequence[AnyEvent]) -> Column:
    """Starts in ns. Raises LossyClockError where a double has lost some."""
    if group and isinstance(group[0], (TextSpan, TextInstant)):
        return from_texts([event.ts for event in group])  # type: ignore[misc]
    us = np.array([event.ts for event in group], np.float64)
    large = np.abs(us) >= EXACT_US
    if large.any() and (us[large] % 1).any():
        raise LossyClockError
    return from_doubles(us)


def _only(mask: Column, group: list[AnySpan], start: Column, us: Column) -> tuple[list[AnySpan], Column, Column]:
    return list(compress(group, mask.tolist())), start[mask], us[mask]


def _integers(values: list[float], dtype: type[Any] = np.int64, missing: int = -1) -> Column:
    """Whole numbers; ``missing`` for what does not fit."""
    doubles = np.array(values, np.float64)
    info = np.iinfo(dtype)
    low, high = max(info.min, -(2**62)), min(info.max, 2**62)
    if not len(doubles) or (doubles.min() >= low and doubles.max() <= high):  # False for nan
        return doubles.astype(dtype)
    return np.where((doubles >= low) & (doubles <= high), doubles, missing).astype(dtype)


def empty(table: type[Any]) -> Any:
    """A table without rows."""
    kinds = {"name": np.int32, "thread": np.int32, "dims": np.int32, "grid": np.int32, "kind": np.int8}
    return table(**{name: np.empty(0, kinds.get(name, np.int64)) for name in table.__dataclass_fields__})


def joined(parts: list[Any], table: type[Any]) -> Any:
    """All parts as one sorted table."""
    return join(parts, empty(table))
