"""Which event of a thread lies in which: for all of a trace at once, without walking through it.

Events are half-open here, [start, end); of two that begin together the longer, then the earlier in the file, is around
the other. The threads are laid end to end on one line of time. There, the depth of a moment is the number of events that
have begun before it and not ended; the innermost of them is the last one before it that is one less deep. Where events
overlap without nesting, the innermost that is still open counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retainprof.trace.columns import Column, Marks, Table
from retainprof.trace.group import distinct

__all__ = ["Nest"]

_LARGEST = 1 << 61


@dataclass(frozen=True)
class _Line:
    """Threads end to end: moments of thread ``t`` are moved by ``t * stride``."""

    first: int
    stride: int
    times: Column | None  # all times there are, where the differences between them are too large to be laid end to end

    @classmethod
    def of(cls, start: Column, end: Column, threads: int) -> _Line:
        first = int(start.min(initial=0)) - 1  # earlier moments are clipped to before all
        last = int(end.max(initial=0))
        if (last - first + 2) * (threads + 1) < _LARGEST:
            return cls(first, last - first + 2, None)
        times = distinct(np.concatenate([start, end]))
        return cls(0, 2 * len(times) + 2, times)

    def at(self, moment: Column, thread: Column) -> Column:
        if self.times is not None:  # even numbers are times, odd ones lie between
            right = np.searchsorted(self.times, moment, "right")
            moment = right + np.searchsorted(self.times, moment, "left")
        clipped = np.clip(moment - self.first, 0, self.stride - 1)
        moved: Column = clipped + thread.astype(np.int64) * self.stride
        return moved


@dataclass(frozen=True)
class Nest:
    """The events of a table, ready to be asked what lies in them. ``parent`` is by row of the table; -1: none."""

    line: _Line
    rows: Column  # of the events that have a length, in their order on the line
    start: Column
    end: Column
    ends: Column  # sorted
    depth_first: Column  # (depth, place) as one number, sorted
    parent: Column

    @classmethod
    def of(cls, table: Marks) -> Nest:
        """Finds the parents of all events of ``table``, which is sorted by start, the longest first."""
        line = _Line.of(table.start, table.end, int(table.thread.max(initial=0)) + 1)
        order = np.argsort(table.thread, kind="stable")
        start, end = line.at(table.start[order], table.thread[order]), line.at(table.end[order], table.thread[order])
        holds = end > start
        before: Column = np.cumsum(holds) - holds
        ends = np.sort(end[holds])
        depth = before - np.searchsorted(ends, start, "right")
        places = np.flatnonzero(holds)
        size = len(places) + 1
        keys = np.sort(depth[places] * size + np.arange(len(places)))
        nest = cls(line, order[places], start[places], end[places], ends, keys, np.empty(0, np.int64))
        parent = np.full(len(table), -1)
        parent[order] = nest._around(start, before, depth)
        return cls(**{**vars(nest), "parent": parent})

    def around(self, moments: Table, thread: Column) -> Column:
        """Rows of the innermost events around moments of the given threads; -1: none."""
        at = self.line.at(moments.start, thread)
        before = np.searchsorted(self.start, at, "right")
        return self._around(at, before, before - np.searchsorted(self.ends, at, "right"))

    def _around(self, at: Column, before: Column, depth: Column) -> Column:
        """Rows of the innermost events that are open ``at``, of which ``before`` have begun and ``depth`` not ended."""
        found = np.full(len(at), -1)
        size = len(self.rows) + 1
        asked = np.flatnonzero(depth > 0)
        level = depth[asked] - 1
        while len(asked):
            key = self.depth_first[np.searchsorted(self.depth_first, level * size + before[asked]) - 1]
            place = key % size
            here = (key // size == level) & (place < before[asked]) & (self.end[place] > at[asked])
            found[asked[here]] = self.rows[place[here]]
            more = ~here & (level > 0)  # events overlap here: look further out
            asked, level = asked[more], level[more] - 1
        return found
