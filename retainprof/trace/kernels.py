"""The kernels of many ranges as one table: operators on a CPU, kernels with their grids on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from retainprof.records import KernelRow
from retainprof.trace.columns import KERNEL, Column
from retainprof.trace.device import Launched
from retainprof.trace.facts import Facts
from retainprof.trace.group import Groups, medians
from retainprof.trace.ranges import Inside
from retainprof.trace.shapes import grid_text, shapes_text

__all__ = ["KernelTable", "device_kernels", "operator_kernels"]


@dataclass(frozen=True)
class KernelTable:
    """One row for each kernel of each range: ``kinds[kind]`` has its name and shapes, and 0 for all numbers."""

    ranges: int
    which: Column  # the range, ascending
    kind: Column
    count: Column
    self_ns: Column
    nbytes: Column
    kinds: tuple[KernelRow, ...]

    def rows(self) -> list[tuple[KernelRow, ...]]:
        """Rows of each range, longest first."""
        order = np.lexsort((-self.self_ns, self.which))
        columns = [column[order].tolist() for column in (self.kind, self.count, self.self_ns, self.nbytes)]
        rows = [_row(self.kinds[kind], *numbers) for kind, *numbers in zip(*columns, strict=True)]
        bounds = np.searchsorted(self.which, np.arange(self.ranges + 1)).tolist()
        return [tuple(rows[low:high]) for low, high in pairwise(bounds)]

    def over(self, ranges: Sequence[int]) -> tuple[Column, Column, Column]:
        """Counts, times and bytes of some ranges, each [ranges, kinds]; 0 where a range has none of a kind."""
        place = np.full(self.ranges, -1)
        place[list(ranges)] = np.arange(len(ranges))
        rows = np.flatnonzero(place[self.which] >= 0)
        found = [np.zeros((len(ranges), len(self.kinds)), np.int64) for _ in range(3)]
        for table, column in zip(found, (self.count, self.self_ns, self.nbytes), strict=True):
            table[place[self.which[rows]], self.kind[rows]] = column[rows]
        return found[0], found[1], found[2]

    def typical(self, ranges: Sequence[int]) -> tuple[KernelRow, ...]:
        """One table from those of several ranges, medians of each number; a kind that most of them lack is left out."""
        count, self_ns, nbytes = self.over(ranges)
        columns = medians(count).tolist(), medians(self_ns, high=True).tolist(), medians(nbytes).tolist()
        rows = [_row(kind, *numbers) for kind, *numbers in zip(self.kinds, *columns, strict=True) if numbers[0]]
        return tuple(sorted(rows, key=lambda row: (-row.self_ns, row.name, row.shapes)))


def _row(kind: KernelRow, count: int, self_ns: int, nbytes: int) -> KernelRow:
    return KernelRow(
        name=kind.name,
        shapes=kind.shapes,
        count=count,
        self_ns=self_ns,
        bytes=nbytes,
        leaf=kind.leaf,
        device=kind.device,
    )


def operator_kernels(facts: Facts, inside: Inside) -> KernelTable:
    """aten operators by name, shapes and whether they are kernels."""
    trace, operators = facts.trace, facts.trace.operators
    which, rows = inside.expand(facts.aten)
    parts = operators.name[rows], operators.dims[rows], facts.leaf[rows].astype(np.int64)
    shapes = cache(shapes_text)

    def kind(name: int, dims: int, leaf: int) -> KernelRow:
        return KernelRow(name=trace.names[name], shapes=shapes(trace.dims[dims]), leaf=bool(leaf))

    kinds = Groups.by(*parts)
    found = [kind(*key) for key in zip(*(part[kinds.first].tolist() for part in parts), strict=True)]
    return _table(len(inside.low), which, kinds.of, facts.self_ns[rows], facts.own_bytes[rows], found)


def device_kernels(facts: Facts, launched: Launched) -> KernelTable:
    """Kernels (no copies or sets) by name and grid; without a grid, by the launching operator's shapes."""
    trace, device = facts.trace, facts.trace.device
    kernel = device.kind[launched.rows] == KERNEL
    which, rows = launched.which[kernel], launched.rows[kernel]
    grid = device.grid[rows]
    parts = device.name[rows], grid, np.where(grid > 0, 0, facts.launching_dims[rows])

    def kind(name: int, grid: int, dims: int) -> KernelRow:
        shapes = grid_text(*trace.grids[grid]) or shapes_text(trace.dims[dims])
        return KernelRow(name=trace.names[name], shapes=shapes, device=True)

    kinds = Groups.by(*parts)
    found = [kind(*key) for key in zip(*(part[kinds.first].tolist() for part in parts), strict=True)]
    length = device.end[rows] - device.start[rows]
    return _table(launched.ranges, which, kinds.of, length, np.zeros(len(rows), np.int64), found)


def _table(
    ranges: int, which: Column, kind: Column, self_ns: Column, nbytes: Column, kinds: Sequence[KernelRow]
) -> KernelTable:
    """Rows with one range and one text (kinds may have the same text) added up."""
    texts = {row: i for i, row in enumerate(dict.fromkeys(kinds))}
    text = np.array([texts[row] for row in kinds], np.int64)[kind] if kinds else kind
    groups = Groups.by(which, text)
    return KernelTable(
        ranges=ranges,
        which=which[groups.first],
        kind=text[groups.first],
        count=groups.count(),
        self_ns=groups.sum(self_ns),
        nbytes=groups.sum(nbytes),
        kinds=tuple(texts),
    )
