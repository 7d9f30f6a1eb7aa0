"""The ranges that a person would ask about: labels round backward calls, steps, and others that hold engine events."""

from __future__ import annotations

import re
from typing import Final, Literal

import numpy as np

from retainprof import labels
from retainprof.trace.columns import Column, Marks
from retainprof.trace.facts import Facts
from retainprof.trace.trace import Trace

__all__ = ["DEFAULT_LABEL", "STEP", "kinds", "labelled", "user_marks"]

STEP: Final = re.compile(r"ProfilerStep#?\d*|ProfilerStep\*?")
DEFAULT_LABEL: Final = re.compile(r"backward|autograd\.grad", re.IGNORECASE)
Kind = Literal["label", "step", "wraps", "other"]


def user_marks(trace: Trace) -> Marks:
    """User annotations; traces of 2021 have their steps among the operators."""
    if len(trace.marks):
        return trace.marks
    step = np.array([STEP.fullmatch(name) is not None for name in trace.names], bool)[trace.operators.name]
    rows = trace.operators.take(step)
    return Marks(rows.start, rows.end, rows.name, rows.thread)


def kinds(facts: Facts, marks: Marks) -> tuple[Kind, ...]:
    """What each annotation is: a label of a backward, a step, another one in which a whole engine event lies, or other."""
    operators = facts.trace.operators
    start, end = operators.start[facts.engine], operators.end[facts.engine]
    first_end = np.append(np.minimum.accumulate(end[::-1])[::-1], np.iinfo(np.int64).max) if len(end) else None
    found: list[Kind] = []
    for name, begin, stop in zip(marks.name.tolist(), marks.start.tolist(), marks.end.tolist(), strict=True):
        text = facts.trace.names[name]
        if STEP.fullmatch(text):
            found.append("step")
        elif DEFAULT_LABEL.search(text):
            found.append("label")
        elif first_end is not None and first_end[np.searchsorted(start, begin, "left")] <= stop:
            found.append("wraps")
        else:
            found.append("other")
    return tuple(found)


def labelled(trace: Trace, pattern: re.Pattern[str] | None = None) -> Column:
    """Rows of ``trace.marks`` that are labels of calls: our own, else those whose name ``pattern`` finds.

    Of labels inside each other, only the innermost. Without a pattern, names with "backward" in them.
    """
    own = [(label := labels.parse(name)) is not None and label.phase == "call" for name in trace.names]
    wanted = np.array(own, bool)
    if pattern is not None or not wanted[trace.marks.name].any():
        search = (pattern or DEFAULT_LABEL).search
        wanted = np.array([search(name) is not None for name in trace.names], bool)
    rows = np.flatnonzero(wanted[trace.marks.name])
    return rows[_innermost(trace.marks.start[rows], trace.marks.end[rows])]


def _innermost(start: Column, end: Column) -> Column:
    """Mask of the ranges (sorted by start, the longest first) in which no other one lies."""
    if not len(start):
        return np.empty(0, bool)
    after = np.append(start[1:], np.iinfo(np.int64).max)
    inner_end = np.append(np.minimum.accumulate(end[::-1])[::-1][1:], np.iinfo(np.int64).max)
    alone: Column = (after > end) | (inner_end > end)
    return alone
