"""What the page shows, as JSON: the result without raw samples, the four answers, and kernel rows in compact form.

The TensorBoard tab and ``report.html`` read the same two documents: :func:`page` for every view, and
:func:`kernels` for the kernel tables, which are many times larger and only read when a table is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from retainprof.analysis.answers import Answer
from retainprof.records import KernelRow, Result, TimelinePoint

__all__ = ["POINTS", "STORAGES", "kernels", "page", "thin"]

POINTS: Final = 1500
STORAGES: Final = 200


def page(result: Result, answers: Sequence[Answer]) -> dict[str, Any]:
    """The result and its answers as JSON values.

    Left out: raw samples (``n`` says how many there were), kernel rows, timeline points beyond ``POINTS`` a strategy
    (:func:`thin`) and holders' storages beyond the ``STORAGES`` largest.
    """
    replace = msgspec.structs.replace
    light = [
        replace(
            strategy,
            calls=tuple(replace(call, kernel_rows=()) for call in strategy.calls),
            first_vs_later=tuple(replace(later, kernels=()) for later in strategy.first_vs_later),
            step=replace(strategy.step, timeline=()),
        )
        for strategy in result.strategies
    ]
    body = msgspec.to_builtins(replace(result, strategies=tuple(light)))
    for strategy, record in zip(body["strategies"], result.strategies, strict=True):
        strategy["step"]["timeline"] = [[p.at_ns, p.bytes] for p in thin(record.step.timeline, POINTS)]
        strategy["retained"]["storages"] = strategy["retained"]["storages"][:STORAGES]
        for call, measured in zip(strategy["calls"], record.calls, strict=True):
            call["kernel_rows"] = len(measured.kernel_rows)
        for later in strategy["first_vs_later"]:
            del later["kernels"]
    _without_samples(body["strategies"])
    return {"result": body, "answers": msgspec.to_builtins(answers)}


def _without_samples(value: Any) -> None:
    """Replace every ``samples`` list below ``value`` by its length, ``n``."""
    stack = [value]
    while stack:
        found = stack.pop()
        if isinstance(found, dict):
            if "samples" in found:
                found["n"] = len(found.pop("samples"))
            stack.extend(found.values())
        elif isinstance(found, (list, tuple)):
            stack.extend(found)


def thin(points: Sequence[TimelinePoint], limit: int) -> list[TimelinePoint]:
    """At most ``limit`` points in order of time, the first, the last, and every bucket's lowest and highest kept."""
    if len(points) <= limit:
        return list(points)
    inner, buckets = points[1:-1], max(1, (limit - 2) // 2)
    kept = [points[0]]
    for i in range(buckets):
        part = inner[i * len(inner) // buckets : (i + 1) * len(inner) // buckets]
        if part:
            ends = {id(p): p for p in (min(part, key=lambda p: p.bytes), max(part, key=lambda p: p.bytes))}
            kept.extend(sorted(ends.values(), key=lambda p: p.at_ns))
    return [*kept, points[-1]]


def kernels(calls: Sequence[Sequence[KernelRow]], limit: int | None = None) -> dict[str, Any]:
    """Kernel rows of several calls: ``{names, shapes, calls: [{rows, left}]}``.

    A row is ``[name, shapes, count, self_ns, bytes, leaf, device]``, the first two being places in the lists. With a
    ``limit`` a call keeps that many rows, the longest; ``left`` counts the others.
    """
    names: dict[str, int] = {}
    shapes: dict[str, int] = {}
    tables = []
    for rows in calls:
        kept = rows if limit is None else sorted(rows, key=lambda row: -row.self_ns)[:limit]
        packed = [
            (
                names.setdefault(row.name, len(names)),
                shapes.setdefault(row.shapes, len(shapes)),
                row.count,
                row.self_ns,
                row.bytes,
                int(row.leaf),
                int(row.device),
            )
            for row in kept
        ]
        tables.append({"rows": packed, "left": len(rows) - len(kept)})
    return {"names": list(names), "shapes": list(shapes), "calls": tables}
