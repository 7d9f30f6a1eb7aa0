"""Registered models: their options, what goes in and comes out, and how they are cut into submodules.

The descriptions are torch-free, so that a scenario can be checked without torch; the modules themselves are in
``retainprof.zoo``, imported when one is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from retainprof.scenario.part import FactoryPart, Finite, Part, Registry, Size

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "FactoryModel", "InputSpec", "ModelPart", "RegisteredModel", "Shape"]

Shape = tuple[int, ...]
HeadName = Annotated[str, Field(pattern=r"^[^.\s]+$")]
Heads = Annotated[dict[HeadName, Size], Field(min_length=1, description="outputs: name and width")]
Widths = Annotated[tuple[Size, ...], Field(min_length=1, description="widths of the trunk's layers")]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Activation = Literal["relu", "tanh", "gelu", "silu", "leaky_relu", "sigmoid", "elu"]
Dtype = Literal["float32", "float64", "float16", "bfloat16", "complex64", "complex128"]


@dataclass(frozen=True)
class InputSpec:
    """One input of the model, without its batch dimension; ``tokens`` is the vocabulary of integer inputs."""

    shape: Shape
    tokens: int | None = None


class ModelPart(Part):
    """The model, whoever makes it."""

    frozen: Annotated[
        tuple[str, ...], Field(description="submodules or parameters (by the start of their names) without a gradient")
    ] = ()
    dtype: Annotated[Dtype | None, Field(description="parameters and buffers are converted to it")] = None


class FactoryModel(FactoryPart, ModelPart):
    """``{factory: package.module:function, args: {...}}`` that returns an ``nn.Module``."""


class RegisteredModel(ModelPart):
    """A model of ``retainprof.zoo``. Its forward returns a mapping of output name to tensor."""

    kind: str

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        """What the forward takes, one by one."""
        raise NotImplementedError

    def outputs(self) -> Mapping[str, Shape]:
        """Outputs by name, without the batch dimension."""
        raise NotImplementedError

    def submodules(self) -> tuple[str, ...]:
        """Names of submodules (and top-level parameters); deeper ones exist."""
        raise NotImplementedError

    def make(self) -> nn.Module:
        """The module, with parameters drawn from torch's global generator."""
        raise NotImplementedError


MODELS: Registry[RegisteredModel] = Registry("model")


@MODELS.register
class Mlp(RegisteredModel):
    """Linear layers one after the other; the last layer's output is cut into the heads, without a layer of their own."""

    summary = "linear layers in a row; the heads are slices of the last one's output"

    kind: Literal["mlp"] = "mlp"
    inputs: Size
    trunk: Widths
    heads: Heads
    activation: Activation = "relu"

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return (InputSpec((self.inputs,)),)

    def outputs(self) -> Mapping[str, Shape]:
        return {name: (width,) for name, width in self.heads.items()}

    def submodules(self) -> tuple[str, ...]:
        return ("trunk", "last")

    def make(self) -> nn.Module:
        from retainprof.zoo.mlp import Mlp as Module

        return Module(self.inputs, self.trunk, self.heads, self.activation)


@MODELS.register
class MultitaskMlp(RegisteredModel):
    """A trunk of linear layers, each followed by its activation, and one linear layer for each head."""

    summary = "a trunk of linear layers and a linear head for each output"

    kind: Literal["multitask_mlp"] = "multitask_mlp"
    inputs: Size
    trunk: Widths
    heads: Heads
    activation: Activation = "relu"

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return (InputSpec((self.inputs,)),)

    def outputs(self) -> Mapping[str, Shape]:
        return {name: (width,) for name, width in self.heads.items()}

    def submodules(self) -> tuple[str, ...]:
        return ("trunk", *(f"heads.{name}" for name in self.heads))

    def make(self) -> nn.Module:
        from retainprof.zoo.mlp import MultitaskMlp as Module

        return Module(self.inputs, self.trunk, self.heads, self.activation)


@MODELS.register
class Conv(RegisteredModel):
    """A small residual network with BatchNorm: a stem, one stage a width (each halves the image), mean over the image."""

    summary = "a small residual convolution network with BatchNorm"

    kind: Literal["conv"] = "conv"
    channels: Annotated[Size, Field(description="channels of the image")] = 3
    image: Annotated[Size, Field(description="height and width of the image")] = 32
    trunk: Widths = (16, 32)
    blocks: Annotated[Size, Field(description="residual blocks a stage")] = 1
    heads: Heads

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return (InputSpec((self.channels, self.image, self.image)),)

    def outputs(self) -> Mapping[str, Shape]:
        return {name: (width,) for name, width in self.heads.items()}

    def submodules(self) -> tuple[str, ...]:
        return ("trunk", *(f"heads.{name}" for name in self.heads))

    def make(self) -> nn.Module:
        from retainprof.zoo.conv import Conv as Module

        return Module(self.channels, self.trunk, self.blocks, self.heads)


class SequenceModel(RegisteredModel):
    """A model over steps of a sequence; some heads answer for every step, the others for the whole."""

    length: Annotated[Size, Field(description="steps of a sequence")] = 32
    heads: Heads
    per_step: Annotated[tuple[str, ...], Field(description="heads that answer for every step")] = ()

    def outputs(self) -> Mapping[str, Shape]:
        return {n: (self.length, width) if n in self.per_step else (width,) for n, width in self.heads.items()}

    def submodules(self) -> tuple[str, ...]:
        return ("trunk", *(f"heads.{name}" for name in self.heads))


@MODELS.register
class Transformer(SequenceModel):
    """Embedding, learned positions and encoder layers with attention and dropout; a head for each output."""

    summary = "a transformer encoder over tokens, with attention and dropout"

    kind: Literal["transformer"] = "transformer"
    vocabulary: Size = 1000
    width: Size = 64
    layers: Size = 2
    attention_heads: Size = 4
    feed_forward: Size = 256
    dropout: Dropout = 0.1
    sparse: Annotated[bool, Field(description="the embedding's gradient is sparse")] = False

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return (InputSpec((self.length,), tokens=self.vocabulary),)

    def make(self) -> nn.Module:
        from retainprof.zoo.transformer import Transformer as Module

        return Module(self)


@MODELS.register
class Lstm(SequenceModel):
    """An LSTM over steps of a sequence; a head sees the last step, or every step."""

    summary = "an LSTM over sequences of vectors"

    kind: Literal["lstm"] = "lstm"
    inputs: Size
    hidden: Size = 64
    layers: Size = 1
    dropout: Dropout = 0.0

    def inputs_needed(self) -> tuple[InputSpec, ...]:
        return (InputSpec((self.length, self.inputs)),)

    def make(self) -> nn.Module:
        from retainprof.zoo.lstm import Lstm as Module

        return Module(self)


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
