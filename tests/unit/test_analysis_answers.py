"""The four answers: their wording and numbers, on results written by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from analysis_builders import ROUNDS, call, failed, result, steady, step, strategy, wobbly

from retainprof.analysis import complete
from retainprof.analysis.answers import Answer, answers
from retainprof.analysis.stats import summarise
from retainprof.records import (
    Accumulate,
    Gradients,
    HeldByNode,
    KernelRow,
    Relation,
    Result,
    RetainCost,
    Retained,
    Samples,
    StrategyResult,
)

MM = KernelRow(name="aten::mm", shapes="[[8, 8]]", count=5, self_ns=50)
ADD = KernelRow(name="aten::add_", shapes="[[8]]", count=6, self_ns=9)


def _calls(first: int, *later: int, cold: tuple[int, ...] = ()) -> tuple[Any, ...]:
    times = [
        call(i, "ab"[i % 2], cpu_ns=steady(ns), wall_ns=steady(ns), retain_graph=i < len(later))
        for i, ns in enumerate((first, *later))
    ]
    if cold:
        times[0] = call(
            0, "a", cpu_ns=steady(first), wall_ns=steady(first), cold_wall_ns=summarise(cold), retain_graph=True
        )
    return tuple(times)


def _answers(*strategies: StrategyResult) -> tuple[Answer, ...]:
    return answers(complete(result(*strategies)))


def _grads(relation: Relation, **fields: Any) -> Gradients:
    return Gradients(reference="summed", relation=relation, **fields)


SUMMED = strategy(call(0), name="summed", kind="summed", step=step(1_000_000), gradients=_grads("bitwise"))


def test_there_are_always_four() -> None:
    empty = _answers(strategy(call(0)))
    assert len(empty) == 4
    assert [a.text.split(",")[0].split(":")[0] for a in empty] == [
        "No strategy makes more than one call",
        "Only one strategy was measured",
        "Not known",
        "Not known",
    ]
    assert len(answers(result())) == 4


# --- first against later ------------------------------------------------------------------------------------------------


def test_first_is_faster_and_why() -> None:
    first, later = _calls(1_000_000, 1_700_000, cold=(5_000_000, 6_000_000, 7_000_000))
    fields = {"accumulate": Accumulate(stolen=6), "kernel_rows": (MM,)}
    first = call(0, "a", cpu_ns=first.cpu_ns, wall_ns=first.wall_ns, cold_wall_ns=first.cold_wall_ns, **fields)
    fields = {"accumulate": Accumulate(added=6), "kernel_rows": (MM, ADD)}
    later = call(1, "b", cpu_ns=later.cpu_ns, wall_ns=later.wall_ns, **fields)
    answer = _answers(strategy(first, later))[0]
    assert answer.text == (
        "Faster: in retain, call 1 takes 1.70x the CPU time of call 0 (1.70x to 1.70x over 40 rounds). "
        "Why: call 1 adds into .grad: 6 x aten::add_ that call 0 does not run (it stole 6). "
        "In the first step of a fresh process call 0 takes 6.00 ms, later 1.00 ms."
    )
    assert answer.strategy == "retain"
    assert answer.numbers["later_over_first"]["1"]["ratio"] == pytest.approx(1.7)


@pytest.mark.parametrize(
    ("times", "starts"),
    [
        ((2000, 1000), "Slower: in retain, call 1 takes 0.500x"),
        ((1000, 1000), "Neither: in retain, call 1 takes 1.000x the CPU time of call 0"),
        (
            (1000, 1700, 1740),
            "Faster: in retain, calls 1 and 2 take 1.70x to 1.74x the CPU time of call 0 (1.70x to 1.74x",
        ),
        ((1000, 1700, 1000), "In retain it depends on the call: call 1 slower than call 0; call 2 the same within 2%"),
    ],
)
def test_verdicts_in_words(times: tuple[int, ...], starts: str) -> None:
    assert _answers(strategy(*_calls(*times)))[0].text.startswith(starts)


def test_cannot_tell_says_what_to_do() -> None:
    first = call(0, cpu_ns=steady(1000), wall_ns=steady(1000))
    text = _answers(strategy(first, call(1, cpu_ns=wobbly(1000), wall_ns=wobbly(1000))))[0].text
    assert text.startswith("Cannot tell: in retain, call 1 takes 1.22x")  # the middle of logs of 1 and 1.5
    assert f"(1.000x to 1.50x over {ROUNDS} rounds); raise --budget." in text
    assert math.isclose(math.sqrt(1.5), 1.22, rel_tol=0.01)


def test_the_strategy_that_retains_is_the_one_asked_about() -> None:
    heads = strategy(call(0, cpu_ns=steady(10), wall_ns=steady(10)), call(1), name="two_stage", kind="two_stage")
    assert _answers(heads, strategy(*_calls(1000, 1000)))[0].strategy == "retain"


# --- what each way costs ------------------------------------------------------------------------------------------------


def _timed(
    name: str, ns: int, relation: Relation = "close", samples: Samples | None = None, **fields: Any
) -> StrategyResult:
    whole = step(ns, **fields)
    if samples is not None:
        whole = type(whole)(cpu_ns=samples, wall_ns=samples)
    return strategy(
        call(0), call(1), name=name, kind=name, step=whole, gradients=_grads(relation, max_rel_difference=5e-7)
    )


def test_summed_is_the_cheapest() -> None:
    summed = strategy(
        call(0),
        name="summed",
        kind="summed",
        step=step(1_000_000, flops=10, peak_bytes=100),
        gradients=_grads("bitwise"),
    )
    answer = _answers(_timed("retain", 1_700_000, flops=28, peak_bytes=112), summed)[1]
    assert answer.text == (
        "Yes: summed takes 1.00 ms CPU time a step, the least of those that leave the same gradients. "
        "Against summed: retain 1.70x (1.70x to 1.70x over 40 rounds), FLOPs 2.80x, peak memory +12%."
    )
    assert answer.strategy == "summed"
    assert answer.numbers["step_over_baseline"]["retain"]["flops_ratio"] == 2.8


def test_a_cheaper_way_and_ties() -> None:
    assert _answers(_timed("two_stage", 800_000), SUMMED)[1].text.startswith(
        "No: two_stage is cheaper than summed (1.00 ms"
    )
    tie = _answers(_timed("two_stage", 1_000_000), _timed("retain", 2_000_000), SUMMED)[1].text
    assert tie.startswith("Cheapest: two_stage and summed cannot be told apart (summed: 1.00 ms CPU time a step).")


def test_other_gradients_are_no_bargain() -> None:
    answer = _answers(_timed("clears", 500_000, "different"), _timed("retain", 1_700_000), SUMMED)[1]
    assert answer.strategy == "summed"
    assert "clears 0.500x" in answer.text


def test_failures_and_doubts_are_told() -> None:
    noisy = _timed("noisy", 0, samples=wobbly(1_000_000))
    bad = failed(call(0), call(1), at=1, message="no")
    text = _answers(noisy, bad, SUMMED)[1].text
    assert "noisy 1.22x (1.000x to 1.50x over 40 rounds), cannot tell" in text
    assert text.endswith("retain failed in call 1 (RuntimeError).")


# --- what the graph holds -----------------------------------------------------------------------------------------------

BY_NODE = (
    HeldByNode(node="ReluBackward0", module="trunk.1", bytes=131_072, storages=1, freed_in_call=1),
    HeldByNode(node="TanhBackward0", module="heads.cls", bytes=131_072, storages=1),
    HeldByNode(node="loss", module="", bytes=516, storages=2),
)


def _holding(*calls: Any, cost: RetainCost | None = None, residue: int = 0) -> str:
    held = Retained(after_forward_bytes=268_296, by_node=BY_NODE, cost=cost, residue_bytes=residue)
    return _answers(strategy(*calls, retained=held))[2].text


def test_held_and_left_and_needed() -> None:
    first = call(0, "cls", retain_graph=True, retain_needed=True, retained_bytes_after=268_296)
    assert _holding(first, call(1, "reg", retained_bytes_after=136_712)) == (
        "In retain the losses hold 262.0 KiB after the forward; the largest holders: ReluBackward0 in trunk.1 (128.0 KiB), "
        "TanhBackward0 in heads.cls (128.0 KiB) and the losses themselves (516 B). After the last call 133.5 KiB stay, above "
        "all TanhBackward0 in heads.cls (128.0 KiB). Every call that retains (call 0 (cls)) has to: a later call goes "
        "through what it kept."
    )


def test_needless_flags_and_their_price() -> None:
    first = call(0, "cls", retain_graph=True, retain_needed=True)
    last = call(1, "reg", retain_graph=True, retain_needed=False, retained_bytes_after=268_296)
    cost = RetainCost(
        peak_with_bytes=3072, peak_without_bytes=1024, after_last_with_bytes=268_296, after_last_without_bytes=136_712
    )
    text = _holding(first, last, cost=cost, residue=48)
    assert "call 1 (reg) has no need to retain: without 128.5 KiB less would stay, 133.5 KiB." in text
    assert "At the peak of the step the needless retains cost 2.0 KiB." in text
    assert "48 B of it could not be put down to a node." in text
    assert "has to" not in text


def test_graphs_behind_gradients_are_told() -> None:
    text = _holding(call(0, create_graph=True, pinned_by_grads_bytes=2048, retained_bytes_after=1028))
    assert ".grad keeps another 2.0 KiB of graph alive (create_graph)." in text


# --- the same gradients -------------------------------------------------------------------------------------------------


def test_same_gradients() -> None:
    joint = _timed("joint", 1, "bitwise")
    text = _answers(SUMMED, joint, _timed("retain", 1), _timed("two_stage", 1))[3].text
    assert text == (
        "Yes: against summed, joint bitwise; retain and two_stage to within 5.0e-07 of a tensor's largest value (rounding)."
    )
    assert _answers(SUMMED)[3].text == "There is only the reference."


def test_odd_gradients_have_their_reasons() -> None:
    run: tuple[tuple[str, Gradients], ...] = (
        ("summed", _grads("bitwise")),
        ("retain", _grads("close", max_rel_difference=2e-7)),
        ("leak", _grads("different", max_rel_difference=0.5, worst_parameter="w", not_finite=("w",))),
        ("grad", _grads("not_comparable", reason="returned", returned_relation="close")),
        ("clears", _grads("not_comparable", reason="gradients are cleared between the calls")),
    )
    named: Result = result(*(strategy(call(0), name=name, kind=name, gradients=g) for name, g in run))
    answer = answers(named)[3]
    assert answer.text == (
        "Not all: against summed, retain to within 2.0e-07 of a tensor's largest value (rounding). "
        "Different: leak by up to 5.0e-01 in w. "
        "grad returns gradients and leaves .grad alone; their sum is the reference's but for rounding. "
        "Not comparable: clears (gradients are cleared between the calls). "
        "NaN or infinite gradients in leak."
    )
    assert answer.numbers["leak"]["relation"] == "different"
