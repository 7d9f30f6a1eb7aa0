"""Registered losses and those that a factory makes. Torch-free until ``function()`` builds one.

Most look at one output and one target; ``target_values`` says what a random batch has to make for them. Classes are in
the last dimension of an output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from retainprof.scenario.part import FactoryPart, Finite, Part, Registry, kind_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LOSSES", "FactoryLoss", "LossPart", "OutputLoss", "RegisteredLoss", "TargetValues"]

TargetValues = Literal["classes", "normal", "binary", "signs", "counts", "probabilities", "input", "none"]


class LossPart(Part):
    """A loss, whoever makes it."""

    weight: Annotated[Finite, Field(description="factor; 1 multiplies nothing")] = 1.0
    owns: Annotated[
        tuple[str, ...] | None,
        Field(description="submodules or parameters (by the start of their names) that this loss should train"),
    ] = None


class FactoryLoss(FactoryPart, LossPart):
    """``{factory: package.module:function, args: {...}}``: the function is the loss, called ``fn(outputs, targets)``."""


class RegisteredLoss(LossPart):
    """A loss by its kind."""

    kind: str

    def outputs_used(self) -> tuple[str | None, ...]:
        """Outputs it looks at; None is the model's only one."""
        raise NotImplementedError


LOSSES: Registry[RegisteredLoss] = Registry("loss")


class OutputLoss(RegisteredLoss):
    """A loss of one output."""

    target_values: ClassVar[TargetValues] = "normal"

    output: Annotated[str | None, Field(description="output of the model; may be left out if there is only one")] = None
    target: Annotated[
        str | None, Field(description="key of the batch's targets; the loss's, then the output's name if left out")
    ] = None

    def outputs_used(self) -> tuple[str | None, ...]:
        return (self.output,)

    def options(self) -> dict[str, Any]:
        """Arguments of its function in ``retainprof.zoo.losses``, which bears the kind's name."""
        return self.model_dump(exclude=set(OutputLoss.model_fields))

    def function(self) -> Callable[..., Tensor]:
        """``fn(output, target) -> scalar``; ``fn(output) -> scalar`` where it needs no target."""
        from functools import partial

        from retainprof.zoo import losses

        made: Callable[..., Tensor] = getattr(losses, kind_of(self))
        options = self.options()
        return partial(made, **options) if options else made
