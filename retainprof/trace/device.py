"""Device side: what was launched in a range, on any thread, and how long the device was busy with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retainprof.records import DeviceTimes
from retainprof.trace.columns import Column, Table
from retainprof.trace.facts import Facts
from retainprof.trace.group import distinct
from retainprof.trace.ranges import Ranges

__all__ = ["Launched", "device_times", "launched_in"]


@dataclass(frozen=True)
class Launched:
    """Device events (``rows`` of the device table) with the range that each was launched in; a row for each pair.

    Ordered by range, then by start on the device. ``launches`` counts the launches of each range.
    """

    ranges: int
    which: Column
    rows: Column
    launches: Column

    def count(self, mask: Column) -> Column:
        """How many of the pairs of the mask each range has."""
        return np.bincount(self.which[mask], minlength=self.ranges)


def launched_in(facts: Facts, ranges: Ranges) -> Launched:
    """The device events whose launch, found by correlation, starts in each range."""
    known = np.flatnonzero(facts.launch_of >= 0)
    start = facts.trace.launches.start[facts.launch_of[known]]
    order = np.argsort(start, kind="stable")
    which, at = ranges.inside(Table(start[order])).expand()
    rows = known[order][at]
    launch = facts.launch_of[rows]
    pairs = distinct(which * (len(facts.trace.launches) + 1) + launch)
    launches = np.bincount(pairs // (len(facts.trace.launches) + 1), minlength=len(ranges))
    order = np.lexsort((rows, which))  # device events are sorted by their start
    return Launched(len(ranges), which[order], rows[order], launches)


def device_times(facts: Facts, ranges: Ranges, launched: Launched) -> list[DeviceTimes | None]:
    """Sum, union, span and gaps of the device events of each range, in ns; None for a range without any."""
    device = facts.trace.device
    counts = np.bincount(launched.which, minlength=launched.ranges)
    some = np.flatnonzero(counts)
    if not len(some):
        return [None] * launched.ranges
    start, end = device.start[launched.rows], device.end[launched.rows]
    firsts = (np.cumsum(counts) - counts)[some]
    total = np.add.reduceat(end - start, firsts)
    begin, last = start[firsts], np.maximum.reduceat(end, firsts)
    busy = np.add.reduceat(_not_covered_before(launched.which, start, end), firsts)
    found: list[DeviceTimes | None] = [None] * launched.ranges
    after = last - ranges.end[some]
    for i, *values in zip(
        *(v.tolist() for v in (some, total, busy, last - begin, after, launched.launches[some])), strict=True
    ):
        sum_ns, busy_ns, span_ns, after_ns, launches = values
        found[i] = DeviceTimes(
            sum_ns=sum_ns,
            busy_ns=busy_ns,
            span_ns=span_ns,
            idle_ns=span_ns - busy_ns,
            ends_after_range_ns=after_ns,
            launches=launches,
        )
    return found


def _not_covered_before(which: Column, start: Column, end: Column) -> Column:
    """Of each event the time that no earlier event of its range covers; events are sorted by range and start.

    The running maximum of the ends restarts with each range: the ranges' events are laid end to end for it.
    """
    base = int(start.min())
    offset = which * (int(end.max()) - base + 1)
    begin, stop = start - base + offset, end - base + offset
    covered = np.concatenate([[0], np.maximum.accumulate(stop)[:-1]])
    uncovered: Column = np.maximum(stop - np.maximum(begin, covered), 0)
    return uncovered
