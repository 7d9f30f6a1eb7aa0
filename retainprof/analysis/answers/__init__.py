"""The four answers of a run, in sentences: what is shown first on every output.

1. Is the first backward slower than the later ones, or faster, and which kernels make the difference?
2. Is one summed backward cheaper than several, and what would each other way cost?
3. What does the retained graph hold, and which call could have let it go?
4. Do all these ways give the same gradients?
"""

from __future__ import annotations

from retainprof.analysis.answers.base import Answer
from retainprof.analysis.answers.gradients import same_gradients
from retainprof.analysis.answers.memory import what_is_held
from retainprof.analysis.answers.steps import which_is_cheapest
from retainprof.analysis.answers.times import first_or_later
from retainprof.records import Result

__all__ = ["Answer", "answers"]


def answers(result: Result) -> tuple[Answer, ...]:
    """The answers in order, always four; one whose passes did not run says so.

    ``result`` is a complete one (``retainprof.analysis.complete``): its comparisons are read, not made.
    """
    return first_or_later(result), which_is_cheapest(result), what_is_held(result), same_gradients(result)
