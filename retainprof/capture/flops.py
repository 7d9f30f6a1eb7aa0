"""FLOPs of a step by torch's own counter (``torch.utils.flop_counter``): matrix products, convolutions, attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from retainprof.capture.observe import Observer
from retainprof.capture.step import StepRunner
from retainprof.capture.workload import tensors_in

__all__ = ["StepFlops", "count_flops"]


@dataclass
class StepFlops:
    """FLOPs of the forward parts together and of each call; of a call those before the gradient reached the shared
    module's output, where one is named: what the heads cost. The rest is the trunk's."""

    forward: int = 0
    calls: dict[int, int] = field(default_factory=dict)
    heads: dict[int, int] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """FLOPs of the whole step."""
        return self.forward + sum(self.calls.values())


class _NoModules:
    """In place of the counter's module tracker, whose hooks raise where ``autograd.grad`` meets a module's leaf input."""

    parents = frozenset({"Global"})

    def __enter__(self) -> _NoModules:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


class _Reader(Observer):
    def __init__(self, counter: Any, found: StepFlops) -> None:
        self._counter, self._found, self._before = counter, found, 0
        self._call: int | None = None

    def _now(self) -> int:
        return int(self._counter.get_total_flops())

    def forward_begin(self, segment: int) -> None:  # noqa: ARG002
        self._before = self._now()

    def forward_end(self, segment: int) -> None:  # noqa: ARG002
        self._found.forward += self._now() - self._before

    def call_begin(self, index: int) -> None:
        self._call, self._before = index, self._now()

    def call_end(self, index: int) -> None:
        self._call, self._found.calls[index] = None, self._now() - self._before

    def call_failed(self, index: int) -> None:  # noqa: ARG002
        self._call = None

    def watch(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        """Forward hook of the shared module: be told when a gradient reaches what it returned."""
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(self._reached)  # type: ignore[no-untyped-call]

    def _reached(self, gradient: Tensor) -> None:  # noqa: ARG002
        if self._call is not None:
            self._found.heads[self._call] = self._now() - self._before


@contextmanager
def _watched(runner: StepRunner, reader: _Reader) -> Iterator[None]:
    workload = runner.workload
    if workload.shared is None:
        yield
        return
    handle = workload.model.get_submodule(workload.shared).register_forward_hook(reader.watch)
    try:
        yield
    finally:
        handle.remove()


def count_flops(runner: StepRunner) -> StepFlops | None:
    """Count one step; None for a compiled model, whose operators the counter does not see. Worse, a compiler that meets the
    counter's dispatch mode gives up and runs that model eagerly from then on."""
    if runner.is_compiled:
        return None
    found = StepFlops()
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]
    reader = _Reader(counter, found)
    with _watched(runner, reader), counter:
        error = runner.run(reader)
    runner.drop()
    runner.clear()
    return found if error is None or found.calls else None
