"""First against later, strategies against the baseline, on samples written by hand."""

from __future__ import annotations

import pytest

from retainprof.analysis.compare import baseline_of, cheapest, compare_strategies, first_vs_later, pair
from retainprof.analysis.stats import summarise
from retainprof.records import (
    CallError,
    CallResult,
    KernelRow,
    Ratio,
    StepResult,
    StrategyComparison,
    StrategyResult,
)

ROUNDS = 40


def _call(index: int, cpu: int, wall: int, rows: tuple[KernelRow, ...] = ()) -> CallResult:
    return CallResult(
        index=index,
        losses=("a",),
        kind="backward",
        retain_graph=index == 0,
        create_graph=False,
        label=f"retainprof::call[{index}]",
        cpu_ns=summarise([cpu] * ROUNDS),
        wall_ns=summarise([wall] * ROUNDS),
        kernel_rows=rows,
    )


def _strategy(name: str, kind: str, cpu: int = 1000, wall: int = 1000, peak: int = 1, flops: int = 1) -> StrategyResult:
    cpu_ns, wall_ns = summarise([cpu] * ROUNDS), summarise([wall] * ROUNDS)
    times = StepResult(cpu_ns=cpu_ns, wall_ns=wall_ns, peak_bytes=peak, flops=flops)
    return StrategyResult(name=name, kind=kind, step=times)


FAILED = StrategyResult(
    name="bad", kind="summed", status="failed", error=CallError(call=1, loss="a", type="RuntimeError", message="no")
)


def test_later_over_first_and_the_clock_that_decides() -> None:
    strategy = StrategyResult(name="retain", kind="retain", calls=(_call(0, 100, 100), _call(1, 170, 100)))
    (by_cpu,) = first_vs_later(strategy, "cpu")
    (by_wall,) = first_vs_later(strategy, "wall")
    assert by_cpu.ratio_cpu is not None
    assert by_cpu.ratio_cpu.median == pytest.approx(1.7)
    assert (by_cpu.call, by_cpu.verdict, by_wall.verdict) == (1, "slower", "same")


def test_kernels_of_both_calls_are_needed() -> None:
    rows = (KernelRow(name="aten::mm", count=1),)
    with_rows = StrategyResult(name="r", kind="retain", calls=(_call(0, 1, 1, rows), _call(1, 1, 1, rows)))
    without = StrategyResult(name="r", kind="retain", calls=(_call(0, 1, 1, rows), _call(1, 1, 1)))
    assert [k.status for k in first_vs_later(with_rows, "cpu")[0].kernels] == ["same"]
    assert first_vs_later(without, "cpu")[0].kernels == ()


def test_a_call_that_raised_is_not_compared() -> None:
    calls = (_call(0, 100, 100), _call(1, 100, 100), _call(2, 100, 100))
    error = CallError(call=2, loss="a", type="RuntimeError", message="")
    strategy = StrategyResult(name="r", kind="retain", status="failed", error=error, calls=calls)
    assert [found.call for found in first_vs_later(strategy, "cpu")] == [1]


def test_nothing_measured_gives_nothing() -> None:
    bare = CallResult(index=0, losses=(), kind="grad", retain_graph=False, create_graph=False, label="")
    later = CallResult(index=1, losses=(), kind="grad", retain_graph=False, create_graph=False, label="")
    assert first_vs_later(StrategyResult(name="r", kind="retain", calls=(bare, later)), "cpu") == ()
    assert first_vs_later(StrategyResult(name="r", kind="retain"), "cpu") == ()
    assert pair(summarise([1, 2]), summarise([1])) is None


def test_baseline_is_the_first_whole_summed_strategy() -> None:
    retain, summed = _strategy("retain", "retain"), _strategy("summed", "summed")
    assert baseline_of([retain, FAILED, summed]) is summed
    assert baseline_of([retain, FAILED, summed], preferred=0) is retain
    assert baseline_of([FAILED, retain], preferred=0) is retain
    assert baseline_of([FAILED]) is None


def test_comparisons_with_the_baseline() -> None:
    summed = _strategy("summed", "summed", 1000, 2000, peak=100, flops=10)
    retain = _strategy("retain", "retain", 1500, 2400, peak=150, flops=28)
    (found,) = compare_strategies([retain, FAILED, summed], "cpu")
    assert (found.baseline, found.contender, found.verdict) == ("summed", "retain", "slower")
    assert found.cpu is not None
    assert found.wall is not None
    assert found.cpu.median == pytest.approx(1.5)
    assert found.wall.median == pytest.approx(1.2)
    assert (found.peak_bytes_ratio, found.flops_ratio) == (1.5, 2.8)
    assert compare_strategies([FAILED], "cpu") == ()


def _comparison(name: str, low: float, high: float) -> StrategyComparison:
    ratio = Ratio(median=(low + high) / 2, ci95=(low, high), pairs=40)
    return StrategyComparison(
        baseline="summed",
        contender=name,
        wall=ratio,
        cpu=None,
        peak_bytes_ratio=None,
        flops_ratio=None,
        verdict="cannot_tell",
    )


def test_cheapest_are_those_that_nothing_is_known_to_beat() -> None:
    found = [_comparison("retain", 1.4, 1.5), _comparison("two_stage", 0.97, 1.01), _comparison("joint", 0.99, 1.02)]
    assert cheapest(found, "wall") == ("two_stage", "summed", "joint")
    assert cheapest([_comparison("two_stage", 0.8, 0.9), *found], "cpu") == ("two_stage",)
    assert cheapest([], "wall") == ()
