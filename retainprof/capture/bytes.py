"""What dropping the losses releases, by two methods that know nothing of each other.

(A) Allocation events: a step is ended before or after a call, the losses are dropped inside a label, and the allocator's
events in that label are added up. (B) The ledger: the graph is walked from what the step holds. The result reports A;
A less B is the residue, which is printed and never hidden.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from retainprof import labels
from retainprof.capture import own_trace
from retainprof.capture.labelled import Recorder, label
from retainprof.capture.ledger import Held, Ledger, walk, walk_pinned
from retainprof.capture.modules import ModuleMap
from retainprof.capture.observe import Observer, Observers, StopStep
from retainprof.capture.step import StepRunner

__all__ = ["Books", "Point", "Released", "keep_books", "measure_released", "storage_bytes"]


@dataclass(frozen=True)
class Point:
    """A moment of a step: just before or just after a call."""

    when: Literal["before", "after"]
    call: int


@dataclass(frozen=True)
class Released:
    """Bytes that dropping the losses, and then clearing the gradients, released at one point (method A)."""

    dropped: int
    cleared: int


def storage_bytes(tensors: list[Tensor]) -> int:
    """Bytes of the storages behind ``tensors``, each once and whole; sparse ones by their indices and values."""
    found: dict[int, int] = {}
    for tensor in tensors:
        parts = [tensor]
        if tensor.layout == torch.sparse_coo:
            parts = [tensor._indices(), tensor._values()]
        for part in parts:
            storage = part.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


@dataclass
class Gradient:
    """Gradients at one point."""

    grad_bytes: int
    returned_bytes: int
    all_bytes: int  # of both together, shared storages once
    parameters: int
    inputs: int
    sum: float
    abs_sum: float


def _gradients(runner: StepRunner) -> Gradient:
    leaves = runner.workload.leaves
    grads = [leaf.grad.detach() for leaf in leaves if leaf.grad is not None]
    returned = [item.gradient.detach() for item in runner.returned]
    inputs = sum(1 for leaf in leaves if leaf.grad is not None and not isinstance(leaf, torch.nn.Parameter))
    dense = [g.to_dense() if g.layout != torch.strided else g for g in grads]
    real = [g.real if g.is_complex() else g for g in dense]
    return Gradient(
        grad_bytes=storage_bytes(grads),
        returned_bytes=storage_bytes(returned),
        all_bytes=storage_bytes(grads + returned),
        parameters=len(grads) - inputs,
        inputs=inputs,
        sum=sum(g.sum(dtype=torch.float64).item() for g in real),
        abs_sum=sum(torch.linalg.vector_norm(g, 1, dtype=torch.float64).item() for g in real),
    )


@dataclass
class Books:
    """Ledger and gradients at every point of one unprofiled step (method B)."""

    points: list[Point] = field(default_factory=list)
    held: dict[Point, Ledger] = field(default_factory=dict)
    pinned: dict[Point, Ledger] = field(default_factory=dict)
    gradients: dict[Point, Gradient] = field(default_factory=dict)
    forwards: int = 0
    _by_key: dict[Point, dict[int, Held]] = field(default_factory=dict)

    def held_by_key(self, point: Point) -> dict[int, Held]:
        """The storages held at a point, by their key."""
        if point not in self._by_key:
            self._by_key[point] = {held.key: held for held in self.held[point].storages}
        return self._by_key[point]


class _Bookkeeper(Observer):
    def __init__(self, runner: StepRunner, books: Books, modules: ModuleMap) -> None:
        self._runner, self._books, self._modules = runner, books, modules

    def _note(self, point: Point) -> None:
        runner, books = self._runner, self._books
        grads = [leaf.grad for leaf in runner.workload.leaves if leaf.grad is not None]
        kept = [*grads, *(item.gradient for item in runner.returned)]
        owned = [*runner.workload.owned, *kept]
        pinned = walk_pinned(kept, owned=owned)
        books.points.append(point)
        books.pinned[point] = pinned
        books.held[point] = walk(
            list(runner.live.values()), outputs=runner.cut, owned=owned, modules=self._modules, beside=pinned
        )
        books.gradients[point] = _gradients(runner)

    def call_begin(self, index: int) -> None:
        self._note(Point("before", index))

    def call_end(self, index: int) -> None:
        self._note(Point("after", index))

    def call_failed(self, index: int) -> None:
        self._note(Point("after", index))


def keep_books(runner: StepRunner) -> Books:
    """Walk the graph before and after each call of one step."""
    books = Books()
    with ModuleMap(runner.workload.model) as modules:
        runner.run(_Bookkeeper(runner, books, modules))
    books.forwards = runner.forward_runs
    runner.drop()
    runner.clear()
    return books


class _StopAt(Observer):
    def __init__(self, point: Point) -> None:
        self._point = point

    def call_begin(self, index: int) -> None:
        if self._point == Point("before", index):
            raise StopStep

    def call_end(self, index: int) -> None:
        if self._point == Point("after", index):
            raise StopStep


def measure_released(runner: StepRunner, points: list[Point], recorder: Recorder) -> dict[Point, Released]:
    """A profiled step for each point, ended there; what letting go of losses and gradients releases (method A)."""

    def step(number: int) -> None:
        runner.run(Observers([_StopAt(points[number])]))
        with label("drop", number):
            runner.drop()
        with label("clear", number):
            runner.clear()

    with tempfile.TemporaryDirectory(prefix="retainprof-") as folder:
        path = Path(folder) / "released.json"
        recorder.record(len(points), step, path, warmup=0)
        found = {labels.parse(p.label): p.net_bytes or 0 for p in own_trace.passes(own_trace.read(path))}
    freed = {(seen.phase, seen.index): -net for seen, net in found.items() if seen is not None}
    return {point: Released(freed["drop", i], freed["clear", i]) for i, point in enumerate(points)}
