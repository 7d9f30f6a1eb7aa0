"""The forward operator and module behind each kernel of a backward, by sequence number: for every call, not the first only."""

from __future__ import annotations

import numpy as np

from retainprof.records import Record
from retainprof.trace.build import MODULE
from retainprof.trace.calls import Calls
from retainprof.trace.columns import Column
from retainprof.trace.device import launched_in
from retainprof.trace.facts import ENGINE, Facts
from retainprof.trace.group import Groups
from retainprof.trace.nesting import Nest

__all__ = ["NodeCost", "node_costs"]


class NodeCost(Record, frozen=True, kw_only=True):
    """Evaluations of one kind of node in one call, with what they ran.

    ``forward_op`` made the node ("" where the trace does not tell: AccumulateGrad has none), inside ``module``.
    ``kernels`` are device kernels, or kernels on the CPU; ``kernel_ns`` is their own time.
    """

    node: str
    forward_op: str
    module: str
    evaluations: int
    kernels: int
    kernel_ns: int


def node_costs(facts: Facts, calls: Calls) -> tuple[tuple[NodeCost, ...], ...]:
    """For each call, its nodes, dearest first; a last row "" holds kernels that lie in no node."""
    trace, operators = facts.trace, facts.trace.operators
    forward, module = _forward(facts)
    which, rows = calls.ranges.inside(operators).expand(facts.engine)
    kernel_which, kernel_node, kernel_ns = _kernels(facts, calls)
    size = len(rows)
    call, node = np.concatenate([which, kernel_which]), np.concatenate([rows, kernel_node])
    parts = [np.append(part, 0)[node] for part in (operators.name, forward + 1, module + 1)]  # node -1: the 0
    groups = Groups.by(call, *parts)
    evaluated = np.arange(len(call)) < size
    time = groups.sum(np.concatenate([np.zeros(size, np.int64), kernel_ns]))
    order = np.argsort(-time, kind="stable")
    first = groups.first[order]
    columns = [call[first], *(part[first] for part in parts)]
    columns += [groups.count(evaluated)[order], groups.count(~evaluated)[order], time[order]]
    found: list[list[NodeCost]] = [[] for _ in range(len(calls))]
    for i, name, op, around, evaluations, kernels, ns in zip(*(column.tolist() for column in columns), strict=True):
        found[i].append(
            NodeCost(
                node=trace.names[name].removeprefix(ENGINE),
                forward_op=trace.names[op - 1] if op else "",
                module=trace.names[around - 1].removeprefix(MODULE) if around else "",
                evaluations=evaluations,
                kernels=kernels,
                kernel_ns=ns,
            )
        )
    return tuple(tuple(costs) for costs in found)


def _kernels(facts: Facts, calls: Calls) -> tuple[Column, Column, Column]:
    """(call, row of the evaluation or -1, ns) of each kernel."""
    device = facts.trace.device
    if len(device):
        launched = launched_in(facts, calls.ranges)
        kernel = device.kind[launched.rows] == 0
        rows = launched.rows[kernel]
        node = facts.outwards(facts.launching_operator, facts.engine)[rows]
        return launched.which[kernel], node, (device.end - device.start)[rows]
    which, rows = calls.ranges.inside(facts.trace.operators).expand(facts.leaf)
    return which, facts.outwards(rows, facts.engine), facts.self_ns[rows]


def _forward(facts: Facts) -> tuple[Column, Column]:
    """For each operator the names of the forward operator that made its node, and of the module around that; -1: none.

    Several operators tell a sequence number before one of them takes it; the innermost, the last, made the node.
    """
    operators, modules = facts.trace.operators, facts.trace.modules
    made = np.flatnonzero(facts.aten & (operators.sequence >= 0) & (operators.forward_thread <= 0))
    order = made[np.argsort(operators.sequence[made], kind="stable")]
    numbers = operators.sequence[order]
    at = np.searchsorted(numbers, operators.sequence, "right") - 1
    place = np.maximum(at, 0)
    known = (operators.sequence >= 0) & (at >= 0) & facts.engine
    known &= (numbers[place] == operators.sequence) if len(numbers) else False
    maker = np.where(known, order[place] if len(order) else -1, -1)
    name = np.where(maker < 0, -1, operators.name[maker])
    module = np.full(len(operators), -1)
    if len(modules) and known.any():
        around = Nest.of(modules).around(operators.take(maker[known]), operators.thread[maker[known]])
        module[known] = np.where(around < 0, -1, modules.name[around])
    return name, module
