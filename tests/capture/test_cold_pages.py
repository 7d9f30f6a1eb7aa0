"""A forked child owns its pages before it measures: the faults of copying on write are behind it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from retainprof.capture.cold_pages import own_pages, written_pages


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


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="needs Linux's /proc/self/pagemap")
def test_a_scout_finds_the_pages_that_are_written() -> None:
    """Of 1,024 pages that parent and child share, the 100 that the scout writes, and hardly another."""
    page = 4096
    block = bytearray(1024 * page)
    for i in range(0, len(block), page):
        block[i] = 7
    first = ctypes.addressof(ctypes.c_char.from_buffer(block)) // page * page

    def write() -> None:
        for n in range(300, 400):
            block[n * page + page // 2] = 8

    found = {address for start, count in written_pages(write) for address in range(start, start + count * page, page)}
    half = ctypes.addressof(ctypes.c_char.from_buffer(block)) + page // 2
    wanted = {(half + n * page) // page * page for n in range(300, 400)}
    inside = {address for address in found if first <= address < first + len(block)}
    assert inside == wanted
    assert block[300 * page + page // 2] == 0  # written in the child only


def test_a_scout_that_fails_finds_nothing() -> None:
    def fail() -> None:
        raise ValueError("no")

    assert written_pages(fail) == []
