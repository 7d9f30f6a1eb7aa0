"""Makes a forked child's memory its own before anything is measured in it.

After a fork both processes share pages, and the first write to each costs a fault and a copy, which a new process does not
pay. So a scout, a child whose times nobody keeps, first finds the pages that a first step writes (a few MB of the 150 MB
that a process with torch has), and every child after it writes to those pages before it measures. Without a scout's answer
all shared pages are written. Pages that are not there yet stay so: touching fresh memory is part of what a cold step pays.
Linux only; elsewhere nothing is done.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Runs", "own_pages", "written_pages"]

Runs = list[tuple[int, int]]  # address of the first page, and how many pages follow one another
_PRESENT: Final = np.uint64(1 << 63)  # pagemap, bit 63: the page is in memory
_IN_MEMORY_ALONE: Final = np.uint64(1 << 63 | 1 << 56)  # and bit 56: no other process maps it
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


def own_pages(runs: Runs | None = None) -> int:
    """Write to the pages of ``runs``, or to every page that is there; how many they are (0 where the system hides them)."""
    try:
        return sum(_own(start, pages) for start, pages in (_present() if runs is None else runs))
    except OSError:
        return 0


def _entries(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """Start of each range, and what the system says of each of its pages."""
    with (_PROC / "pagemap").open("rb", buffering=0) as pagemap:
        for start, end in ranges:
            pagemap.seek(start // mmap.PAGESIZE * 8)
            yield start, np.frombuffer(pagemap.read((end - start) // mmap.PAGESIZE * 8), dtype=np.uint64)


def _present() -> Runs:
    found: Runs = []
    for start, entries in _entries(list(_private_ranges())):
        found += _runs(start, (entries & _PRESENT) != 0)
    return found


def _runs(start: int, wanted: npt.NDArray[np.bool_]) -> Runs:
    """Runs of ``wanted`` pages of the mapping at ``start``."""
    edges = np.flatnonzero(np.diff(wanted.astype(np.int8), prepend=0, append=0)).reshape(-1, 2).tolist()
    return [(start + first * mmap.PAGESIZE, last - first) for first, last in edges]


def written_pages(run: Callable[[], None]) -> Runs:
    """The shared pages that ``run()`` writes, run in a forked child; none where that is not to be known."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as out:
                out.write(np.asarray(list(_written_here(run)), dtype=np.int64).tobytes())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        answer = np.frombuffer(told.read(), dtype=np.int64).reshape(-1, 2).tolist()
    os.waitpid(child, 0)
    return [(start, pages) for start, pages in answer]


def _written_here(run: Callable[[], None]) -> Iterator[tuple[int, int]]:
    ranges = list(_private_ranges())
    shared = [(entries & _IN_MEMORY_ALONE) == _PRESENT for _, entries in _entries(ranges)]
    run()
    for was_shared, (start, entries) in zip(shared, _entries(ranges), strict=True):
        yield from _runs(start, was_shared & ((entries & _IN_MEMORY_ALONE) == _IN_MEMORY_ALONE))


def _own(start: int, pages: int) -> int:
    """One system call where the kernel has it (Linux 5.14), else a byte a page."""
    if _madvise()(start, pages * mmap.PAGESIZE, _POPULATE_WRITE) != 0:
        for page in range(start, start + pages * mmap.PAGESIZE, mmap.PAGESIZE):
            ctypes.memmove(page, page, 1)
    return pages
