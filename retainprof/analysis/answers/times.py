"""Answer 1: the first call against the later ones."""

from __future__ import annotations

from collections.abc import Sequence

from retainprof.analysis.answers.base import Answer, between, clock_words, listed, main_strategy, spread
from retainprof.analysis.compare import clock_of, deciding
from retainprof.analysis.kernels import reason
from retainprof.records import FirstVsLater, Ratio, Result, StrategyResult, Verdict
from retainprof.units import show_ns

__all__ = ["first_or_later"]

QUESTION = "Is the first backward slower than the later ones, or faster, and why?"
_Timed = tuple[FirstVsLater, Ratio]


def first_or_later(result: Result) -> Answer:
    """The answer for the main strategy: verdict with interval, kernels that make the difference, cold times apart."""
    strategy = main_strategy(result)
    if strategy is None:
        return Answer(question=QUESTION, text="No strategy makes more than one call, so there is no later one.")
    clock = clock_of(result)
    timed = [
        (found, ratio)
        for found in strategy.first_vs_later
        if (ratio := deciding(found.ratio_cpu, found.ratio_wall, clock)) is not None
    ]
    parts = [_verdict(strategy, timed, result), _reason(strategy, timed), _cold(strategy)]
    return Answer(
        question=QUESTION,
        text=" ".join(part for part in parts if part),
        numbers={
            "clock": clock,
            "later_over_first": {
                str(found.call): {"ratio": ratio.median, "ci95": list(ratio.ci95), "verdict": found.verdict}
                for found, ratio in timed
            },
            "first_ns": strategy.calls[0].wall_ns.median,
        },
        strategy=strategy.name,
    )


def _verdict(strategy: StrategyResult, timed: Sequence[_Timed], result: Result) -> str:
    if not timed:
        return f"Not known: the calls of {strategy.name} were not timed together."
    verdicts = {found.verdict for found, _ in timed}
    if len(verdicts) == 1:
        return _alike(strategy.name, timed, verdicts.pop(), clock_words(result))
    counts = [(v, [found.call for found, _ in timed if found.verdict == v]) for v in _WORDS]
    told = "; ".join(f"{_calls(calls)} {_WORDS[v]}" for v, calls in counts if calls)
    return (
        f"In {strategy.name} it depends on the call: {told} ({spread(r.median for _, r in timed)} the time of call 0)."
    )


_WORDS: dict[Verdict, str] = {
    "slower": "slower than call 0",
    "faster": "faster than call 0",
    "same": "the same within 2%",
    "cannot_tell": "cannot be told apart from call 0",
}


def _alike(name: str, timed: Sequence[_Timed], verdict: Verdict, clock: str) -> str:
    """All later calls have one verdict: ``Faster. In retain, call 1 takes 1.71x the time of call 0 (...)``."""
    calls = _calls([found.call for found, _ in timed])
    verb = "takes" if len(timed) == 1 else "take"
    times = f"{verb} {spread(r.median for _, r in timed)} the {clock} of call 0 ({_interval(timed)})"
    if verdict == "slower":
        return f"Faster: in {name}, {calls} {times}."
    if verdict == "faster":
        return f"Slower: in {name}, {calls} {times}."
    if verdict == "same":
        return f"Neither: in {name}, {calls} {times}, the same within 2%."
    return f"Cannot tell: in {name}, {calls} {times}; raise --budget."


def _interval(timed: Sequence[_Timed]) -> str:
    if len(timed) == 1:
        return between(timed[0][1])
    low = min(ratio.ci95[0] for _, ratio in timed)
    high = max(ratio.ci95[1] for _, ratio in timed)
    return between(Ratio(median=1.0, ci95=(low, high), pairs=min(ratio.pairs for _, ratio in timed)))


def _calls(indices: Sequence[int]) -> str:
    if len(indices) == 1:
        return f"call {indices[0]}"
    if len(indices) > 2 and list(indices) == list(range(indices[0], indices[-1] + 1)):
        return f"calls {indices[0]} to {indices[-1]}"
    return f"calls {listed(map(str, indices))}"


def _reason(strategy: StrategyResult, timed: Sequence[_Timed]) -> str:
    """What runs in the later call that differs most in time, and not in the first."""
    compared = [found for found in strategy.first_vs_later if found.kernels]
    if not compared:
        return ""
    far = {found.call: abs(ratio.median - 1) for found, ratio in timed}
    chosen = max(compared, key=lambda found: far.get(found.call, 0.0))
    first, later = strategy.calls[0], strategy.calls[chosen.call]
    text = reason(chosen.kernels, first.accumulate, later.accumulate, chosen.call)
    lead = "Why" if chosen.verdict == "slower" else "What differs"  # additions explain a dearer call, not a cheaper one
    return f"{lead}: {text}." if text else ""


def _cold(strategy: StrategyResult) -> str:
    """Cold times are told apart from steady ones, and never take part in the verdict."""
    call = strategy.calls[0]
    cold, steady = call.cold_wall_ns, call.wall_ns
    if cold.median is None or steady.median is None:
        return ""
    return f"In the first step of a fresh process call 0 takes {show_ns(cold.median)}, later {show_ns(steady.median)}."
