"""The kernels of each range as rows: operators on a CPU, kernels with their grids on a device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from retainprof.records import KernelRow
from retainprof.trace.columns import KERNEL, Column
from retainprof.trace.device import Launched
from retainprof.trace.facts import Facts
from retainprof.trace.ranges import Inside
from retainprof.trace.shapes import grid_text, shapes_text

__all__ = ["device_rows", "operator_rows"]

Rows = list[tuple[KernelRow, ...]]


def operator_rows(facts: Facts, inside: Inside) -> Rows:
    """aten operators of each range by name, shapes and whether others ran in them; longest first."""
    trace, operators = facts.trace, facts.trace.operators
    which, rows = inside.expand(facts.aten)
    kind = np.stack([operators.name[rows], operators.dims[rows], facts.leaf[rows]])
    found: Rows = []
    for keys, counts, self_ns, nbytes in _grouped(
        len(inside.low), which, kind, facts.self_ns[rows], facts.own_bytes[rows]
    ):
        found.append(
            tuple(
                KernelRow(
                    name=trace.names[name],
                    shapes=shapes_text(trace.dims[dims]),
                    count=count,
                    self_ns=ns,
                    bytes=size,
                    leaf=bool(leaf),
                )
                for (name, dims, leaf), count, ns, size in zip(keys, counts, self_ns, nbytes, strict=True)
            )
        )
    return found


def device_rows(facts: Facts, launched: Launched) -> Rows:
    """Kernels (no copies or sets) of each range by name and grid; without a grid, by the launching operator's shapes."""
    trace, device = facts.trace, facts.trace.device
    kernel = device.kind[launched.rows] == KERNEL
    which, rows = launched.which[kernel], launched.rows[kernel]
    grid = device.grid[rows]
    kind = np.stack([device.name[rows], grid, np.where(grid > 0, 0, facts.launching_dims[rows])])
    length = device.end[rows] - device.start[rows]
    found: Rows = []
    for keys, counts, self_ns, _ in _grouped(launched.ranges, which, kind, length, np.zeros(len(rows), np.int64)):
        found.append(
            tuple(
                KernelRow(
                    name=trace.names[name],
                    shapes=grid_text(*trace.grids[grid]) or shapes_text(trace.dims[dims]),
                    count=count,
                    self_ns=ns,
                    device=True,
                )
                for (name, grid, dims), count, ns in zip(keys, counts, self_ns, strict=True)
            )
        )
    return found


def _grouped(
    ranges: int, which: Column, kind: Column, self_ns: Column, nbytes: Column
) -> Iterator[tuple[list[list[int]], list[int], list[int], list[int]]]:
    """For each range the different columns of ``kind`` [parts, rows], with their counts, times and bytes; longest first."""
    one = which.astype(np.int64)
    for part in kind:
        one = one * (int(part.max(initial=0)) + 1) + part
    _, first, group, counts = np.unique(one, return_index=True, return_inverse=True, return_counts=True)
    times, sizes = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    np.add.at(times, group, self_ns)
    np.add.at(sizes, group, nbytes)
    order = np.lexsort((-times, which[first]))
    first = first[order]
    bounds = np.searchsorted(which[first], np.arange(ranges + 1)).tolist()
    keys = kind[:, first].T.tolist()
    columns = [values[order].tolist() for values in (counts, times, sizes)]
    for low, high in pairwise(bounds):
        yield keys[low:high], columns[0][low:high], columns[1][low:high], columns[2][low:high]
