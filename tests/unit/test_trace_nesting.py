"""Nesting, ranges and groups against slow, plain versions of themselves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from retainprof.trace.births import Births
from retainprof.trace.columns import Allocations, Marks, Table
from retainprof.trace.device import _not_covered_before
from retainprof.trace.group import Groups, added
from retainprof.trace.nesting import Nest
from retainprof.trace.ranges import Ranges

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 2)), max_size=30)


def marks(spans: list[tuple[int, int, int]], scale: int = 1) -> Marks:
    """Spans (start, length, thread), sorted as tables are."""
    spans = sorted(spans, key=lambda span: (span[0], -(span[0] + span[1])))
    start, length, thread = (
        (np.array(c, np.int64) for c in zip(*spans, strict=True)) if spans else [np.empty(0, np.int64)] * 3
    )
    return Marks(start * scale, (start + length) * scale, np.zeros(len(start), np.int32), thread)


def innermost(table: Marks, at: int, thread: int, before: int) -> int:
    """The last of the first ``before`` rows that is open at a moment; -1: none."""
    rows = [i for i in range(before) if table.thread[i] == thread and table.start[i] <= at < table.end[i]]
    return max(rows, default=-1)


def nested(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Only spans that overlap no other one of their thread in part."""
    kept: list[tuple[int, int, int]] = []
    for start, length, thread in spans:
        end = start + length
        if not any(t == thread and (s < start < s + n < end or start < s < end < s + n) for s, n, t in kept):
            kept.append((start, length, thread))
    return kept


@given(SPANS, st.sampled_from([1, 10**15]))
@settings(max_examples=300, deadline=None)
def test_parents(spans: list[tuple[int, int, int]], scale: int) -> None:
    """A scale of 10**15 ns makes the threads too long to be laid end to end in 64 bits."""
    table = marks(nested(spans), scale)
    expected = [innermost(table, int(table.start[i]), int(table.thread[i]), i) for i in range(len(table))]
    assert Nest.of(table).parent.tolist() == expected


@given(SPANS, st.lists(st.tuples(st.integers(-1, 45), st.integers(0, 3)), max_size=20))
@settings(max_examples=200, deadline=None)
def test_around_moments(spans: list[tuple[int, int, int]], moments: list[tuple[int, int]]) -> None:
    table = marks(nested(spans))
    at = np.array([moment for moment, _ in moments], np.int64)
    thread = np.array([t for _, t in moments], np.int64)
    expected = [innermost(table, moment, t, len(table)) for moment, t in moments]
    assert Nest.of(table).around(Table(at), thread).tolist() == expected


@given(SPANS)
@settings(max_examples=200, deadline=None)
def test_spans_that_overlap_get_some_open_span(spans: list[tuple[int, int, int]]) -> None:
    table = marks(spans)
    for i, parent in enumerate(Nest.of(table).parent.tolist()):
        if parent >= 0:
            assert parent < i
            assert table.thread[parent] == table.thread[i]
            assert table.start[parent] <= table.start[i] < table.end[parent]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-9, 9)), max_size=25), SPANS)
@settings(max_examples=200, deadline=None)
def test_sums_over_ranges(events: list[tuple[int, int]], spans: list[tuple[int, int, int]]) -> None:
    events.sort(key=lambda event: event[0])
    time, change = np.array([t for t, _ in events], np.int64), np.array([c for _, c in events], np.int64)
    table = marks(spans)
    inside = Ranges(table.start, table.end).inside(Table(time))
    chosen = [[i for i, t in enumerate(time) if a <= t <= b] for a, b in zip(table.start, table.end, strict=True)]
    assert inside.sum(change).tolist() == [sum(events[i][1] for i in rows) for rows in chosen]
    levels = [[sum(events[i][1] for i in rows[: n + 1]) for n in range(len(rows))] for rows in chosen]
    assert inside.peak(change).tolist() == [max([0, *level]) for level in levels]
    assert inside.last(change > 0).tolist() == [max((i for i in rows if change[i] > 0), default=-1) for rows in chosen]
    which, rows = inside.expand(change > 0)
    expected = [(n, i) for n, some in enumerate(chosen) for i in some if change[i] > 0]
    assert list(zip(which.tolist(), rows.tolist(), strict=True)) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_time_covered_by_a_union(spans: list[tuple[int, int, int]]) -> None:
    spans.sort()
    which, start, length = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    found = added(which, _not_covered_before(which, start, start + length), 4)
    for n in range(4):
        covered = {t for w, s, size in spans if w == n for t in range(s, s + size)}
        assert found[n] == len(covered)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**40), st.integers(0, 2**40)), max_size=20))
@settings(max_examples=100, deadline=None)
def test_groups_too_large_to_be_one_number(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    groups = Groups.by(*columns)
    assert [rows[i] for i in groups.first] == sorted(set(rows))
    assert [sorted(set(rows))[i] for i in groups.of] == rows


def test_sums_beyond_what_doubles_hold() -> None:
    large = np.array([2**60, 1, 2**60, 1])
    assert added(np.array([0, 0, 1, 1]), large, 2).tolist() == [2**60 + 1, 2**60 + 1]


def _moments(events: list[tuple[int, int]]) -> Allocations:
    size = len(events)
    columns: dict[str, Any] = {
        name: np.zeros(size, np.int64) for name in ("thread", "device_type", "device_id", "total")
    }
    return Allocations(
        start=np.arange(size),
        nbytes=np.array([nbytes for _, nbytes in events], np.int64),
        address=np.array([address for address, _ in events], np.int64),
        **columns,
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([8, -8, 0])), max_size=30))
@settings(max_examples=200, deadline=None)
def test_births_by_address(events: list[tuple[int, int]]) -> None:
    memory = _moments(events)
    alive: dict[int, int] = {}
    births: dict[int, int] = {}
    for i, (address, nbytes) in enumerate(events):
        if nbytes > 0:
            alive[address] = i
        elif nbytes < 0:
            births[i] = alive.pop(address, -1)
    found = Births.of(memory)
    assert {i: int(found.birth[i]) for i in births} == births
    assert np.flatnonzero(found.unknown(memory)).tolist() == [i for i, born in births.items() if born < 0]
    ends = dict(events_of(events))
    assert np.flatnonzero(found.alive_at_end(memory)).tolist() == sorted(i for i in ends.values() if events[i][1] > 0)


def events_of(events: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The last event of each address, and allocations that another allocation follows (their free is missing)."""
    rows: dict[int, list[int]] = {}
    for i, (address, nbytes) in enumerate(events):
        if nbytes:
            rows.setdefault(address, []).append(i)
    last = [(address, some[-1]) for address, some in rows.items()]
    lost = [(100 + a, a) for some in rows.values() for a, b in pairwise(some) if events[a][1] > 0 and events[b][1] > 0]
    return last + lost
