"""What the evidence counts, on programs whose counts are known by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import second_reader
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from retainprof import labels, trace
from retainprof.capture.labelled import Recorder, label
from retainprof.records import Accumulate, RangePass


def passes(folder: Path, program: Callable[[], None]) -> dict[str, RangePass]:
    """The passes of a program's own labels, by label."""
    recorder = Recorder(torch.device("cpu"), record_shapes=True, with_stack=False)
    recorder.record(1, lambda _: program(), folder / "t.json", warmup=0)
    found = trace.passes(trace.read(folder / "t.json"))
    second = second_reader.passes(second_reader.read(folder / "t.json"))
    assert [_comparable(one) for one in found] == [_comparable(one) for one in second]
    return {one.label: one for one in found}


def _comparable(found: RangePass) -> object:
    """Every figure; rows in an order of their own, without shapes of lists, which the second reader leaves out."""
    rows = sorted(
        (row.name, row.count, row.self_ns, row.bytes, row.leaf) for row in found.kernel_rows if "[" not in row.shapes
    )
    return msgspec.structs.replace(found, kernel_rows=()), rows


def call(index: int) -> str:
    """The label of a call."""
    return labels.make("call", index)


def test_sparse_gradients_are_added_as_sparse(tmp_path: Path) -> None:
    def program() -> None:
        embedding = nn.Embedding(10, 3, sparse=True)
        rows = embedding(torch.tensor([1, 2, 1]))
        first, second = rows.sum(), (rows * rows).sum()
        with label("call", 0):
            torch.autograd.backward(first, retain_graph=True)
        with label("call", 1):
            torch.autograd.backward(second)

    found = passes(tmp_path, program)
    assert found[call(0)].accumulate.added == found[call(0)].accumulate.sparse_added == 0
    assert found[call(1)].accumulate == Accumulate(sparse_added=1)


def test_sparse_gradient_into_a_dense_one(tmp_path: Path) -> None:
    def program() -> None:
        embedding = nn.Embedding(10, 3, sparse=True)
        embedding.weight.grad = torch.zeros(10, 3)
        loss = embedding(torch.tensor([1, 2, 1])).sum()
        with label("call", 0):
            torch.autograd.backward(loss)

    assert passes(tmp_path, program)[call(0)].accumulate == Accumulate(sparse_added=1)


def test_recomputed_operators_are_the_forwards_own(tmp_path: Path) -> None:
    """Linear and Tanh run again in each backward of a checkpoint, of either kind; nothing runs again without one."""
    for reentrant in (True, False, None):

        def program(reentrant: bool | None = reentrant) -> None:
            module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
            x = torch.randn(2, 4, requires_grad=True)
            y: Tensor = module(x) if reentrant is None else checkpoint(module, x, use_reentrant=reentrant)
            loss = y.sum()
            with label("call", 0):
                torch.autograd.backward(loss)

        found = passes(tmp_path, program)[call(0)]
        assert found.forward_ops_in_backward == (0 if reentrant is None else 2)
        # weight, bias and the input; the re-entrant kind also writes the gradient of its detached input
        assert found.accumulate.stolen == (4 if reentrant else 3)


def test_fan_in_is_not_accumulation(tmp_path: Path) -> None:
    def program() -> None:
        weight = torch.randn(3, requires_grad=True)
        loss = (weight.exp() * weight.sin()).sum()
        with label("call", 0):
            torch.autograd.backward(loss)

    found = passes(tmp_path, program)[call(0)]
    assert (found.fan_in_adds, found.accumulate) == (1, Accumulate(stolen=1))
    assert found.nodes == 5  # sum, mul, exp, sin, and the leaf


def test_rows_and_bytes_of_one_product(tmp_path: Path) -> None:
    """``mm`` of (8, 4) and (4, 2) allocates its result of 64 bytes; self times add up to no more than the range."""

    def program() -> None:
        a, b = torch.randn(8, 4), torch.randn(4, 2)
        with label("call", 0):
            c = a @ b
        with label("drop", 0):
            del c

    found = passes(tmp_path, program)
    rows = {row.name: row for row in found[call(0)].kernel_rows if row.leaf}
    assert list(rows) == ["aten::mm"]  # matmul only passes on, resolve_conj computes nothing
    assert (rows["aten::mm"].shapes, rows["aten::mm"].count, rows["aten::mm"].bytes) == ("8x4, 4x2", 1, 64)
    assert found[call(0)].net_bytes == found[call(0)].peak_bytes == 64
    assert found[labels.make("drop", 0)].net_bytes == -64
    assert sum(row.self_ns for row in found[call(0)].kernel_rows) <= found[call(0)].duration_ns
    assert found[call(0)].kernels == 1


def test_kernels_of_a_linear_layer(tmp_path: Path) -> None:
    """Forward: ``addmm``, which copies the bias first, is one kernel and the copy another. Backward of the sum: fill the
    root gradient, expand it; two products (the weight's gradient, the input's), and the bias's sum, which fills first."""

    def program() -> None:
        layer, x = nn.Linear(4, 2), torch.randn(8, 4, requires_grad=True)
        with label("forward", 0):
            loss = layer(x).sum()
        with label("call", 0):
            torch.autograd.backward(loss)

    found = passes(tmp_path, program)

    def kernels(text: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in found[text].kernel_rows:
            if row.leaf:
                counts[row.name] = counts.get(row.name, 0) + row.count
        return counts

    assert kernels(labels.make("forward", 0)) == {"aten::addmm": 1, "aten::copy_": 1, "aten::sum": 1, "aten::fill_": 1}
    backward = kernels(call(0))
    assert (backward["aten::mm"], backward["aten::sum"]) == (2, 1)
    assert found[call(0)].kernels == sum(backward.values())
