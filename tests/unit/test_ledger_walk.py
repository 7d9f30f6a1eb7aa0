"""What the ledger says about a storage, on graphs small enough to count by hand."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retainprof.capture.ledger import NEVER, Held, Ledger, walk, walk_pinned
from retainprof.capture.ledger_sums import by_module, by_node, freed_in_call, released, remaining
from retainprof.capture.modules import ModuleMap


def one(ledger: Ledger, **wanted: Any) -> Held:
    """The only storage with these attributes."""
    (held,) = [h for h in ledger.storages if all(getattr(h, name) == value for name, value in wanted.items())]
    return held


def two_heads() -> tuple[nn.Module, Tensor]:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(6, 10), nn.Tanh())
            self.a, self.b = nn.Linear(10, 3), nn.Linear(10, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.trunk(x)
            return self.a(h), self.b(h)

    return TwoHeads(), torch.randn(5, 6)


def test_two_heads_by_hand() -> None:
    model, x = two_heads()
    with ModuleMap(model) as modules:
        a, b = model(x)
        losses = [a.exp().sum(), F.mse_loss(b, torch.zeros(5, 1))]
        del a, b
    found = walk(losses, owned=[*model.parameters(), x], modules=modules)
    # Tanh 5 x 10, exp 5 x 3, mse's two inputs 5 x 1, the losses: 4 B, and 20 B under a scalar
    assert found.total_bytes == 200 + 60 + 20 + 20 + 4 + 20
    tanh = one(found, bytes=200)
    assert (tanh.kept_by, tanh.kind, tanh.shape, tanh.dtype) == (
        ("TanhBackward0", "AddmmBackward0"),
        "saved",
        (5, 10),
        "float32",
    )
    assert (tanh.module, tanh.node_module, tanh.modules) == ("trunk.1", "trunk.1", ("trunk.1", "a", "b"))
    assert len(tanh.keepers) == 3
    assert one(found, kept_by=("ExpBackward0",)).module == ""
    assert one(found, module="b", bytes=20).kept_by == ("MseLossBackward0",)
    pinning = one(found, kind="loss", bytes=20)
    assert (pinning.tensor_bytes, pinning.shape, pinning.keepers) == (4, (), (NEVER,))
    # 7 nodes of the model and its losses, 6 leaves, 3 transposed weights
    assert found.nodes == 2 + 1 + 1 + 1 + 1 + 1 + 6 + 3


def test_made_in_a_module_that_does_not_keep_it() -> None:
    """Convolution and pooling: the pool saves the convolution's output, the convolution does not."""
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2)), torch.randn(1, 1, 8, 8)
    with ModuleMap(model) as modules:
        loss = model(x).sum()
    found = walk([loss], owned=[*model.parameters(), x], modules=modules)
    output = one(found, shape=(1, 2, 6, 6))
    assert (output.kept_by, output.module, output.node_module) == (("MaxPool2DWithIndicesBackward0",), "0", "1")
    assert {(s.module, s.bytes) for s in by_module(found)} == {("0", 288), ("1", 2 * 9 * 8), ("", 4)}


def test_made_between_modules_belongs_to_the_enclosing_one() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.inner(x + 1))

    model, x = nn.Sequential(Outer()), torch.randn(3, 4)
    with ModuleMap(model) as modules:
        loss = model(x).sum()
    found = walk([loss], owned=[*model.parameters(), x], modules=modules)
    entered = one(found, kept_by=("AddmmBackward0",))
    assert (entered.module, entered.node_module, entered.shape) == ("0", "0.inner", (3, 4))


def test_low_precision_copies_belong_to_the_parameters_owner() -> None:
    class Owner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(8, 8)
            self.first = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(self.first(x), self.table.weight)

    model, x = Owner(), torch.randn(8, 8)  # the batch is as large as the weights: size alone tells nothing
    with torch.autocast("cpu", torch.bfloat16), ModuleMap(model) as modules:
        loss = model(x).sum()
    found = walk([loss], owned=[*model.parameters(), x], modules=modules)
    copies = {held.copy_of: held for held in found.storages if held.copy_of}
    assert set(copies) == {"table.weight"}  # the first layer needs no gradient of its input, so no copy of its weight
    assert (copies["table.weight"].module, copies["table.weight"].dtype) == ("table", "bfloat16")


def test_leaf_made_in_the_forward() -> None:
    """Its ``.grad`` belongs to the graph; that of an owned leaf does not."""
    x = torch.randn(7, 2)
    weight = torch.randn(2, requires_grad=True)
    inside = x.clone().requires_grad_()
    loss = (inside * weight).sum()
    assert [held.bytes for held in walk([loss], owned=[x, weight]).storages] == [56, 4]
    torch.autograd.backward(loss, retain_graph=True)
    found = walk([loss], owned=[x, weight])
    assert [(held.kind, held.bytes) for held in found.storages] == [("saved", 56), ("leaf_grad", 56), ("loss", 4)]
    assert one(found, kind="leaf_grad").kept_by == ("torch::autograd::AccumulateGrad",)


def test_pinned_by_gradients() -> None:
    weight, x = torch.randn(5, requires_grad=True), torch.randn(5)
    loss = (weight.exp() * x).sum()
    (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
    owned = [weight, x]
    pinned = walk_pinned([gradient], owned=owned)
    # the gradient is x * exp(weight): its multiplication keeps 1 * x, the forward's node the exponential
    assert {held.kept_by: held.bytes for held in pinned.storages} == {("MulBackward0",): 20, ("ExpBackward0",): 20}
    held = walk([loss], owned=[*owned, gradient], beside=pinned)
    assert [h.kind for h in held.storages] == ["loss"]
    assert walk([loss], owned=[*owned, gradient]).total_bytes == 24


def test_released_and_remaining() -> None:
    model, x = two_heads()
    a, b = model(x)
    losses = [a.exp().sum(), b.tanh().sum()]
    del a, b
    owned = [*model.parameters(), x]
    start = walk(losses, owned=owned)
    assert remaining(start, set()) == start.storages
    torch.autograd.backward(losses[0], retain_graph=True)
    first = walk(losses, owned=owned)
    assert released(start, first) == ()
    torch.autograd.backward(losses[1])
    second = walk(losses, owned=owned)
    # head b lets go of its tanh; the trunk's stays, since head a, never run without retain, still has it
    assert [held.bytes for held in released(first, second)] == [20]
    assert freed_in_call(start, [first, second]) == {one(start, bytes=20).key: 1}
    gone = {ident for held in start.storages for ident in held.keepers}
    assert {held.kind for held in remaining(start, gone)} == {"loss"}


def test_sums_add_up() -> None:
    model, x = two_heads()
    with ModuleMap(model) as modules:
        a, b = model(x)
        losses = [a.exp().sum(), b.tanh().sum()]
    found = walk(losses, outputs=[a], owned=[*model.parameters(), x], modules=modules)
    assert sum(s.bytes for s in by_node(found)) == sum(s.bytes for s in by_module(found)) == found.total_bytes
    assert sum(s.storages for s in by_node(found)) == len(found.storages)
    assert next((s.node, s.module, s.bytes) for s in by_node(found)) == ("TanhBackward0", "trunk.1", 200)


def test_result_keeps_nothing() -> None:
    model, x = two_heads()
    with ModuleMap(model) as modules:
        a, b = model(x)
    loss = a.exp().sum() + b.sum()
    alive = [weakref.ref(t) for t in (a, b, loss)]
    found = walk([loss], owned=[*model.parameters(), x], modules=modules)
    gc.disable()
    try:
        del a, b, loss
        assert [ref() for ref in alive] == [None, None, None]
    finally:
        gc.enable()
    assert found.total_bytes > 0


def test_nothing_to_walk() -> None:
    assert walk([]) == Ledger(storages=())
    plain = torch.randn(3)
    assert [held.kept_by for held in walk([plain]).storages] == [("loss",)]
    assert walk([plain], owned=[plain]).storages == ()
    assert walk([torch.empty(0, requires_grad=True).exp()]).storages == ()


def test_meta_tensors_have_no_address() -> None:
    weight = torch.randn(5, device="meta", requires_grad=True)
    found = walk([weight.exp().tanh().sum()], owned=[weight])
    assert sorted(held.bytes for held in found.storages) == [4, 20, 20]
    assert {held.device for held in found.storages} == {"meta"}
