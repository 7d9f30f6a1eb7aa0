"""Medians, intervals, ratios and verdicts against hand-made numbers, Monte Carlo and combinatorics."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retainprof.analysis.stats import (
    FEWEST_PAIRS,
    deciding_clock,
    is_narrow,
    median_interval,
    paired_ratio,
    relative_width,
    serial_interval,
    summarise,
    verdict,
)
from retainprof.records import Ratio


@pytest.mark.parametrize(
    ("samples", "median", "interval"),
    [
        ([7], 7, (7, 7)),
        ([9, 5], 7, (5, 9)),
        # 7 of 27 resamples of three have a median at the smallest value: far more than 2.5%
        ([3, 1, 2], 2, (1, 3)),
        # 181 of 3,125 resamples of five: 5.8%
        ([50, 10, 40, 20, 30], 30, (10, 50)),
        # seven: 35 (1/7)^4 (6/7)^3 + 21 (1/7)^5 (6/7)^2 + ... = 1.0%, so the smallest value lies outside
        ([7, 6, 5, 4, 3, 2, 1], 4, (2, 6)),
    ],
)
def test_interval_by_hand(samples: list[int], median: float, interval: tuple[float, float]) -> None:
    assert median_interval(samples) == (median, interval)


@pytest.mark.parametrize("samples", [[1, 2, 4, 8, 16], [3, 1, 4, 1, 5, 9], [5, 3, 8, 1, 9, 2, 7]])
def test_interval_equals_that_of_all_resamples(samples: list[int]) -> None:
    """Every one of the n^n resamples, in whole numbers; with an even n each end takes its own middle value."""
    size = len(samples)
    resamples = [sorted(draw) for draw in product(samples, repeat=size)]
    lower = sorted(draw[(size - 1) // 2] for draw in resamples)
    upper = sorted(draw[size // 2] for draw in resamples)
    tail = math.ceil(Fraction(25, 1000) * len(resamples))
    assert median_interval(samples)[1] == (lower[tail - 1], upper[-tail])


@pytest.mark.parametrize("size", [15, 41, 101])
def test_interval_agrees_with_monte_carlo(size: int) -> None:
    generator = np.random.default_rng(size)
    samples = generator.lognormal(0.0, 0.3, size)
    medians = np.median(generator.choice(samples, (20_000, size)), axis=1)
    low, high = median_interval(list(samples))[1]
    # The end is a value at which the tail passes 2.5%: at or below it more, strictly below it less.
    for below, at in ((medians < low, medians <= low), (medians > high, medians >= high)):
        assert below.mean() <= 0.025 + 0.005
        assert at.mean() >= 0.025 - 0.005


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60))
def test_interval_holds_the_median_and_does_not_depend_on_order(samples: list[int]) -> None:
    median, (low, high) = median_interval(samples)
    assert low <= median <= high
    assert median == np.median(samples)
    assert median_interval(samples[::-1]) == (median, (low, high))
    wide = serial_interval(samples)
    assert wide[0] == median
    assert wide[1][0] <= low
    assert wide[1][1] >= high


def test_coverage_of_independent_samples_from_the_fewest_pairs_on() -> None:
    """[x(k), x(n+1-k)] covers a median with probability 1 - 2 P(Bin(n, 1/2) < k), whatever the distribution."""
    coverages = []
    for size in range(FEWEST_PAIRS, 200):
        low = median_interval(range(1, size + 1))[1][0]
        coverages.append(1 - 2 * sum(math.comb(size, i) for i in range(int(low))) / 2**size)
    assert min(coverages) > 0.90
    assert 0.94 < sum(coverages) / len(coverages) < 0.96


def test_dependent_samples_are_covered_too() -> None:
    """A first-order chain with factor 0.6 has median 0: the plain interval misses it far too often."""
    generator = np.random.default_rng(1)
    plain = serial = 0
    for _ in range(300):
        chain = np.zeros(350)
        for i, shock in enumerate(generator.standard_normal(349), start=1):
            chain[i] = 0.6 * chain[i - 1] + shock
        values = list(chain[50:])
        plain += median_interval(values)[1][0] <= 0 <= median_interval(values)[1][1]
        serial += serial_interval(values)[1][0] <= 0 <= serial_interval(values)[1][1]
    assert plain < 0.85 * 300
    assert serial > 0.90 * 300


def test_a_step_in_the_middle_widens_the_interval_over_both_levels() -> None:
    samples = [100 + i % 3 for i in range(50)] + [200 + i % 3 for i in range(50)]
    low, high = serial_interval(samples)[1]
    assert low <= 102
    assert high >= 200


def test_no_samples() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])
    with pytest.raises(ValueError, match="no samples"):
        serial_interval([])
    assert summarise([]).median is None
    assert summarise([]).ci95 is None


def test_summarise_keeps_the_order_of_the_samples() -> None:
    record = summarise([30, 10, 20])
    assert (record.samples, record.median, record.ci95) == ((30, 10, 20), 20, (10, 30))


def test_paired_ratio_by_hand() -> None:
    """Ratios 2, 2, 4: median 2 between 2 and 4, whatever the level of the round."""
    ratio = paired_ratio([20, 200, 4000], [10, 100, 1000])
    assert ratio is not None
    assert ratio.median == pytest.approx(2)
    assert ratio.ci95 == pytest.approx((2, 4))
    assert ratio.pairs == 3


def test_paired_ratio_leaves_out_what_a_coarse_clock_read_as_zero() -> None:
    ratio = paired_ratio([0, 30, 30, -1], [10, 10, 0, 10])
    assert ratio is not None
    assert ratio.median == pytest.approx(3)
    assert ratio.pairs == 1
    assert paired_ratio([0], [1]) is None
    assert paired_ratio([], []) is None
    with pytest.raises(ValueError, match="2 and 1 rounds"):
        paired_ratio([1, 2], [1])


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), min_size=1, max_size=40))
def test_paired_ratio_turns_over(pairs: list[tuple[int, int]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    there, back = paired_ratio(a, b), paired_ratio(b, a)
    assert there is not None
    assert back is not None
    assert there.median * back.median == pytest.approx(1)
    assert there.ci95 == pytest.approx((1 / back.ci95[1], 1 / back.ci95[0]))


def _ratio(low: float, high: float, pairs: int = 40) -> Ratio:
    return Ratio(median=math.sqrt(low * high), ci95=(low, high), pairs=pairs)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (_ratio(1.011, 1.2), "slower"),
        (_ratio(1.009, 1.2), "cannot_tell"),
        (_ratio(0.8, 0.98), "faster"),
        (_ratio(0.8, 0.991), "cannot_tell"),
        (_ratio(0.985, 1.015), "same"),
        (_ratio(0.97, 1.0), "cannot_tell"),
        (_ratio(1.5, 1.6, FEWEST_PAIRS - 1), "cannot_tell"),
        (_ratio(1.0, 1.0, 1), "cannot_tell"),
        (None, "cannot_tell"),
    ],
)
def test_verdict(ratio: Ratio | None, expected: str) -> None:
    assert verdict(ratio) == expected


def test_relative_width() -> None:
    assert relative_width(Ratio(median=2.0, ci95=(1.98, 2.02))) == pytest.approx(0.02)


def test_rounds_may_stop_once_the_interval_is_narrow() -> None:
    """Ratios alternate between 1.000 and 1.004, so the interval has a width of 0.4%, of 4% with ten times the swing."""
    baseline = [1000] * 40
    assert is_narrow([1000, 1004] * 20, baseline)
    assert not is_narrow([1000, 1040] * 20, baseline)
    assert is_narrow([1000, 1040] * 20, baseline, width=0.05)


def test_rounds_do_not_stop_early_or_on_nothing() -> None:
    assert not is_narrow([1000] * 10, [1000] * 10)
    assert not is_narrow([0] * 40, [1000] * 40)
    assert not is_narrow([], [])


def test_cpu_time_decides_only_for_one_thread_on_a_cpu() -> None:
    assert deciding_clock(1) == "cpu"
    assert deciding_clock(2) == "wall"
    assert deciding_clock(1, "cuda") == "wall"
