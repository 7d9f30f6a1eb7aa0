"""Readings of the operating system and of allocators."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

from retainprof.capture import memory
from retainprof.capture.memory import device_memory, rss_bytes, why_rss_differs


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_rss_agrees_with_another_source() -> None:
    """``VmRSS`` of ``/proc/self/status`` is counted apart, in kB; both move between the readings."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (other,) = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")]
    found = rss_bytes()
    assert found is not None
    assert abs(found - other) < 32 << 20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_touched_pages_are_seen() -> None:
    size = 256 << 20
    before = rss_bytes()
    with mmap.mmap(-1, size) as pages:
        for place in range(0, size, mmap.PAGESIZE):
            pages[place] = 1
        after = rss_bytes()
    assert before is not None
    assert after is not None
    assert 0.9 * size < after - before < 1.1 * size


def test_no_proc_no_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_STATM", tmp_path / "missing")
    assert rss_bytes() is None


def test_the_cpu_has_no_device_memory() -> None:
    assert device_memory(torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("allocated", "rss", "word"),
    [
        (-117_000_000, 0, "malloc_trim"),
        (1_000_000, 9_000_000, "do not count"),
        (9_000_000, 1_000_000, "kept from before"),
        (100, 105, ""),
        (100, None, ""),
    ],
)
def test_why_they_differ(allocated: int, rss: int | None, word: str) -> None:
    text = why_rss_differs(allocated, rss)
    assert word in text
    assert bool(text) is bool(word)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator")
def test_device_memory_counts_tensors() -> None:
    device = torch.accelerator.current_accelerator()
    assert device is not None
    before = device_memory(device)
    tensor = torch.empty(1 << 20, dtype=torch.uint8, device=device)
    after = device_memory(device)
    assert before is not None
    assert after is not None
    assert after.allocated_bytes - before.allocated_bytes == tensor.nbytes
    assert after.peak_allocated_bytes >= after.allocated_bytes
    assert after.reserved_bytes >= after.allocated_bytes
