"""Findings: what a run shows that is worth knowing, each with its evidence, what to do, and what that would save.

A rule fires on evidence only. To add one: a subclass of :class:`Rule` with ``@register`` in one of the modules here,
with a test in which it must fire and one in which it must not.
"""

from __future__ import annotations

from retainprof.analysis.compare import Clock, clock_of
from retainprof.analysis.findings import accumulate, cold, faults, meaning, repeats, retained, storage
from retainprof.analysis.findings.base import RULES, Rule, register
from retainprof.records import Finding, Result, StrategyResult

__all__ = ["RULES", "Rule", "find", "register"]

MODULES = (accumulate, cold, faults, meaning, repeats, retained, storage)
_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def find(result: Result) -> tuple[Finding, ...]:
    """All findings of a run: errors first, then by what they save, then warnings before what is only worth knowing.

    Savings of time and of memory are put on one scale as shares of the strategy's own step and peak.
    """
    strategies = {strategy.name: strategy for strategy in result.strategies}
    found = [f for rule in RULES.values() for s in result.strategies for f in rule.find(s, result)]
    clock = clock_of(result)
    return tuple(sorted(found, key=lambda f: _order(f, strategies[f.strategy], clock)))


def _order(finding: Finding, strategy: StrategyResult, clock: Clock) -> tuple[bool, float, int, str, str, int]:
    return (
        finding.severity != "error",
        -_share(finding, strategy, clock),
        _SEVERITY[finding.severity],
        finding.rule,
        finding.strategy,
        -1 if finding.call is None else finding.call,
    )


def _share(finding: Finding, strategy: StrategyResult, clock: Clock) -> float:
    """The larger of the saved shares of the step's time, by the clock that decides, and of its peak; 0 where none is saved."""
    times = [strategy.step.wall_ns.median, strategy.step.cpu_ns.median]
    time = next((median for median in (reversed(times) if clock == "cpu" else times) if median), None)
    parts = (
        (finding.saves_ns, time),
        (finding.saves_bytes, strategy.step.peak_bytes or strategy.retained.after_forward_bytes),
    )
    return max((saved / whole for saved, whole in parts if saved and whole), default=0.0)
