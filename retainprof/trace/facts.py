"""What is true of a trace's events whichever range one asks about: found once, on first use."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np

from retainprof.operators import BOOKKEEPING, FILLERS, is_kernel
from retainprof.trace.births import Births
from retainprof.trace.columns import Column
from retainprof.trace.group import added, distinct
from retainprof.trace.nesting import Nest
from retainprof.trace.trace import Trace

_NODE: Final = re.compile(r"(?:[\w:]|\(anonymous namespace\))*Backward\d*|torch::autograd::\w+")
__all__ = ["ACCUMULATE", "ENGINE", "Facts"]

ENGINE: Final = "autograd::engine::evaluate_function: "
ACCUMULATE: Final = "torch::autograd::AccumulateGrad"


class Facts:
    """Masks and parents over the rows of ``trace.operators``, and what ties the tables together."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def named(self, test: Callable[[str], bool]) -> Column:
        """Mask of the operators whose name passes ``test``, which is called once a name."""
        return np.array([test(name) for name in self.trace.names], bool)[self.trace.operators.name]

    @cached_property
    def nest(self) -> Nest:
        """All operators, one in the other."""
        return Nest.of(self.trace.operators)

    @cached_property
    def engine(self) -> Column:
        """Evaluations of nodes by the engine."""
        return self.named(lambda name: name.startswith(ENGINE))

    @cached_property
    def aten(self) -> Column:
        """Operators proper."""
        return self.named(lambda name: name.startswith("aten::"))

    @cached_property
    def aten_parent(self) -> Column:
        """Row of the innermost aten operator around each operator; -1: none."""
        return self.outwards(self.nest.parent, self.aten)

    def outwards(self, rows: Column, wanted: Column) -> Column:
        """For each of ``rows``, itself if it is ``wanted`` (a mask), else the innermost wanted one around it; -1: none."""
        rows = rows.copy()
        while True:
            inside = np.flatnonzero(rows >= 0)
            wrong = inside[~wanted[rows[inside]]]
            if not len(wrong):
                return rows
            rows[wrong] = self.nest.parent[rows[wrong]]

    def containing(self, test: Callable[[str], bool]) -> Column:
        """Mask of the aten operators that have an aten operator whose name passes ``test`` anywhere inside."""
        found = np.zeros(len(self.aten), bool)
        rows = np.flatnonzero(self.named(test) & self.aten)
        while len(rows):
            rows = self.aten_parent[rows]
            rows = distinct(rows[(rows >= 0) & ~found[rows]])
            found[rows] = True
        return found

    @cached_property
    def leaf(self) -> Column:
        """aten operators that are kernels on a CPU: they do the work themselves (see :mod:`retainprof.operators`)."""
        fills = self.containing(lambda name: name in FILLERS and name not in BOOKKEEPING)
        computes = self.containing(lambda name: name not in FILLERS and name not in BOOKKEEPING)
        plain = self.named(lambda name: is_kernel(name, fills_inside=False, computes_inside=False))
        filling = self.named(lambda name: is_kernel(name, fills_inside=True, computes_inside=False))
        kernel: Column = self.aten & ~computes & np.where(fills, filling, plain)
        return kernel

    @cached_property
    def self_ns(self) -> Column:
        """Length of each aten operator less those of the ones directly in it."""
        operators = self.trace.operators
        length = operators.end - operators.start
        return length - self._summed(self.aten_parent[self.aten], length[self.aten])

    @cached_property
    def own_bytes(self) -> Column:
        """Bytes that each aten operator allocated itself, in no other one inside it."""
        memory = self.trace.memory
        if not len(memory) or not len(self.trace.operators):
            return np.zeros(len(self.trace.operators), np.int64)
        around = self.outwards(self.nest.around(memory, memory.thread), self.aten)
        return self._summed(around, np.maximum(memory.nbytes, 0))

    def _summed(self, rows: Column, values: Column) -> Column:
        """Sums of ``values`` by row; rows of -1 are left out."""
        return added(rows[rows >= 0], values[rows >= 0], len(self.trace.operators))

    @cached_property
    def parent_name(self) -> Column:
        """Number of the name of the event directly around each operator; -1: none."""
        parent = self.nest.parent
        return np.where(parent < 0, -1, self.trace.operators.name[parent])

    @cached_property
    def in_accumulate(self) -> Column:
        """Operators directly inside an evaluation of AccumulateGrad."""
        return self._parent_is(lambda name: name == ACCUMULATE)

    @cached_property
    def in_engine(self) -> Column:
        """Operators that the engine ran itself: directly in an evaluation, outside the node's own operator."""
        return self._parent_is(lambda name: name.startswith(ENGINE))

    def _parent_is(self, test: Callable[[str], bool]) -> Column:
        passes = np.array([*map(test, self.trace.names), False], bool)
        return passes[self.parent_name]

    @cached_property
    def launch_of(self) -> Column:
        """Row of the launch behind each device event, by correlation; -1: none."""
        device, launches = self.trace.device, self.trace.launches
        order = np.argsort(launches.correlation, kind="stable")
        known = launches.correlation[order]
        at = np.searchsorted(known, device.correlation)
        found = np.full(len(device), -1)
        inside = at < len(known)
        hit = np.flatnonzero(inside)[
            (known[at[inside]] == device.correlation[inside]) & (device.correlation[inside] >= 0)
        ]
        found[hit] = order[at[hit]]
        return found

    @cached_property
    def launching_operator(self) -> Column:
        """Row of the innermost operator around the launch of each device event, by thread and time; -1: none.

        Right for every age of trace; ``External id`` names the operator from 2024 on only.
        """
        launched = np.flatnonzero(self.launch_of >= 0)
        launches = self.trace.launches.take(self.launch_of[launched])
        found = np.full(len(self.trace.device), -1)
        found[launched] = self.nest.around(launches, launches.thread)
        return found

    @cached_property
    def launching_dims(self) -> Column:
        """Number of the input shapes of the operator behind each device event."""
        operator = self.launching_operator
        if not len(self.trace.operators):
            return np.zeros(len(operator), np.int64)
        return np.where(operator < 0, 0, self.trace.operators.dims[operator])

    @cached_property
    def launched_by_engine(self) -> Column:
        """Device events whose launch lies in an evaluation of a node."""
        found: Column = self.outwards(self.launching_operator, self.engine) >= 0
        return found

    @cached_property
    def births(self) -> Births:
        """Births and deaths of memory."""
        return Births.of(self.trace.memory)

    @cached_property
    def nodes(self) -> Column:
        """Operators that are nodes of the graph; they were there before the engine wrote events of its own."""
        return self.named(lambda name: _NODE.fullmatch(name) is not None)

    @cached_property
    def accumulations(self) -> Column:
        """Evaluations of AccumulateGrad: engine events, or the nodes themselves in traces that have none."""
        evaluated = self.named(lambda name: name == ENGINE + ACCUMULATE)
        return evaluated if self.engine.any() else self.named(lambda name: name == ACCUMULATE)

    @cached_property
    def inside_accumulate(self) -> dict[int, str]:
        """By row of each evaluation of AccumulateGrad, the aten operators anywhere inside: ``aten::fill_+aten::zero_``."""
        if not self.accumulations.any():
            return {}
        around = self.outwards(self.nest.parent, self.accumulations)
        rows = np.flatnonzero(self.aten & (around >= 0))
        names: dict[int, set[str]] = {}
        for row, name in zip(around[rows].tolist(), self.trace.operators.name[rows].tolist(), strict=True):
            names.setdefault(row, set()).add(self.trace.names[name])
        return {row: "+".join(sorted(found)) for row, found in names.items()}
