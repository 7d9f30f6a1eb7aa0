"""Memory events of ranges, device by device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from retainprof.records import Record
from retainprof.trace.births import Births
from retainprof.trace.columns import Allocations, Column
from retainprof.trace.facts import Facts
from retainprof.trace.group import added
from retainprof.trace.ranges import Inside, Ranges

__all__ = ["DeviceBytes", "range_memory"]

_BY_ADDRESS: Final = (
    "freed_born_inside",
    "freed_born_before",
    "freed_born_unknown",
    "frees_of_unknown_birth",
    "alive_born_inside",
)


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


def range_memory(facts: Facts, ranges: Ranges) -> list[tuple[DeviceBytes, ...]]:
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
            values: dict[str, Any] = {
                name: column[i] if told or name not in _BY_ADDRESS else None for name, column in one.items()
            }
            found[i].append(DeviceBytes(device=f"{kind}:{number}", **values))
    return [tuple(devices) for devices in found]


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
        "freed_born_inside": added(which, np.where(born_inside, -memory.nbytes[row], 0), len(ranges)),
        "freed_born_before": added(which, np.where((born >= 0) & ~born_inside, -memory.nbytes[row], 0), len(ranges)),
        "freed_born_unknown": inside.sum(np.where(unknown, freed, 0)),
        "frees_of_unknown_birth": inside.count(unknown),
        "alive_born_inside": added(which, np.where(outlives, memory.nbytes[row], 0), len(ranges)),
    }
    return {name: column.tolist() for name, column in columns.items()}
