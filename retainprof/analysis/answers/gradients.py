"""Answer 4: whether all ways give the same gradients."""

from __future__ import annotations

from collections.abc import Sequence

from retainprof.analysis.answers.base import Answer, listed
from retainprof.records import Gradients, Result, StrategyResult

__all__ = ["same_gradients"]

QUESTION = "Do all these ways give the same gradients?"
_Compared = tuple[StrategyResult, Gradients]


def same_gradients(result: Result) -> Answer:
    """Strategies grouped by how their gradients relate to the reference's, the odd ones with their reasons."""
    compared = [(s, s.gradients) for s in result.strategies if s.gradients is not None]
    if not compared:
        return Answer(question=QUESTION, text="Not known: gradients were not compared.")
    odd = [
        part for part in (_different(compared), _returned(compared), _unlike(compared), _not_finite(compared)) if part
    ]
    parts = [_headline(compared), *odd]
    return Answer(
        question=QUESTION,
        text=" ".join(part for part in parts if part),
        numbers={
            s.name: {
                "relation": g.relation,
                "max_rel_difference": g.max_rel_difference,
                "returned": g.returned_relation,
            }
            for s, g in compared
        },
    )


def _headline(compared: Sequence[_Compared]) -> str:
    bitwise = [s.name for s, g in compared if g.relation == "bitwise" and s.name != g.reference]
    close = [(s.name, g.max_rel_difference or 0.0) for s, g in compared if g.relation == "close"]
    others = [s for s, g in compared if g.relation not in ("bitwise", "close")]
    told = []
    if bitwise:
        told.append(f"{listed(bitwise)} bitwise")
    if close:
        worst = max(difference for _, difference in close)
        told.append(f"{listed(n for n, _ in close)} to within {worst:.1e} of a tensor's largest value (rounding)")
    if not told:
        return "" if others else "There is only the reference."
    return f"{'Not all' if others else 'Yes'}: against {compared[0][1].reference}, {'; '.join(told)}."


def _different(compared: Sequence[_Compared]) -> str:
    told = []
    for strategy, found in compared:
        if found.relation != "different":
            continue
        amount = "" if found.max_rel_difference is None else f" by up to {found.max_rel_difference:.1e}"
        told.append(f"{strategy.name}{amount}" + (f" in {found.worst_parameter}" if found.worst_parameter else ""))
    return f"Different: {listed(told)}." if told else ""


def _returned(compared: Sequence[_Compared]) -> str:
    found = [
        (s.name, g.returned_relation) for s, g in compared if g.relation == "not_comparable" and g.returned_relation
    ]
    groups = {relation: [name for name, r in found if r == relation] for _, relation in found}
    return " ".join(
        f"{listed(names)} {_VERBS[len(names) == 1]} .grad alone; their sum is {_AGREES.get(relation, relation)}."
        for relation, names in groups.items()
    )


_VERBS = {True: "returns gradients and leaves", False: "return gradients and leave"}
_AGREES = {"bitwise": "bitwise the reference's", "close": "the reference's but for rounding"}


def _unlike(compared: Sequence[_Compared]) -> str:
    told = [
        f"{s.name} ({g.reason})" if g.reason else s.name
        for s, g in compared
        if g.relation == "partial" or (g.relation == "not_comparable" and not g.returned_relation)
    ]
    return f"Not comparable: {listed(told)}." if told else ""


def _not_finite(compared: Sequence[_Compared]) -> str:
    told = [s.name for s, g in compared if g.not_finite]
    return f"NaN or infinite gradients in {listed(told)}." if told else ""
