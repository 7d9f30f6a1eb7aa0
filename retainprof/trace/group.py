"""Rows that are alike in several columns, as groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retainprof.trace.columns import Column

__all__ = ["Groups", "added", "among", "distinct", "medians"]

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
                places = cls._of(one)
                one, size = places.of, len(places)
            one = one * width + column
            size *= width
        return cls._of(one)

    @classmethod
    def _of(cls, values: Column) -> Groups:
        order = np.argsort(values, kind="stable")
        new = _changes(values[order])
        of = np.empty(len(values), np.int64)
        of[order] = np.cumsum(new) - 1
        return cls(of, order[new])

    def __len__(self) -> int:
        return len(self.first)

    def count(self, mask: Column | None = None) -> Column:
        """Rows (of the mask) in each group."""
        return np.bincount(self.of if mask is None else self.of[mask], minlength=len(self))

    def sum(self, values: Column) -> Column:
        """Sum of ``values`` in each group, in whole numbers."""
        return added(self.of, values, len(self))


def _changes(ordered: Column) -> Column:
    """Mask of the values that differ from the one before; the first does."""
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return new


def distinct(values: Column) -> Column:
    """The different values, ascending. (``numpy.unique`` loads ``numpy.ma``, which takes longer than a small trace.)"""
    ordered = np.sort(values)
    return ordered[_changes(ordered)]


def among(values: Column, known: Column) -> Column:
    """Mask of the ``values`` that are among ``known``, ascending numbers."""
    if not len(known):
        return np.zeros(len(values), bool)
    found: Column = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found


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
