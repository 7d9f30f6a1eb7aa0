"""The record of an answer, and the wording that several of them share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from retainprof.analysis.compare import clock_of
from retainprof.records import Ratio, Record, Result, StrategyResult
from retainprof.units import ratio, show_count

__all__ = ["Answer", "between", "clock_words", "listed", "main_strategy", "spread"]


class Answer(Record, frozen=True, kw_only=True):
    """One answer: plain sentences, the numbers they rest on (bytes, nanoseconds, ratios), and the strategy it is about.

    ``strategy`` is None where the answer is about the run as a whole.
    """

    question: str
    text: str
    numbers: dict[str, Any] = msgspec.field(default_factory=dict)
    strategy: str | None = None


def main_strategy(result: Result) -> StrategyResult | None:
    """The strategy the questions are about: the first with several calls that retains, else the first with several calls.

    Strategies that failed come last.
    """
    several = [s for s in result.strategies if len(s.calls) > 1]
    retaining = [s for s in several if any(call.retain_graph for call in s.calls)]
    ordered = [*retaining, *several]
    return next((s for s in ordered if s.status == "ok"), ordered[0] if ordered else None)


def between(found: Ratio) -> str:
    """``0.97x to 1.08x over 40 rounds``."""
    low, high = found.ci95
    return f"{ratio(low)} to {ratio(high)} over {show_count(found.pairs)} rounds"


def spread(values: Iterable[float]) -> str:
    """``1.69x``, or ``1.69x to 1.74x`` where the values differ as shown."""
    shown = sorted(values)
    low, high = ratio(shown[0]), ratio(shown[-1])
    return low if low == high else f"{low} to {high}"


def clock_words(result: Result) -> str:
    """What the ratios are ratios of."""
    return "CPU time" if clock_of(result) == "cpu" else "wall time"


def listed(names: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
