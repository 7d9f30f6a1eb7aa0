"""Rules on work that is done more than once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from retainprof.analysis.compare import clock_of, pair
from retainprof.analysis.findings.base import Rule, excess_ns, made_calls, register, summed_in
from retainprof.analysis.stats import verdict
from retainprof.records import Finding, Ratio, Result, StrategyResult
from retainprof.units import flops, ratio, show_bytes, show_count

__all__ = ["BatchedNoGain", "ForwardRepeated", "GraphGrows", "Recomputation", "TrunkRevisited"]


def _nodes(strategy: StrategyResult) -> int | None:
    counts = [call.nodes for call in made_calls(strategy)]
    return None if not counts or None in counts else sum(n for n in counts if n is not None)


@register
class ForwardRepeated(Rule):
    """The forward runs several times for losses that one forward would give."""

    name = "forward_repeated"
    looks_for = "several forwards in a step whose losses one forward would give"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        runs, summed = strategy.step.forwards or 1, summed_in(result)
        losses = {name for call in strategy.calls for name in call.losses}
        if runs < 2 or len(losses) < 2 or summed is None or (summed.step.forwards or 1) >= runs:
            return
        nodes, once = _nodes(strategy), _nodes(summed)
        share = None if not nodes or once is None else max(0.0, 1 - once / nodes)
        more = (strategy.step.flops or 0) - (summed.step.flops or 0)
        again = "" if not share else f"; {share:.0%} of the nodes it visits are visited again for another loss"
        yield self.finding(
            strategy,
            None,
            f"{show_count(runs)} forwards for {show_count(len(losses))} losses{again}"
            + (f"; {flops(more)} more than one forward and one backward" if more > 0 else ""),
            "run the model once, take all losses from its outputs, and sum them: sum(losses).backward()",
            evidence={
                "forwards": runs,
                "nodes": nodes,
                "summed_nodes": once,
                "revisited_share": None if share is None else round(share, 4),
                "extra_flops": more if more > 0 else None,
            },
            saves_ns=excess_ns(strategy, result),
        )


@register
class TrunkRevisited(Rule):
    """Later calls go through nodes that an earlier one has been through."""

    name = "trunk_revisited"
    looks_for = "calls that go through nodes of the graph which an earlier call went through"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        made = made_calls(strategy)
        if (strategy.step.forwards or 1) >= len(made):
            return  # a graph for each call: they share no more than the leaves
        calls = [call for call in made if call.nodes_shared_with_earlier]
        shared = sum(call.nodes_shared_with_earlier or 0 for call in calls)
        nodes = _nodes(strategy)
        if not shared or not nodes:
            return
        yield self.finding(
            strategy,
            calls[0].index,
            f"{show_count(shared)} of {show_count(nodes)} node visits ({shared / nodes:.0%}) repeat one of an earlier call",
            "where only the sum of the gradients is used, add the losses and call backward once; where each loss's own "
            "gradient is needed, cut at the shared output (two_stage)",
            evidence={"repeated_nodes": shared, "nodes": nodes, "calls": [call.index for call in calls]},
            saves_ns=excess_ns(strategy, result),
        )


@register
class Recomputation(Rule):
    """A checkpointed part is computed again in every call."""

    name = "recomputation"
    looks_for = "forward operators that run again inside more than one call (checkpointing)"
    url = "https://docs.pytorch.org/docs/stable/checkpoint.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        counts = {call.index: call.forward_ops_in_backward or 0 for call in made_calls(strategy)}
        calls = [index for index, count in counts.items() if count]
        if len(calls) < 2:
            return
        total = sum(counts.values())
        yield self.finding(
            strategy,
            calls[1],
            f"{show_count(len(calls))} calls recompute the checkpointed part: {show_count(total)} forward operators run "
            f"inside backward, {show_count(counts[calls[0]])} of them in call {calls[0]}",
            "sum the losses and call backward once, so that it is recomputed once; or do not checkpoint what several "
            "losses share",
            evidence={"operators": counts, "calls": calls},
            saves_ns=excess_ns(strategy, result),
        )


@register
class GraphGrows(Rule):
    """What graphs hold grows with every call, in three calls or more."""

    name = "graph_grows"
    looks_for = "bytes held by graphs that grow with every call of a step"
    url = "https://docs.pytorch.org/docs/stable/notes/faq.html"
    severity = "warning"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        held = [
            call.retained_bytes_after + (call.pinned_by_grads_bytes or 0)
            for call in made_calls(strategy)
            if call.retained_bytes_after is not None
        ]
        if len(held) < 3 or any(later <= earlier for earlier, later in pairwise(held)):
            return
        yield self.finding(
            strategy,
            None,
            f"graphs hold more after every call: from {show_bytes(held[0])} after the first to {show_bytes(held[-1])} after "
            "the last",
            "detach what is carried from one call to the next (state.detach()), or do not create graphs that are not used",
            evidence={"held_after_bytes": held},
            saves_bytes=held[-1] - held[0],
        )


@register
class BatchedNoGain(Rule):
    """One vectorised call is no faster than a loop over the losses in the same run."""

    name = "batched_no_gain"
    looks_for = "is_grads_batched that is no faster than a loop over the losses"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        loop = _loop_for(strategy, result)
        if loop is None or strategy.status != "ok":
            return
        found = _step_ratio(strategy, loop, result)
        decided = verdict(found)
        if found is None or decided not in ("same", "slower"):
            return
        more = (strategy.step.peak_bytes or 0) - (loop.step.peak_bytes or 0)
        memory = f", and its peak is {show_bytes(more)} higher" if more > 0 else ""
        yield self.finding(
            strategy,
            None,
            f"one batched call takes {ratio(found.median)} the time of {loop.name} ({ratio(found.ci95[0])} to "
            f"{ratio(found.ci95[1])}, {show_count(found.pairs)} rounds){memory}",
            f"loop over the losses as {loop.name} does; batching pays for many small losses",
            evidence={"against": loop.name, "ratio": found.median, "ci95": list(found.ci95), "extra_peak_bytes": more},
            saves_bytes=max(0, more),
        )


def _loop_for(strategy: StrategyResult, result: Result) -> StrategyResult | None:
    """The strategy of the run that does the same without batching."""
    if strategy.kind == "batched":
        wanted = "grad"
    elif strategy.options.get("batched"):
        wanted = strategy.kind
    else:
        return None
    return next(
        (s for s in result.strategies if s.kind == wanted and s.status == "ok" and not s.options.get("batched")), None
    )


def _step_ratio(contender: StrategyResult, baseline: StrategyResult, result: Result) -> Ratio | None:
    if clock_of(result) == "cpu":
        return pair(contender.step.cpu_ns, baseline.step.cpu_ns)
    return pair(contender.step.wall_ns, baseline.step.wall_ns)
