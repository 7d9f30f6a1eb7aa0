"""Passes of our own labels: what a run of ours wrote, read back."""

from __future__ import annotations

from retainprof import labels
from retainprof.records import RangePass
from retainprof.trace.facts import Facts
from retainprof.trace.measure import Span, measure
from retainprof.trace.trace import Trace

__all__ = ["passes"]


def passes(trace: Trace) -> tuple[RangePass, ...]:
    """One pass for each of our labels, in order of time; a step begins with its first forward's label."""
    spans: list[Span] = []
    step = -1
    marks = trace.marks
    for name, start, end in zip(marks.name.tolist(), marks.start.tolist(), marks.end.tolist(), strict=True):
        label = labels.parse(trace.names[name])
        if label is None:
            continue
        if label.phase == "forward" and label.index == 0:
            step += 1
        spans.append(Span(trace.names[name], max(step, 0), start, end))
    return measure(Facts(trace), spans)
