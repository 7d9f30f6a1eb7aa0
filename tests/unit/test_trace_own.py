"""Traces of real programs on this machine: counts by hand, labels against the engine's own events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from retainprof import labels
from retainprof.records import Accumulate, RangePass
from retainprof.trace import analyze, passes, read
from retainprof.trace.engine import engine_calls
from retainprof.trace.facts import Facts
from retainprof.trace.select import labelled
from retainprof.trace.trace import Trace


@contextmanager
def label(phase: labels.Phase, index: int) -> Iterator[None]:
    with record_function(labels.make(phase, index, "x")):
        yield


def profiled(step: Callable[[], object], path: Path, steps: int = 1) -> Trace:
    """The trace of ``steps`` steps, after one that warms up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as profiler:
            for _ in range(steps):
                step()
        profiler.export_chrome_trace(str(path))
    finally:
        torch.set_num_threads(threads)
    return read(path)


def calls_of(trace: Trace) -> list[RangePass]:
    return [found for found in passes(trace) if "::call" in found.label]


class Two(nn.Module):
    """Two layers with a Tanh between, and what to run them by."""

    def __init__(self, run: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.run = nn.Linear(8, 8), nn.Linear(8, 1), run

    def part(self, x: Tensor) -> Tensor:
        return torch.tanh(self.first(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.run(self.part, x)).sum()  # type: ignore[no-any-return]


def step_of(model: nn.Module, x: Tensor, calls: int = 2, create_graph: bool = False) -> Callable[[], None]:
    def step() -> None:
        with label("forward", 0):
            loss = model(x)
        for k in range(calls):
            with label("call", k):
                loss.backward(retain_graph=k < calls - 1, create_graph=create_graph)
        model.zero_grad()
        x.grad = None

    return step


def plain(part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return part(x)


def again(part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return checkpoint(part, x, use_reentrant=False)  # type: ignore[no-any-return]


def again_reentrant(part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return checkpoint(part, x, use_reentrant=True)  # type: ignore[no-any-return]


def test_two_calls_by_hand(tmp_path: Path) -> None:
    """Nodes: Sum, Addmm, T, Tanh, Addmm, T and four AccumulateGrad. Four parameters: stolen first, added to later."""
    x = torch.randn(4, 8)
    first, later = calls_of(profiled(step_of(Two(plain), x), tmp_path / "t.json"))
    assert (first.nodes, later.nodes) == (10, 10)
    assert first.accumulate == Accumulate(stolen=4)
    assert later.accumulate == Accumulate(added=4)
    assert (first.fan_in_adds, later.fan_in_adds) == (0, 0)
    assert (first.forward_ops_in_backward, later.forward_ops_in_backward) == (0, 0)
    assert first.net_bytes == 4 * (8 * 8 + 8 + 8 + 1)  # the gradients
    assert later.net_bytes is not None
    assert later.net_bytes <= -4 * 4 * 8  # the Tanh output goes
    assert first.last_node is not None
    adds = {row.shapes: row.count for row in later.kernel_rows if row.name == "aten::add_" and row.leaf}
    assert adds == {"8x8, 8x8": 1, "8, 8": 1, "1x8, 1x8": 1, "1, 1": 1}


@pytest.mark.parametrize("run", [again, again_reentrant])
def test_a_checkpoint_runs_its_forward_again(run: Callable[..., Tensor], tmp_path: Path) -> None:
    """Two operators as the module calls them: linear and tanh, in each call."""
    x = torch.randn(4, 8, requires_grad=True)
    calls = calls_of(profiled(step_of(Two(run), x, calls=1 if run is again_reentrant else 2), tmp_path / "t.json"))
    assert {call.forward_ops_in_backward for call in calls} == {2}


def test_create_graph_is_no_recomputation(tmp_path: Path) -> None:
    first, later = calls_of(profiled(step_of(Two(plain), torch.randn(4, 8), create_graph=True), tmp_path / "t.json"))
    assert (first.accumulate, later.accumulate) == (Accumulate(copied=4), Accumulate(added=4))
    assert (first.forward_ops_in_backward, later.forward_ops_in_backward) == (0, 0)


def test_create_graph_through_a_checkpoint(tmp_path: Path) -> None:
    x = torch.randn(4, 8, requires_grad=True)
    calls = calls_of(profiled(step_of(Two(again), x, create_graph=True), tmp_path / "t.json"))
    assert {call.forward_ops_in_backward for call in calls} == {2}


def test_sparse_gradients(tmp_path: Path) -> None:
    table = nn.Embedding(10, 4, sparse=True)
    rows = torch.tensor([1, 2, 2])

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = table

        def forward(self, x: Tensor) -> Tensor:
            return self.table(x).tanh().sum()  # type: ignore[no-any-return]

    first, later = calls_of(profiled(step_of(Sum(), rows), tmp_path / "t.json"))
    assert first.accumulate == Accumulate(stolen=1)
    assert later.accumulate == Accumulate(sparse_added=1)


def test_a_tensor_used_twice_is_a_fan_in(tmp_path: Path) -> None:
    """x * w + w: the engine joins the two paths into w before AccumulateGrad takes it."""
    w = nn.Parameter(torch.randn(5))
    x = torch.randn(5)

    def step() -> None:
        with label("forward", 0):
            loss = (x * w + w).sum()
        with label("call", 0):
            loss.backward()  # type: ignore[no-untyped-call]
        w.grad = None

    (call,) = calls_of(profiled(step, tmp_path / "t.json"))
    assert call.fan_in_adds == 1
    assert call.accumulate.added == 0


def test_labels_and_the_engine_agree(tmp_path: Path) -> None:
    trace = profiled(step_of(Two(plain), torch.randn(4, 8), calls=4), tmp_path / "t.json", steps=3)
    facts = Facts(trace)
    marks, found = trace.marks.take(labelled(trace)), engine_calls(facts)
    assert len(found) == len(marks) == 12
    assert (found.start >= marks.start).all()
    assert (found.end <= marks.end).all()
    report = analyze(trace)
    assert [(call.step, call.index) for call in report.calls] == [(s, k) for s in range(3) for k in range(4)]
    assert {call.graph for call in report.calls} == {0}
    assert [call.nodes_shared_with_earlier for call in report.calls[:4]] == [0, 6, 6, 6]  # without AccumulateGrad


def test_calls_without_anything_between_them(tmp_path: Path) -> None:
    """With the root's gradient given, no operator lies between two calls: only the sequence numbers tell."""
    model, x, one = Two(plain), torch.randn(4, 8), torch.ones(())

    def step() -> None:
        loss = model(x)
        for k in range(3):
            with label("call", k):
                torch.autograd.backward(loss, one, retain_graph=k < 2)
        model.zero_grad()

    trace = profiled(step, tmp_path / "t.json")
    assert len(engine_calls(Facts(trace))) == len(labelled(trace)) == 3


def test_disjoint_graphs_in_reverse_order(tmp_path: Path) -> None:
    """The later graph first: sequence numbers fall across the two calls, only the root's gradient lies between them."""
    a, b = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))

    def step() -> None:
        first, second = a.exp().sum(), b.exp().sum()
        for k, loss in enumerate((second, first)):
            with label("call", k):
                loss.backward()  # type: ignore[no-untyped-call]
        a.grad = b.grad = None

    trace = profiled(step, tmp_path / "t.json")
    assert len(engine_calls(Facts(trace))) == 2
    assert [call.graph for call in analyze(trace).calls] == [0, 1]
    assert [call.nodes_shared_with_earlier for call in analyze(trace).calls] == [0, 0]


def test_retained_bytes_from_the_trace_alone(tmp_path: Path) -> None:
    """The Tanh output (4 x 8 floats) and the loss are what the forward leaves; the call that does not retain frees one."""
    model, x = Two(plain), torch.randn(4, 8)
    trace = profiled(step_of(model, x), tmp_path / "t.json")
    (held,) = analyze(trace).retained
    assert held.after_forward_bytes == 4 * 8 * 4 + 4
    assert held.after_call_bytes == (4 * 8 * 4 + 4, 4)
    assert [(r.made_by, r.freed_in_call, r.bytes) for r in held.releases] == [
        ("aten::tanh", 1, 128),
        ("aten::sum", None, 4),
    ]


def test_modules_behind_the_nodes(tmp_path: Path) -> None:
    model, x = Two(plain), torch.randn(4, 8)
    step = step_of(model, x)
    step()
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, with_modules=True) as profiler:
        step()
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    for call in analyze(read(tmp_path / "t.json")).by_call:
        behind = {(node.node, node.forward_op, node.module.rstrip("_0123456789")) for node in call.nodes}
        assert ("AddmmBackward0", "aten::addmm", "Linear") in behind
        assert ("TanhBackward0", "aten::tanh", "Two") in behind
