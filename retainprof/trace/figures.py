"""All figures of ranges and of a whole trace: what was launched, evaluated, allocated, and what could not be attributed."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Final

import numpy as np

from retainprof.records import Record
from retainprof.trace.births import order_breaks
from retainprof.trace.columns import KERNEL, MEMCPY, MEMSET, Column, Marks
from retainprof.trace.device import Launched, device_times, launched_in
from retainprof.trace.facts import ACCUMULATE, ENGINE, Facts
from retainprof.trace.group import Groups, added, distinct
from retainprof.trace.memory import DeviceBytes, range_memory
from retainprof.trace.ranges import Inside, Ranges

__all__ = ["FileFigures", "KernelTotal", "RangeFigures", "file_figures", "range_figures"]

KINDS: Final = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}


class KernelTotal(Record, frozen=True, kw_only=True):
    """One kernel, by its full name, in a range."""

    name: str
    count: int
    ns: int


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
        device_events_sharing_a_launch=int((~orphan).sum()) - len(distinct(facts.launch_of[~orphan])),
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
        memory = range_memory(self.facts, self.ranges)
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
        time = added(launched.which, length, len(self.ranges))
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
        time = added(which[top], (operators.end - operators.start)[rows[top]], size)
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
        groups = Groups.by(which, device.name[rows])
        time = groups.sum((device.end - device.start)[rows])
        found: list[list[KernelTotal]] = [[] for _ in range(len(self.ranges))]
        order = np.argsort(-time, kind="stable")
        first = groups.first[order]
        columns = which[first], device.name[rows][first], groups.count()[order], time[order]
        for i, name, count, ns in zip(*(column.tolist() for column in columns), strict=True):
            found[i].append(KernelTotal(name=names[name], count=count, ns=ns))
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
