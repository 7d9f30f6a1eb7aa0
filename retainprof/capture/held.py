"""What the losses hold after the forward, storage by storage, and in which call each is let go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from retainprof.capture.bytes import Books
from retainprof.capture.evidence import Evidence, Lean
from retainprof.capture.ledger import Held
from retainprof.records import HeldByModule, HeldByNode, HeldStorage, RetainCost, Retained

__all__ = ["retained"]

LISTED = 2000  # storages in the result file; the sums by node and by module always cover all


def retained(evidence: Evidence) -> Retained:
    """The record; its parts are None or empty where the evidence was not gathered."""
    books = evidence.books
    if books is None or not books.points:
        return Retained()
    start = books.points[0]
    held = books.held[start].storages
    freed = {storage.key: _freed_in(storage, books) for storage in held}
    after = evidence.released.get(start)
    total = books.held[start].total_bytes
    return Retained(
        after_forward_bytes=total if after is None else after.dropped,
        by_node=_by_node(held, freed),
        by_module=_by_module(held),
        storages=tuple(_storage(storage, freed[storage.key], books) for storage in held[:LISTED]),
        residue_bytes=None if after is None else after.dropped - total,
        cost=_cost(evidence, books),
    )


def _cost(evidence: Evidence, books: Books) -> RetainCost | None:
    """What the flags cost against the same step with only those that are needed."""
    last = evidence.released.get(books.points[-1])
    if last is None or evidence.timeline.peak_bytes is None:
        return None
    lean = evidence.lean or Lean(peak_bytes=evidence.timeline.peak_bytes, left_bytes=last.dropped)
    return RetainCost(
        peak_with_bytes=evidence.timeline.peak_bytes,
        peak_without_bytes=lean.peak_bytes,
        after_last_with_bytes=last.dropped,
        after_last_without_bytes=lean.left_bytes,
    )


def _freed_in(storage: Held, books: Books) -> int | None:
    """The first call after which the storage is no longer held, or None. A new one may have come to lie at its address:
    then another node keeps it."""
    for point in books.points:
        if point.when == "after" and not _is_in(storage, books.held_by_key(point)):
            return point.call
    return None


def _is_in(storage: Held, held: dict[int, Held]) -> bool:
    other = held.get(storage.key)
    return other is not None and other.bytes == storage.bytes and bool(set(other.kept_by) & set(storage.kept_by))


def _storage(held: Held, freed_in_call: int | None, books: Books) -> HeldStorage:
    return HeldStorage(
        bytes=held.bytes,
        kept_by=held.kept_by,
        modules=held.modules,
        shape=held.shape,
        dtype=held.dtype,
        kind=held.kind,
        freed_in_call=freed_in_call,
        losses=books.reached_by.get(held.key, ()),
        copy_of=held.copy_of or "",
    )


def _by_node(held: Sequence[Held], freed: dict[int, int | None]) -> tuple[HeldByNode, ...]:
    groups: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
    for storage in held:
        groups[storage.kept_by[0], storage.node_module, freed[storage.key]].append(storage.bytes)
    rows = [
        HeldByNode(node=node, module=module, bytes=sum(sizes), storages=len(sizes), freed_in_call=call)
        for (node, module, call), sizes in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.node, row.module)))


def _by_module(held: Sequence[Held]) -> tuple[HeldByModule, ...]:
    sums: dict[str, int] = defaultdict(int)
    for storage in held:
        sums[storage.module] += storage.bytes
    return tuple(HeldByModule(module=m, bytes=n) for m, n in sorted(sums.items(), key=lambda row: (-row[1], row[0])))
