"""One :class:`~retainprof.records.RangePass` for each of many ranges of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from retainprof.records import Accumulate, RangePass
from retainprof.trace.columns import KERNEL, Column
from retainprof.trace.device import device_times, launched_in
from retainprof.trace.facts import ENGINE, Facts
from retainprof.trace.kernels import KernelTable, device_kernels, operator_kernels
from retainprof.trace.ranges import Inside, Ranges
from retainprof.trace.recompute import forward_again

__all__ = ["Span", "kernel_table", "measure"]

_ADDS: Final = ("aten::add", "aten::add_")
_COPIES: Final = ("aten::copy_", "aten::clone")
_STEALS: Final = ("aten::detach", "aten::_sparse_coo_tensor_unsafe")
_CPU: Final = 0


@dataclass(frozen=True)
class Span:
    """A range to be measured; ``label`` and ``step`` are passed on."""

    label: str
    step: int
    start_ns: int
    end_ns: int


def measure(facts: Facts, spans: Sequence[Span], with_rows: bool = True) -> tuple[RangePass, ...]:
    """What the trace shows in each range, on any thread; ``with_rows`` as well each kernel by name and shapes."""
    ranges = Ranges(
        np.array([span.start_ns for span in spans], np.int64), np.array([span.end_ns for span in spans], np.int64)
    )
    inside = ranges.inside(facts.trace.operators)
    columns: dict[str, Sequence[Any]] = {
        "nodes": inside.count(facts.engine).tolist(),
        "ops": inside.count(facts.aten).tolist(),
        "fan_in_adds": inside.count(facts.in_engine & _named(facts, _ADDS)).tolist(),
        "forward_ops_in_backward": inside.count(forward_again(facts)).tolist(),
        "accumulate": _accumulate(facts, inside),
        "last_node": _last_nodes(facts, inside),
        **_memory(facts, ranges),
        **_kernels(facts, ranges, inside),
    }
    if with_rows:
        columns["kernel_rows"] = kernel_table(facts, ranges).rows()
    return tuple(
        RangePass(
            label=span.label,
            step=span.step,
            start_ns=span.start_ns,
            duration_ns=span.end_ns - span.start_ns,
            **{name: values[i] for name, values in columns.items()},
        )
        for i, span in enumerate(spans)
    )


def _named(facts: Facts, names: tuple[str, ...]) -> Column:
    return facts.named(lambda name: name in names)


def _accumulate(facts: Facts, inside: Inside) -> list[Accumulate]:
    """What AccumulateGrad did, by the operators directly inside its evaluations.

    A sparse gradient is stolen by building a sparse tensor around its parts.
    """
    sparse = facts.containing(lambda name: name in ("aten::_nnz", "aten::sparse_dim"))
    added = facts.in_accumulate & _named(facts, _ADDS)
    masks = (
        facts.in_accumulate & _named(facts, _STEALS),
        facts.in_accumulate & _named(facts, _COPIES),
        added & ~sparse,
        added & sparse,
    )
    counts = [inside.count(mask).tolist() for mask in masks]
    return [Accumulate(stolen=s, copied=c, added=a, sparse_added=sa) for s, c, a, sa in zip(*counts, strict=True)]


def _last_nodes(facts: Facts, inside: Inside) -> list[str | None]:
    names, operators = facts.trace.names, facts.trace.operators
    rows = inside.last(facts.engine).tolist()
    return [None if row < 0 else names[operators.name[row]].removeprefix(ENGINE) for row in rows]


def _memory(facts: Facts, ranges: Ranges) -> dict[str, Sequence[Any]]:
    """Bytes on the accelerator where the trace has any there, else on the CPU; None without memory events."""
    memory = facts.trace.memory
    names = ("allocated_bytes", "freed_bytes", "net_bytes", "peak_bytes")
    if not len(memory):
        return {name: [None] * len(ranges) for name in names}
    on_device = memory.device_type > _CPU
    memory = memory.take(on_device if on_device.any() else np.ones(len(memory), bool))
    inside, change = ranges.inside(memory), memory.nbytes
    found = (
        inside.sum(np.maximum(change, 0)),
        inside.sum(np.maximum(-change, 0)),
        inside.sum(change),
        inside.peak(change),
    )
    return {name: values.tolist() for name, values in zip(names, found, strict=True)}


def kernel_table(facts: Facts, ranges: Ranges) -> KernelTable:
    """Kernels of each range: those of the device where the trace has device events, else operators."""
    if len(facts.trace.device):
        return device_kernels(facts, launched_in(facts, ranges))
    return operator_kernels(facts, ranges.inside(facts.trace.operators))


def _kernels(facts: Facts, ranges: Ranges, inside: Inside) -> dict[str, Sequence[Any]]:
    """Device events where the trace has any, else leaves among the operators."""
    if not len(facts.trace.device):
        return {"kernels": inside.count(facts.leaf).tolist()}
    launched = launched_in(facts, ranges)
    kernel = facts.trace.device.kind[launched.rows] == KERNEL
    return {
        "kernels": launched.count(kernel).tolist(),
        "copies_and_sets": launched.count(~kernel).tolist(),
        "device": device_times(facts, ranges, launched),
    }
