"""Traces of several ranks of one job: what tells the rank, and every call of all ranks side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from retainprof.analysis.stats import median_interval
from retainprof.records import Record

if TYPE_CHECKING:
    from retainprof.trace import TraceReport
    from retainprof.trace.report import TraceCall

__all__ = ["RankCall", "RankSpread", "RankValues", "distinct_ranks", "rank_of", "side_by_side"]

TIMES: Final = ("profiled_wall_ns", "device_busy_ns", "device_sum_ns", "engine_ns")
COUNTS: Final = ("nodes", "kernels", "copies_and_sets")
BYTES: Final = ("allocated_bytes", "freed_bytes", "net_bytes", "peak_bytes", "retained_bytes_after")
_IN_NAMES: Final = tuple(map(re.compile, (r"rank[-_]?(\d+)", r"^[^.]*_(\d+)\.", r"worker[-_]?(\d+)")))


class RankValues(Record, frozen=True, kw_only=True):
    """One call of one rank: times are medians over its steps, counts and bytes those of its last step.

    ``engine_ns`` is CPU time in evaluations of nodes, ``device_*`` that of what the call launched. All are None where the
    rank has no such call, bytes also where its trace tells none.
    """

    rank: int
    trace: str
    steps: int
    profiled_wall_ns: float | None = None
    device_busy_ns: float | None = None
    device_sum_ns: float | None = None
    engine_ns: float | None = None
    nodes: int | None = None
    kernels: int | None = None
    copies_and_sets: int | None = None
    allocated_bytes: int | None = None
    freed_bytes: int | None = None
    net_bytes: int | None = None
    peak_bytes: int | None = None
    retained_bytes_after: int | None = None


class RankSpread(Record, frozen=True, kw_only=True):
    """Lowest and highest of one field over the ranks that tell it, and where; ``ratio`` is None below or at zero."""

    field: str
    lowest: float
    lowest_rank: int
    highest: float
    highest_rank: int
    difference: float
    ratio: float | None


class RankCall(Record, frozen=True, kw_only=True):
    """One call index in all ranks, in order of rank."""

    index: int
    label: str
    ranks: tuple[RankValues, ...]
    spreads: tuple[RankSpread, ...]


def rank_of(report: TraceReport) -> int | None:
    """The rank that a trace states, else the one in its file's name (``rank-3``, ``host_3.``, ``worker3``)."""
    if report.rank is not None:
        return report.rank
    found = next((match for pattern in _IN_NAMES if (match := pattern.search(report.trace))), None)
    return None if found is None else int(found[1])


def distinct_ranks(reports: Sequence[TraceReport]) -> tuple[int, ...] | None:
    """The ranks, in the order of the traces; None where one is unknown, or two are the same."""
    ranks = [rank for report in reports if (rank := rank_of(report)) is not None]
    return tuple(ranks) if len(ranks) == len(reports) == len(set(ranks)) else None


def side_by_side(reports: Sequence[TraceReport]) -> tuple[RankCall, ...]:
    """Each call of all ranks; nothing where these are not two or more traces of different ranks."""
    ranks = distinct_ranks(reports)
    if ranks is None or len(ranks) < 2:
        return ()
    ordered = sorted(zip(ranks, reports, strict=True), key=lambda pair: pair[0])
    labels = {one.index: one.label for _, report in reversed(ordered) for one in report.by_call}
    return tuple(_call(index, labels[index], ordered) for index in sorted(labels))


def _call(index: int, label: str, ordered: Sequence[tuple[int, TraceReport]]) -> RankCall:
    values = tuple(_values(rank, report, index) for rank, report in ordered)
    spreads = (_spread(name, values) for name in (*TIMES, *COUNTS, *BYTES))
    return RankCall(index=index, label=label, ranks=values, spreads=tuple(one for one in spreads if one is not None))


def _values(rank: int, report: TraceReport, index: int) -> RankValues:
    calls = [call for call in report.calls if call.index == index]
    if not calls:
        return RankValues(rank=rank, trace=report.trace, steps=0)
    values: dict[str, Any] = {name: median_interval([_time(call, name) for call in calls])[0] for name in TIMES}
    values.update({name: getattr(calls[-1], name) for name in (*COUNTS, *BYTES)})
    return RankValues(rank=rank, trace=report.trace, steps=len(calls), **values)


def _time(call: TraceCall, name: str) -> int:
    figures = call.figures
    return {
        "profiled_wall_ns": call.profiled_wall_ns,
        "device_busy_ns": figures.device_busy_ns,
        "device_sum_ns": figures.device_time_ns,
        "engine_ns": figures.engine_ns,
    }[name]


def _spread(name: str, values: Sequence[RankValues]) -> RankSpread | None:
    told = [(value, one.rank) for one in values if (value := getattr(one, name)) is not None]
    if len(told) < 2:
        return None
    (lowest, lowest_rank), (highest, highest_rank) = (pick(told, key=lambda pair: pair[0]) for pick in (min, max))
    return RankSpread(
        field=name,
        lowest=lowest,
        lowest_rank=lowest_rank,
        highest=highest,
        highest_rank=highest_rank,
        difference=highest - lowest,
        ratio=highest / lowest if lowest > 0 else None,
    )
