"""Registered models that are everyday patterns of several losses: adversaries, a shared encoder, engines in the forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from retainprof.scenario.models import MODELS, InputSpec, RegisteredModel, Shape, Widths
from retainprof.scenario.part import Finite, Size

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ActorCritic", "Gan", "Maml", "Pinn", "StyleTransfer"]


@MODELS.register
class Gan(RegisteredModel):
    """A generator and a discriminator in one forward, as many training scripts write it.

    Without ``detach`` the discriminator's loss reaches the generator through the images that it judged.
    """

    summary = "generator and discriminator in one forward"

    kind: Literal["gan"] = "gan"
    noise: Size = 16
    data: Size = 64
    hidden: Size = 128
    detach: Annotated[bool, Field(description="the discriminator's own loss sees detached fakes")] = False

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return InputSpec((self.noise,)), InputSpec((self.data,))

    def outputs(self) -> Mapping[str, Shape]:
        return dict.fromkeys(("real", "fake", "fooled"), (1,))

    def submodules(self) -> tuple[str, ...]:
        return ("generator", "discriminator")

    def make(self) -> nn.Module:
        from retainprof.zoo.gan import Gan as Module

        return Module(self.noise, self.data, self.hidden, self.detach)


@MODELS.register
class ActorCritic(RegisteredModel):
    """Soft actor-critic whose actor and critic share an encoder; the temperature is a parameter of its own."""

    summary = "actor, critic and temperature on a shared encoder"

    kind: Literal["actor_critic"] = "actor_critic"
    observation: Size = 24
    action: Size = 4
    hidden: Size = 64

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return InputSpec((self.observation,)), InputSpec((self.action,)), InputSpec((self.action,))

    def outputs(self) -> Mapping[str, Shape]:
        return {"q": (1,), "q_policy": (), "log_prob": (), "log_temperature": ()}

    def submodules(self) -> tuple[str, ...]:
        return ("encoder", "policy", "critic", "log_temperature")

    def make(self) -> nn.Module:
        from retainprof.zoo.actor_critic import ActorCritic as Module

        return Module(self.observation, self.action, self.hidden)


@MODELS.register
class Pinn(RegisteredModel):
    """A physics-informed network for the heat equation; its forward runs the engine to get u_t and u_xx."""

    summary = "physics-informed network; the forward itself runs the engine"

    kind: Literal["pinn"] = "pinn"
    hidden: Size = 48
    layers: Size = 3
    diffusivity: Finite = 0.1

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return (InputSpec((2,)),) * 3

    def outputs(self) -> Mapping[str, Shape]:
        return {"residual": (1,), "slope": (2,), "initial": (1,), "boundary": (1,)}

    def submodules(self) -> tuple[str, ...]:
        return ("net",)

    def make(self) -> nn.Module:
        from retainprof.zoo.pinn import Pinn as Module

        return Module(self.hidden, self.layers, self.diffusivity)


@MODELS.register
class StyleTransfer(RegisteredModel):
    """Frozen convolutions look at a style picture, a content picture and the image that is trained."""

    summary = "frozen convolutions; the image is the only trained tensor"

    kind: Literal["style_transfer"] = "style_transfer"
    image: Size = 48
    trunk: Widths = (8, 16, 16)

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return (InputSpec((3, self.image, self.image)),) * 2

    def outputs(self) -> Mapping[str, Shape]:
        names = ("image", "style", "content")
        return {f"{n}{i}": (w, self.image, self.image) for n in names for i, w in enumerate(self.trunk, 1)}

    def submodules(self) -> tuple[str, ...]:
        return ("image", "layers")

    def make(self) -> nn.Module:
        from retainprof.zoo.style_transfer import StyleTransfer as Module

        return Module(self.image, self.trunk)


@MODELS.register
class Maml(RegisteredModel):
    """Meta-learning: the forward takes inner gradient steps through the engine, then answers the query."""

    summary = "meta-learning; inner gradient steps inside the forward"

    kind: Literal["maml"] = "maml"
    inputs: Size = 20
    hidden: Size = 40
    steps: Annotated[Size, Field(description="inner steps")] = 3
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False, description="inner learning rate")] = 0.1
    first_order: Annotated[bool, Field(description="inner gradients carry no graph")] = False

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return InputSpec((self.inputs,)), InputSpec((1,)), InputSpec((self.inputs,))

    def outputs(self) -> Mapping[str, Shape]:
        return {"support": (1,), "query": (1,)}

    def submodules(self) -> tuple[str, ...]:
        return ("hidden", "out")

    def make(self) -> nn.Module:
        from retainprof.zoo.maml import Maml as Module

        return Module(self.inputs, self.hidden, self.steps, self.rate, self.first_order)
