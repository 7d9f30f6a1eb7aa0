"""Strategies that go through the graph once for every loss. In the cost models K is the number of losses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from retainprof.records import CallSpec
from retainprof.strategies.base import Step, Strategy, register


@register("retain")
class Retain(Strategy):
    """One shared forward, a backward for each loss; all but the last retain the graph. Leaves the sum in ``.grad``.

    Cost: Ft + Fh + K Bt + Bh, and the additions into ``.grad`` from the second call on.
    """

    summary = "one forward, a backward per loss with retain_graph=True on all but the last"
    needs_several = True

    kind: Literal["retain"] = "retain"
    order: Annotated[tuple[str, ...] | None, Field(description="loss names in the order of the calls")] = None
    retain_last: Annotated[bool, Field(description="the last call retains the graph too (a common leak)")] = False

    def used_losses(self, losses: tuple[str, ...]) -> tuple[str, ...]:
        return losses if self.order is None else tuple(name for name in losses if name in self.order)

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        names = self.order or losses
        return tuple(
            CallSpec(
                index=i,
                losses=(name,),
                retain_graph=self.create_graph or self.retain_last or i < len(names) - 1,
                create_graph=self.create_graph,
            )
            for i, name in enumerate(names)
        )

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        losses = step.forward()
        for spec in calls:
            step.call(spec, [losses[spec.losses[0]]])


@register("separate")
class Separate(Strategy):
    """A forward and a backward for each loss; nothing is shared. Leaves the sum in ``.grad``.

    Cost: K (Ft + Bt) + Fh + Bh where a loss runs its own head only; a model that always runs all heads pays K Fh.
    BatchNorm statistics move K times, dropout draws K masks.
    """

    summary = "a forward and a backward per loss"

    kind: Literal["separate"] = "separate"
    retain: Annotated[bool, Field(description="every call retains its graph, which nobody needs again")] = False

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        return tuple(
            CallSpec(
                index=i, losses=(name,), retain_graph=self.create_graph or self.retain, create_graph=self.create_graph
            )
            for i, name in enumerate(losses)
        )

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        for spec in calls:
            step.call(spec, [step.forward(spec.losses)[spec.losses[0]]])


@register("grad")
class Grad(Strategy):
    """One shared forward, ``torch.autograd.grad`` for each loss. Returns K sets of gradients; ``.grad`` is not touched.

    Cost: Ft + Fh + K Bt + Bh, and memory for K sets of gradients.
    """

    summary = "one forward, torch.autograd.grad per loss; gradients are returned, .grad is left alone"
    returns_gradients = True

    kind: Literal["grad"] = "grad"

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        return tuple(
            CallSpec(
                index=i,
                losses=(name,),
                kind="grad",
                retain_graph=self.create_graph or i < len(losses) - 1,
                create_graph=self.create_graph,
                wrt=("all parameters",),
            )
            for i, name in enumerate(losses)
        )

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        losses = step.forward()
        for spec in calls:
            step.call(spec, [losses[spec.losses[0]]], inputs=step.parameters())


@register("batched")
class Batched(Strategy):
    """One ``autograd.grad`` call for all losses at once, vectorised over them (``is_grads_batched``). Returns K sets.

    Cost: about Ft + Fh + K (Bt + Bh): the heads are gone through K times as well.
    """

    summary = "one vectorised torch.autograd.grad for all losses (is_grads_batched)"
    returns_gradients = True

    kind: Literal["batched"] = "batched"

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        return (
            CallSpec(
                index=0,
                losses=losses,
                kind="grad",
                retain_graph=self.create_graph,
                create_graph=self.create_graph,
                wrt=("all parameters",),
                what="batched",
            ),
        )

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        losses = step.forward()
        roots = [losses[name] for name in calls[0].losses]
        basis = step.basis(len(roots), roots)
        step.call(calls[0], roots, grad_tensors=basis, inputs=step.parameters(), is_grads_batched=True)
