"""Registered losses that look at several outputs at once; those that belong to one model have their outputs' names fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from retainprof.scenario.losses import LOSSES, RegisteredLoss
from retainprof.scenario.part import Finite, kind_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SeveralOutputsLoss"]


class SeveralOutputsLoss(RegisteredLoss):
    """A loss of fixed outputs of one model, without targets."""

    looks_at: ClassVar[tuple[str, ...]] = ()

    def outputs_used(self) -> tuple[str | None, ...]:
        return self.looks_at

    def arguments(self) -> dict[str, float]:
        """Further arguments of its function in ``retainprof.zoo.losses``, which bears the kind's name."""
        return {}

    def function(self) -> Callable[..., Tensor]:
        """``fn(*outputs) -> scalar``."""
        from functools import partial

        from retainprof.zoo import losses

        made: Callable[..., Tensor] = getattr(losses, kind_of(self))
        return partial(made, **self.arguments()) if self.arguments() else made


class PairLoss(SeveralOutputsLoss):
    """A loss of two outputs."""

    output: str
    reference: Annotated[str, Field(description="the output that it is compared with")]

    def outputs_used(self) -> tuple[str | None, ...]:
        return self.output, self.reference


@LOSSES.register
class MseBetween(PairLoss):
    """``F.mse_loss`` of two outputs."""

    summary = "F.mse_loss of two outputs"
    kind: Literal["mse_between"] = "mse_between"


@LOSSES.register
class GramMse(PairLoss):
    """``F.mse_loss`` of two outputs' Gram matrices: the style loss."""

    summary = "F.mse_loss of two outputs' Gram matrices (style)"
    kind: Literal["gram_mse"] = "gram_mse"


@LOSSES.register
class GanDiscriminator(SeveralOutputsLoss):
    """The discriminator's logistic loss: real examples up, fakes down. Its own of the model ``gan``."""

    summary = "logistic loss of the discriminator (model gan)"
    looks_at = ("real", "fake")
    kind: Literal["gan_discriminator"] = "gan_discriminator"


@LOSSES.register
class SacActor(SeveralOutputsLoss):
    """Soft actor-critic's actor: expected log-probability at the temperature, less the critic's value."""

    summary = "soft actor-critic's actor loss (model actor_critic)"
    looks_at = ("log_prob", "q_policy", "log_temperature")
    kind: Literal["sac_actor"] = "sac_actor"


@LOSSES.register
class SacTemperature(SeveralOutputsLoss):
    """Soft actor-critic's temperature, which is moved towards a target entropy; touches nothing but itself."""

    summary = "soft actor-critic's temperature loss (model actor_critic)"
    looks_at = ("log_prob", "log_temperature")
    kind: Literal["sac_temperature"] = "sac_temperature"
    target_entropy: Finite = -4.0

    def arguments(self) -> dict[str, float]:
        return {"target_entropy": self.target_entropy}
