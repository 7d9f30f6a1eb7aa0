"""Sums over a ledger, and what one ledger has that a later one has not. Pure: no torch, no tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from retainprof.capture.ledger_records import NEVER, Held, Ledger
from retainprof.records import Record

__all__ = ["ModuleSum", "NodeSum", "by_module", "by_node", "freed_in_call", "likely_residue", "released", "remaining"]


class NodeSum(Record, frozen=True, kw_only=True):
    """Bytes that one kind of node keeps in one module; a storage counts with the first in its ``kept_by``."""

    node: str
    module: str
    bytes: int
    storages: int


class ModuleSum(Record, frozen=True, kw_only=True):
    """Bytes that one module's forward made; "" is outside every module (the losses)."""

    module: str
    bytes: int
    storages: int


def by_node(ledger: Ledger) -> tuple[NodeSum, ...]:
    """Sums by the node that keeps a storage first, and where it ran; largest first. They add up to the total."""
    groups: dict[tuple[str, str], list[Held]] = {}
    for held in ledger.storages:
        groups.setdefault((held.kept_by[0], held.node_module), []).append(held)
    found = [
        NodeSum(node=node, module=module, bytes=_bytes(group), storages=len(group))
        for (node, module), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.bytes, one.node, one.module)))


def by_module(ledger: Ledger) -> tuple[ModuleSum, ...]:
    """Sums by the module that made a storage; largest first. They add up to the total."""
    groups: dict[str, list[Held]] = {}
    for held in ledger.storages:
        groups.setdefault(held.module, []).append(held)
    found = [ModuleSum(module=module, bytes=_bytes(group), storages=len(group)) for module, group in groups.items()]
    return tuple(sorted(found, key=lambda one: (-one.bytes, one.module)))


def _bytes(group: Iterable[Held]) -> int:
    return sum(held.bytes for held in group)


def released(before: Ledger, after: Ledger) -> tuple[Held, ...]:
    """Storages of ``before`` that are gone from ``after``, a later walk of the same roots.

    Memory may have been given out again in between: a storage is the same only if it has the same address and size and
    one of the keepers that it had.
    """
    still = {held.key: held for held in after.storages}
    return tuple(held for held in before.storages if not _same(held, still.get(held.key)))


def _same(held: Held, later: Held | None) -> bool:
    return later is not None and held.bytes == later.bytes and not set(held.keepers).isdisjoint(later.keepers)


def freed_in_call(start: Ledger, after_calls: Sequence[Ledger]) -> dict[int, int]:
    """For each storage of ``start`` that went away, by its key: the index in ``after_calls`` of the first ledger
    without it. One that was never let go is missing."""
    found: dict[int, int] = {}
    for index, ledger in enumerate(after_calls):
        for held in released(start, ledger):
            found.setdefault(held.key, index)
    return found


def remaining(ledger: Ledger, let_go: Iterable[int]) -> tuple[Held, ...]:
    """Storages that would stay if the nodes ``let_go`` (ids) released what they saved, the roots being kept."""
    gone = frozenset(let_go) - {NEVER}
    return tuple(held for held in ledger.storages if not gone.issuperset(held.keepers))


def likely_residue(ledger: Ledger) -> tuple[str, ...]:
    """What may hold bytes that dropping the roots releases, though no node of the ledger accounts for them."""
    names = [name.rpartition("::")[2] for name in ledger.unreadable]
    suspects = [_SUSPECTS.get(name, f"what {name} keeps in C++") for name in names]
    return (*suspects, "closures of tensor hooks")


_SUSPECTS: Mapping[str, str] = {
    "CopySlices": "what an in-place change of a view saved (CopySlices)",
}
