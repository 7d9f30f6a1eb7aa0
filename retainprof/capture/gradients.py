"""Are the gradients the same? A strategy's final ``.grad`` against one summed backward from the same state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from retainprof.capture.observe import Observer
from retainprof.capture.step import StepRunner
from retainprof.records import Gradients, Relation
from retainprof.strategies import Summed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CLOSE", "FinalGradients", "compare", "final_gradients", "reference_runner"]

CLOSE = 1e-4  # of the largest value of the tensor
RETURNED = "gradients are returned; .grad is left alone"


@dataclass
class FinalGradients:
    """Gradients by leaf name after one step: in ``.grad``, and the sums of what ``autograd.grad`` returned."""

    written: dict[str, Tensor] = field(default_factory=dict)
    returned: dict[str, Tensor] = field(default_factory=dict)
    forwards: int = 1
    draws_random: bool = False
    moves_buffers: bool = False
    failed: bool = False

    @property
    def sum(self) -> float:
        """Sum over ``.grad``, in float64 (of the real part where complex)."""
        return sum(_real(g).sum(dtype=torch.float64).item() for g in self.written.values())

    @property
    def abs_sum(self) -> float:
        """Sum of absolute values over ``.grad``, in float64."""
        return sum(g.abs().sum(dtype=torch.float64).item() for g in map(_dense, self.written.values()))

    @property
    def not_finite(self) -> tuple[str, ...]:
        """Leaves whose gradient has a NaN or an infinity."""
        every = {**self.written, **self.returned}
        return tuple(name for name, g in every.items() if not bool(torch.isfinite(_dense(g)).all()))


def _dense(tensor: Tensor) -> Tensor:
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


def _real(tensor: Tensor) -> Tensor:
    dense = _dense(tensor)
    return dense.real if dense.is_complex() else dense


def reference_runner(runner: StepRunner) -> StepRunner:
    """One backward of the sum of the losses that ``runner`` uses, on the same workload and from the same state."""
    return StepRunner(Summed(kind="summed"), runner.workload, runner.state, losses=runner.used)


def final_gradients(runner: StepRunner) -> FinalGradients:
    """Run one step and copy the gradients it leaves."""
    error = runner.run(Observer())
    workload = runner.workload
    names = {id(leaf): name for name, leaf in workload.named_leaves.items()}
    found = FinalGradients(
        written={n: x.grad.detach().clone() for n, x in workload.named_leaves.items() if x.grad is not None},
        forwards=runner.forward_runs,
        draws_random=not torch.equal(torch.get_rng_state(), runner.state.rng),
        moves_buffers=runner.state.buffers_moved(),
        failed=error is not None,
    )
    for item in runner.returned:
        if item.of in names:
            gradient = item.gradient.detach()
            gradient = gradient.sum(0) if item.batched else gradient.clone()
            name = names[item.of]
            found.returned[name] = found.returned[name] + gradient if name in found.returned else gradient
    runner.drop()
    runner.clear()
    return found


def _difference(mine: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> tuple[Relation, float, str | None]:
    """Relation, largest relative difference and the leaf it is at; a leaf that only one side has is different."""
    worst, at, equal = 0.0, None, mine.keys() == other.keys()
    missing = sorted(mine.keys() ^ other.keys())
    for name in mine.keys() & other.keys():
        a, b = _dense(mine[name]), _dense(other[name])
        if torch.equal(a, b):
            continue
        equal = False
        scale = b.abs().max().item()
        difference = (a - b).abs().max().item()
        relative = difference / scale if scale else float("inf")
        if not relative <= worst:
            worst, at = relative, name
    if missing:
        return "different", worst, missing[0]
    return ("bitwise" if equal else "close" if worst <= CLOSE else "different"), worst, at


def _why_not_comparable(runner: StepRunner, mine: FinalGradients, reference: FinalGradients) -> str:
    """Why ``.grad`` is not meant to equal the reference, or ''."""
    specs = runner.specs
    if runner.strategy.returns_gradients or (specs and all(spec.kind == "grad" for spec in specs)):
        return RETURNED
    if any(spec.sgd_before is not None for spec in specs):
        return "parameters change between the calls"
    if any(spec.zero_grad_before is not None for spec in specs):
        return "gradients are cleared between the calls"
    spelled = runner.strategy.kind == "calls"
    if spelled and any(spec.kind == "grad" for spec in specs):
        return "some gradients are returned, not written"
    if mine.forwards > reference.forwards and mine.draws_random:
        return f"{mine.forwards} forwards draw other random numbers (dropout)"
    if mine.forwards > reference.forwards and mine.moves_buffers:
        return f"buffers (BatchNorm statistics) moved in {mine.forwards} forwards instead of {reference.forwards}"
    return ""


def compare(runner: StepRunner, mine: FinalGradients, reference: FinalGradients, name: str) -> Gradients:
    """The verdict on ``mine``; ``name`` is what the reference is called in the result."""
    relation, worst, at = _difference(mine.written, reference.written)
    reason = _why_not_comparable(runner, mine, reference)
    failed = mine.failed or reference.failed
    returned: Relation | None = None
    returned_worst = None
    if mine.returned and reason == RETURNED and not failed:
        returned, returned_worst, _ = _difference(mine.returned, reference.written)
    if failed:
        relation, reason = "partial", "a call raised, so these gradients are no result"
    elif reason:
        relation = "not_comparable"
    by_plan = reason and not (mine.forwards > reference.forwards)
    comparable = relation != "partial" and bool(mine.written) and not by_plan
    return Gradients(
        reference=name,
        relation=relation,
        reason=reason,
        max_rel_difference=worst if comparable else None,
        worst_parameter=at if comparable else None,
        sum=None if failed else mine.sum,
        abs_sum=None if failed else mine.abs_sum,
        returned_relation=returned,
        returned_max_rel_difference=returned_worst,
        not_finite=mine.not_finite,
    )
