"""Strategies that stop at the shared module's output and go through the trunk apart from the heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from retainprof.records import CallSpec
from retainprof.strategies.base import Step, Strategy, register

if TYPE_CHECKING:
    from torch import Tensor


@register("two_stage")
class TwoStage(Strategy):
    """Cut the graph at the shared output: a backward per loss down to the cut, then one through the trunk.

    The heads' calls add into the cut's ``.grad``, which the last call sends on. Leaves the sum in ``.grad``.
    Cost: Ft + Fh + Bt + Bh, as ``summed``; nothing is retained.
    """

    summary = "detach at the shared output: heads one by one, then the trunk once"
    needs_shared = True

    kind: Literal["two_stage"] = "two_stage"

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        heads = [
            CallSpec(index=i, losses=(n,), retain_graph=self.create_graph, create_graph=self.create_graph, what="head")
            for i, n in enumerate(losses)
        ]
        trunk = CallSpec(
            index=len(losses),
            losses=losses,
            retain_graph=self.create_graph,
            create_graph=self.create_graph,
            what="trunk",
        )
        return (*heads, trunk)

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        shared, leaves, losses = step.forward_cut()
        *heads, trunk = calls
        for spec in heads:
            step.call(spec, [losses[spec.losses[0]]])
        reached = [(z, leaf.grad) for z, leaf in zip(shared, leaves, strict=True) if leaf.grad is not None]
        step.call(trunk, [z for z, _ in reached], grad_tensors=[g for _, g in reached])


@register("two_stage_per_loss")
class TwoStagePerLoss(Strategy):
    """As ``two_stage``, but the trunk is gone through once per loss, so that each loss's gradient is had by itself.

    Returns the gradients, K sets for the trunk; ``.grad`` is not touched. With ``batched`` the trunk's K passes are one
    vectorised call. Cost: Ft + Fh + K Bt + Bh.
    """

    summary = "heads one by one, then the trunk once per loss (what multi-objective methods need)"
    needs_shared = True
    returns_gradients = True

    kind: Literal["two_stage_per_loss"] = "two_stage_per_loss"
    batched: Annotated[bool, Field(description="one vectorised call through the trunk (is_grads_batched)")] = False

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        k = len(losses)
        heads = [
            CallSpec(
                index=i,
                losses=(name,),
                kind="grad",
                retain_graph=self.create_graph,
                create_graph=self.create_graph,
                wrt=("shared output", "head parameters"),
                what="head",
            )
            for i, name in enumerate(losses)
        ]
        trunks = [
            CallSpec(
                index=k + i,
                losses=names,
                kind="grad",
                retain_graph=self.create_graph or (not self.batched and i < k - 1),
                create_graph=self.create_graph,
                wrt=("shared parameters",),
                what="trunk, batched" if self.batched else "trunk",
            )
            for i, names in enumerate([losses] if self.batched else [(name,) for name in losses])
        ]
        return (*heads, *trunks)

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        shared, leaves, losses = step.forward_cut()
        at_cut: list[Sequence[Tensor | None]] = []
        heads, trunks = [c for c in calls if c.what == "head"], [c for c in calls if c.what != "head"]
        for spec in heads:
            name = spec.losses[0]
            found = step.call(spec, [losses[name]], inputs=[*leaves, *step.head_parameters(name)])
            at_cut.append(found[: len(leaves)])
        trunk = step.shared_parameters()
        if self.batched:
            step.call(trunks[0], shared, grad_tensors=step.stacked(at_cut), inputs=trunk, is_grads_batched=True)
            return
        for spec, cotangents in zip(trunks, at_cut, strict=True):
            step.call(spec, shared, grad_tensors=cotangents, inputs=trunk)


@register("edge")
class Edge(Strategy):
    """``autograd.grad`` of each loss to the shared output and its head, then one backward through the trunk.

    Needs neither a detach nor retain_graph where heads share nothing. The heads' gradients are put into ``.grad`` by the
    strategy, outside the calls. Leaves the sum in ``.grad``. Cost: Ft + Fh + Bt + Bh.
    """

    summary = "torch.autograd.grad to the shared output and the heads, then one trunk backward; no retain"
    needs_shared = True

    kind: Literal["edge"] = "edge"

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        heads = [
            CallSpec(
                index=i,
                losses=(name,),
                kind="grad",
                retain_graph=self.create_graph,
                create_graph=self.create_graph,
                wrt=("shared output", "head parameters"),
                what="head",
            )
            for i, name in enumerate(losses)
        ]
        trunk = CallSpec(
            index=len(losses),
            losses=losses,
            retain_graph=self.create_graph,
            create_graph=self.create_graph,
            what="trunk",
        )
        return (*heads, trunk)

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        shared, losses = step.forward_shared()
        *heads, trunk = calls
        at_edge: list[Sequence[Tensor | None]] = []
        for spec in heads:
            name = spec.losses[0]
            own = step.head_parameters(name)
            found = step.call(spec, [losses[name]], inputs=[*shared, *own])
            at_edge.append(found[: len(shared)])
            step.add_to_grad(own, found[len(shared) :])
        step.call(trunk, shared, grad_tensors=step.summed(at_edge))
