"""Answer 2: what each way costs."""

from __future__ import annotations

from collections.abc import Sequence

from retainprof.analysis.answers.base import Answer, between, clock_words, listed
from retainprof.analysis.compare import Clock, cheapest, clock_of, deciding
from retainprof.records import Result, StrategyComparison, StrategyResult
from retainprof.units import percent, ratio, show_ns

__all__ = ["which_is_cheapest"]

QUESTION = "Is one summed backward cheaper than several, and what does each other way cost?"


def which_is_cheapest(result: Result) -> Answer:
    """Every strategy's whole step against the baseline's, and which of those with the same gradients is cheapest."""
    clock = clock_of(result)
    timed = [found for found in result.comparisons if deciding(found.cpu, found.wall, clock) is not None]
    failed = _failed(result.strategies)
    if not timed:
        return Answer(question=QUESTION, text=" ".join(part for part in (_nothing(result), failed) if part))
    baseline = next(s for s in result.strategies if s.name == timed[0].baseline)
    parts = [_headline(timed, baseline, result), _others(timed, clock), failed]
    return Answer(
        question=QUESTION,
        text=" ".join(part for part in parts if part),
        numbers={
            "baseline": baseline.name,
            "clock": clock,
            "step_over_baseline": {found.contender: _numbers(found, clock) for found in timed},
        },
        strategy=cheapest(_replacements(timed, baseline, result), clock)[0],
    )


def _nothing(result: Result) -> str:
    if len(result.strategies) < 2:
        return "Only one strategy was measured: there is nothing to compare it with."
    return "Not known: no two strategies were timed together."


def _numbers(found: StrategyComparison, clock: Clock) -> dict[str, object]:
    used = deciding(found.cpu, found.wall, clock)
    return {
        "ratio": None if used is None else used.median,
        "ci95": None if used is None else list(used.ci95),
        "verdict": found.verdict,
        "flops_ratio": found.flops_ratio,
        "peak_bytes_ratio": found.peak_bytes_ratio,
    }


def _leaves_the_same(strategy: StrategyResult) -> bool:
    """Whether the strategy may stand in for the reference: its ``.grad`` is the same but for rounding."""
    return strategy.gradients is not None and strategy.gradients.relation in ("bitwise", "close")


def _replacements(
    timed: Sequence[StrategyComparison], baseline: StrategyResult, result: Result
) -> list[StrategyComparison]:
    """Comparisons of strategies that leave the same gradients as the baseline; all where gradients were not compared."""
    if all(s.gradients is None for s in result.strategies) or not _leaves_the_same(baseline):
        return list(timed)
    same = {s.name for s in result.strategies if _leaves_the_same(s)}
    return [found for found in timed if found.contender in same] or list(timed)


def _headline(timed: Sequence[StrategyComparison], baseline: StrategyResult, result: Result) -> str:
    clock = clock_of(result)
    best = cheapest(_replacements(timed, baseline, result), clock)
    step = (baseline.step.cpu_ns if clock == "cpu" else baseline.step.wall_ns).median
    many = [f for f in timed if len(next(s for s in result.strategies if s.name == f.contender).calls) > 1]
    yes = baseline.kind == "summed" and many and all(f.verdict == "slower" for f in many)
    takes = f"{show_ns(step)} {clock_words(result)} a step"
    if best == (baseline.name,):
        start = "Yes" if yes else "No other way is cheaper"
        return f"{start}: {baseline.name} takes {takes}, the least of those that leave the same gradients."
    if baseline.name in best:
        start = "Yes, cheaper than several calls" if yes else "Cheapest"
        return f"{start}: {listed(best)} cannot be told apart ({baseline.name}: {takes})."
    return f"No: {listed(best)} {'is' if len(best) == 1 else 'are'} cheaper than {baseline.name} ({takes})."


def _others(timed: Sequence[StrategyComparison], clock: Clock) -> str:
    """``Against summed: retain 1.74x (1.70x to 1.78x over 40 rounds), FLOPs 2.80x, peak memory +12%; ...``."""
    told = []
    for found in sorted(timed, key=lambda f: _median(f, clock)):
        used = deciding(found.cpu, found.wall, clock)
        if used is None:
            continue
        text = f"{found.contender} {ratio(used.median)} ({between(used)})"
        if found.verdict == "cannot_tell":
            text += ", cannot tell"
        if found.flops_ratio is not None and abs(found.flops_ratio - 1) >= 0.01:
            text += f", FLOPs {ratio(found.flops_ratio)}"
        if found.peak_bytes_ratio is not None and abs(found.peak_bytes_ratio - 1) >= 0.01:
            text += f", peak memory {percent(found.peak_bytes_ratio)}"
        told.append(text)
    return f"Against {timed[0].baseline}: {'; '.join(told)}."


def _median(found: StrategyComparison, clock: Clock) -> float:
    used = deciding(found.cpu, found.wall, clock)
    return 0.0 if used is None else used.median


def _failed(strategies: Sequence[StrategyResult]) -> str:
    told = [
        f"{s.name} failed{'' if s.error is None or s.error.call is None else f' in call {s.error.call}'}"
        + ("" if s.error is None else f" ({s.error.type})")
        for s in strategies
        if s.status == "failed"
    ]
    return f"{listed(told)}." if told else ""
