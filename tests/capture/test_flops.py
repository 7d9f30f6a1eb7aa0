"""FLOPs of the strategies, derived by hand from the shapes.

A product of (b, m) and (m, n) costs 2bmn. A Linear pays it once in the forward, once for its weight's gradient, and once
more for its input's gradient where somebody wants that: all layers but the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from retainprof.capture.flops import StepFlops, count_flops
from retainprof.capture.step import StepRunner
from retainprof.capture.workload import State, Workload
from retainprof.strategies import REGISTRY

MakeRunner = Callable[..., StepRunner]
K, LAYERS, WIDTH, HEAD, BATCH = 4, 6, 32, 8, 16
UNIT = 2 * BATCH * WIDTH * WIDTH  # one product in the trunk
HEADS = K * 2 * BATCH * WIDTH * HEAD  # one product in every head
F_T, B_T = LAYERS * UNIT, (2 * LAYERS - 1) * UNIT
F_H, B_H = HEADS, 2 * HEADS


class Lazy(Mapping[str, Tensor]):
    """Outputs that run a head when a loss asks for it, as a program with a forward per loss would."""

    def __init__(self, z: Tensor, heads: nn.ModuleList) -> None:
        self._z, self._heads = z, heads

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor = self._heads[int(name)](self._z)
        return found

    def __iter__(self) -> Iterator[str]:
        return map(str, range(len(self._heads)))

    def __len__(self) -> int:
        return len(self._heads)


class Deep(nn.Module):
    """Six layers, four heads."""

    def __init__(self, lazy: bool) -> None:
        super().__init__()
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.trunk = nn.Sequential(*layers)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, HEAD) for _ in range(K))
        self.lazy = lazy

    def forward(self, x: Tensor) -> Mapping[str, Tensor]:
        outputs = Lazy(self.trunk(x), self.heads)
        return outputs if self.lazy else dict(outputs)


def flops_of(kind: str, *, lazy: bool = False, **options: Any) -> StepFlops:
    """FLOPs of one step."""
    torch.manual_seed(0)

    def loss(i: int) -> Callable[[Any, Any], Tensor]:
        return lambda outputs, targets: outputs[str(i)].square().mean()

    workload = Workload(
        model=Deep(lazy),
        inputs=(torch.randn(BATCH, WIDTH),),
        targets=None,
        losses={f"loss{i}": loss(i) for i in range(K)},
        device=torch.device("cpu"),
        shared="trunk",
    )
    strategy = REGISTRY[kind].model_validate({"kind": kind, **options})
    found = count_flops(StepRunner(strategy, workload, State(workload, "set_to_none", parameters_change=False)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("summed", {}, F_T + F_H + B_T + B_H),
        ("joint", {}, F_T + F_H + B_T + B_H),
        ("retain", {}, F_T + F_H + K * B_T + B_H),
        ("grad", {}, F_T + F_H + K * B_T + B_H),
        ("separate", {"lazy": True}, K * (F_T + B_T) + F_H + B_H),
        ("separate", {}, K * (F_T + F_H + B_T) + B_H),
        ("two_stage", {}, F_T + F_H + B_T + B_H),
        ("edge", {}, F_T + F_H + B_T + B_H),
        ("two_stage_per_loss", {}, F_T + F_H + K * B_T + B_H),
        ("two_stage_per_loss", {"batched": True}, F_T + F_H + K * B_T + B_H),
        ("batched", {}, F_T + F_H + K * (B_T + B_H)),
        ("summed", {"checkpoint": "trunk"}, 2 * F_T + F_H + B_T + B_H),
        ("retain", {"checkpoint": "trunk"}, F_T + F_H + K * (F_T + B_T) + B_H),
    ],
)
def test_cost_models(kind: str, options: dict[str, Any], expected: int) -> None:
    assert flops_of(kind, **options).step == expected


@pytest.mark.parametrize(
    ("kind", "options", "heads"),
    [
        ("summed", {}, {0: B_H}),
        ("retain", {}, dict.fromkeys(range(K), B_H // K)),
        ("grad", {}, dict.fromkeys(range(K), B_H // K)),
        ("separate", {}, dict.fromkeys(range(K), B_H // K)),
        ("batched", {}, {0: K * B_H}),
        ("two_stage", {}, {K: 0}),  # its head calls never meet the output itself, the trunk call begins there
        ("retain", {"checkpoint": "trunk"}, dict.fromkeys(range(K), B_H // K)),  # recomputed behind the output
    ],
)
def test_heads_come_before_the_shared_output(kind: str, options: dict[str, Any], heads: dict[int, int]) -> None:
    assert flops_of(kind, **options).heads == heads


def test_each_call_has_its_own(runner_of: MakeRunner) -> None:
    found = count_flops(runner_of("retain"))
    assert found is not None
    trunk = 2 * 32 * 8 * 16  # its input wants no gradient, so only the weight's product is made
    assert found.forward == trunk + 2 * 32 * 16 * (4 + 1)
    assert found.calls == {0: 2 * (2 * 32 * 16 * 4) + trunk, 1: 2 * (2 * 32 * 16 * 1) + trunk}


def test_grad_of_an_input_that_is_a_leaf(runner_of: MakeRunner, workload: Workload) -> None:
    """The counter's own module tracker raises here."""
    workload.inputs[0].requires_grad_(True)
    assert count_flops(runner_of("grad")) is not None
