"""The two main charts as PNG, for TensorBoard's Images dashboard. Needs matplotlib, the extra ``images``."""

from __future__ import annotations

import importlib.util
import io
import warnings
from typing import TYPE_CHECKING

from retainprof.analysis.compare import Clock, clock_of
from retainprof.records import CallResult, Result, Samples, StepResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["available", "calls_chart", "png", "strategies_chart"]

NS_PER_MS = 1e6
BYTES_PER_MIB = 1 << 20
MARKERS = "os^vDP*X"
CLOCKS = {"cpu": "CPU", "wall": "Wall"}


def available() -> bool:
    """Whether matplotlib is installed; imports nothing."""
    return importlib.util.find_spec("matplotlib") is not None


def calls_chart(result: Result) -> Figure | None:
    """Steady time of every call with its 95% interval, a row a call, strategies from the top; None if nothing was timed."""
    clock = clock_of(result)
    rows = [
        (f"{strategy.name}, call {call.index}", samples)
        for strategy in result.strategies
        for call in strategy.calls
        if (samples := _of(call, clock)).median is not None
    ]
    if not rows:
        return None
    figure = _figure(1 + 0.3 * len(rows))
    axes = figure.add_subplot()
    medians = [_ms(samples.median) for _, samples in rows]
    axes.barh(range(len(rows)), medians, xerr=_bars([samples for _, samples in rows]), capsize=3)
    axes.set_yticks(range(len(rows)), [_plain(name) for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"{CLOCKS[clock]} time of a call, ms: median and 95% interval")
    return figure


def strategies_chart(result: Result) -> Figure | None:
    """A step's time against its peak memory, a point a strategy; None if no strategy has both."""
    clock = clock_of(result)
    points = [(s, _of(s.step, clock), s.step.peak_bytes) for s in result.strategies]
    known = [(s, time, peak) for s, time, peak in points if time.median is not None and peak is not None]
    if not known:
        return None
    figure = _figure(4)
    axes = figure.add_subplot()
    for i, (strategy, time, peak) in enumerate(known):
        middle, up = [_ms(time.median)], [peak / BYTES_PER_MIB]
        name = _plain(strategy.name)
        label = f" {name}" if name.startswith("_") else name  # else the legend leaves it out
        axes.errorbar(middle, up, xerr=_bars([time]), fmt=MARKERS[i % len(MARKERS)], capsize=3, alpha=0.8, label=label)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{CLOCKS[clock]} time of a step, ms: median and 95% interval")
    axes.set_ylabel("peak above the start, MiB")
    figure.legend(loc="outside right upper")
    return figure


def png(figure: Figure) -> bytes:
    """The figure as a PNG file; letters that matplotlib's font lacks are boxes."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _figure(height: float) -> Figure:
    """A figure of no window and no global state, 8 inches wide, at most 40 high."""
    from matplotlib.figure import Figure

    return Figure(figsize=(8, min(height, 40)), dpi=100, layout="constrained")


def _of(record: CallResult | StepResult, clock: Clock) -> Samples:
    return record.cpu_ns if clock == "cpu" else record.wall_ns


def _ms(ns: float | None) -> float:
    return 0.0 if ns is None else ns / NS_PER_MS


def _bars(times: list[Samples]) -> list[list[float]]:
    """How far each interval reaches below and above its median, in ms."""
    ends = [(t.median or 0.0, t.ci95 or (t.median or 0.0, t.median or 0.0)) for t in times]
    return [[_ms(middle - low) for middle, (low, _) in ends], [_ms(high - middle) for middle, (_, high) in ends]]


def _plain(text: str) -> str:
    """``text`` as it is, never as matplotlib's formulas."""
    return text.replace("$", r"\$")[:60]
