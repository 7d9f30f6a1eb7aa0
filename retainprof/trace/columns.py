"""The columns of a trace: one numpy array a field, one set of arrays a kind of event."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "KERNEL",
    "MEMCPY",
    "MEMSET",
    "Allocations",
    "Column",
    "Device",
    "Launches",
    "Marks",
    "Operators",
    "Table",
    "join",
]

Column = NDArray[Any]
KERNEL, MEMCPY, MEMSET = 0, 1, 2


@dataclass(frozen=True)
class Table:
    """Columns of one length; ``start`` in ns, ascending once sorted."""

    start: Column

    def __len__(self) -> int:
        return len(self.start)

    def take(self: TableT, rows: Column) -> TableT:
        """The same columns, of ``rows`` (indices or a mask) only."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})


TableT = TypeVar("TableT", bound=Table)


@dataclass(frozen=True)
class Marks(Table):
    """Annotations; ``end`` in ns, closed. Around another event: earlier start, or the same and a later end."""

    end: Column
    name: Column
    thread: Column


@dataclass(frozen=True)
class Operators(Marks):
    """Operators, node evaluations and engine events; ids are -1 where they are missing."""

    sequence: Column
    forward_thread: Column
    dims: Column


@dataclass(frozen=True)
class Launches(Marks):
    """Calls into a device's runtime or driver."""

    correlation: Column


@dataclass(frozen=True)
class Device(Marks):
    """What ran on a device: ``kind`` is KERNEL, MEMCPY or MEMSET, ``grid`` a number of the trace's ``grids``."""

    kind: Column
    correlation: Column
    grid: Column


@dataclass(frozen=True)
class Allocations(Table):
    """Memory events: ``nbytes`` is negative where memory is freed; ``address`` -1: not told."""

    thread: Column
    nbytes: Column
    address: Column
    device_type: Column
    device_id: Column
    total: Column


def join(parts: list[TableT], empty: TableT) -> TableT:
    """One table of several, ordered by start, then longest first, then as in the file. Empties ``parts``."""
    if not parts:
        return empty
    columns = {field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(empty)}
    parts.clear()
    keys = [columns["start"]] if "end" not in columns else [-columns["end"], columns["start"]]
    order = np.lexsort(keys)
    for name in columns:
        columns[name] = columns[name][order]
    return replace(empty, **columns)
