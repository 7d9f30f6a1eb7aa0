"""Style transfer by a network of frozen convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["StyleTransfer"]


class StyleTransfer(nn.Module):
    """Features of the trained image and of a style and a content picture, each (1, 3, size, size).

    Outputs ``image1``, ``style1``, ``content1`` and so on: (1, width, size, size) for each layer.
    """

    def __init__(self, size: int, widths: Sequence[int]) -> None:
        super().__init__()
        ins = [3, *widths]
        self.layers = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in zip(ins, widths, strict=False))
        self.layers.requires_grad_(False)
        self.image = nn.Parameter(torch.rand(1, 3, size, size))

    def forward(self, style: Tensor, content: Tensor) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, picture in (("image", self.image), ("style", style), ("content", content)):
            features = picture
            for i, layer in enumerate(self.layers, 1):
                features = torch.relu(layer(features))
                found[f"{name}{i}"] = features
        return found
