"""The most general strategy: every call spelled out in the scenario."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from retainprof.records import CallSpec
from retainprof.strategies.base import Step, Strategy, register

DEFAULT_SGD_LR = 0.01


def _names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class SgdStep(BaseModel):
    """A plain SGD step of all parameters, just before the call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sgd: Annotated[float, Field(gt=0, description="learning rate")]


class SpelledCall(BaseModel):
    """One call: ``{backward: losses}`` or ``{grad: losses, wrt: parameters}`` and what goes with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backward: Annotated[tuple[str, ...] | None, Field(description="loss, or list of losses, to call backward on")] = (
        None
    )
    grad: Annotated[tuple[str, ...] | None, Field(description="loss, or list of losses, for torch.autograd.grad")] = (
        None
    )
    wrt: Annotated[tuple[str, ...], Field(description="grad: parameter name, or list; all parameters if left out")] = ()
    weights: Annotated[tuple[float, ...] | None, Field(description="one factor for each loss (grad_tensors)")] = None
    inputs: Annotated[tuple[str, ...], Field(description="backward: write .grad of these parameters only")] = ()
    retain: Annotated[
        bool | None, Field(description="retain_graph; left out, it is what create_graph is, as in torch")
    ] = None
    create_graph: Annotated[bool, Field(description="create_graph=True")] = False
    zero_grad: Annotated[
        Literal["before", "set_to_none", "zero"] | None,
        Field(description="just before the call: before or set_to_none (to None), zero (zeroed in place)"),
    ] = None
    step: Annotated[
        Literal["sgd"] | SgdStep | None, Field(description=f"an SGD step just before the call (rate {DEFAULT_SGD_LR})")
    ] = None

    _as_tuple = field_validator("backward", "grad", "wrt", "inputs", mode="before")(_names)

    @model_validator(mode="after")
    def _one_kind(self) -> SpelledCall:
        if (self.backward is None) == (self.grad is None):
            raise ValueError("a call is either {backward: losses} or {grad: losses}")
        if self.grad is None and self.wrt:
            raise ValueError("wrt belongs to a grad call; a backward call takes inputs")
        if self.backward is None and self.inputs:
            raise ValueError("inputs belongs to a backward call; a grad call takes wrt")
        if not self.losses:
            raise ValueError("a call needs at least one loss")
        if self.weights is not None and len(self.weights) != len(self.losses):
            raise ValueError(f"{len(self.weights)} weights for {len(self.losses)} losses")
        return self

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of the losses, of either kind of call."""
        return self.backward or self.grad or ()

    def spec(self, index: int, create_graph: bool) -> CallSpec:
        """The planned call at a place in the step."""
        creates = self.create_graph or create_graph
        sgd = DEFAULT_SGD_LR if self.step == "sgd" else self.step.sgd if self.step else None
        return CallSpec(
            index=index,
            losses=self.losses,
            kind="grad" if self.backward is None else "backward",
            retain_graph=creates if self.retain is None else self.retain,
            create_graph=creates,
            weights=self.weights,
            wrt=self.wrt or (("all parameters",) if self.backward is None else ()),
            inputs=self.inputs,
            zero_grad_before="set_to_none" if self.zero_grad == "before" else self.zero_grad,
            sgd_before=sgd,
        )


@register("calls")
class Calls(Strategy):
    """One shared forward of the losses that are named, then the calls as written. What is left depends on them.

    Cost: Ft + Fh and what each call goes through.
    """

    summary = "the calls spelled out, one by one"

    kind: Literal["calls"] = "calls"
    spelled: Annotated[tuple[SpelledCall, ...], Field(alias="calls", min_length=1, description="the calls in order")]

    @property
    def changes_parameters(self) -> bool:
        """Whether a call is preceded by an optimiser step."""
        return any(call.step is not None for call in self.spelled)

    def used_losses(self, losses: tuple[str, ...]) -> tuple[str, ...]:
        named = {name for call in self.spelled for name in call.losses}
        return tuple(name for name in losses if name in named)

    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:  # noqa: ARG002
        return tuple(call.spec(i, self.create_graph) for i, call in enumerate(self.spelled))

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        losses = step.forward()
        for spec in calls:
            step.prepare(spec)
            roots = [losses[name] for name in spec.losses]
            weights = None if spec.weights is None else step.weights(roots, spec.weights)
            step.call(spec, roots, grad_tensors=weights, inputs=step.wanted(spec))
