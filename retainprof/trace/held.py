"""Retained bytes from the trace alone: what a step's forward made, what of it outlives each call, and who frees it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from retainprof.records import Record
from retainprof.trace.calls import Calls
from retainprof.trace.columns import Column
from retainprof.trace.facts import ENGINE, Facts
from retainprof.trace.group import among, distinct

__all__ = ["Held", "Release", "held"]

_CPU = 0


class Release(Record, frozen=True, kw_only=True):
    """Bytes that a forward made and its end saw alive, by what made them and what freed them.

    ``freed_in_call`` is the call's index in the step; None with ``freed_by`` "after" (after the last call), "between"
    (between two calls) or "never" (not in this trace). In a call, ``freed_by`` is the node that was evaluated.
    """

    made_by: str
    freed_in_call: int | None
    freed_by: str
    bytes: int
    storages: int


class Held(Record, frozen=True, kw_only=True):
    """One step: bytes made in its forward that are alive after it, and after each of its calls."""

    step: int
    after_forward_bytes: int
    after_call_bytes: tuple[int, ...]
    releases: tuple[Release, ...]


@dataclass(frozen=True)
class _Step:
    number: int
    begin: int  # start of the forward
    starts: Column  # of the calls
    ends: Column


def held(facts: Facts, calls: Calls) -> tuple[Held, ...]:
    """One record for each step; () where the trace has no memory events with addresses.

    The forward begins with the first operator whose node the step's calls evaluate, and ends with the first call.
    """
    births = facts.births
    if not births.told.any():
        return ()
    return tuple(_held(facts, step) for step in _spans(facts, calls))


def _spans(facts: Facts, calls: Calls) -> list[_Step]:
    operators = facts.trace.operators
    made = np.flatnonzero(facts.aten & (operators.sequence >= 0) & (operators.forward_thread <= 0))
    made = made[facts.outwards(facts.nest.parent[made], facts.engine) < 0]
    order = np.argsort(operators.sequence[made], kind="stable")
    numbers, began = operators.sequence[made][order], operators.start[made][order]
    found = []
    for step in distinct(calls.step).tolist():
        rows = np.flatnonzero(calls.step == step)
        starts, ends = calls.marks.start[rows], calls.marks.end[rows]
        low, high = np.searchsorted(operators.start, [starts[0], ends[-1]])
        visited = operators.sequence[low:high][facts.engine[low:high]]
        visited = distinct(visited[visited >= 0])
        at = np.searchsorted(numbers, visited)
        at = at[at < len(numbers)]
        begin = began[at][among(numbers[at], visited) & (began[at] < starts[0])]
        found.append(_Step(step, int(begin.min(initial=starts[0])), starts, ends))
    return found


def _held(facts: Facts, step: _Step) -> Held:
    memory, births = facts.trace.memory, facts.births
    low, high = np.searchsorted(memory.start, [step.begin, step.starts[0]])
    born = np.arange(low, high)
    wanted = births.told[born] & (memory.nbytes[born] > 0)
    if (memory.device_type > _CPU).any():
        wanted &= memory.device_type[born] > _CPU
    born = born[wanted]
    death = births.death[born]
    died = np.where(death < 0, np.iinfo(np.int64).max, memory.start[death])
    alive = died >= step.starts[0]
    born, death, died = born[alive], death[alive], died[alive]
    size = memory.nbytes[born]
    return Held(
        step=step.number,
        after_forward_bytes=int(size.sum()),
        after_call_bytes=tuple(int(size[died > end].sum()) for end in step.ends.tolist()),
        releases=_releases(facts, step, born, death, died),
    )


def _releases(facts: Facts, step: _Step, born: Column, death: Column, died: Column) -> tuple[Release, ...]:
    memory, operators, names = facts.trace.memory, facts.trace.operators, facts.trace.names
    makers = facts.outwards(facts.nest.around(memory.take(born), memory.thread[born]), facts.aten)
    dead = np.maximum(death, 0)
    nodes = facts.outwards(facts.nest.around(memory.take(dead), memory.thread[dead]), facts.engine)
    call = np.searchsorted(step.starts, died, "right") - 1
    inside = (call >= 0) & (died <= step.ends[np.maximum(call, 0)])
    total: dict[tuple[str, int | None, str], list[int]] = defaultdict(lambda: [0, 0])
    for i, size in enumerate(memory.nbytes[born].tolist()):
        maker = names[operators.name[makers[i]]] if makers[i] >= 0 else ""
        node = names[operators.name[nodes[i]]].removeprefix(ENGINE) if nodes[i] >= 0 and inside[i] else ""
        after = "never" if death[i] < 0 else "after" if died[i] > step.ends[-1] else "between"
        key = (maker, int(call[i]), node) if inside[i] else (maker, None, after)
        sums = total[key]
        sums[0] += size
        sums[1] += 1
    found = [
        Release(made_by=maker, freed_in_call=freed, freed_by=by, bytes=size, storages=count)
        for (maker, freed, by), (size, count) in total.items()
    ]
    return tuple(sorted(found, key=lambda release: (-release.bytes, release.made_by, release.freed_by)))
