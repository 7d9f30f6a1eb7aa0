"""The map from nodes and storages to modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from retainprof.capture.ledger import Ledger, walk
from retainprof.capture.modules import ModuleMap


def places(ledger: Ledger) -> set[tuple[str, str]]:
    return {(held.kept_by[0], held.node_module) for held in ledger.storages if held.kind != "loss"}


def hooks_on(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_hooks_come_off() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh()))
    with ModuleMap(model) as modules:
        assert hooks_on(model) == 2 * 4
        modules.remove()
        assert hooks_on(model) == 0
    modules.remove()
    assert hooks_on(model) == 0


def test_hooks_come_off_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match="shapes"), ModuleMap(model):
        model(torch.randn(1, 2))
    assert hooks_on(model) == 0


def test_the_map_goes_on_after_an_error_in_a_module() -> None:
    """A module that raises is left all the same: what follows is not put down to it."""

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wrong, self.right = nn.Linear(9, 9), nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.wrong(x)  # type: ignore[no-any-return]
            except RuntimeError:
                return self.right(x).exp()  # type: ignore[no-any-return]

    model, x = Tries(), torch.randn(3, requires_grad=True)
    with ModuleMap(model) as modules:
        loss = model(x).sum()
    assert places(walk([loss], owned=[x], modules=modules)) == {("TanhBackward0", "right"), ("ExpBackward0", "")}


def test_a_module_used_twice_and_one_with_two_names() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Tanh()
            self.same = self.one

        def forward(self, x: Tensor) -> Tensor:
            return self.same(self.one(x).exp())  # type: ignore[no-any-return]

    model, x = Shared(), torch.randn(3, requires_grad=True)
    with ModuleMap(model) as modules:
        loss = model(x).sum()
    found = walk([loss], owned=[x], modules=modules)
    assert [held.node_module for held in found.storages if held.kept_by == ("TanhBackward0",)] == ["one", "one"]
    assert places(found) == {("TanhBackward0", "one"), ("ExpBackward0", "")}


def test_outputs_in_containers() -> None:
    class Heads(nn.Module):
        def forward(self, x: Tensor, *, scale: Tensor) -> dict[str, Any]:
            return {"a": [x * 2, (x * 3,)], "b": scale * 2}

    model = nn.Module()
    model.heads = Heads()
    x, scale = torch.randn(3, requires_grad=True), torch.randn(3)
    with ModuleMap(model) as modules:
        out = model.heads(x, scale=scale)
    loss = (out["a"][0] * out["a"][1][0] * out["b"]).sum()
    found = walk([loss], owned=[x, scale], modules=modules)
    # what the two multiplications keep: three outputs of the heads, and a product made outside
    assert sorted(held.module for held in found.storages if held.bytes == 12) == ["heads", "heads", "heads"]


def test_memory_that_is_used_again_is_not_mistaken() -> None:
    """A storage that died in one module and whose address another module gets is the other's."""

    class Throws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.detach() * 2

    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp()

    model = nn.ModuleDict({"throws": Throws(), "keeps": Keeps()})
    x = torch.randn(100, requires_grad=True)
    with ModuleMap(model) as modules:
        addresses = {model["throws"](x).data_ptr() for _ in range(50)}
        kept = [model["keeps"](x) for _ in range(50)]
    assert addresses & {t.data_ptr() for t in kept}, "no address was used again: the test shows nothing"
    found = walk(kept, owned=[x], modules=modules)
    assert {held.module for held in found.storages} == {"keeps"}


def test_recomputation_in_backward_does_not_move_the_forward() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)
    with ModuleMap(model) as modules:
        hidden = checkpoint(model, x, use_reentrant=False)
        loss = model[1](hidden).sum()
        before = walk([loss], owned=[*model.parameters(), x], modules=modules)
        torch.autograd.backward(loss, retain_graph=True)
        after = walk([loss], owned=[*model.parameters(), x], modules=modules)
    assert before == after


def count_compilations(counted: list[int]) -> Any:
    def backend(module: Any, example: Any) -> Any:
        counted[0] += 1
        return module.forward

    return backend


class Trunk(nn.Module):
    """Of a class of its own: torch compiles nothing of ``nn.Sequential.compile``."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).tanh()  # type: ignore[no-any-return]


class TwoParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk: nn.Module = Trunk()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x).exp())  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["model.compile", "torch.compile", "trunk.compile", "torch.compile(trunk)"])
def test_compiled_modules_are_not_compiled_again(way: str) -> None:
    torch.compiler.reset()
    counted = [0]
    backend = count_compilations(counted)
    model = TwoParts()
    if way == "model.compile":
        model.compile(backend=backend)
    elif way == "torch.compile":
        model = torch.compile(model, backend=backend)  # type: ignore[assignment]
    elif way == "trunk.compile":
        model.trunk.compile(backend=backend)
    else:
        model.trunk = torch.compile(model.trunk, backend=backend)  # type: ignore[assignment]
    x = torch.randn(3, 4)
    model(x)
    compilations = counted[0]
    assert compilations > 0
    with ModuleMap(model) as modules:
        loss = model(x).sum()
    model(x)
    assert counted[0] == compilations
    found = walk([loss], owned=[*model.parameters(), x], modules=modules)
    inside = "trunk" if "trunk" in way else ""
    assert ("TanhBackward0", inside) in places(found)
    torch.compiler.reset()


def test_compiling_inside_the_map_leaves_no_trace() -> None:
    """Hooks are part of what is compiled; ours do nothing there."""
    torch.compiler.reset()
    counted = [0]
    model, x = TwoParts(), torch.randn(3, 4)
    compiled = torch.compile(lambda value: model(value), backend=count_compilations(counted), fullgraph=True)
    with ModuleMap(model) as modules:
        loss = compiled(x).sum()
    assert counted[0] == 1
    assert ("TanhBackward0", "") in places(walk([loss], owned=[*model.parameters(), x], modules=modules))
    torch.compiler.reset()
