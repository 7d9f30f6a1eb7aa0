"""Answer 3: what the graph holds, where, and which call could have let it go."""

from __future__ import annotations

from retainprof.analysis.answers.base import Answer, listed, main_strategy
from retainprof.analysis.findings.base import last_call, made_calls, names_of
from retainprof.records import CallResult, HeldByNode, Result, StrategyResult
from retainprof.units import show_bytes

__all__ = ["what_is_held"]

QUESTION = "What does the retained graph hold, and which call could have let it go?"
HOLDERS = 3


def what_is_held(result: Result) -> Answer:
    """The answer for the main strategy, or the first that was measured."""
    measured = [s for s in result.strategies if s.retained.after_forward_bytes is not None]
    strategy = main_strategy(result)
    if strategy not in measured:
        strategy = measured[0] if measured else None
    if strategy is None:
        return Answer(question=QUESTION, text="Not known: retained bytes were not measured.")
    parts = [_held(strategy), _left(strategy), _flags(strategy), _pinned(strategy), _cost(strategy), _residue(strategy)]
    last, cost = last_call(strategy), strategy.retained.cost
    return Answer(
        question=QUESTION,
        text=" ".join(part for part in parts if part),
        numbers={
            "after_forward_bytes": strategy.retained.after_forward_bytes,
            "after_calls_bytes": [call.retained_bytes_after for call in strategy.calls],
            "after_last_bytes": None if last is None else last.retained_bytes_after,
            "after_last_without_needless_bytes": None if cost is None else cost.after_last_without_bytes,
            "pinned_by_grads_bytes": None if last is None else last.pinned_by_grads_bytes,
            "residue_bytes": strategy.retained.residue_bytes,
        },
        strategy=strategy.name,
    )


def _held(strategy: StrategyResult) -> str:
    rows = sorted(strategy.retained.by_node, key=lambda row: -row.bytes)[:HOLDERS]
    holders = f"; the largest holders: {listed(_holder(row) for row in rows)}" if rows else ""
    return f"In {strategy.name} the losses hold {show_bytes(strategy.retained.after_forward_bytes)} after the forward{holders}."


def _holder(row: HeldByNode) -> str:
    node = "the losses themselves" if row.node == "loss" else row.node
    module = f" in {row.module}" if row.module else ""
    return f"{node}{module} ({show_bytes(row.bytes)})"


def _left(strategy: StrategyResult) -> str:
    last = last_call(strategy)
    if last is None or last.retained_bytes_after is None:
        return ""
    stays = sorted((r for r in strategy.retained.by_node if r.freed_in_call is None), key=lambda row: -row.bytes)
    where = f", above all {_holder(stays[0])}" if stays else ""
    return f"After the last call {show_bytes(last.retained_bytes_after)} stay{where}."


def _flags(strategy: StrategyResult) -> str:
    """Which flags could go, what that is worth, and what would stay even so."""
    retaining = [call for call in made_calls(strategy) if call.retain_graph and call.retain_needed is not None]
    needless = [call for call in retaining if call.retain_needed is False and call.needless_retain_bytes != 0]
    needed = [call for call in retaining if call.retain_needed]
    if not needless:
        return (
            f"Every call that retains ({_names(needed)}) has to: a later call goes through what it kept."
            if needed
            else ""
        )
    verb = "has" if len(needless) == 1 else "have"
    text = f"{_names(needless)} {verb} no need to retain"
    cost, last = strategy.retained.cost, last_call(strategy)
    if cost is None or cost.after_last_without_bytes is None or last is None or last.retained_bytes_after is None:
        return f"{text}."
    saved = cost.after_last_with_bytes - cost.after_last_without_bytes
    return f"{text}: without {show_bytes(saved)} less would stay, {show_bytes(cost.after_last_without_bytes)}."


def _names(calls: list[CallResult]) -> str:
    return listed(f"call {call.index} ({names_of(call)})" for call in calls)


def _pinned(strategy: StrategyResult) -> str:
    last = last_call(strategy)
    if last is None or not last.pinned_by_grads_bytes:
        return ""
    return f".grad keeps another {show_bytes(last.pinned_by_grads_bytes)} of graph alive (create_graph)."


def _cost(strategy: StrategyResult) -> str:
    cost = strategy.retained.cost
    if cost is None or cost.peak_without_bytes is None or cost.peak_with_bytes <= cost.peak_without_bytes:
        return ""
    return f"At the peak of the step the needless retains cost {show_bytes(cost.peak_with_bytes - cost.peak_without_bytes)}."


def _residue(strategy: StrategyResult) -> str:
    residue = strategy.retained.residue_bytes
    return f"{show_bytes(residue)} of it could not be put down to a node." if residue else ""
