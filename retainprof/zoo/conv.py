"""A small residual network with BatchNorm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from retainprof.zoo.parts import Heads

__all__ = ["Conv"]


class Block(nn.Module):
    """Two 3x3 convolutions with BatchNorm, and a way around them (1x1 where the shape changes)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        changes = stride != 1 or before != after
        self.around = nn.Conv2d(before, after, 1, stride, bias=False) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


class Conv(nn.Module):
    """A stem, stages of residual blocks (each stage but the first halves the image), the mean over the image, heads.

    Input (batch, channels, height, width).
    """

    def __init__(self, channels: int, widths: Sequence[int], blocks: int, heads: Mapping[str, int]) -> None:
        super().__init__()
        stem = [nn.Conv2d(channels, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
        self.trunk = nn.Sequential(*stem, *_stages(widths, blocks), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.heads = Heads(widths[-1], heads)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        outputs: dict[str, Tensor] = self.heads(self.trunk(x))
        return outputs


def _stages(widths: Sequence[int], blocks: int) -> Iterator[Block]:
    before = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            yield Block(before, width, 2 if stage and not block else 1)
            before = width
