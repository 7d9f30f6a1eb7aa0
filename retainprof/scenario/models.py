"""Registered models: their options, what goes in and comes out, and how they are cut into submodules.

The descriptions are torch-free, so that a scenario can be checked without torch; the modules themselves are in
``retainprof.zoo``, imported when one is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from retainprof.scenario.part import FactoryPart, Part, Registry, Size

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "FactoryModel", "Heads", "InputSpec", "ModelPart", "RegisteredModel", "Shape", "Widths"]

Shape = tuple[int, ...]
HeadName = Annotated[str, Field(pattern=r"^[^.\s]+$")]
Heads = Annotated[dict[HeadName, Size], Field(min_length=1, description="outputs: name and width")]
Widths = Annotated[tuple[Size, ...], Field(min_length=1, description="widths of the trunk's layers")]
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
