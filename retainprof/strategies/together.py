"""Strategies with one call for all losses. In the cost models F is a forward, B a backward, t the trunk, h all heads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from retainprof.records import CallSpec
from retainprof.strategies.base import Step, Strategy, register


@register("summed")
class Summed(Strategy):
    """Add the losses, one backward: ``sum(losses).backward()``. Leaves ``.grad`` of every parameter: the reference.

    Cost: Ft + Fh + Bt + Bh; with ``forward_per_loss`` K (Ft + Bt) + Fh + Bh.
    """

    summary = "one backward of the sum of the losses; the reference for the others"

    kind: Literal["summed"] = "summed"
    forward_per_loss: Annotated[bool, Field(description="a forward of its own for each loss, then one backward")] = (
        False
    )
    retain: Annotated[bool, Field(description="the one call retains the graph, which nobody needs again")] = False

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        return (
            CallSpec(
                index=0,
                losses=losses,
                retain_graph=self.create_graph or self.retain,
                create_graph=self.create_graph,
                what="sum",
            ),
        )

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        losses = {}
        for names in [[name] for name in calls[0].losses] if self.forward_per_loss else [None]:
            losses.update(step.forward(names))
        step.call(calls[0], [step.total(losses)])


@register("joint")
class Joint(Strategy):
    """All losses handed to the engine at once: ``torch.autograd.backward(losses)``. Leaves ``.grad`` as ``summed`` does.

    Cost: Ft + Fh + Bt + Bh; no node for the sum.
    """

    summary = "torch.autograd.backward on all losses at once"

    kind: Literal["joint"] = "joint"

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        return (CallSpec(index=0, losses=losses, retain_graph=self.create_graph, create_graph=self.create_graph),)

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        losses = step.forward()
        step.call(calls[0], [losses[name] for name in calls[0].losses])
