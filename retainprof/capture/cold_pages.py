"""Makes a forked child's memory its own before anything is measured in it.

After a fork both processes share pages, and the first write to each costs a fault and a copy, which a new process does not
pay. Every page that is there and writable is therefore written once, with the byte it holds. Pages that are not there yet
stay so: touching fresh memory is part of what a cold step pays. Linux only; elsewhere nothing is done.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

__all__ = ["own_pages"]

_PRESENT: Final = np.uint64(1 << 63)  # pagemap, bit 63: the page is in memory
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE
_PROC: Final = Path("/proc/self")


@cache
def _madvise() -> Any:
    function = ctypes.CDLL(None, use_errno=True).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def _private_ranges() -> Iterator[tuple[int, int]]:
    """Start and end of every private, writable mapping."""
    for line in (_PROC / "maps").read_text().splitlines():
        where, rights, *_ = line.split()
        if rights.startswith("rw") and rights.endswith("p"):
            start, _, end = where.partition("-")
            yield int(start, 16), int(end, 16)


def own_pages() -> int:
    """Write to every shared page of this process; returns how many were there (0 where the system does not say)."""
    try:
        return sum(_own(start, pages) for start, pages in list(_runs()))
    except OSError:
        return 0


def _runs() -> Iterator[tuple[int, int]]:
    """Address and number of pages of every run of private, writable pages that are in memory."""
    with (_PROC / "pagemap").open("rb", buffering=0) as pagemap:
        for start, end in _private_ranges():
            pagemap.seek(start // mmap.PAGESIZE * 8)
            entries = np.frombuffer(pagemap.read((end - start) // mmap.PAGESIZE * 8), dtype=np.uint64)
            present = (entries & _PRESENT) != 0
            edges = np.flatnonzero(np.diff(present.astype(np.int8), prepend=0, append=0))
            for first, last in edges.reshape(-1, 2).tolist():
                yield start + first * mmap.PAGESIZE, last - first


def _own(start: int, pages: int) -> int:
    """One system call where the kernel has it (Linux 5.14), else a byte a page."""
    if _madvise()(start, pages * mmap.PAGESIZE, _POPULATE_WRITE) != 0:
        for page in range(start, start + pages * mmap.PAGESIZE, mmap.PAGESIZE):
            ctypes.memmove(page, page, 1)
    return pages
