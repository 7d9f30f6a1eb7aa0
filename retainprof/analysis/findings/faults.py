"""Rules on calls that raised, and on graphs that gradients keep alive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from retainprof.analysis.findings.base import Rule, last_call, made_calls, register
from retainprof.records import CallError, Finding, Result, StrategyResult
from retainprof.units import show_bytes

__all__ = ["CreateGraphCycle", "DonatedBuffers", "FailsAfterRetain", "GraphFreedEarly", "InplaceChange"]

INPLACE, DONATED, FREED = "modified by an inplace operation", "donated buffers", "through the graph a second time"


def _raised(strategy: StrategyResult, *parts: str) -> CallError | None:
    """The strategy's error, where its message has one of ``parts``."""
    error = strategy.error
    return error if error is not None and any(part in error.message for part in parts) else None


def _at(error: CallError) -> str:
    where = f"call {error.call} ({error.loss})" if error.call is not None else "the forward"
    return f"{where} raised {error.type}" + (f" in {error.operator}" if error.operator else "")


def _evidence(error: CallError) -> dict[str, Any]:
    return {"call": error.call, "loss": error.loss, "type": error.type, "operator": error.operator}


@register
class InplaceChange(Rule):
    """A tensor that the graph needs was changed between the calls."""

    name = "inplace_change"
    looks_for = "a call that raised since a saved tensor was changed in place"
    url = "https://github.com/pytorch/pytorch/issues/39141"
    severity = "error"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        error = _raised(strategy, INPLACE)
        if error is None:
            return
        stepped = any(call.sgd_before is not None for call in strategy.calls[: (error.call or 0) + 1])
        cause = "parameters were stepped between the calls" if stepped else "something wrote to it after the forward"
        advice = (
            "call optimizer.step() after the last call, not between two calls of one graph"
            if stepped
            else "replace the in-place operation (x += y, x.add_(y)) between forward and backward by one out of place"
        )
        yield self.finding(
            strategy,
            error.call,
            f"{_at(error)}: a tensor that the graph saved was changed in place; {cause}. The gradients are partial",
            advice,
            evidence={**_evidence(error), "stepped_between": stepped},
        )


@register
class DonatedBuffers(Rule):
    """A compiled graph whose first backward did not retain lends its buffers, and refuses to retain later."""

    name = "donated_buffers"
    looks_for = "a compiled graph that refuses retain_graph since it was compiled with donated buffers"
    url = "https://github.com/pytorch/pytorch/pull/130580"
    severity = "error"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        error = _raised(strategy, DONATED)
        if error is None:
            return
        yield self.finding(
            strategy,
            error.call,
            f"{_at(error)}: the graph was compiled for backwards that free it, and its buffers are reused. The first "
            "backward after compiling decides, and the compile cache keeps that decision for later processes",
            "set torch._functorch.config.donated_buffer = False before the model is compiled (set later, it only removes "
            "the check)",
            evidence=_evidence(error),
        )


@register
class GraphFreedEarly(Rule):
    """A later call goes through what an earlier one freed."""

    name = "graph_freed_early"
    looks_for = "a call that raised since an earlier call did not retain the graph"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html"
    severity = "error"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        error = _raised(strategy, FREED)
        freeing = [call.index for call in made_calls(strategy) if not call.retain_graph]
        if error is None or not freeing:
            return
        which = f"call {freeing[0]}" if len(freeing) == 1 else f"calls {', '.join(map(str, freeing))}"
        yield self.finding(
            strategy,
            error.call,
            f"{_at(error)}: {which} freed nodes that this call goes through again",
            f"sum the losses and call backward once, or set retain_graph=True on {which}",
            evidence={**_evidence(error), "freed_by": freeing},
        )


@register
class FailsAfterRetain(Rule):
    """An operator whose backward works once only, retained or not."""

    name = "fails_though_retained"
    looks_for = "an operator that fails in a later call though all earlier calls retained the graph"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.autograd.function.FunctionCtx.save_for_backward.html"
    severity = "error"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        error, made = strategy.error, made_calls(strategy)
        if error is None or not error.call or _raised(strategy, INPLACE, DONATED):
            return
        if not made or not all(call.retain_graph for call in made):
            return
        operator = error.operator or "an operator"
        yield self.finding(
            strategy,
            error.call,
            f"{_at(error)}, although every call before it retained the graph: the backward of {operator} works once only",
            f"let the backward of {operator} change or delete nothing that it saved (save_for_backward instead of "
            "attributes that it clears), or call backward once on the summed losses",
            evidence={**_evidence(error), "message": error.message},
        )


@register
class CreateGraphCycle(Rule):
    """Gradients that keep a graph alive, in a cycle with their parameters."""

    name = "create_graph_cycle"
    looks_for = "graphs that .grad keeps alive after backward(create_graph=True)"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html"
    severity = "warning"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        last = last_call(strategy)
        pinned = 0 if last is None else last.pinned_by_grads_bytes or 0
        writes = any(call.create_graph and call.kind == "backward" for call in made_calls(strategy))
        if last is None or not pinned or not writes:
            return
        losses = (
            ""
            if last.retained_bytes_after is None
            else f"; dropping the losses releases {show_bytes(last.retained_bytes_after)}"
        )
        yield self.finding(
            strategy,
            last.index,
            f".grad keeps {show_bytes(pinned)} of graph alive beyond the gradients themselves{losses}. A parameter and its "
            "gradient hold each other, so that dropping the model frees nothing either",
            "use torch.autograd.grad(loss, parameters, create_graph=True), or set .grad to None once it is used "
            "(optimizer.zero_grad())",
            evidence={"pinned_bytes": pinned, "retained_bytes": last.retained_bytes_after},
            saves_bytes=pinned,
        )
