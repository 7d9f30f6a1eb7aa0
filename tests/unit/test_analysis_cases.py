"""What the findings say, and do not say, about the reference cases; every number is from their README."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from analysis_builders import call, reference, result, strategy

from retainprof.analysis.findings import find
from retainprof.records import Finding, StrategyResult


def _found(case: StrategyResult, *others: StrategyResult) -> dict[str, list[Finding]]:
    """Findings on the case, by rule."""
    rules: dict[str, list[Finding]] = {}
    for one in find(result(case, *others)):
        if one.strategy == case.name:
            rules.setdefault(one.rule, []).append(one)
    return rules


def _with(case: StrategyResult, index: int, **fields: Any) -> StrategyResult:
    calls = [msgspec.structs.replace(c, **fields) if c.index == index else c for c in case.calls]
    return msgspec.structs.replace(case, calls=tuple(calls))


def test_two_heads(shared: Path) -> None:
    summed = strategy(call(0, retained_bytes_after=4), name="summed", kind="summed")
    found = _found(reference(shared, 1, "main", call0=None), summed)
    (stays,) = found["unreleased_branch"]
    assert stays.evidence["stays_bytes"] == 136_712
    assert stays.evidence["branch_bytes"] == 136_712 - 512 - 4  # less the losses' own
    assert "no flag avoids it" in stays.text
    assert "summed backward leaves 4 B" in stays.text
    (adds,) = found["later_calls_add"]
    assert (adds.call, adds.evidence["additions"], adds.evidence["first_stolen"]) == (1, 4, 6)
    assert not {"retained_after_last", "needless_retain"} & found.keys()


def test_two_heads_reversed(shared: Path) -> None:
    (stays,) = _found(reference(shared, 1, "reversed", call0=None))["unreleased_branch"]
    assert stays.evidence["stays_bytes"] == 132_100


def test_kept_graph_promises_no_more_than_the_flag_is_worth(shared: Path) -> None:
    found = _found(reference(shared, 2, "main", call0=None, call1=131_584))
    (last,) = found["retained_after_last"]
    assert (last.call, last.saves_bytes, last.evidence["retained_after_bytes"]) == (1, 131_584, 268_296)
    assert last.advice == "reg.backward(retain_graph=True) → reg.backward()"
    assert found["unreleased_branch"][0].evidence["stays_bytes"] == 136_712
    assert "needless_retain" not in found


def test_cleared_between(shared: Path) -> None:
    cleared = _with(reference(shared, 3, "main", call0=None), 1, zero_grad_before="set_to_none")
    zeroed = _with(reference(shared, 3, "zeroed", call0=None), 1, zero_grad_before="zero")
    assert not {"later_calls_add", "adds_to_zeros"} & _found(cleared).keys()
    found = _found(zeroed)
    assert found["adds_to_zeros"][0].evidence == {"additions": 4}
    assert "later_calls_add" not in found


def test_create_graph(shared: Path) -> None:
    found = _found(reference(shared, 4, "main"))
    (cycle,) = found["create_graph_cycle"]
    assert (cycle.saves_bytes, cycle.evidence["retained_bytes"]) == (200_708, 1028)
    assert "dropping the model frees nothing" in cycle.text
    assert not {"retained_after_last", "needless_retain"} & found.keys()
    assert "create_graph_cycle" not in _found(reference(shared, 4, "first_order", call0=None))


def test_gan(shared: Path) -> None:
    assert "needless_retain" not in _found(reference(shared, 5, "main", call0=None))
    found = _found(reference(shared, 5, "detached_retained", call0=221_960 - 8))
    assert found["needless_retain"][0].saves_bytes == 221_952
    assert "unreleased_branch" not in found  # the 8 B that stay are the losses


def test_gan_that_owns_says_whose_gradients_are_written(shared: Path) -> None:
    """Call 0 writes all 8 gradients, 4 of them the generator's."""
    names = [f"{part}.{layer}.{kind}" for part in ("disc", "gen") for layer in (0, 2) for kind in ("weight", "bias")]
    case = _with(reference(shared, 5, "main", call0=None), 0, params_written=tuple(names))
    scenario = {"losses": {"disc": {"owns": ["disc"]}, "gen": {"owns": "gen"}}}
    (found,) = [f for f in find(result(case, scenario=scenario)) if f.rule == "foreign_gradients"]
    assert (found.call, found.severity) == (0, "warning")
    assert found.evidence["parameters"] == names[4:]
    assert "detach" in found.advice


def test_actor_critic(shared: Path) -> None:
    found = _found(reference(shared, 6, "main", call0=None, call1=87_564 - 34_312))
    (needless,) = found["needless_retain"]
    assert (needless.call, needless.saves_bytes) == (1, 53_252)
    assert needless.advice.startswith("actor.backward(")
    assert found["unreleased_branch"][0].evidence["stays_bytes"] == 34_312
    assert "retained_after_last" not in found


def test_jacobian_rows(shared: Path) -> None:
    needs: dict[str, int | None] = dict.fromkeys([f"call{i}" for i in range(23)])
    found = _found(reference(shared, 7, "main", **needs, call23=256))
    (last,) = found["retained_after_last"]
    assert (last.call, last.saves_bytes) == (23, 256)
    assert last.advice.startswith("torch.autograd.grad(row23, ..., retain_graph=True)")
    assert not {"later_calls_add", "needless_retain", "unreleased_branch"} & found.keys()


def test_pinn(shared: Path) -> None:
    """Without gpde's flag 320,840 stay after it; ic and bc share nothing and hold 38,800 each."""
    found = _found(reference(shared, 8, "main", call0=None, call1=3_330_456 - 320_840, call2=38_800))
    assert [(f.call, f.saves_bytes) for f in found["needless_retain"]] == [(1, 3_009_616), (2, 38_800)]
    assert found["later_calls_add"][0].evidence["additions"] == 7 + 6 + 6


def test_frozen_trunk(shared: Path) -> None:
    found = _found(reference(shared, 9, "main", call0=136_712 - 516))
    assert found["needless_retain"][0].saves_bytes == 136_196
    assert not {"later_calls_add", "trunk_revisited", "unreleased_branch", "forward_repeated"} & found.keys()


def test_style_transfer_has_a_loss_that_owns_its_input_size(shared: Path) -> None:
    (pins,) = _found(reference(shared, 11, "main"))["scalar_loss_pins"]
    assert pins.evidence["storage_bytes"] == 102_400


def test_maml_adds_nothing_into_grad(shared: Path) -> None:
    assert "later_calls_add" not in _found(reference(shared, 12, "steps5"))


def test_step_between(shared: Path) -> None:
    case = _with(reference(shared, 13, "main"), 1, sgd_before=0.1)
    (found,) = [f for findings in _found(case).values() for f in findings if f.severity == "error"]
    assert (found.rule, found.call, found.evidence["operator"]) == ("inplace_change", 1, "AddmmBackward0")
    assert "after the last call" in found.advice
    assert all("retain_graph=True" not in f.advice for findings in _found(case).values() for f in findings)


def test_compiled(shared: Path) -> None:
    found = _found(reference(shared, 14, "plain_first"))
    assert [f.rule for findings in found.values() for f in findings if f.severity == "error"] == ["donated_buffers"]
    assert "donated_buffer = False" in found["donated_buffers"][0].advice
    assert "retain_graph=True" not in found["donated_buffers"][0].advice


@pytest.mark.parametrize(("plan", "additions"), [("main", 7), ("plain_input", 6), ("kept", 7)])
def test_seed_benchmark(shared: Path, plan: str, additions: int) -> None:
    (adds,) = _found(reference(shared, 15, plan))["later_calls_add"]
    assert (adds.evidence["additions"], adds.evidence["first_stolen"]) == (additions, additions)
    assert "cold" not in adds.text
