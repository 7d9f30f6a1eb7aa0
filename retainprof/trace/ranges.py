"""Which rows of each table lie in each of many ranges of time, and sums over them; ranges may overlap.

A range is closed: [start, end] in ns. A row belongs to every range in which it starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retainprof.trace.columns import Column, Table

__all__ = ["Inside", "Ranges"]


@dataclass(frozen=True)
class Ranges:
    """Starts and ends of ranges, in ns."""

    start: Column
    end: Column

    def __len__(self) -> int:
        return len(self.start)

    def inside(self, table: Table) -> Inside:
        """The rows of a table that start in each range."""
        low = np.searchsorted(table.start, self.start, "left")
        return Inside(low, np.maximum(low, np.searchsorted(table.start, self.end, "right")))


@dataclass(frozen=True)
class Inside:
    """Rows ``low[i]`` up to ``high[i]`` of a table are in range ``i``."""

    low: Column
    high: Column

    def count(self, mask: Column) -> Column:
        """How many rows of the mask each range has."""
        return self.sum(mask.astype(np.int64))

    def sum(self, values: Column) -> Column:
        """Sum of ``values`` (one for each row of the table) in each range."""
        total: Column = np.concatenate([[0], np.cumsum(values)])
        return total[self.high] - total[self.low]

    def last(self, mask: Column) -> Column:
        """The last row of the mask in each range; -1: none."""
        rows = np.flatnonzero(mask)
        at = np.searchsorted(rows, self.high) - 1
        found = rows[np.maximum(at, 0)] if len(rows) else np.full(len(at), -1)
        return np.where((at >= 0) & (found >= self.low), found, -1)

    def peak(self, changes: Column) -> Column:
        """Highest level above that at the start of each range, never below 0."""
        level = np.concatenate([[0], np.cumsum(changes), [0]])
        found = np.zeros(len(self.low), np.int64)
        some = np.flatnonzero(self.high > self.low)
        if len(some):
            low, high = self.low[some], self.high[some]
            bounds = np.stack([low, high + 1], axis=1).ravel()
            found[some] = np.maximum.reduceat(level, bounds)[::2] - level[low]
        return found

    def expand(self, mask: Column | None = None) -> tuple[Column, Column]:
        """(range, row) of every row of the mask in every range: ranges in order, rows in order inside them."""
        lengths = self.high - self.low
        which = np.repeat(np.arange(len(lengths)), lengths)
        rows = np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + self.low[which]
        if mask is None:
            return which, rows
        kept = mask[rows]
        return which[kept], rows[kept]
