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

import msgspec
import torch
from torch import Tensor

from retainprof import labels, trace
from retainprof.capture.labelled import Recorder, label
from retainprof.capture.ledger import Held, Ledger, walk, walk_pinned
from retainprof.capture.ledger_visits import visit
from retainprof.capture.memory import device_memory, reset_device_peak, rss_bytes
from retainprof.capture.modules import ModuleMap
from retainprof.capture.observe import Observer, Observers, StopStep
from retainprof.capture.step import StepRunner
from retainprof.records import DeviceMemory

__all__ = ["Books", "Point", "Released", "keep_books", "measure_released", "storage_bytes"]


ACCUMULATE = "torch::autograd::AccumulateGrad"


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
    same_as: dict[Point, Point] = field(
        default_factory=dict
    )  # a point, and an earlier one since which nothing happened
    visits: dict[int, frozenset[int]] = field(default_factory=dict)  # nodes that each call evaluates, by id
    written: dict[int, tuple[str, ...]] = field(default_factory=dict)  # leaves whose .grad each call changed
    reached_by: dict[int, tuple[str, ...]] = field(default_factory=dict)  # storages held at first: by which losses
    forwards: int = 0
    rss: dict[str, int | None] = field(default_factory=dict)  # at: start, forward, last, dropped
    device_memory: DeviceMemory | None = None
    _by_key: dict[Point, dict[int, Held]] = field(default_factory=dict)

    def shared_with_earlier(self, call: int) -> int | None:
        """How many nodes of a call an earlier call of the step evaluated too; None where the call was not made."""
        if call not in self.visits:
            return None
        earlier: set[int] = set()
        for other, nodes in self.visits.items():
            if other < call:
                earlier |= nodes
        return len(self.visits[call] & earlier)

    def held_by_key(self, point: Point) -> dict[int, Held]:
        """The storages held at a point, by their key."""
        if point not in self._by_key:
            self._by_key[point] = {held.key: held for held in self.held[point].storages}
        return self._by_key[point]


class _Bookkeeper(Observer):
    def __init__(self, runner: StepRunner, books: Books, modules: ModuleMap) -> None:
        self._runner, self._books, self._modules = runner, books, modules
        self._before: dict[str, tuple[int, int] | None] = {}
        self._forwards = 0
        self._last: object = None

    def _note(self, point: Point) -> None:
        books, now = self._books, self._signature()
        if now == self._last:
            last = books.points[-1]
            books.same_as[point] = books.same_as.get(last, last)
            books.held[point], books.pinned[point] = books.held[last], books.pinned[last]
            books.gradients[point] = books.gradients[last]
        else:
            self._look(point)
        books.points.append(point)
        self._last = now

    def _signature(self) -> object:
        """Stays equal while nothing is made, dropped or changed that the books are about."""
        runner = self._runner
        losses = tuple((name, id(loss)) for name, loss in runner.live.items())
        return losses, self._forwards, tuple(self._grads().items()), len(runner.returned), len(runner.cut)

    def _look(self, point: Point) -> None:
        runner, books = self._runner, self._books
        grads = [leaf.grad for leaf in runner.workload.leaves if leaf.grad is not None]
        kept = [*grads, *(item.gradient for item in runner.returned)]
        owned = [*runner.workload.owned, *kept]
        pinned = _without_cut(walk_pinned(kept, owned=owned), runner)
        books.pinned[point] = pinned
        books.held[point] = walk(
            list(runner.live.values()), outputs=runner.cut, owned=owned, modules=self._modules, beside=pinned
        )
        books.gradients[point] = _gradients(runner)
        if not books.points:
            books.reached_by = self._reached(owned)

    def _reached(self, owned: list[Tensor]) -> dict[int, tuple[str, ...]]:
        """Names of the losses from which each held storage is reached, by the storage's key."""
        found: dict[int, tuple[str, ...]] = {}
        for name, loss in self._runner.live.items():
            for held in walk([loss], owned=owned).storages:
                found[held.key] = (*found.get(held.key, ()), name)
        return found

    def _grads(self) -> dict[str, tuple[int, int] | None]:
        named = self._runner.workload.named_leaves
        return {name: None if (g := leaf.grad) is None else (id(g), g._version) for name, leaf in named.items()}

    def step_begin(self) -> None:
        reset_device_peak(self._runner.workload.device)
        self._books.rss["start"] = rss_bytes()

    def forward_begin(self, segment: int) -> None:  # noqa: ARG002
        self._forwards += 1

    def forward_end(self, segment: int) -> None:  # noqa: ARG002
        self._books.rss.setdefault("forward", rss_bytes())

    def call_begin(self, index: int) -> None:
        self._note(Point("before", index))
        entering = self._runner.entering
        if entering is not None:
            found = visit(entering.roots, entering.inputs, accumulate=entering.accumulates)
            self._books.visits[index] = found.evaluated
        self._before = self._grads()

    def call_end(self, index: int) -> None:
        self._last = None  # a call may have released anything
        now = self._grads()
        self._books.written[index] = tuple(name for name, grad in now.items() if grad != self._before[name])
        self._note(Point("after", index))

    def call_failed(self, index: int) -> None:
        self.call_end(index)


def keep_books(runner: StepRunner) -> Books:
    """Walk the graph before and after each call of one step."""
    books = Books()
    with ModuleMap(runner.workload.model) as modules:
        runner.run(_Bookkeeper(runner, books, modules))
    books.forwards = runner.forward_runs
    books.device_memory = device_memory(runner.workload.device)
    books.rss["last"] = rss_bytes()
    runner.drop()
    books.rss["dropped"] = rss_bytes()
    runner.clear()
    return books


def _without_cut(pinned: Ledger, runner: StepRunner) -> Ledger:
    """Less the ``.grad`` of leaves at a cut: the step lets it go with the losses, unless something else saved it too."""
    at_cut = {cut.grad.untyped_storage().data_ptr() for cut in runner.cut if cut.is_leaf and cut.grad is not None}
    only_there = [held for held in pinned.storages if held.key in at_cut and held.kept_by == (ACCUMULATE,)]
    kept = tuple(held for held in pinned.storages if held not in only_there)
    return msgspec.structs.replace(pinned, storages=kept)


class _StopAt(Observer):
    def __init__(self, point: Point) -> None:
        self._point = point

    def call_begin(self, index: int) -> None:
        if self._point == Point("before", index):
            raise StopStep

    def call_end(self, index: int) -> None:
        if self._point == Point("after", index):
            raise StopStep


def measure_released(runner: StepRunner, books: Books, recorder: Recorder) -> dict[Point, Released]:
    """A profiled step for each point, ended there; what letting go of losses and gradients releases (method A)."""
    points = [point for point in books.points if point not in books.same_as]

    def step(number: int) -> None:
        runner.run(Observers([_StopAt(points[number])]))
        with label("drop", number):
            runner.drop()
        with label("clear", number):
            runner.clear()

    with tempfile.TemporaryDirectory(prefix="retainprof-") as folder:
        path = Path(folder) / "released.json"
        recorder.record(len(points), step, path, warmup=0)
        found = {labels.parse(p.label): p.net_bytes or 0 for p in trace.passes(trace.read(path))}
    freed = {(seen.phase, seen.index): -net for seen, net in found.items() if seen is not None}
    released = {point: Released(freed["drop", i], freed["clear", i]) for i, point in enumerate(points)}
    return {point: released[books.same_as.get(point, point)] for point in books.points}
