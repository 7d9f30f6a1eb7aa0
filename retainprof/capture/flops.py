"""FLOPs of a step by torch's own counter (``torch.utils.flop_counter``): matrix products, convolutions, attention."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from retainprof.capture.observe import Observer
from retainprof.capture.step import StepRunner

__all__ = ["StepFlops", "count_flops"]


@dataclass
class StepFlops:
    """FLOPs of the forward parts together and of each call."""

    forward: int = 0
    calls: dict[int, int] = field(default_factory=dict)

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

    def _now(self) -> int:
        return int(self._counter.get_total_flops())

    def forward_begin(self, segment: int) -> None:  # noqa: ARG002
        self._before = self._now()

    def forward_end(self, segment: int) -> None:  # noqa: ARG002
        self._found.forward += self._now() - self._before

    def call_begin(self, index: int) -> None:  # noqa: ARG002
        self._before = self._now()

    def call_end(self, index: int) -> None:
        self._found.calls[index] = self._now() - self._before


def count_flops(runner: StepRunner) -> StepFlops | None:
    """Count one step; None for a compiled model, whose operators the counter does not see. Worse, a compiler that meets the
    counter's dispatch mode gives up and runs that model eagerly from then on."""
    if runner.is_compiled:
        return None
    found = StepFlops()
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]
    with counter:
        error = runner.run(_Reader(counter, found))
    runner.drop()
    runner.clear()
    return found if error is None or found.calls else None
