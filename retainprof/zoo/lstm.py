"""An LSTM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from retainprof.zoo.parts import Heads, heads_of_sequence

if TYPE_CHECKING:
    from retainprof.scenario.networks import Lstm as Options

__all__ = ["Lstm"]


class Recurrent(nn.Module):
    """The LSTM's outputs alone. Input (batch, length, inputs); output (batch, length, hidden)."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            options.inputs,
            options.hidden,
            options.layers,
            batch_first=True,
            dropout=options.dropout if options.layers > 1 else 0.0,
        )

    def forward(self, x: Tensor) -> Tensor:
        steps: Tensor = self.lstm(x)[0]
        return steps


class Lstm(nn.Module):
    """An LSTM and its heads, which see every step or the last one."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.trunk = Recurrent(options)
        self.heads = Heads(options.hidden, options.heads)
        self.per_step = options.per_step

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return heads_of_sequence(self.heads, self.trunk(x), self.per_step, lambda steps: steps[:, -1])
