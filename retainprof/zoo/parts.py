"""What several models share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from torch import Tensor, nn

from retainprof.errors import WorkloadError

__all__ = ["Heads", "dense", "heads_of_sequence"]

ACTIVATIONS: Final[Mapping[str, Callable[[], nn.Module]]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
}


def dense(widths: Sequence[int], activation: str) -> nn.Sequential:
    """Linear layers from ``widths[0]`` to ``widths[-1]``, each followed by its activation."""

    def layers() -> Iterator[nn.Module]:
        for before, after in pairwise(widths):
            yield nn.Linear(before, after)
            yield ACTIVATIONS[activation]()

    return nn.Sequential(*layers())


class Heads(nn.Module):
    """A linear layer for each output, as submodules of the outputs' names.

    Raises:
        WorkloadError: a name that ``nn.Module`` itself uses.
    """

    def __init__(self, features: int, widths: Mapping[str, int]) -> None:
        super().__init__()
        for name, width in widths.items():
            if hasattr(self, name):
                raise WorkloadError(f"a head cannot be called {name!r}: nn.Module has an attribute of that name")
            self.add_module(name, nn.Linear(features, width))

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        return {name: head(features) for name, head in self.named_children()}


def heads_of_sequence(
    heads: Heads, steps: Tensor, per_step: Sequence[str], summary: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Heads of features of shape (batch, steps, width): those in ``per_step`` see every step, the others a summary."""
    named = dict(heads.named_children())
    whole = summary(steps) if len(per_step) < len(named) else steps
    return {name: head(steps if name in per_step else whole) for name, head in named.items()}
