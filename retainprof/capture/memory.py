"""Memory as the operating system and an accelerator's allocator see it; neither number is what the ledger counts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import torch

from retainprof.records import DeviceMemory

__all__ = ["DeviceMemory", "device_memory", "reset_device_peak", "rss_bytes", "why_rss_differs"]

_STATM: Final = Path("/proc/self/statm")


def rss_bytes() -> int | None:
    """Resident set of this process in bytes; None where the system has no ``/proc``."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def device_memory(device: torch.device) -> DeviceMemory | None:
    """The allocator's numbers for ``device``; None on the CPU, and where the backend keeps no statistics."""
    if device.type == "cpu" or not torch.accelerator.is_available():
        return None
    try:
        stats = torch.accelerator.memory_stats(device)
    except (RuntimeError, NotImplementedError):
        return None
    names = ("allocated_bytes.all.current", "reserved_bytes.all.current", "allocated_bytes.all.peak")
    allocated, reserved, peak = (int(stats.get(name, 0)) for name in names)
    return DeviceMemory(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        peak_allocated_bytes=peak,
        peak_reserved_bytes=int(stats.get("reserved_bytes.all.peak", 0)),
    )


def reset_device_peak(device: torch.device) -> None:
    """Begin a new peak on ``device``; nothing on the CPU, whose peaks come from allocation events."""
    if device.type != "cpu" and torch.accelerator.is_available():
        torch.accelerator.reset_peak_memory_stats(device)


def why_rss_differs(allocated_change: int, rss_change: int | None) -> str:
    """One sentence for the report where the two changes (bytes) disagree; "" where they agree within a tenth.

    The C allocator keeps freed memory for itself: after 117 MB in tensors of 48 KB were dropped, the resident set did
    not move until ``malloc_trim``.
    """
    if rss_change is None or abs(rss_change - allocated_change) <= abs(allocated_change) / 10:
        return ""
    if allocated_change < 0 and rss_change > allocated_change:
        return "The C allocator keeps freed memory for the next tensors; the process gives it back with malloc_trim."
    if rss_change > allocated_change:
        return "The process also grew by what tensors do not count: code, caches, threads and pages of the allocator."
    return "The tensors went into memory that the C allocator had kept from before, or into pages not yet touched."
