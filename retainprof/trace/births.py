"""Births and deaths of memory by address: what was freed where it was made, before, or before the trace began.

Memory events are followed in the order of time, those of one moment in the order of the file; the file itself is not in
order. A free belongs to the allocation before it at the same address of the same device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retainprof.trace.columns import Allocations, Column
from retainprof.trace.group import distinct

__all__ = ["Births"]


@dataclass(frozen=True)
class Births:
    """By row of the memory table: ``birth`` of a free and ``death`` of an allocation are rows, -1 where there is none.

    ``told`` is False for events without address, of which nothing is known.
    """

    birth: Column
    death: Column
    told: Column

    @classmethod
    def of(cls, memory: Allocations) -> Births:
        """Follows all addresses."""
        rows = np.flatnonzero((memory.address >= 0) & (memory.nbytes != 0))
        keys = (memory.address[rows], memory.device_id[rows], memory.device_type[rows])
        rows = rows[np.lexsort(keys)]  # stable: in the order of time at each address
        before, after = rows[:-1], rows[1:]
        same = np.ones(len(before), bool)
        for column in (memory.address, memory.device_id, memory.device_type):
            same &= column[before] == column[after]
        pair = same & (memory.nbytes[before] > 0) & (memory.nbytes[after] < 0)
        birth, death = np.full(len(memory), -1), np.full(len(memory), -1)
        birth[after[pair]], death[before[pair]] = before[pair], after[pair]
        told = np.zeros(len(memory), bool)
        told[rows] = True
        return cls(birth, death, told)

    def unknown(self, memory: Allocations) -> Column:
        """Mask of the frees whose allocation is not in the trace."""
        unknown: Column = self.told & (memory.nbytes < 0) & (self.birth < 0)
        return unknown

    def alive_at_end(self, memory: Allocations) -> Column:
        """Mask of the allocations that nothing frees."""
        alive: Column = self.told & (memory.nbytes > 0) & (self.death < 0)
        return alive


def order_breaks(memory: Allocations) -> int:
    """Places where the total that the trace tells of a device does not continue from the event before."""
    breaks = 0
    device = memory.device_type.astype(np.int64) << 32 | (memory.device_id.astype(np.int64) & 0xFFFFFFFF)
    for one in distinct(device):
        rows = np.flatnonzero((device == one) & (memory.total >= 0))
        total, change = memory.total[rows], memory.nbytes[rows]
        if total.any():
            breaks += int((total[1:] != total[:-1] + change[1:]).sum())
    return breaks
