"""Meta-learning by gradient steps inside the forward."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Maml"]


class Maml(nn.Module):
    """A two-layer network that adapts to support examples before it answers a query.

    Inputs support (batch, inputs), its answers (batch, 1) and query (batch, inputs). Outputs (batch, 1): ``support`` by
    the parameters as they are, ``query`` by the adapted ones.
    """

    def __init__(self, inputs: int, hidden: int, steps: int, rate: float, first_order: bool) -> None:
        super().__init__()
        self.hidden = nn.Parameter(torch.randn(hidden, inputs) / inputs**0.5)
        self.out = nn.Parameter(torch.randn(1, hidden) / hidden**0.5)
        self.steps, self.rate, self.first_order = steps, rate, first_order

    def forward(self, support: Tensor, answers: Tensor, query: Tensor) -> dict[str, Tensor]:
        weights: tuple[Tensor, ...] = (self.hidden, self.out)
        for _ in range(self.steps):
            inner = F.mse_loss(_answer(support, *weights), answers)
            slopes = torch.autograd.grad(inner, weights, create_graph=not self.first_order)
            weights = tuple(w - self.rate * slope for w, slope in zip(weights, slopes, strict=True))
        return {"support": _answer(support, self.hidden, self.out), "query": _answer(query, *weights)}


def _answer(x: Tensor, hidden: Tensor, out: Tensor) -> Tensor:
    return torch.tanh(x @ hidden.T) @ out.T
