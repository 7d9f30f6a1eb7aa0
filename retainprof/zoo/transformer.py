"""A transformer encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from retainprof.errors import WorkloadError
from retainprof.zoo.parts import Heads, heads_of_sequence

if TYPE_CHECKING:
    from retainprof.scenario.networks import Transformer as Options

__all__ = ["Transformer"]


class Encoder(nn.Module):
    """Embedding, learned positions and encoder layers. Input (batch, length) of tokens; output (batch, length, width)."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.width, sparse=options.sparse)
        self.positions = nn.Parameter(0.02 * torch.randn(options.length, options.width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    options.width, options.attention_heads, options.feed_forward, options.dropout, batch_first=True
                )
                for _ in range(options.layers)
            )
        )

    def forward(self, tokens: Tensor) -> Tensor:
        features: Tensor = self.layers(self.embedding(tokens) + self.positions)
        return features


class Transformer(nn.Module):
    """An encoder and its heads, which see every step or the mean over the steps."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        if options.width % options.attention_heads:
            raise WorkloadError(
                f"width {options.width} cannot be shared out among {options.attention_heads} attention heads",
                hint="width has to be a multiple of attention_heads",
            )
        self.trunk = Encoder(options)
        self.heads = Heads(options.width, options.heads)
        self.per_step = options.per_step

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        return heads_of_sequence(self.heads, self.trunk(tokens), self.per_step, lambda steps: steps.mean(1))
