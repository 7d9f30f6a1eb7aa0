"""All figures of ranges and of a whole trace: what was launched, evaluated, allocated, and what could not be attributed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from retainprof.records import Record
from retainprof.trace.births import Births, order_breaks
from retainprof.trace.columns import KERNEL, MEMCPY, MEMSET, Allocations, Column, Marks
from retainprof.trace.device import Launched, device_times, launched_in
from retainprof.trace.facts import ACCUMULATE, ENGINE, Facts
from retainprof.trace.ranges import Inside, Ranges

__all__ = ["DeviceBytes", "FileFigures", "KernelTotal", "RangeFigures", "file_figures", "range_figures"]

KINDS: Final = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}


class KernelTotal(Record, frozen=True, kw_only=True):
    """One kernel, by its full name, in a range."""

    name: str
    count: int
    ns: int


class DeviceBytes(Record, frozen=True, kw_only=True):
    """Memory events of one device in a range. What rests on addresses is None where the trace has none.

    Freed bytes are split by birth: in the range, before it in the file, unknown (before the trace began).
    """

    device: str  # "type:id"; types as in torch: 0 CPU, 1 CUDA, 6 HIP
    events: int
    frees: int
    allocated_bytes: int
    freed_bytes: int
    net_bytes: int
    freed_born_inside: int | None = None
    freed_born_before: int | None = None
    freed_born_unknown: int | None = None
    frees_of_unknown_birth: int | None = None
    alive_born_inside: int | None = None


class RangeFigures(Record, frozen=True, kw_only=True):
    """What happened in one range, on any thread. A range is closed; an event belongs to it if it starts in it."""

    name: str
    thread: str
    start_ns: int
    duration_ns: int
    kernels: int
    memcpys: int
    memsets: int
    off_thread: int  # device events launched by another thread than the range's
    kernels_off_thread: int
    off_thread_outside_engine: int
    kernel_time_ns: int
    device_time_ns: int
    device_busy_ns: int
    device_span_ns: int
    kernel_span_ns: int
    ends_after_range_ns: int | None
    launches: int
    engine_events: int
    engine_events_cut: int  # those that end after the range
    engine_events_off_thread: int
    engine_ns: int  # time in evaluations of nodes, summed over threads
    accumulate_grad: int
    accumulate_grad_inside: dict[str, int]
    node_ops: int
    ops: int
    memory_events: int
    memory: tuple[DeviceBytes, ...]
    kernels_by_name: tuple[KernelTotal, ...]  # heaviest first

    @property
    def copies_and_sets(self) -> int:
        """Device events that are no kernels."""
        return self.memcpys + self.memsets


class FileFigures(Record, frozen=True, kw_only=True):
    """What a trace holds as a whole, and what of it can't be attributed."""

    events: int
    kernels: int
    memcpys: int
    memsets: int
    kernel_time_ns: int
    orphans: int  # device events without a launch in the file
    orphans_by_kind: dict[str, int]
    orphan_time_ns: int
    orphans_launched_before: int  # those launched before the window opened, by their correlation
    device_events_sharing_a_launch: int
    memory_events: int
    frees_of_unknown_birth: int
    alive_at_end: int
    memory_order_breaks: int
    ops: int
    node_ops: int
    engine_events: int
    engine_threads: dict[str, int]
    accumulate_grad: int


def file_figures(facts: Facts) -> FileFigures:
    """Figures of the whole trace."""
    trace, device, memory = facts.trace, facts.trace.device, facts.trace.memory
    orphan, length = facts.launch_of < 0, device.end - device.start
    births = facts.births
    counts = {name: int((device.kind == kind).sum()) for kind, name in KINDS.items()}
    lost = {name: int((device.kind[orphan] == kind).sum()) for kind, name in KINDS.items()}
    threads = Counter(trace.operators.thread[facts.engine].tolist())
    return FileFigures(
        events=trace.events,
        kernels=counts["kernel"],
        memcpys=counts["memcpy"],
        memsets=counts["memset"],
        kernel_time_ns=int(length[device.kind == KERNEL].sum()),
        orphans=int(orphan.sum()),
        orphans_by_kind={name: count for name, count in lost.items() if count},
        orphan_time_ns=int(length[orphan].sum()),
        orphans_launched_before=_launched_before(facts, orphan),
        device_events_sharing_a_launch=int((~orphan).sum()) - len(np.unique(facts.launch_of[~orphan])),
        memory_events=len(memory),
        frees_of_unknown_birth=int(births.unknown(memory).sum()),
        alive_at_end=int(births.alive_at_end(memory).sum()),
        memory_order_breaks=order_breaks(memory),
        ops=len(trace.operators),
        node_ops=int(facts.nodes.sum()),
        engine_events=int(facts.engine.sum()),
        engine_threads={str(trace.threads[thread][1]): count for thread, count in threads.items()},
        accumulate_grad=int(facts.named(lambda name: name == ENGINE + ACCUMULATE).sum()),
    )


def _launched_before(facts: Facts, orphan: Column) -> int:
    """Orphans whose correlation is smaller than that of any launch: they were launched before the window opened."""
    known = facts.trace.launches.correlation
    known = known[known >= 0]
    mine = facts.trace.device.correlation[orphan]
    return int(((mine >= 0) & (mine < known.min())).sum()) if len(known) else 0


def range_figures(facts: Facts, marks: Marks) -> tuple[RangeFigures, ...]:
    """Figures of each of the ranges."""
    return _Figures(facts, marks).all()


class _Figures:
    def __init__(self, facts: Facts, marks: Marks) -> None:
        self.facts, self.trace, self.marks = facts, facts.trace, marks
        self.ranges = Ranges(marks.start, marks.end)

    @cached_property
    def launched(self) -> Launched:
        return launched_in(self.facts, self.ranges)

    @cached_property
    def inside(self) -> Inside:
        return self.ranges.inside(self.trace.operators)

    def all(self) -> tuple[RangeFigures, ...]:
        columns = {**self._device(), **self._operators(), **self._engine()}
        times = device_times(self.facts, self.ranges, self.launched)
        memory = _range_memory(self.facts, self.ranges)
        kernels, spans = self._kernels(), self._kernel_spans()
        accumulated = self._accumulated()
        found = []
        for i in range(len(self.marks)):
            time = times[i]
            found.append(
                RangeFigures(
                    name=self.trace.names[self.marks.name[i]],
                    thread=str(self.trace.threads[self.marks.thread[i]][1]),
                    start_ns=int(self.marks.start[i]),
                    duration_ns=int(self.marks.end[i] - self.marks.start[i]),
                    device_time_ns=0 if time is None else time.sum_ns,
                    device_busy_ns=0 if time is None else time.busy_ns,
                    device_span_ns=0 if time is None else time.span_ns,
                    ends_after_range_ns=None if time is None else time.ends_after_range_ns,
                    launches=0 if time is None else time.launches,
                    kernel_span_ns=spans[i],
                    kernels_by_name=kernels[i],
                    accumulate_grad_inside=accumulated[i],
                    memory_events=sum(device.events for device in memory[i]),
                    memory=memory[i],
                    **{name: values[i] for name, values in columns.items()},
                )
            )
        return tuple(found)

    def _device(self) -> dict[str, list[int]]:
        launched, device, launches = self.launched, self.trace.device, self.trace.launches
        kind, launch = device.kind[launched.rows], self.facts.launch_of[launched.rows]
        off = launches.thread[launch] != self.marks.thread[launched.which]
        length = np.where(kind == KERNEL, device.end[launched.rows] - device.start[launched.rows], 0)
        time = np.zeros(len(self.ranges), np.int64)
        np.add.at(time, launched.which, length)
        masks = {
            "kernels": kind == KERNEL,
            "memcpys": kind == MEMCPY,
            "memsets": kind == MEMSET,
            "off_thread": off,
            "kernels_off_thread": off & (kind == KERNEL),
            "off_thread_outside_engine": off & ~self.facts.launched_by_engine[launched.rows],
        }
        return {
            **{name: launched.count(mask).tolist() for name, mask in masks.items()},
            "kernel_time_ns": time.tolist(),
        }

    def _operators(self) -> dict[str, list[int]]:
        facts = self.facts
        accumulate = facts.named(lambda name: name == ENGINE + ACCUMULATE)
        return {
            "engine_events": self.inside.count(facts.engine).tolist(),
            "accumulate_grad": self.inside.count(accumulate).tolist(),
            "node_ops": self.inside.count(facts.nodes).tolist(),
            "ops": (self.inside.high - self.inside.low).tolist(),
        }

    def _engine(self) -> dict[str, list[int]]:
        operators = self.trace.operators
        which, rows = self.inside.expand(self.facts.engine)
        size = len(self.ranges)
        top = self.facts.outwards(self.facts.nest.parent[rows], self.facts.engine) < 0
        time = np.zeros(size, np.int64)
        np.add.at(time, which[top], (operators.end - operators.start)[rows[top]])
        cut = operators.end[rows] > self.marks.end[which]
        off = operators.thread[rows] != self.marks.thread[which]
        return {
            "engine_events_cut": np.bincount(which[cut], minlength=size).tolist(),
            "engine_events_off_thread": np.bincount(which[off], minlength=size).tolist(),
            "engine_ns": time.tolist(),
        }

    def _kernels(self) -> list[tuple[KernelTotal, ...]]:
        launched, device, names = self.launched, self.trace.device, self.trace.names
        kernel = device.kind[launched.rows] == KERNEL
        which, rows = launched.which[kernel], launched.rows[kernel]
        key, group, counts = np.unique(which * len(names) + device.name[rows], return_inverse=True, return_counts=True)
        time = np.zeros(len(key), np.int64)
        np.add.at(time, group, (device.end - device.start)[rows])
        found: list[list[KernelTotal]] = [[] for _ in range(len(self.ranges))]
        order = np.lexsort((-time, key // len(names)))
        for one, count, ns in zip(key[order].tolist(), counts[order].tolist(), time[order].tolist(), strict=True):
            found[one // len(names)].append(KernelTotal(name=names[one % len(names)], count=count, ns=ns))
        return [tuple(kernels) for kernels in found]

    def _kernel_spans(self) -> list[int]:
        device, launched = self.trace.device, self.launched
        kernel = device.kind[launched.rows] == KERNEL
        which, rows = launched.which[kernel], launched.rows[kernel]
        first = np.full(len(self.ranges), np.iinfo(np.int64).max)
        last = np.full(len(self.ranges), np.iinfo(np.int64).min)
        np.minimum.at(first, which, device.start[rows])
        np.maximum.at(last, which, device.end[rows])
        length: list[int] = np.where(last > first, last - first, 0).tolist()
        return length

    def _accumulated(self) -> list[dict[str, int]]:
        texts = self.facts.inside_accumulate
        which, rows = self.inside.expand(self.facts.accumulations)
        found: list[Counter[str]] = [Counter() for _ in range(len(self.ranges))]
        for i, row in zip(which.tolist(), rows.tolist(), strict=True):
            found[i][texts.get(row, "")] += 1
        return [dict(counts) for counts in found]


def _range_memory(facts: Facts, ranges: Ranges) -> list[tuple[DeviceBytes, ...]]:
    """Memory of each device in each range."""
    memory, births = facts.trace.memory, facts.births
    found: list[list[DeviceBytes]] = [[] for _ in range(len(ranges))]
    pairs = sorted(set(zip(memory.device_type.tolist(), memory.device_id.tolist(), strict=True)))
    for kind, number in pairs:
        rows = np.flatnonzero((memory.device_type == kind) & (memory.device_id == number))
        inside = ranges.inside(memory.take(rows))
        one = _one_device(memory, births, ranges, inside, rows)
        told = bool(births.told[rows].any())
        for i in np.flatnonzero(inside.high > inside.low).tolist():
            values = {name: column[i] if told or name not in _BY_ADDRESS else None for name, column in one.items()}
            found[i].append(DeviceBytes(device=f"{kind}:{number}", **values))
    return [tuple(devices) for devices in found]


_BY_ADDRESS: Final = (
    "freed_born_inside",
    "freed_born_before",
    "freed_born_unknown",
    "frees_of_unknown_birth",
    "alive_born_inside",
)


def _one_device(
    memory: Allocations, births: Births, ranges: Ranges, inside: Inside, rows: Column
) -> dict[str, Sequence[int]]:
    change = memory.nbytes[rows]
    freed = np.maximum(-change, 0)
    unknown = births.unknown(memory)[rows]
    which, at = inside.expand()
    row = rows[at]
    born, died = births.birth[row], births.death[row]
    first, last = rows[np.minimum(inside.low, len(rows) - 1)][which], rows[np.maximum(inside.high - 1, 0)][which]
    born_inside = (born >= first) & (born >= 0)
    outlives = (memory.nbytes[row] > 0) & ((died < 0) | (died > last))
    columns = {
        "events": inside.high - inside.low,
        "frees": inside.count(change < 0),
        "allocated_bytes": inside.sum(np.maximum(change, 0)),
        "freed_bytes": inside.sum(freed),
        "net_bytes": inside.sum(change),
        "freed_born_inside": _summed(which, np.where(born_inside, -memory.nbytes[row], 0), len(ranges)),
        "freed_born_before": _summed(which, np.where((born >= 0) & ~born_inside, -memory.nbytes[row], 0), len(ranges)),
        "freed_born_unknown": inside.sum(np.where(unknown, freed, 0)),
        "frees_of_unknown_birth": inside.count(unknown),
        "alive_born_inside": _summed(which, np.where(outlives, memory.nbytes[row], 0), len(ranges)),
    }
    return {name: column.tolist() for name, column in columns.items()}


def _summed(which: Column, values: Column, size: int) -> Column:
    total = np.zeros(size, np.int64)
    np.add.at(total, which, values)
    return total
