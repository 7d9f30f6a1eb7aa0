"""Kernels of the first call against those of a later one: which run only in one, which run more often, which are equal.

A kernel is *changed* when its count or its bytes differ. Its time alone never makes it changed: the times in a kernel
table are profiled times, and two runs of one kernel differ by more than most effects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median_high, median_low

from retainprof.records import Accumulate, KernelDiff, KernelRow, KernelStatus
from retainprof.units import show_count

__all__ = ["diff", "merge", "only_accumulation", "reason", "unsteady"]

Key = tuple[str, str, bool, bool]
_EMPTY = KernelRow(name="")
_STEAL = ("aten::detach", "detach")  # AccumulateGrad takes a gradient over by detaching it


def merge(steps: Sequence[Sequence[KernelRow]]) -> tuple[KernelRow, ...]:
    """One table from those of several steps: medians of ``self_ns``, counts and bytes, largest time first.

    A step without the kernel counts as 0, and a kernel that most steps lack is left out. Counts and bytes do not
    differ between equal steps; :func:`unsteady` names the kernels for which they do.
    """
    tables = [_by_key(rows) for rows in steps]
    rows = [_median_row(key, [table.get(key, _EMPTY) for table in tables]) for key in dict.fromkeys(_keys(tables))]
    return tuple(sorted((row for row in rows if row.count), key=lambda row: (-row.self_ns, row.name, row.shapes)))


def unsteady(steps: Sequence[Sequence[KernelRow]]) -> tuple[str, ...]:
    """Names of kernels whose count differs between the steps, sorted."""
    tables = [_by_key(rows) for rows in steps]
    counts = {key: {table.get(key, _EMPTY).count for table in tables} for key in _keys(tables)}
    return tuple(sorted({key[0] for key, found in counts.items() if len(found) > 1}))


def diff(first: Sequence[KernelRow], later: Sequence[KernelRow]) -> tuple[KernelDiff, ...]:
    """Every kernel of either call, by name and shapes.

    Differences come before what is the same, leaves before operators around them, then the largest change of time,
    then of bytes.
    """
    tables = _by_key(first), _by_key(later)
    rows = [
        _compared(key, tables[0].get(key, _EMPTY), tables[1].get(key, _EMPTY)) for key in dict.fromkeys(_keys(tables))
    ]
    return tuple(sorted(rows, key=_importance))


def reason(
    rows: Sequence[KernelDiff], first: Accumulate | None, later: Accumulate | None, call: int, first_call: int = 0
) -> str:
    """One sentence on what ``call`` runs and ``first_call`` does not, from their :func:`diff` and accumulations.

    Empty where there is nothing to compare.
    """
    if not rows:
        return ""
    more = 0 if first is None or later is None else later.added - first.added
    additions, steals = _explained(rows, first, later)
    parts = (_accumulation(additions, more, first, first_call), _others(rows, [*additions, *steals], first_call))
    said = "; ".join(part for part in parts if part)
    return f"call {call} {said or f'runs the same kernels as call {first_call}'}"


def only_accumulation(rows: Sequence[KernelDiff], first: Accumulate | None, later: Accumulate | None) -> bool:
    """Whether the calls run different numbers of kernels, and all of the difference is stealing against adding."""
    additions, steals = _explained(rows, first, later)
    counted = [row for row in rows if row.leaf and row.first_count != row.later_count]
    return bool(additions) and all(row in additions or row in steals for row in counted)


def _by_key(rows: Iterable[KernelRow]) -> dict[Key, KernelRow]:
    """Rows by name, shapes, leaf and device, added up where several are alike."""
    alike: dict[Key, list[KernelRow]] = defaultdict(list)
    for row in rows:
        alike[row.name, row.shapes, row.leaf, row.device].append(row)
    return {key: found[0] if len(found) == 1 else _row(key, *_sums(found)) for key, found in alike.items()}


def _keys(tables: Iterable[dict[Key, KernelRow]]) -> list[Key]:
    return [key for table in tables for key in table]


def _sums(rows: Sequence[KernelRow]) -> tuple[int, int, int]:
    return sum(row.count for row in rows), sum(row.self_ns for row in rows), sum(row.bytes for row in rows)


def _row(key: Key, count: int, self_ns: int, nbytes: int) -> KernelRow:
    name, shapes, leaf, device = key
    return KernelRow(name=name, shapes=shapes, count=count, self_ns=self_ns, bytes=nbytes, leaf=leaf, device=device)


def _median_row(key: Key, rows: Sequence[KernelRow]) -> KernelRow:
    return _row(
        key,
        median_low(row.count for row in rows),
        median_high(row.self_ns for row in rows),
        median_low(row.bytes for row in rows),
    )


def _compared(key: Key, first: KernelRow, later: KernelRow) -> KernelDiff:
    return KernelDiff(
        name=key[0],
        shapes=key[1],
        first_count=first.count,
        later_count=later.count,
        first_self_ns=first.self_ns,
        later_self_ns=later.self_ns,
        first_bytes=first.bytes,
        later_bytes=later.bytes,
        status=_status(first, later),
        leaf=key[2],
    )


def _status(first: KernelRow, later: KernelRow) -> KernelStatus:
    if not later.count:
        return "only_first"
    if not first.count:
        return "only_later"
    return "same" if (first.count, first.bytes) == (later.count, later.bytes) else "changed"


def _importance(row: KernelDiff) -> tuple[bool, bool, int, int, str, str]:
    return (
        row.status == "same",
        not row.leaf,
        -abs(row.later_self_ns - row.first_self_ns),
        -abs(row.later_bytes - row.first_bytes),
        row.name,
        row.shapes,
    )


# --- the sentence -------------------------------------------------------------------------------------------------------


def _explained(
    rows: Sequence[KernelDiff], first: Accumulate | None, later: Accumulate | None
) -> tuple[list[KernelDiff], list[KernelDiff]]:
    """Additions that the later call runs more often, and detaches (of stolen gradients) that it runs less often.

    Each only where its number is exactly what the accumulations say; else none is put down to ``.grad``, as on a device,
    where additions have other names, or in a model with additions of its own.
    """
    if first is None or later is None:
        return [], []
    more, fewer = later.added - first.added, first.stolen - later.stolen
    added = [row for row in rows if row.leaf and row.name == "aten::add_" and row.later_count > row.first_count]
    stolen = [row for row in rows if row.leaf and row.name in _STEAL and row.first_count > row.later_count]
    return (
        added if sum(row.later_count - row.first_count for row in added) == more else [],
        stolen if sum(row.first_count - row.later_count for row in stolen) == fewer else [],
    )


def _accumulation(additions: Sequence[KernelDiff], more: int, first: Accumulate | None, first_call: int) -> str:
    """``adds into .grad: 6 x aten::add_ that call 0 does not run (it stole 6)``; '' where no more is added."""
    if first is None or more <= 0:
        return ""
    did = " and ".join(
        f"{verb} {show_count(n)}" for verb, n in (("stole", first.stolen), ("copied", first.copied)) if n
    )
    what = f": {show_count(more)} x aten::add_ that" if additions else f" {show_count(more)} times, which"
    return f"adds into .grad{what} call {first_call} does not run" + (f" (it {did})" if did else "")


def _others(rows: Sequence[KernelDiff], said: Sequence[KernelDiff], first_call: int) -> str:
    """What else differs among the kernels: ``runs 3 more that call 0 does not, and not 2 that it does``."""
    rest = [row for row in rows if row.leaf and row not in said]
    more = sum(max(0, row.later_count - row.first_count) for row in rest)
    fewer = sum(max(0, row.first_count - row.later_count) for row in rest)
    if not more and not fewer:
        return ""
    largest = next(row for row in rest if row.later_count != row.first_count)
    text = f"otherwise runs {show_count(more)} kernels more and {show_count(fewer)} fewer than call {first_call}"
    return f"{text}, above all {largest.name} {largest.shapes}".rstrip()
