"""What a comparison of two runs says, and at the same time what ``retainprof compare --json`` writes."""

from __future__ import annotations

from typing import Literal

from retainprof.records import Environment, KernelDiff, KernelRow, Ratio, Record, Samples, Verdict

__all__ = ["CallChange", "Checked", "Lane", "LaterRatio", "Point", "RunComparison", "Side", "StrategyChange"]

# --- one side -----------------------------------------------------------------------------------------------------------


class LaterRatio(Record, frozen=True, kw_only=True):
    """A later call against call 0 of the same run, paired within its steps."""

    call: int
    ratio: Ratio | None


class Point(Record, frozen=True, kw_only=True):
    """One call of one side. ``time_ns`` is on the comparison's clock."""

    index: int
    time_ns: Samples
    kernels: int | None
    retained_bytes_after: int | None
    kernel_rows: tuple[KernelRow, ...]


class Lane(Record, frozen=True, kw_only=True):
    """One strategy of a run, or one trace: named ``trace``, or ``rank 1`` and so on where a side has several."""

    name: str
    step_ns: Samples
    peak_bytes: int | None
    calls: tuple[Point, ...]
    later: tuple[LaterRatio, ...]


class Side(Record, frozen=True, kw_only=True):
    """One of the two. ``environment`` is None for traces; ``device`` says whether kernels ran on an accelerator.

    ``device_name`` is what traces tell of it, "" if nothing; ``ranks`` are those of a folder of traces, ascending.
    """

    name: str
    environment: Environment | None
    program: str  # model, batch and losses, as text that is equal for equal programs; "" for a trace
    device: bool
    profiled: bool  # times are those of a profiled run
    lanes: tuple[Lane, ...]
    device_name: str = ""
    ranks: tuple[int, ...] = ()


# --- both ---------------------------------------------------------------------------------------------------------------


class CallChange(Record, frozen=True, kw_only=True):
    """One call of both sides; ``kernels`` has the base's numbers as first, the contender's as later."""

    call: int
    base_ns: float | None
    contender_ns: float | None
    ratio: Ratio | None  # contender / base
    verdict: Verdict
    base_kernels: int | None
    contender_kernels: int | None
    base_retained_bytes: int | None
    contender_retained_bytes: int | None
    kernels: tuple[KernelDiff, ...]


class StrategyChange(Record, frozen=True, kw_only=True):
    """One strategy of both sides."""

    strategy: str
    base_ns: float | None
    contender_ns: float | None
    ratio: Ratio | None
    verdict: Verdict
    base_peak_bytes: int | None
    contender_peak_bytes: int | None
    calls: tuple[CallChange, ...]
    later: tuple[LaterRatio, ...]  # of the contender
    retained_after_last_bytes: int | None  # of the contender
    base_calls: int
    contender_calls: int


class Checked(Record, frozen=True, kw_only=True):
    """A condition of ``--fail-on`` and whether it holds; ``reason`` names what decided."""

    condition: str
    holds: bool
    reason: str


class RunComparison(Record, frozen=True, kw_only=True):
    """Contender against base."""

    schema: int = 1
    base: str
    contender: str
    clock: Literal["cpu", "wall"]
    profiled: bool
    warnings: tuple[str, ...]
    strategies: tuple[StrategyChange, ...]
    only_base: tuple[str, ...]
    only_contender: tuple[str, ...]
    conditions: tuple[Checked, ...] = ()
