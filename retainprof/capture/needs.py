"""Which ``retain_graph=True`` was needed, found out by leaving it away.

A step is run again for every call that retains, with that one flag off. Where a later call then visits a node whose saved
tensors are gone, autograd raises, so the flag was needed; where the step ends as before, it was not. Flags that can go
one by one can go together: a flag is needed because of the nodes its own call frees, whatever the other flags say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from retainprof.capture.ledger import walk, walk_pinned
from retainprof.capture.observe import Observer
from retainprof.capture.step import StepRunner

__all__ = ["Needs", "find_needs", "left_after", "without_needless"]


@dataclass
class Needs:
    """``needed[call]`` for every call that retains; ``bytes_kept[call]``: what a needless flag keeps after the last call."""

    needed: dict[int, bool] = field(default_factory=dict)
    bytes_kept: dict[int, int] = field(default_factory=dict)

    @property
    def needless(self) -> tuple[int, ...]:
        """Calls whose flag nobody needs."""
        return tuple(call for call, needed in self.needed.items() if not needed)


def find_needs(runner: StepRunner) -> Needs:
    """Try every flag. A compiled graph is left alone: there the first backward decides what later ones may do."""
    found = Needs()
    retaining = [spec.index for spec in runner.specs if spec.retain_graph]
    if runner.is_compiled or not retaining:
        return found
    with_all = left_after(runner)
    if with_all is None:
        return found
    for call in retaining:
        left = left_after(_without(runner, (call,)))
        found.needed[call] = left is None
        if left is not None:
            found.bytes_kept[call] = with_all - left
    return found


def without_needless(runner: StepRunner, needs: Needs) -> StepRunner | None:
    """The same strategy with only the flags that are needed; None where that changes nothing."""
    return _without(runner, needs.needless) if needs.needless else None


def _without(runner: StepRunner, calls: tuple[int, ...]) -> StepRunner:
    specs = tuple(
        msgspec.structs.replace(spec, retain_graph=False) if spec.index in calls else spec for spec in runner.specs
    )
    return runner.with_specs(specs)


def left_after(runner: StepRunner) -> int | None:
    """Bytes that the losses hold after the last call (by the ledger), or None where a call raised."""
    error = runner.run(Observer())
    grads = [leaf.grad for leaf in runner.workload.leaves if leaf.grad is not None]
    kept = [*grads, *(item.gradient for item in runner.returned)]
    owned = [*runner.workload.owned, *kept]
    left = walk(
        list(runner.live.values()), outputs=runner.cut, owned=owned, beside=walk_pinned(kept, owned=owned)
    ).total_bytes
    del grads, kept, owned
    runner.drop()
    runner.clear()
    return None if error is not None else left
