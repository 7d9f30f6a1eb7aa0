"""Rows that are alike in several columns, as groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retainprof.trace.columns import Column

__all__ = ["Groups"]

_LARGEST = 1 << 62


@dataclass(frozen=True)
class Groups:
    """``of`` is the group of each row, ``first`` a row of each group; groups are ordered by their columns."""

    of: Column
    first: Column

    @classmethod
    def by(cls, *columns: Column) -> Groups:
        """Groups of equal rows of ``columns`` (whole numbers from 0), the first column deciding the order first."""
        one, size = columns[0].astype(np.int64), int(columns[0].max(initial=0)) + 1
        for column in columns[1:]:
            width = int(column.max(initial=0)) + 1
            if size * width >= _LARGEST:
                values, one = np.unique(one, return_inverse=True)
                size = len(values)
            one = one * width + column
            size *= width
        _, first, of = np.unique(one, return_index=True, return_inverse=True)
        return cls(of, first)

    def __len__(self) -> int:
        return len(self.first)

    def count(self, mask: Column | None = None) -> Column:
        """Rows (of the mask) in each group."""
        return np.bincount(self.of if mask is None else self.of[mask], minlength=len(self))

    def sum(self, values: Column) -> Column:
        """Sum of ``values`` in each group, in whole numbers."""
        return added(self.of, values, len(self))


def added(where: Column, values: Column, size: int) -> Column:
    """Sums of whole ``values`` by ``where`` (0 to ``size``)."""
    if not len(values) or int(np.abs(values).max()) * len(values) < 1 << 53:  # doubles add these exactly
        return np.bincount(where, weights=values, minlength=size).astype(np.int64)
    total = np.zeros(size, np.int64)
    np.add.at(total, where, values)
    return total


def medians(values: Sequence[Column] | Column, high: bool = False) -> Column:
    """Lower (or higher) median of each column of [rows, columns]."""
    ordered = np.sort(np.asarray(values), axis=0)
    middle: Column = ordered[len(ordered) // 2 if high else (len(ordered) - 1) // 2]
    return middle
