"""Allocated bytes over one profiled step: for drawing, and for the step's peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retainprof import labels
from retainprof.records import Band, TimelinePoint
from retainprof.trace import Trace

__all__ = ["Timeline", "timeline"]

CPU = 0  # device types as torch numbers them


@dataclass(frozen=True)
class Timeline:
    """The last step of a trace: level of allocated bytes above its start, labelled ranges, and the highest level.

    ``peak_bytes`` is None where the trace has no step of ours; times are ns since the step's start.
    """

    points: tuple[TimelinePoint, ...] = ()
    bands: tuple[Band, ...] = ()
    peak_bytes: int | None = None


def timeline(trace: Trace, *, on_cpu: bool = True, limit: int = 400) -> Timeline:
    """From the last first forward to the end of the last call after it, thinned to ``limit`` points that keep the peaks."""
    step = _last_step(trace)
    if not step:
        return Timeline()
    start, end = step[0][1], max(band[2] for band in step)
    memory = trace.memory
    rows = (memory.start >= start) & (memory.start <= end) & ((memory.device_type == CPU) == on_cpu)
    levels = np.cumsum(memory.nbytes[rows])
    points = [(0, 0), *zip((memory.start[rows] - start).tolist(), levels.tolist(), strict=True)]
    return Timeline(
        points=tuple(TimelinePoint(at_ns=at, bytes=level) for at, level in _thinned(points, limit)),
        bands=tuple(Band(label=name, start_ns=begin - start, end_ns=over - start) for name, begin, over in step),
        peak_bytes=max(level for _, level in points),
    )


def _last_step(trace: Trace) -> list[tuple[str, int, int]]:
    """Name, start and end of the forward parts and calls of the last step, in order of time."""
    marks = trace.marks
    found = [
        (trace.names[name], start, end)
        for name, start, end in zip(marks.name.tolist(), marks.start.tolist(), marks.end.tolist(), strict=True)
        if (seen := labels.parse(trace.names[name])) is not None and seen.phase in ("forward", "call")
    ]
    begins = [i for i, (name, _, _) in enumerate(found) if name == labels.make("forward", 0)]
    return found[begins[-1] :] if begins else []


def _thinned(points: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Highest and lowest point of each of ``limit / 2`` runs of points."""
    if len(points) <= limit:
        return list(points)
    size = -(-len(points) * 2 // limit)
    runs = [points[i : i + size] for i in range(0, len(points), size)]
    ends = [{min(run, key=lambda p: p[1]), max(run, key=lambda p: p[1])} for run in runs]
    return [point for found in ends for point in sorted(found)]
