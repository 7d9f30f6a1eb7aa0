"""Comparisons within one run: later calls with the first of their step, strategies with the baseline, all pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from retainprof.analysis.kernels import diff
from retainprof.analysis.stats import deciding_clock, paired_ratio, verdict
from retainprof.records import FirstVsLater, Ratio, Result, Samples, StrategyComparison, StrategyResult

__all__ = ["Clock", "baseline_of", "cheapest", "clock_of", "compare_strategies", "deciding", "first_vs_later", "pair"]

Clock = Literal["cpu", "wall"]


def clock_of(result: Result) -> Clock:
    """The clock that the verdicts of a run rest on."""
    if result.timing is not None:
        return result.timing.clock
    return deciding_clock(result.environment.threads, result.environment.device)


def pair(contender: Samples, baseline: Samples) -> Ratio | None:
    """Ratio of two samples of the same rounds; None where they were not measured, or not in the same rounds."""
    if len(contender.samples) != len(baseline.samples):
        return None
    return _paired(contender.samples, baseline.samples)


@lru_cache(maxsize=4096)
def _paired(contender: tuple[int, ...], baseline: tuple[int, ...]) -> Ratio | None:
    """A result is made complete after every pass, with the samples of the pass before."""
    return paired_ratio(contender, baseline)


def deciding(cpu: Ratio | None, wall: Ratio | None, clock: Clock) -> Ratio | None:
    """The ratio that the verdict rests on; wall time where the CPU clock could not tell anything."""
    return wall if clock == "wall" or cpu is None else cpu


def first_vs_later(strategy: StrategyResult, clock: Clock) -> tuple[FirstVsLater, ...]:
    """Call 0 of a strategy with each later call that ended; ratios are later / first within a step."""
    made = len(strategy.calls) if strategy.error is None else strategy.error.call or 0
    found = []
    for later in strategy.calls[1:made]:
        first = strategy.calls[0]
        cpu, wall = pair(later.cpu_ns, first.cpu_ns), pair(later.wall_ns, first.wall_ns)
        kernels = diff(first.kernel_rows, later.kernel_rows) if first.kernel_rows and later.kernel_rows else ()
        if cpu is None and wall is None and not kernels:
            continue
        found.append(
            FirstVsLater(
                call=later.index,
                ratio_cpu=cpu,
                ratio_wall=wall,
                verdict=verdict(deciding(cpu, wall, clock)),
                kernels=kernels,
            )
        )
    return tuple(found)


def baseline_of(strategies: Sequence[StrategyResult], preferred: int | None = None) -> StrategyResult | None:
    """The strategy that others are compared with: ``preferred`` (a place), else the first summed one, else the first.

    One that failed is passed over; None where all did.
    """
    whole = [strategy for strategy in strategies if strategy.status == "ok"]
    if preferred is not None and strategies[preferred].status == "ok":
        return strategies[preferred]
    return next((s for s in whole if s.kind == "summed"), whole[0] if whole else None)


def compare_strategies(
    strategies: Sequence[StrategyResult], clock: Clock, preferred: int | None = None
) -> tuple[StrategyComparison, ...]:
    """Whole steps of every strategy that did not fail against the baseline's, paired within rounds."""
    baseline = baseline_of(strategies, preferred)
    if baseline is None:
        return ()
    others = [s for s in strategies if s.status == "ok" and s is not baseline]
    return tuple(_compare(other, baseline, clock) for other in others)


def cheapest(comparisons: Sequence[StrategyComparison], clock: Clock) -> tuple[str, ...]:
    """Strategies that nothing is known to beat, the lowest ratio first; () where nothing was timed.

    A strategy is beaten when the interval of another's ratio to the baseline lies wholly below its own; the baseline
    has the ratio 1.
    """
    intervals: list[tuple[str, float, tuple[float, float]]] = []
    for found in comparisons:
        ratio = deciding(found.cpu, found.wall, clock)
        if ratio is not None:
            intervals.append((found.contender, ratio.median, ratio.ci95))
    if not intervals:
        return ()
    intervals.append((comparisons[0].baseline, 1.0, (1.0, 1.0)))
    bound = min(high for _, _, (_, high) in intervals)
    return tuple(name for name, _, (low, _) in sorted(intervals, key=lambda found: found[1]) if low <= bound)


def _compare(contender: StrategyResult, baseline: StrategyResult, clock: Clock) -> StrategyComparison:
    cpu = pair(contender.step.cpu_ns, baseline.step.cpu_ns)
    wall = pair(contender.step.wall_ns, baseline.step.wall_ns)
    return StrategyComparison(
        baseline=baseline.name,
        contender=contender.name,
        wall=wall,
        cpu=cpu,
        peak_bytes_ratio=_quotient(contender.step.peak_bytes, baseline.step.peak_bytes),
        flops_ratio=_quotient(contender.step.flops, baseline.step.flops),
        verdict=verdict(deciding(cpu, wall, clock)),
    )


def _quotient(top: int | None, bottom: int | None) -> float | None:
    return None if top is None or not bottom else top / bottom
