"""Conditions on a comparison, for use in CI: ``later/first > 1.2``, ``step slower 5%``, ``kernels added``.

A condition on a ratio holds only where its whole interval lies beyond the limit, from eight samples on: noise alone
doesn't make a build fail. One on bytes or counts is exact.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from retainprof.analysis.runs.records import Checked, RunComparison
from retainprof.analysis.stats import FEWEST_PAIRS
from retainprof.errors import UsageError
from retainprof.records import Ratio

__all__ = ["Condition", "check", "parse"]

_LIMIT: Final = re.compile(
    r"(later/first|step|call|retained_after_last|peak_bytes|kernels)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)"
)
_PERCENT: Final = re.compile(r"(step|call)\s+(slower|faster)\s+(\d+(?:\.\d+)?)\s*%")
_KERNELS: Final = re.compile(r"kernels\s+(added|removed)")
_COMPARE: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_EXAMPLES: Final = "'later/first > 1.2', 'step slower 5%', 'retained_after_last > 0', 'kernels added'"
_HINTS: Final = {
    "step": "a trace tells no time of a whole step: 'call slower 5%'",
    "peak_bytes": "a trace tells no peak of a whole step",
    "retained_after_last": "profile with profile_memory=True",
}
_RATIOS: Final = ("later/first", "step", "call")


@dataclass(frozen=True)
class Condition:
    """``metric`` is a ratio (later/first; step and call are contender / base), or an exact number of the contender."""

    text: str
    metric: str
    compare: str
    limit: float


def parse(text: str) -> Condition:
    """A condition from its text. Raises UsageError with examples."""
    words = text.strip()
    if found := _LIMIT.fullmatch(words):
        return Condition(words, found[1], found[2], float(found[3]))
    if found := _PERCENT.fullmatch(words):
        part = float(found[3]) / 100
        slower = found[2] == "slower"
        return Condition(words, found[1], ">" if slower else "<", 1 + part if slower else 1 - part)
    if found := _KERNELS.fullmatch(words):
        return Condition(words, f"kernels {found[1]}", ">", 0)
    raise UsageError(f"--fail-on {text!r} is no condition", hint=f"such as {_EXAMPLES}")


def check(condition: Condition, comparison: RunComparison) -> Checked:
    """Whether the condition holds for any strategy or call. Raises UsageError where nothing tells its metric."""
    values = [*_values(condition.metric, comparison)]
    if not values:
        raise UsageError(
            f"--fail-on {condition.text!r}: neither {comparison.base} nor {comparison.contender} tells {condition.metric}",
            hint=_HINTS.get(condition.metric, "") if comparison.profiled else "",
        )
    holds = _ratio_holds if condition.metric in _RATIOS else _number_holds
    compare = _COMPARE[condition.compare]
    beyond = [(where, value) for where, value in values if holds(value, compare, condition.limit)]
    where, value = beyond[0] if beyond else values[0]
    more = f", and in {len(beyond) - 1} more places" if len(beyond) > 1 else ""
    reason = f"{where}: {_told(value)}{more}" if beyond else f"not so in any of {len(values)} places"
    few = [value for _, value in values if isinstance(value, Ratio) and value.pairs < FEWEST_PAIRS]
    if few and not beyond:
        reason += f" (of which {len(few)} have fewer than {FEWEST_PAIRS} samples, too few to tell)"
    return Checked(condition=condition.text, holds=bool(beyond), reason=reason)


def _ratio_holds(value: Ratio | int, compare: Callable[[float, float], bool], limit: float) -> bool:
    assert isinstance(value, Ratio)
    return value.pairs >= FEWEST_PAIRS and all(compare(end, limit) for end in value.ci95)


def _number_holds(value: Ratio | int, compare: Callable[[float, float], bool], limit: float) -> bool:
    assert isinstance(value, int)
    return compare(value, limit)


def _told(value: Ratio | int) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value.median:.3f} (95% {value.ci95[0]:.3f} to {value.ci95[1]:.3f})"


def _values(metric: str, comparison: RunComparison) -> Iterator[tuple[str, Ratio | int]]:
    """Where, and what: every value that the metric has."""
    for strategy in comparison.strategies:
        name = strategy.strategy
        whole: dict[str, Ratio | int | None] = {
            "step": strategy.ratio,
            "retained_after_last": strategy.retained_after_last_bytes,
            "peak_bytes": strategy.contender_peak_bytes,
        }
        if (value := whole.get(metric)) is not None:
            yield name, value
        if metric == "later/first":
            yield from ((f"{name} call {one.call}", one.ratio) for one in strategy.later if one.ratio is not None)
        for call in strategy.calls:
            where = f"{name} call {call.call}"
            if metric == "call" and call.ratio is not None:
                yield where, call.ratio
            elif metric == "kernels" and call.contender_kernels is not None:
                yield where, call.contender_kernels
            elif metric in ("kernels added", "kernels removed") and call.kernels:
                sign = 1 if metric == "kernels added" else -1
                more = (sign * (k.later_count - k.first_count) for k in call.kernels if k.leaf)
                yield where, sum(max(0, change) for change in more)
