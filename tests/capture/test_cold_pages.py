"""A forked child owns its pages before it measures: the faults of copying on write are behind it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retainprof.capture.cold_pages import own_pages


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="needs Linux's /proc/self/pagemap")
def test_no_page_is_copied_on_write_afterwards() -> None:
    import resource

    block = bytearray(64 << 20)
    for i in range(0, len(block), 4096):
        block[i] = 7  # 16,384 pages that parent and child will share
    pages = len(block) // 4096
    reading, writing = os.pipe()
    if os.fork() == 0:
        own_pages()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for i in range(0, len(block), 4096):
            block[i] += 1
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        whole = all(block[i] == 8 for i in range(0, len(block), 4096))
        os.write(writing, f"{faults} {int(whole)}".encode())
        os._exit(0)
    os.wait()
    faults, was_whole = map(int, os.read(reading, 100).split())
    assert was_whole == 1
    assert faults < pages / 100
    assert block[0] == 7
