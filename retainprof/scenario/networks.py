"""Registered models that are a trunk with heads: perceptrons, convolutions, sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from retainprof.scenario.models import MODELS, Heads, InputSpec, RegisteredModel, Shape, Widths
from retainprof.scenario.part import Size

if TYPE_CHECKING:
    from torch import nn

Dropout = Annotated[float, Field(ge=0, lt=1)]
Activation = Literal["relu", "tanh", "gelu", "silu", "leaky_relu", "sigmoid", "elu"]


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
