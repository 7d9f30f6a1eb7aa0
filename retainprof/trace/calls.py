"""The backward calls of a trace, each with its step, its number in the step, and the calls it shares a graph with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from retainprof import labels
from retainprof.trace.columns import Column, Marks
from retainprof.trace.engine import engine_calls
from retainprof.trace.facts import Facts
from retainprof.trace.group import Groups
from retainprof.trace.ranges import Ranges
from retainprof.trace.select import STEP, labelled, user_marks

__all__ = ["Calls", "find_calls"]

_OPTIMIZER: re.Pattern[str] = re.compile(r"Optimizer\.step")
FoundBy = Literal["label", "engine"]


@dataclass(frozen=True)
class Calls:
    """Columns with one row a call, in order of time.

    ``step`` counts from 0, ``index`` from 0 in each step. ``shared`` is the number of nodes that the call went through
    and an earlier call of its step as well. ``graph`` is equal for calls of a step that went over a common node.
    """

    marks: Marks
    names: tuple[str, ...]
    step: Column
    index: Column
    shared: Column
    graph: Column
    found_by: FoundBy
    steps_by: str

    def __len__(self) -> int:
        return len(self.step)

    @property
    def ranges(self) -> Ranges:
        """The calls' ranges of time."""
        return Ranges(self.marks.start, self.marks.end)


def find_calls(facts: Facts, pattern: re.Pattern[str] | None = None) -> Calls:
    """Calls by label (our own, those that ``pattern`` finds, or usual ones), else by the engine's own events."""
    trace = facts.trace
    rows = labelled(trace, pattern)
    if len(rows):
        marks, names = trace.marks.take(rows), tuple(trace.names[name] for name in trace.marks.name[rows])
        found_by: FoundBy = "label"
    else:
        marks, found_by = engine_calls(facts), "engine"
        names = ("",) * len(marks)
    seen = _visits(facts, marks)
    step, steps_by = _steps(facts, marks, names, seen)
    index = np.arange(len(step)) - np.searchsorted(step, step, "left")
    shared, graph = _sharing(seen, step)
    return Calls(marks, names, step, index, shared, graph, found_by, steps_by)


@dataclass(frozen=True)
class _Visits:
    """Nodes with a sequence number that calls went through: (call, node), each pair once, sorted by node."""

    call: Column
    node: Column
    first_name: Column  # of each call, the name of its first evaluation; -1: none


def _visits(facts: Facts, marks: Marks) -> _Visits:
    operators = facts.trace.operators
    activity = facts.engine if facts.engine.any() else facts.nodes
    which, rows = Ranges(marks.start, marks.end).inside(operators).expand(activity)
    first = np.full(len(marks), -1)
    first[which[::-1]] = operators.name[rows[::-1]]
    told = operators.sequence[rows] >= 0
    which, rows = which[told], rows[told]
    thread = operators.forward_thread[rows] + 1
    node = Groups.by(operators.sequence[rows], thread).of
    pairs = Groups.by(node, which).first
    return _Visits(which[pairs], node[pairs], first)


def _sharing(seen: _Visits, step: Column) -> tuple[Column, Column]:
    """For each call the nodes that an earlier call of its step went through, too, and the first call of its graph."""
    before, after = seen.call[:-1], seen.call[1:]
    again = (seen.node[:-1] == seen.node[1:]) & (step[before] == step[after])
    shared = np.bincount(after[again], minlength=len(step))
    graph = np.arange(len(step))
    links = Groups.by(after[again], before[again]).first
    for later, earlier in zip(after[again][links].tolist(), before[again][links].tolist(), strict=True):
        low, high = sorted((graph[later], graph[earlier]))
        graph[graph == high] = low
    return shared, graph


def _steps(facts: Facts, marks: Marks, names: tuple[str, ...], seen: _Visits) -> tuple[Column, str]:
    """The step of each call, from 0, and what told."""
    if not len(marks):
        return np.empty(0, np.int64), "nothing"
    for bounds, told_by in ((_profiler_steps(facts), "ProfilerStep"), (_own_steps(facts), "label")):
        if len(bounds):
            return _numbered(np.searchsorted(bounds, marks.start, "right")), told_by
    optimizer = _named(facts, _OPTIMIZER)
    if len(optimizer):
        return _numbered(np.searchsorted(optimizer, marks.start, "right")), "Optimizer.step"
    return _by_repeats(marks, names, seen), "repeats"


def _profiler_steps(facts: Facts) -> Column:
    return _named(facts, STEP)


def _own_steps(facts: Facts) -> Column:
    trace = facts.trace
    ours = [
        (found := labels.parse(name)) is not None and found.phase == "forward" and found.index == 0
        for name in trace.names
    ]
    starts: Column = trace.marks.start[np.array(ours, bool)[trace.marks.name]]
    return starts


def _named(facts: Facts, pattern: re.Pattern[str]) -> Column:
    """Starts of the annotations whose name begins with what ``pattern`` finds."""
    marks = user_marks(facts.trace)
    wanted = np.array([pattern.match(name) is not None for name in facts.trace.names], bool)
    starts: Column = marks.start[wanted[marks.name]]
    return starts


def _numbered(group: Column) -> Column:
    """Groups in order, as 0, 1, 2 ..."""
    numbers: Column = np.cumsum(np.append(0, (group[1:] != group[:-1]).astype(np.int64)))
    return numbers


def _by_repeats(marks: Marks, names: tuple[str, ...], seen: _Visits) -> Column:
    """A step begins with a call that looks like the first one of all and shares no node with a call before it."""
    shares = np.zeros(len(marks), bool)
    shares[seen.call[1:][seen.node[:-1] == seen.node[1:]]] = True
    like_first = [names[i] == names[0] and seen.first_name[i] == seen.first_name[0] for i in range(len(marks))]
    begins = np.array(like_first, bool) & ~shares
    step: Column = np.cumsum(begins) - 1
    return step
