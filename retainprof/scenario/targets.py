"""Random tensors of a batch: inputs as a model takes them, targets as a loss wants them."""

from __future__ import annotations

import torch
from torch import Tensor

from retainprof.scenario.losses import TargetValues
from retainprof.scenario.models import InputSpec, Shape

__all__ = ["Maker"]

RATE = 3.0  # of counts


class Maker:
    """Draws everything from one generator of its own; ``dtype`` is that of floating-point tensors."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = dtype

    def _normal(self, shape: Shape) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=self.dtype)

    def _uniform(self, shape: Shape) -> Tensor:
        return torch.rand(shape, generator=self.generator, dtype=self.dtype)

    def _integers(self, shape: Shape, below: int) -> Tensor:
        return torch.randint(0, below, shape, generator=self.generator)

    def input(self, spec: InputSpec, size: int, values: str) -> Tensor:
        """One input, (size, \\*shape): tokens, or floating-point numbers."""
        shape = (size, *spec.shape)
        if spec.tokens is not None:
            return self._integers(shape, spec.tokens)
        return self._uniform(shape) if values == "uniform" else self._normal(shape)

    def target(self, values: TargetValues, shape: Shape) -> Tensor:
        """A target for an output of that shape, batch dimension included; classes are its last dimension."""
        if values == "classes":
            return self._integers(shape[:-1], shape[-1])
        if values == "binary":
            return self._integers(shape, 2).to(self.dtype)
        if values == "signs":
            return self._integers(shape, 2).to(self.dtype) * 2 - 1
        if values == "counts":
            return torch.poisson(torch.full(shape, RATE), generator=self.generator).to(self.dtype)
        if values == "probabilities":
            return self._normal(shape).softmax(-1)
        return self._normal(shape)
