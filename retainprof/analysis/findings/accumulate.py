"""Rules on what the calls write into ``.grad``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from retainprof.analysis.compare import Clock, clock_of, deciding
from retainprof.analysis.findings.base import Rule, made_calls, names_of, register
from retainprof.analysis.kernels import only_accumulation
from retainprof.records import CallResult, Finding, Result, StrategyResult
from retainprof.units import show_count

__all__ = ["AddsIntoGrad", "ForeignGradients", "ZeroedInPlace"]


def _added(call: CallResult) -> int:
    found = call.accumulate
    return 0 if found is None else found.added + found.sparse_added


def _adds_to_earlier(call: CallResult) -> bool:
    return bool(_added(call)) and call.zero_grad_before != "zero" and call.what != "head"


@register
class AddsIntoGrad(Rule):
    """Later calls add into gradients that an earlier one wrote.

    The heads' calls of a two-stage strategy are passed over: what they add into is the cut, by design.
    """

    name = "later_calls_add"
    looks_for = "later calls that add into .grad, which the first call wrote without an addition"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        first, *rest = made_calls(strategy) or (None,)
        adding = [call for call in rest if call and _adds_to_earlier(call)]
        if first is None or not adding or _added(first):
            return
        additions = sum(_added(call) for call in adding)
        wrote = first.accumulate
        stolen, copied = (wrote.stolen, wrote.copied) if wrote else (0, 0)
        yield self.finding(
            strategy,
            adding[0].index,
            f"{_calls(adding)} {show_count(additions)} times into .grad; call 0 wrote its gradients without an addition "
            f"({show_count(stolen)} stolen, {show_count(copied)} copied)",
            "if the losses are meant to be added, add them first: (a + b).backward() writes every gradient once; if they "
            "are not, call optimizer.zero_grad() between the calls",
            evidence={
                "additions": additions,
                "calls": [call.index for call in adding],
                "first_stolen": stolen,
                "first_copied": copied,
            },
            saves_ns=_price(strategy, adding, clock_of(result)),
        )


def _price(strategy: StrategyResult, adding: list[CallResult], clock: Clock) -> int | None:
    """What the adding calls take beyond the first, where additions are all that they run more and they are known slower."""
    first, indices, price = strategy.calls[0], {call.index for call in adding}, 0.0
    start = (first.cpu_ns if clock == "cpu" else first.wall_ns).median
    for found in strategy.first_vs_later:
        used = deciding(found.ratio_cpu, found.ratio_wall, clock)
        if found.call not in indices or found.verdict != "slower" or used is None or start is None:
            continue
        if only_accumulation(found.kernels, first.accumulate, strategy.calls[found.call].accumulate):
            price += start * (used.median - 1)
    return round(price) or None


def _calls(calls: list[CallResult]) -> str:
    indices = [call.index for call in calls]
    if len(indices) == 1:
        return f"call {indices[0]} adds"
    if len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1)):
        return f"calls {indices[0]} to {indices[-1]} add"
    return f"calls {', '.join(map(str, indices[:-1]))} and {indices[-1]} add"


@register
class ZeroedInPlace(Rule):
    """A call meets gradients that were zeroed in place, and adds to zeros."""

    name = "adds_to_zeros"
    looks_for = "additions into .grad that was zeroed in place instead of set to None"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        measure = result.scenario.get("measure")
        at_start = isinstance(measure, dict) and measure.get("zero_grad") == "zero"
        for call in made_calls(strategy):
            zeroed = call.zero_grad_before == "zero" or (call.index == 0 and at_start)
            if zeroed and _added(call):
                yield self.finding(
                    strategy,
                    call.index,
                    f"call {call.index} ({names_of(call)}) adds {show_count(_added(call))} gradients to zeros",
                    "optimizer.zero_grad(set_to_none=True), the default: the new gradient is taken over without an addition",
                    evidence={"additions": _added(call)},
                )


@register
class ForeignGradients(Rule):
    """A loss writes gradients of parameters that the scenario says are not its own (``owns``)."""

    name = "foreign_gradients"
    looks_for = "gradients written to parameters that the loss does not own (owns: in the scenario)"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html"
    severity = "warning"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        for call in made_calls(strategy):
            owned = [_owns(result.scenario, name) for name in call.losses]
            prefixes = [prefix for part in owned if part is not None for prefix in part]
            if not owned or any(part is None for part in owned):
                continue
            foreign = [name for name in call.params_written if not _within(name, prefixes)]
            if foreign:
                yield self._foreign(strategy, call, foreign)

    def _foreign(self, strategy: StrategyResult, call: CallResult, foreign: list[str]) -> Finding:
        more = "" if len(foreign) <= 3 else f" and {show_count(len(foreign) - 3)} more"
        return self.finding(
            strategy,
            call.index,
            f"call {call.index} ({names_of(call)}) writes .grad of {show_count(len(foreign))} parameters that its loss does "
            f"not own: {', '.join(foreign[:3])}{more}; a later step would apply them",
            "detach what comes from the other part before this loss uses it (x.detach()), or name what to train: "
            f"{call.losses[0]}.backward(inputs=list(own.parameters()))",
            evidence={"parameters": foreign, "written": len(call.params_written)},
        )


def _owns(scenario: dict[str, Any], loss: str) -> list[str] | None:
    """What a loss owns: names of modules or parameters; None where the scenario does not say."""
    losses = scenario.get("losses")
    entry = losses.get(loss) if isinstance(losses, dict) else None
    owns = entry.get("owns") if isinstance(entry, dict) else None
    if owns is None:
        return None
    return [owns] if isinstance(owns, str) else [str(name) for name in owns]


def _within(parameter: str, prefixes: list[str]) -> bool:
    return any(parameter == prefix or parameter.startswith(f"{prefix}.") for prefix in prefixes)
