"""Multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from retainprof.zoo.parts import Heads, dense

__all__ = ["Mlp", "MultitaskMlp"]


class Mlp(nn.Module):
    """Linear layers in a row. Input (batch, inputs); outputs are slices of the last layer's output, by name."""

    def __init__(self, inputs: int, trunk: Sequence[int], heads: Mapping[str, int], activation: str) -> None:
        super().__init__()
        self.trunk = dense([inputs, *trunk], activation)
        self.last = nn.Linear(trunk[-1], sum(heads.values()))
        self.widths = dict(heads)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y: Tensor = self.last(self.trunk(x))
        if len(self.widths) == 1:
            return dict.fromkeys(self.widths, y)
        return dict(zip(self.widths, torch.split(y, list(self.widths.values()), dim=1), strict=True))


class MultitaskMlp(nn.Module):
    """A trunk of linear layers and a linear head for each output. Input (batch, inputs)."""

    def __init__(self, inputs: int, trunk: Sequence[int], heads: Mapping[str, int], activation: str) -> None:
        super().__init__()
        self.trunk = dense([inputs, *trunk], activation)
        self.heads = Heads(trunk[-1], heads)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        outputs: dict[str, Tensor] = self.heads(self.trunk(x))
        return outputs
