"""Backward calls from the engine's own events, without any label.

A call is a run of evaluations that one thread waits for. Two things end it:

* The thread that enters the engine does something of its own: it waits while a call runs, so whatever it starts outside
  an evaluation lies between two calls. (Every call without an explicit gradient begins with ``aten::ones_like``.)
* A sequence number that does not fall. Of the nodes that are ready, a thread of the engine takes the one with the
  highest number, and a node only makes nodes ready that were made before it; so the numbers fall inside a call, and
  each stands in it once. AccumulateGrad has none.
"""

from __future__ import annotations

import numpy as np

from retainprof.trace.columns import Column, Marks
from retainprof.trace.facts import Facts
from retainprof.trace.group import among, distinct

__all__ = ["engine_calls", "entering_thread"]


def engine_calls(facts: Facts) -> Marks:
    """Ranges of the calls found, in order; ``name`` is 0, ``thread`` the one that entered.

    A range starts with the filling of the root's gradient, where there is one, and ends with what the engine's threads
    still do after the last evaluation.
    """
    operators = facts.trace.operators
    rows = _top(facts, facts.engine if facts.engine.any() else facts.nodes)
    if not len(rows):
        return Marks(*(np.empty(0, np.int64) for _ in range(4)))
    entering = entering_thread(facts)
    outside = _outside(facts, entering)
    starts = _starts_call(facts, rows, operators.start[outside])
    first = np.flatnonzero(starts)
    begin = operators.start[rows[first]]
    end = np.maximum.reduceat(operators.end[rows], first)
    begin, end = _with_root(facts, outside, begin), _with_rest(facts, entering, outside, begin, end)
    return Marks(begin, end, np.zeros(len(first), np.int64), np.full(len(first), entering))


def entering_thread(facts: Facts) -> int:
    """The thread that runs the forward, and so calls backward: the one with most operators that autograd records."""
    operators = facts.trace.operators
    recorded = facts.aten & (operators.sequence >= 0) & (operators.forward_thread <= 0)
    recorded &= facts.outwards(facts.nest.parent, facts.engine) < 0
    if not recorded.any():
        recorded = facts.aten & (facts.outwards(facts.nest.parent, facts.engine | facts.nodes) < 0)
    threads = operators.thread[recorded]
    return int(np.bincount(threads).argmax()) if len(threads) else int(operators.thread[0])


def _top(facts: Facts, activity: Column) -> Column:
    """Rows of the evaluations that lie in no other one: not those of a re-entrant call."""
    rows = np.flatnonzero(activity)
    return rows[facts.outwards(facts.nest.parent[rows], activity) < 0]


def _outside(facts: Facts, thread: int) -> Column:
    """Rows of the operators that a thread starts outside every other one and outside the engine."""
    operators = facts.trace.operators
    own = (facts.nest.parent < 0) & (operators.thread == thread) & ~facts.engine & ~facts.nodes
    return np.flatnonzero(own)


def _starts_call(facts: Facts, rows: Column, outside: Column) -> Column:
    """Mask of the evaluations that begin a call; ``outside`` are the moments when the entering thread did something."""
    operators = facts.trace.operators
    passed = np.searchsorted(outside, operators.start[rows], "right")
    starts = np.ones(len(rows), bool)
    starts[1:] = passed[1:] > passed[:-1]
    sequence = operators.sequence[rows]
    told = np.flatnonzero(sequence >= 0)
    line = np.lexsort((told, operators.forward_thread[rows[told]], operators.thread[rows[told]]))
    told = told[line]
    before, after = told[:-1], told[1:]
    same = operators.thread[rows[before]] == operators.thread[rows[after]]
    same &= operators.forward_thread[rows[before]] == operators.forward_thread[rows[after]]
    starts[after[same & (sequence[after] >= sequence[before])]] = True
    return starts


def _with_root(facts: Facts, outside: Column, begin: Column) -> Column:
    """Starts moved back to the ``aten::ones_like`` (and its filling) that stand directly before, one for each root."""
    operators = facts.trace.operators
    root = facts.named(lambda name: name == "aten::ones_like")[outside]
    root[1:] |= root[:-1] & facts.named(lambda name: name == "aten::fill_")[outside][1:]
    at = np.searchsorted(operators.start[outside], begin, "right") - 1
    begin = begin.copy()
    left = np.append(-np.inf, begin[:-1])
    active = at >= 0
    while active.any():
        place = np.maximum(at, 0)
        active &= root[place] & (operators.start[outside[place]] > left)
        begin[active] = operators.start[outside[place[active]]]
        at = at - 1
        active &= at >= 0
    return begin


def _with_rest(facts: Facts, entering: int, outside: Column, begin: Column, end: Column) -> Column:
    """Ends moved to that of the last operator of an engine thread before the entering thread goes on, or the next call."""
    operators = facts.trace.operators
    threads = distinct(operators.thread[facts.engine])
    rows = np.flatnonzero(among(operators.thread, threads[threads != entering]) & (facts.nest.parent < 0))
    if not len(rows):
        return end
    goes_on = np.append(operators.start[outside], np.iinfo(np.int64).max)
    limit = goes_on[np.searchsorted(goes_on[:-1], end, "left")]
    limit = np.minimum(limit, np.append(begin[1:], np.iinfo(np.int64).max))
    last = np.searchsorted(operators.start[rows], limit, "left") - 1
    reached = np.maximum.accumulate(operators.end[rows])[np.maximum(last, 0)]
    moved: Column = np.where(last >= 0, np.maximum(end, np.minimum(reached, limit)), end)
    return moved
