"""Registered batches and those that a factory makes. Torch-free; ``build`` makes the tensors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from retainprof.scenario.part import FactoryPart, Part, Registry, Size

__all__ = ["BATCHES", "BatchPart", "FactoryBatch", "Random"]


class BatchPart(Part):
    """The batch, whoever makes it."""


class FactoryBatch(FactoryPart, BatchPart):
    """``{factory: package.module:function, args: {...}}`` that returns ``(inputs, targets)``; inputs is a tuple."""


class RegisteredBatch(BatchPart):
    """A batch by its kind."""

    kind: str


BATCHES: Registry[RegisteredBatch] = Registry("batch")


@BATCHES.register
class Random(RegisteredBatch):
    """Random inputs as the model needs them, and for each loss targets that fit it and the output it sees."""

    summary = "random inputs of the model's shapes; targets that fit each loss"

    kind: Literal["random"] = "random"
    size: Annotated[Size, Field(description="examples in the batch")]
    values: Annotated[Literal["normal", "uniform"], Field(description="uniform is from 0 to 1")] = "normal"
    requires_grad: Annotated[bool, Field(description="inputs are leaves that get a .grad too")] = False
    dtype: Annotated[
        Literal["float32", "float64", "float16", "bfloat16", "complex64", "complex128"] | None,
        Field(description="of floating-point inputs; the model's where left out"),
    ] = None
