"""Rules on the first step of a fresh process."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import ClassVar

from retainprof.analysis.findings.base import Rule, made_calls, names_of, register
from retainprof.records import CallResult, Finding, Result, StrategyResult
from retainprof.units import ratio, show_count, show_interval_ns, show_ns

__all__ = ["FirstCallCold", "SecondCallCold"]

FEWEST_PROCESSES = 3
CLEARLY = 1.5  # cold over steady, medians


class _Cold(Rule):
    """A call that takes clearly longer in a fresh process than in the steady state: in every process that was tried."""

    index: ClassVar[int]
    why: ClassVar[str]

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        for call in made_calls(strategy)[self.index : self.index + 1]:
            cold, steady = call.cold_wall_ns, call.wall_ns
            if len(cold.samples) < FEWEST_PROCESSES or cold.median is None or not steady.median or steady.ci95 is None:
                continue
            if min(cold.samples) > steady.ci95[1] and cold.median >= CLEARLY * steady.median:
                yield self._cold(strategy, call, cold.median, steady.median)

    def _cold(self, strategy: StrategyResult, call: CallResult, cold: float, steady: float) -> Finding:
        faults = round(median(call.cold_minor_faults)) if call.cold_minor_faults else None
        pages = "" if faults is None else f", {show_count(faults)} page faults"
        processes = len(call.cold_wall_ns.samples)
        return self.finding(
            strategy,
            call.index,
            f"call {call.index} ({names_of(call)}) takes {show_ns(cold)} in the first step of a process{pages}, "
            f"{ratio(cold / steady)} its steady {show_ns(steady)} ({show_interval_ns(call.wall_ns.ci95)}); {self.why}",
            "run a few steps before timing, and do not read the first step's times as the price of the calls",
            evidence={
                "cold_ns": round(cold),
                "steady_ns": round(steady),
                "processes": processes,
                "minor_faults": faults,
            },
        )


@register
class FirstCallCold(_Cold):
    """The first call of a process creates what every later one uses."""

    name = "first_call_cold"
    looks_for = "a first call that is dear only in the first step of a process"
    url = "https://docs.pytorch.org/docs/stable/benchmark_utils.html"
    index = 0
    why = "kernels, primitives and memory are set up once per process"


@register
class SecondCallCold(_Cold):
    """The second call is cold as well: the first one's temporaries became gradients."""

    name = "second_call_cold"
    looks_for = "a second call that is dear in the first step of a process as well"
    url = "https://docs.pytorch.org/docs/stable/benchmark_utils.html"
    index = 1
    why = "memory that the first call used went into gradients, so this one meets fresh pages, and branches of its own"
