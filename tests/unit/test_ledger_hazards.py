"""Each trap of reading a graph, planted: measuring neither unpacks, nor leaks, nor changes anything."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from retainprof.capture.ledger import walk, walk_pinned
from retainprof.capture.ledger_visits import visit
from retainprof.capture.modules import ModuleMap


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def look(roots: list[Tensor], owned: list[Tensor]) -> int:
    """Everything that may be asked of a graph."""
    pinned = walk_pinned([t.grad for t in owned if t.grad is not None], owned=owned)
    visit(roots)
    visit(roots, [t for t in owned if t.requires_grad], accumulate=False)
    return walk(roots, owned=owned, beside=pinned).total_bytes


class Counted(nn.Module):
    """Counts how often its forward runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return self.layer(x).tanh().exp()  # type: ignore[no-any-return]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_is_not_run_again(reentrant: bool) -> None:
    model, x = Counted(), torch.randn(4, 8, requires_grad=True)
    loss = checkpoint(model, x, use_reentrant=reentrant).sum()
    for _ in range(3):
        look([loss], [*model.parameters(), x])
    assert model.runs == 1
    loss.backward()
    assert model.runs == 2


def test_unpack_hooks_do_not_run() -> None:
    unpacked: list[int] = []
    weight = torch.randn(6, requires_grad=True)

    def unpack(packed: tuple[Tensor]) -> Tensor:
        unpacked.append(1)
        return packed[0]

    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.detach().clone(),), unpack):
        loss = weight.exp().tanh().sum()
    assert look([loss], [weight]) == 24 + 24 + 4
    assert unpacked == []
    loss.backward()  # type: ignore[no-untyped-call]
    assert len(unpacked) == 2


def test_walking_allocates_nothing_and_runs_no_operator() -> None:
    """Sparse parts excepted, whose two views are operators without bytes."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
    x = torch.randn(4, 8)
    loss = model(x).square().mean()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        look([loss], [*model.parameters(), x])
    names = [e.name() for e in prof.profiler.kineto_results.events()]
    assert [name for name in names if name.startswith("aten::") or name == "[memory]"] == []


def step(model: nn.Module, x: Tensor, observe: Callable[[list[Tensor]], object]) -> list[Tensor]:
    """Two calls through one graph, looked at in between; clones of the gradients."""
    torch.manual_seed(3)
    model.zero_grad(set_to_none=True)
    out = model(x)
    losses = [out.square().mean(), out.exp().mean()]
    del out
    observe(losses)
    torch.autograd.backward(losses[0], retain_graph=True)
    observe(losses)
    torch.autograd.backward(losses[1])
    observe(losses)
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_gradients_are_bitwise_equal() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(64, 5)
    )
    x = torch.randn(6, 1, 6, 6)
    owned = [*model.parameters(), *model.buffers(), x]
    plain = step(model, x, lambda losses: None)

    def observed() -> list[Tensor]:
        with ModuleMap(model) as modules:
            return step(model, x, lambda losses: walk(losses, owned=owned, modules=modules))

    for mine, other in zip(observed(), plain, strict=True):
        assert torch.equal(mine, other)


def test_gradients_are_still_stolen() -> None:
    """AccumulateGrad copies when anybody else refers to a gradient; the walk does not stay."""
    weight = torch.randn(50, 50, requires_grad=True)
    loss = weight.exp().sum()
    look([loss], [weight])
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        loss.backward()  # type: ignore[no-untyped-call]
    names = [e.name() for e in prof.profiler.kineto_results.events()]
    assert "aten::detach" in names
    assert "aten::copy_" not in names


def test_storages_die_with_the_losses() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(4, 8)
    gc.disable()
    try:
        with ModuleMap(model) as modules:
            hidden = model[1](model[0](x))
            storage = StorageWeakRef(hidden.untyped_storage())  # type: ignore[no-untyped-call]
            loss = model[2](hidden).sum()
            del hidden
        found = walk([loss], owned=[*model.parameters(), x], modules=modules)
        seen = visit([loss])
        assert not storage.expired()  # type: ignore[no-untyped-call]
        del loss
        assert storage.expired()  # type: ignore[no-untyped-call]
        assert found.total_bytes
        assert seen.evaluated
    finally:
        gc.enable()


def test_storages_go_in_the_call_that_frees_them() -> None:
    weight = torch.randn(9, requires_grad=True)
    hidden = weight.exp()
    storage = StorageWeakRef(hidden.untyped_storage())  # type: ignore[no-untyped-call]
    loss = hidden.sum()
    del hidden
    look([loss], [weight])
    loss.backward()  # type: ignore[no-untyped-call]
    assert storage.expired()  # type: ignore[no-untyped-call]
    assert look([loss], [weight]) == 4


def test_version_check_stays_on() -> None:
    weight = torch.randn(5, requires_grad=True)
    hidden = weight.exp()
    loss = hidden.sum()
    version = hidden._version
    look([loss], [weight])
    assert hidden._version == version
    with torch.no_grad():
        hidden.add_(1)
    look([loss], [weight])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_pack_hook_that_returns_its_input_leaks_with_or_without_us() -> None:
    """The program's own leak: the walk counts what is held and neither breaks nor worsens it."""

    def forward(watch: bool) -> weakref.ref[Tensor]:
        weight = torch.randn(7, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            hidden = weight.exp()
        loss = hidden.sum()
        if watch:
            assert look([loss], [weight]) == 28 + 4
        return weakref.ref(hidden)

    assert [forward(watch)() is not None for watch in (False, True)] == [True, True]


def test_freed_custom_function_still_holds_its_attributes() -> None:
    """``ctx.x = tensor`` is not freed by backward; reading the freed rest of the context raises, and is got over."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x + 1)
            ctx.kept = x + 2
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return grads[0] * 2

    weight = torch.randn(3, requires_grad=True)
    loss = Double.apply(weight).sum()  # type: ignore[no-untyped-call]
    assert look([loss], [weight]) == 12 + 12 + 4
    loss.backward()
    assert look([loss], [weight]) == 12 + 4


def test_nested_saved_tensor() -> None:
    """A context that holds a packed tensor, as checkpoint does: it is read, not unpacked."""

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.packed = [torch._C._autograd._make_saved_tensor(x + 1, is_output=False)]
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return grads[0] * 2

    weight = torch.randn(3, requires_grad=True)
    loss = Nested.apply(weight).sum()  # type: ignore[no-untyped-call]
    assert look([loss], [weight]) == 12 + 4


def test_collector_and_modes_are_as_before() -> None:
    loss = torch.randn(3, requires_grad=True).exp().sum()
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        look([loss], [])
        assert gc.isenabled() is enabled
    gc.enable()
    assert torch.is_grad_enabled()
    with torch.inference_mode():
        look([loss], [])
        assert torch.is_inference_mode_enabled()


class Alarm(torch.Tensor):
    """A subclass that must not be run while it is read."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_subclass_code_does_not_run() -> None:
    weight = torch.randn(5).as_subclass(Alarm).requires_grad_()
    loss = weight.exp().sum()
    before = Alarm.calls
    owned: list[Tensor] = [weight]
    assert walk([loss], owned=owned).total_bytes == 20 + 4
    assert Alarm.calls == before


DEEP = """
import sys, torch
from retainprof.capture.ledger import walk
from retainprof.capture.ledger_visits import visit

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2

weight = torch.randn(2, requires_grad=True)
steps = {"chain": torch.tanh, "skip": lambda y: y + y * 0.5, "custom": Double.apply}
for name, step in steps.items():
    y = weight
    for _ in range(100_000):
        y = step(y)
    if sys.argv[1] == "visit":
        assert len(visit([y]).evaluated) > 100_000
    else:
        assert walk([y], owned=[weight]).nodes > 100_000
    del y
    print("freed", name)
"""


@pytest.mark.parametrize("what", ["walk", "visit"])
def test_deep_graphs_are_walked_and_freed(what: str) -> None:
    """In a process of its own, which would die of a stack overflow."""
    done = subprocess.run([sys.executable, "-c", DEEP, what], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "freed chain\nfreed skip\nfreed custom\n"), done.stderr


def test_copy_on_write_is_not_copied() -> None:
    """Asking such a tensor or its storage for ``data_ptr`` copies it; two of them share their bytes until then."""
    source = torch.randn(1000)
    lazy = torch._lazy_clone(source)
    weight = torch.randn(1000, requires_grad=True)
    loss = (weight * lazy).sum()
    assert walk([loss], owned=[weight]).total_bytes == 4000 + 4
    assert walk([loss], owned=[weight, source]).total_bytes == 4
    assert torch._C._is_cow_tensor(lazy)  # type: ignore[attr-defined]


def test_views_with_an_offset_count_as_their_storage() -> None:
    base = torch.randn(10, 10)
    weight = torch.randn(10, requires_grad=True)
    losses = [(weight * base[3]).sum(), (weight * base[7]).sum(), (weight * base.T[2]).sum()]
    assert walk(losses, owned=[weight]).total_bytes == 400 + 3 * 4
    assert walk(losses, owned=[weight, base[9]]).total_bytes == 3 * 4
