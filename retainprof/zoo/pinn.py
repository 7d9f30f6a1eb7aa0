"""A physics-informed network for the heat equation ``u_t = a u_xx``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from retainprof.zoo.parts import dense

__all__ = ["Pinn"]


class Pinn(nn.Module):
    """A network u(x, t) and the equation's residual, whose derivatives the forward gets from the engine.

    Inputs are points (batch, 2) inside, at the start and at the boundary. Outputs (batch, 1) each, but ``slope``, the
    residual's own gradient, is (batch, 2).
    """

    def __init__(self, hidden: int, layers: int, diffusivity: float) -> None:
        super().__init__()
        self.net = nn.Sequential(*dense([2, *[hidden] * layers], "tanh"), nn.Linear(hidden, 1))
        self.diffusivity = diffusivity

    def forward(self, inside: Tensor, start: Tensor, border: Tensor) -> dict[str, Tensor]:
        points = inside.detach().clone().requires_grad_()
        du = _slope(self.net(points), points)
        u_xx = _slope(du[:, :1], points)[:, :1]
        residual = du[:, 1:] - self.diffusivity * u_xx
        return {
            "residual": residual,
            "slope": _slope(residual, points),
            "initial": self.net(start),
            "boundary": self.net(border),
        }


def _slope(values: Tensor, points: Tensor) -> Tensor:
    return torch.autograd.grad(values.sum(), points, create_graph=True)[0]
