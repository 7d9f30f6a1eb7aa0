"""Medians, their intervals, paired ratios and the verdicts that rest on them.

How an interval is made, and why it needs no random numbers:

1. The bootstrap distribution of a median is known exactly. A resample of ``d`` draws from ``n`` sorted values has its
   m-th smallest at or below the k-th value with probability P(Bin(d, k/n) >= m) (B. Efron, Bootstrap methods: another
   look at the jackknife, Annals of Statistics 7, 1979, section 3). The 2.5% and 97.5% points of it are the interval.
   With an even ``d`` the lower middle value gives the lower end and the upper middle one the upper end.
2. Samples that follow each other on one machine are not independent: a busy neighbour slows ten rounds in a row. The
   variance of a median then grows by tau = 1 + 2 (r1 + r2 + ...), where r are the autocorrelations of the *signs* of
   the samples about their median (P. K. Sen, Asymptotic normality of sample quantiles for m-dependent processes,
   Annals of Mathematical Statistics 39, 1968). The sum is cut where a pair of neighbouring terms is no longer positive
   (C. J. Geyer, Practical Markov chain Monte Carlo, Statistical Science 7, 1992, section 3.3).
3. So the resample has d = n / tau draws, not n. Independent samples have tau 1 and get the ordinary bootstrap interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from retainprof.records import Interval, Ratio, Samples, Verdict

__all__ = [
    "FEWEST_PAIRS",
    "MARGIN",
    "SAME_MARGIN",
    "deciding_clock",
    "is_narrow",
    "median_interval",
    "paired_ratio",
    "relative_width",
    "serial_interval",
    "summarise",
    "verdict",
]

CONFIDENCE: Final = 0.95
MARGIN: Final = 1.01  # a smaller difference than this is never called one
SAME_MARGIN: Final = 1.02  # an interval inside 1/1.02 to 1.02 is called the same
FEWEST_PAIRS: Final = 8  # from 8 on the interval covers 91% to 98%; with 7 only 87.5%
FEWEST_TO_STOP: Final = 20  # rounds before an interval may end the measuring: a short series looks narrow by chance


def median_interval(samples: Sequence[int | float]) -> tuple[float, Interval]:
    """The median and its exact 95% percentile bootstrap interval, for independent samples in any order.

    Raises ValueError for no samples. O(n log n).
    """
    return _interval(samples, len(samples))


def serial_interval(samples: Sequence[int | float]) -> tuple[float, Interval]:
    """As :func:`median_interval`, for samples in the order in which they were measured, which may depend on each other.

    The interval is never narrower than the one for independent samples.
    """
    return _interval(samples, max(1, round(len(samples) / _inflation(samples))) if samples else 0)


def summarise(samples: Sequence[int]) -> Samples:
    """The record of raw nanoseconds in the order in which they were measured; empty samples have no median."""
    if not samples:
        return Samples()
    median, interval = serial_interval(samples)
    return Samples(samples=tuple(samples), median=median, ci95=interval)


def paired_ratio(contender: Sequence[int], baseline: Sequence[int]) -> Ratio | None:
    """Median of contender / baseline, pair by pair, with its interval.

    ``contender[i]`` and ``baseline[i]`` (ns) come from the same round, in the order of the rounds. Pairs in which
    either is not positive (a clock too coarse for the call) are left out; None where no pair is left. Raises ValueError
    where the lengths differ.
    """
    if len(contender) != len(baseline):
        raise ValueError(f"samples of {len(contender)} and {len(baseline)} rounds cannot be paired")
    logs = [math.log(a / b) for a, b in zip(contender, baseline, strict=True) if a > 0 and b > 0]
    if not logs:
        return None
    median, (low, high) = serial_interval(logs)
    return Ratio(median=math.exp(median), ci95=(math.exp(low), math.exp(high)), pairs=len(logs))


def relative_width(ratio: Ratio) -> float:
    """Width of the interval as a part of the ratio."""
    return (ratio.ci95[1] - ratio.ci95[0]) / ratio.median


def is_narrow(contender: Sequence[int], baseline: Sequence[int], width: float = 0.01) -> bool:
    """Whether more rounds are not needed: the interval of the paired ratio is no wider than ``width`` of the ratio.

    Never before 20 rounds. Arguments and errors as for :func:`paired_ratio`; a millisecond for 1,000 rounds.
    """
    if len(contender) < FEWEST_TO_STOP:
        return False
    ratio = paired_ratio(contender, baseline)
    return ratio is not None and relative_width(ratio) <= width


def verdict(ratio: Ratio | None) -> Verdict:
    """What may be said of contender / baseline.

    ``slower``: the whole interval lies above 1.01. ``faster``: below 1/1.01. ``same``: inside 1/1.02 to 1.02.
    Anything else, and anything from fewer than 8 rounds, is ``cannot_tell``. A difference of less than 1% is never
    called one: between two copies of one program it appears by the placing of their memory alone.
    """
    if ratio is None or ratio.pairs < FEWEST_PAIRS:
        return "cannot_tell"
    low, high = ratio.ci95
    if low > MARGIN:
        return "slower"
    if high < 1 / MARGIN:
        return "faster"
    return "same" if low >= 1 / SAME_MARGIN and high <= SAME_MARGIN else "cannot_tell"


def deciding_clock(threads: int, device: str = "cpu") -> Literal["cpu", "wall"]:
    """The clock a verdict rests on.

    Process CPU time is the steadier one, but only for one thread on a CPU: threads that spin while they wait count.
    """
    return "cpu" if threads == 1 and device == "cpu" else "wall"


def _interval(samples: Sequence[int | float], draws: int) -> tuple[float, Interval]:
    """Median of ``samples`` and the interval from resamples of ``draws`` values, no narrower than from ``len(samples)``.

    (With an odd number of draws a resample has one middle value and not two, which alone could make it narrower.)
    """
    if not samples:
        raise ValueError("no samples have no median")
    ordered = sorted(samples)
    count = len(ordered)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    rank = min(_lower_rank(draws, count), _lower_rank(count, count))
    return median, (float(ordered[rank - 1]), float(ordered[count - rank]))


@lru_cache(maxsize=4096)
def _lower_rank(draws: int, count: int) -> int:
    """The smallest k with P(Bin(draws, k/count) >= the lower middle) >= 2.5%; the upper end mirrors it."""
    middle, tail = (draws + 1) // 2, (1 - CONFIDENCE) / 2
    low, high = 1, (count + 1) // 2
    while low < high:
        k = (low + high) // 2
        low, high = (low, k) if _at_least(middle, draws, k / count) >= tail else (k + 1, high)
    return low


def _at_least(successes: int, draws: int, chance: float) -> float:
    """P(Bin(draws, chance) >= successes)."""
    if chance >= 1:
        return 1.0
    odds = chance / (1 - chance)
    log_choose = math.lgamma(draws + 1) - math.lgamma(successes + 1) - math.lgamma(draws - successes + 1)
    term = math.exp(log_choose + successes * math.log(chance) + (draws - successes) * math.log1p(-chance))
    total = term
    for i in range(successes, draws):
        term *= odds * (draws - i) / (i + 1)
        total += term
    return total


def _inflation(samples: Sequence[int | float]) -> float:
    """tau of the module's point 2: by how much dependence multiplies the variance of the median; at least 1."""
    values = np.asarray(samples, dtype=np.float64)
    signs: NDArray[np.float64] = np.sign(values - np.median(values))
    power = float(signs @ signs)
    if power == 0:
        return 1.0
    total = -power
    for lag in range(0, len(signs) - 1, 2):
        pair = float(signs[: len(signs) - lag] @ signs[lag:]) + float(signs[: len(signs) - lag - 1] @ signs[lag + 1 :])
        if pair <= 0:
            break
        total += 2 * pair
    return max(1.0, total / power)
