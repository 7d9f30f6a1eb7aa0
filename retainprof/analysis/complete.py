"""A measured result with everything that follows from it: first against later, comparisons, findings."""

from __future__ import annotations

import msgspec

from retainprof.analysis.compare import clock_of, compare_strategies, first_vs_later
from retainprof.analysis.findings import find
from retainprof.records import Result

__all__ = ["complete"]


def complete(result: Result, baseline: int | None = None) -> Result:
    """``result`` with ``first_vs_later`` of every strategy, ``comparisons`` and ``findings`` made from its samples.

    ``baseline`` is the place of the strategy that others are compared with (None: the first summed one, else the first).
    What was not measured stays out; a result that is complete already is made again, the same.
    """
    clock, replace = clock_of(result), msgspec.structs.replace
    strategies = tuple(replace(s, first_vs_later=first_vs_later(s, clock)) for s in result.strategies)
    compared = replace(result, strategies=strategies, comparisons=compare_strategies(strategies, clock, baseline))
    return replace(compared, findings=find(compared))
