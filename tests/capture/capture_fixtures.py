"""A small workload whose every number can be derived by hand: Linear 8-16, Tanh, two heads 16-4 and 16-1, batch 32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retainprof.capture.step import StepRunner
from retainprof.capture.workload import State, Workload
from retainprof.strategies import REGISTRY

BATCH, INPUTS, WIDTH = 32, 8, 16


class TwoHeads(nn.Module):
    """A trunk and two heads; ``runs`` counts forward passes."""

    def __init__(self, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        extra: list[nn.Module] = [nn.Dropout(dropout)] if dropout else [nn.BatchNorm1d(WIDTH)] if norm else []
        self.trunk = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), *extra)
        self.heads = nn.ModuleDict({"cls": nn.Linear(WIDTH, 4), "reg": nn.Linear(WIDTH, 1)})
        self.runs = 0

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.runs += 1
        z = self.trunk(x)
        return {name: head(z) for name, head in self.heads.items()}


def cls_loss(outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
    """Cross entropy of head ``cls``."""
    return F.cross_entropy(outputs["cls"], targets["cls"])


def reg_loss(outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
    """Squared error of head ``reg``."""
    return F.mse_loss(outputs["reg"], targets["reg"])


def make_workload(**options: Any) -> Workload:
    """The workload, seeded."""
    torch.manual_seed(0)
    model = TwoHeads(**options)
    x = torch.randn(BATCH, INPUTS)
    targets = {"cls": torch.randint(0, 4, (BATCH,)), "reg": torch.randn(BATCH, 1)}
    losses = {"cls": cls_loss, "reg": reg_loss}
    return Workload(
        model=model, inputs=(x,), targets=targets, losses=losses, device=torch.device("cpu"), shared="trunk"
    )


MakeRunner = Callable[..., StepRunner]


@pytest.fixture
def workload() -> Workload:
    """The plain workload."""
    return make_workload()


@pytest.fixture
def runner_of(workload: Workload) -> MakeRunner:
    """A runner of a strategy by kind and options; ``zero_grad`` and ``workload`` may be given."""

    def make(kind: str, *, zero_grad: str = "set_to_none", on: Workload | None = None, **options: Any) -> StepRunner:
        strategy = REGISTRY[kind].model_validate({"kind": kind, **options})
        there = workload if on is None else on
        return StepRunner(strategy, there, State(there, zero_grad, strategy.changes_parameters))  # type: ignore[arg-type]

    return make


@pytest.fixture
def workload_with() -> Callable[..., Workload]:
    """The workload with dropout or BatchNorm in its trunk."""
    return make_workload
