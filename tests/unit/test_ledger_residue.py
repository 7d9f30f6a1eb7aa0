"""The ledger against the allocator: what dropping the losses releases, less what the ledger named, is 0."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from retainprof.capture.ledger import Ledger, walk
from retainprof.capture.ledger_sums import likely_residue

Roots = list[Tensor]
Forward = Callable[[], Roots]
Case = tuple[Forward, list[Tensor]]  # the forward, and what lives without its graph


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def residue(case: Case) -> tuple[int, Ledger]:
    """Bytes that dropping the losses released and the ledger does not name, and the ledger."""
    forward, owned = case
    forward()  # one-time allocations happen here
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        roots = forward()
        with record_function("walk"):
            found = walk(roots, owned=owned)
        with record_function("drop"):
            roots.clear()
    events = list(prof.profiler.kineto_results.events())
    assert sum(_memory(events, "walk")) == 0, "walking allocated or freed something"
    return -sum(_memory(events, "drop")) - found.total_bytes, found


def _memory(events: list[Any], label: str) -> list[int]:
    (box,) = [e for e in events if e.name() == label]
    inside = range(box.start_ns(), box.start_ns() + box.duration_ns() + 1)
    return [e.nbytes() for e in events if e.name() == "[memory]" and e.start_ns() in inside]


def owned_by(*modules: nn.Module, beside: tuple[Tensor, ...] = ()) -> list[Tensor]:
    return [t for m in modules for t in (*m.parameters(), *m.buffers())] + list(beside)


# --- models -----------------------------------------------------------------------------------------------------------


def of_module(model: nn.Module, *shape: int) -> Case:
    x = torch.randn(*shape)

    def forward() -> Roots:
        out = model(x)
        return [(out[0] if isinstance(out, tuple) else out).square().mean()]

    return forward, owned_by(model, beside=(x,))


def mlp() -> Case:
    return of_module(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)), 8, 16)


def convolution() -> Case:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout())
    return of_module(model, 4, 3, 12, 12)


def transformer() -> Case:
    return of_module(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2, 10, 32)


def transformer_with_dropout() -> Case:
    return of_module(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True), 2, 10, 32)


def lstm() -> Case:
    return of_module(nn.LSTM(12, 20, num_layers=2, batch_first=True), 3, 7, 12)


def lstm_without_onednn() -> Case:
    forward, owned = lstm()

    def plain() -> Roots:
        with torch.backends.mkldnn.flags(enabled=False):
            return forward()

    return plain, owned


def gru() -> Case:
    return of_module(nn.GRU(12, 20, num_layers=2, batch_first=True), 3, 7, 12)


def embedding_and_cross_entropy() -> Case:
    words, targets = torch.randint(0, 50, (4, 9)), torch.randint(0, 50, (36,))
    table, head = nn.Embedding(50, 24), nn.Linear(24, 50)

    def forward() -> Roots:
        return [F.cross_entropy(head(table(words)).flatten(0, 1), targets)]

    return forward, owned_by(table, head, beside=(words, targets))


def autocast() -> Case:
    forward, owned = mlp()

    def cast() -> Roots:
        with torch.autocast("cpu", torch.bfloat16):
            return forward()

    return cast, owned


def scalar_losses_with_large_storages() -> Case:
    model, x, y = nn.Linear(8, 30), torch.randn(50, 8), torch.randn(50, 30)

    def forward() -> Roots:
        out = model(x)
        return [F.mse_loss(out, y), F.smooth_l1_loss(out, y), out[3, 4]]

    return forward, owned_by(model, beside=(x, y))


def views_and_masks() -> Case:
    weight, x = torch.randn(20, 20, requires_grad=True), torch.randn(20, 20)
    mask = x > 0

    def forward() -> Roots:
        y = (x @ weight).masked_fill(mask, 0.0).view(4, 100).transpose(0, 1)[5:50]
        z = torch.where(y > 0.1, y.exp(), y).expand(3, 45, 4).reshape(-1)[mask.flatten()[:540].repeat(2)[:540]]
        return [(z * z.detach()).sum()]

    return forward, [weight, x, mask]


def complex_numbers() -> Case:
    weight = torch.randn(8, 8, dtype=torch.complex64, requires_grad=True)
    return lambda: [torch.view_as_real(torch.fft.fft(weight @ weight).conj() * weight).abs().sum()], [weight]


def sparse_matrix() -> Case:
    places, values = torch.tensor([[0, 1, 3], [1, 2, 0]]), torch.randn(3)
    weight = torch.randn(6, 5, requires_grad=True)

    def forward() -> Roots:
        matrix = torch.sparse_coo_tensor(places, values.clone(), (4, 6), check_invariants=False).coalesce()
        return [torch.sparse.mm(matrix, weight).exp().sum()]

    return forward, [weight, places, values]


def sparse_embedding() -> Case:
    words, table = torch.randint(0, 50, (4, 9)), nn.Embedding(50, 24, sparse=True)
    return lambda: [table(words).tanh().sum()], owned_by(table, beside=(words,))


def second_derivatives() -> Case:
    model, start = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(30, 2)

    def forward() -> Roots:
        x = start.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return [slope.square().mean()]

    return forward, owned_by(model, beside=(start,))


def checkpointed(*, reentrant: bool) -> Case:
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 16))
    first, x = nn.Linear(16, 16), torch.randn(8, 16)

    def forward() -> Roots:
        out = checkpoint(model, first(x), use_reentrant=reentrant)
        return [out.square().mean()]

    return forward, owned_by(model, first, beside=(x,))


def checkpoint_by_hooks() -> Case:
    return checkpointed(reentrant=False)


def reentrant_checkpoint() -> Case:
    return checkpointed(reentrant=True)


# --- custom Functions, hooks, subclasses ------------------------------------------------------------------------------


class KeepsAttributes(torch.autograd.Function):
    """Saves one tensor properly and three on its context, one of them in a container, one in a closure."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.exp())
        ctx.factor = x * 2
        ctx.more = {"in a dict": [x + 1]}
        closed_over = x - 1
        ctx.function = lambda: closed_over
        return x * 3

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 3


def custom_function() -> Case:
    weight = torch.randn(11, 7, requires_grad=True)
    return lambda: [KeepsAttributes.apply(weight).sum()], [weight]  # type: ignore[no-untyped-call]


class Packed:
    """What a pack hook may return."""

    __slots__ = ("__weakref__", "content")

    def __init__(self, content: Tensor) -> None:
        self.content = content


def pack_hook_with_closure() -> Case:
    weight = torch.randn(11, 7, requires_grad=True)

    def forward() -> Roots:
        shared = torch.randn(13)

        def unpack(packed: Packed) -> Tensor:
            return packed.content.float() + 0 * shared[0]

        with torch.autograd.graph.saved_tensors_hooks(lambda t: Packed(t.detach().half()), unpack):
            return [weight.exp().tanh().sum()]

    return forward, [weight]


class Wrapped(torch.Tensor):
    """A wrapper subclass: no bytes of its own, two tensors inside."""

    low: Tensor
    high: Tensor

    @staticmethod
    def __new__(cls, low: Tensor, high: Tensor) -> Wrapped:
        return torch.Tensor._make_wrapper_subclass(cls, low.shape, dtype=low.dtype)

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["low", "high"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        halves = [
            func(*[getattr(a, name) if isinstance(a, Wrapped) else a for a in args], **(kwargs or {}))
            for name in ("low", "high")
        ]
        return Wrapped(*halves) if isinstance(halves[0], Tensor) else halves[0]


def wrapper_subclass() -> Case:
    weight = Wrapped(torch.randn(9), torch.randn(9)).requires_grad_()
    return lambda: [weight.exp().tanh()], [weight]


CASES = [
    mlp, convolution, transformer, transformer_with_dropout, lstm, lstm_without_onednn, gru,
    embedding_and_cross_entropy, autocast, scalar_losses_with_large_storages, views_and_masks, complex_numbers,
    sparse_matrix, sparse_embedding, second_derivatives, checkpoint_by_hooks, reentrant_checkpoint, custom_function,
    pack_hook_with_closure, wrapper_subclass,
]  # fmt: skip


@pytest.mark.parametrize("make", CASES)
def test_residue_is_zero(make: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    left, found = residue(make())
    assert found.total_bytes > 0
    assert left == 0


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("make", [mlp, lstm, autocast, checkpoint_by_hooks, reentrant_checkpoint, custom_function])
def test_residue_is_zero_after_a_call(make: Callable[[], Case], retain: bool) -> None:
    forward, owned = make()

    def called() -> Roots:
        roots = forward()
        torch.autograd.backward(roots[0], retain_graph=retain)
        return roots

    left, found = residue((called, owned))
    assert left == 0
    assert (found.total_bytes > 4) is (retain or make in (reentrant_checkpoint, custom_function))


def test_checkpoint_holds_input_and_generator_state() -> None:
    """By hand: the checkpoint's input 8 x 16, the generator's state 5,056 B, its output 8 x 16, and the loss."""
    for reentrant, kind in ((False, "closure"), (True, "ctx")):
        forward, owned = checkpointed(reentrant=reentrant)
        found = walk(forward(), owned=owned)
        assert sorted(held.bytes for held in found.storages) == [4, 512, 512, 5056]
        assert [held.kind for held in found.storages if held.bytes == 5056] == [kind]


def test_custom_function_by_hand() -> None:
    """77 floats, five times: saved, two attributes, a closure; the result of ``x * 3`` is kept by nobody."""
    forward, owned = custom_function()
    found = walk(forward(), owned=owned)
    assert [held.bytes for held in found.storages] == [308, 308, 308, 308, 4]
    assert sorted(held.kind for held in found.storages) == ["ctx", "ctx", "ctx", "loss", "saved"]
    assert {held.kept_by for held in found.storages} == {("KeepsAttributesBackward",), ("loss",)}


def test_closure_of_a_tensor_hook_is_residue() -> None:
    """Nothing leads from a node to its tensor hooks: 1,000 floats are released that the ledger cannot name."""
    weight = torch.randn(5, requires_grad=True)

    def forward() -> Roots:
        scale = torch.full((1000,), 2.0)
        y = weight.exp()
        y.register_hook(lambda grad: grad * scale[0])  # type: ignore[no-untyped-call]
        return [y.sum()]

    left, found = residue((forward, [weight]))
    assert left == 4000
    assert found.total_bytes == 20 + 4
    assert likely_residue(found) == ("closures of tensor hooks",)


def test_change_of_a_view_in_place_is_residue() -> None:
    """``CopySlices`` hides the node inside it, which saved 6 floats; it is named as a suspect."""
    weight, factor = torch.randn(4, 6, requires_grad=True), torch.randn(6)

    def forward() -> Roots:
        y = weight * 2
        y[0].mul_(factor + 1)
        return [y.sum()]

    left, found = residue((forward, [weight, factor]))
    assert left == 24
    assert found.unreadable == ("torch::autograd::CopySlices",)
    assert likely_residue(found)[0] == "what an in-place change of a view saved (CopySlices)"


def test_outputs_that_are_still_held() -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    out = model(x)
    found = walk([out.sum()], outputs=[out], owned=owned_by(model, beside=(x,)))
    assert [(held.kind, held.bytes) for held in found.storages] == [("output", 32), ("loss", 4)]


def test_compressed_rows_and_jagged_tensors() -> None:
    """By hand: values 5 x 4 B, columns 5 x 8 B, row pointers 5 x 8 B; a jagged tensor's values 6 x 3 x 4 B."""
    weight = torch.randn(4, 3, requires_grad=True)
    starts, columns = torch.tensor([0, 2, 3, 4, 5]), torch.tensor([0, 2, 3, 0, 1])
    rows = torch.sparse_csr_tensor(starts, columns, torch.ones(5), (4, 4))
    found = walk([(rows @ weight)], owned=[weight])
    assert sorted(held.bytes for held in found.storages if held.kind == "saved") == [20, 40, 40]

    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
    found = walk([jagged.exp()], owned=[jagged])
    assert [(held.kind, held.bytes) for held in found.storages] == [("loss", 72)]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_residue_of_a_compiled_model_is_zero(backend: str) -> None:
    torch.compiler.reset()
    model, x = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(), nn.Linear(32, 4)), torch.randn(8, 16)
    compiled = torch.compile(model, backend=backend)
    with torch.compiler.config.patch(force_disable_caches=True):  # type: ignore[attr-defined]
        left, found = residue((lambda: [compiled(x).square().mean()], owned_by(model, beside=(x,))))
    assert left == 0
    assert "CompiledFunctionBackward" in {name for held in found.storages for name in held.kept_by}
    torch.compiler.reset()
