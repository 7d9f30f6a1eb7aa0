"""What a rule is, the registry of rules, and what most of them need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from retainprof.records import CallResult, Finding, Result, Severity, StrategyResult

__all__ = [
    "RULES",
    "Rule",
    "excess_ns",
    "last_call",
    "line",
    "made_calls",
    "names_of",
    "register",
    "summed_in",
]


class Rule(ABC):
    """Looks for one thing in one strategy and yields a finding for each place where the evidence shows it.

    ``looks_for`` is one line for ``retainprof list``; ``url`` is the public explanation.
    """

    name: ClassVar[str]
    looks_for: ClassVar[str]
    url: ClassVar[str]
    severity: ClassVar[Severity] = "info"

    @abstractmethod
    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        """Findings in ``strategy``; ``result`` is there for what it is compared with."""

    def finding(
        self,
        strategy: StrategyResult,
        call: int | None,
        text: str,
        advice: str,
        *,
        evidence: dict[str, Any],
        severity: Severity | None = None,
        saves_bytes: int | None = None,
        saves_ns: int | None = None,
    ) -> Finding:
        """A finding of this rule; a saving of nothing is no saving."""
        return Finding(
            rule=self.name,
            severity=severity or self.severity,
            strategy=strategy.name,
            call=call,
            evidence=evidence,
            text=text,
            advice=advice,
            url=self.url,
            saves_bytes=saves_bytes or None,
            saves_ns=saves_ns or None,
        )


RULES: dict[str, Rule] = {}
R = TypeVar("R", bound=type[Rule])


def register(cls: R) -> R:
    """Class decorator: make a rule known by its ``name``; a second one of that name is refused."""
    if cls.name in RULES:
        raise ValueError(
            f"rule {cls.name!r} is registered twice: {type(RULES[cls.name]).__qualname__}, {cls.__qualname__}"
        )
    RULES[cls.name] = cls()
    return cls


def made_calls(strategy: StrategyResult) -> tuple[CallResult, ...]:
    """The calls that ended; those from one that raised on are left out."""
    if strategy.error is None:
        return strategy.calls
    return strategy.calls[: strategy.error.call or 0]


def last_call(strategy: StrategyResult) -> CallResult | None:
    """The last planned call, where it ended."""
    made = made_calls(strategy)
    return made[-1] if made and len(made) == len(strategy.calls) else None


def names_of(call: CallResult) -> str:
    """The call's losses, joined, and what it is for: ``cls``, ``cls + reg``, ``cls (head)``."""
    losses = " + ".join(call.losses)
    return f"{losses} ({call.what})" if call.what and losses else losses or call.what


def line(call: CallResult, retain: bool) -> str:
    """The call as a line of a program, with or without ``retain_graph``."""
    flag = "retain_graph=True" if retain else ""
    if call.kind == "backward" and len(call.losses) == 1:
        return f"{call.losses[0]}.backward({flag})"
    losses = ", ".join(call.losses)
    tensors = losses if len(call.losses) == 1 else f"[{losses}]"
    function = "torch.autograd.backward" if call.kind == "backward" else "torch.autograd.grad"
    return f"{function}({tensors}{', ...' if call.kind == 'grad' else ''}{', ' + flag if flag else ''})"


def summed_in(result: Result) -> StrategyResult | None:
    """The first whole summed strategy of the run."""
    return next((s for s in result.strategies if s.kind == "summed" and s.status == "ok"), None)


def excess_ns(strategy: StrategyResult, result: Result) -> int | None:
    """By how much a step is known to take longer than one of the summed strategy, from the paired ratio; else None."""
    summed = summed_in(result)
    for found in result.comparisons:
        if summed is None or (found.baseline, found.contender) != (summed.name, strategy.name):
            continue
        by_cpu = result.timing is not None and result.timing.clock == "cpu" and found.cpu is not None
        ratio, median = (found.cpu, summed.step.cpu_ns) if by_cpu else (found.wall, summed.step.wall_ns)
        if found.verdict == "slower" and ratio is not None and median.median is not None:
            return round(median.median * (ratio.median - 1))
    return None
