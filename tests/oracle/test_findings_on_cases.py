"""What the findings say of measured reference cases: the musts and must-nots of their README."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cases import measure

from retainprof.records import Finding

Find = Callable[[str, str], dict[tuple[str, int | None], Finding]]


@pytest.fixture
def findings(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """Findings about a case's plan, by rule and call."""
    monkeypatch.syspath_prepend(str(shared / "cases"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def find(case: str, plan: str = "main") -> dict[tuple[str, int | None], Finding]:
        known = set(sys.modules)
        _, result = measure(case, plan, tmp_path)
        for name in set(sys.modules) - known:
            if name.startswith("o") and name[1:3].isdigit():
                del sys.modules[name]
        return {(found.rule, found.call): found for found in result.findings if found.strategy == "plan"}

    return find


def test_o01_an_unreleased_branch_and_no_needless_flag(findings: Find) -> None:
    found = findings("o01_two_heads", "main")
    branch = found["unreleased_branch", None]
    assert branch.saves_bytes == 131_072 + 5_120 + 4  # Tanh output, log-softmax, total weight; the losses are their own
    assert not [rule for rule, _ in found if rule in ("needless_retain", "retained_after_last")]


def test_o02_the_flag_of_the_last_call(findings: Find) -> None:
    found = findings("o02_kept_graph", "main")
    last = found["retained_after_last", 1]
    assert last.saves_bytes == 131_584
    assert ("needless_retain", 0) not in found
    assert all(one.saves_bytes != 268_296 for one in found.values())


def test_o04_gradients_that_carry_graphs(findings: Find) -> None:
    found = findings("o04_create_graph", "main")
    (cycle,) = [one for (rule, _), one in found.items() if rule == "create_graph_cycle"]
    assert cycle.saves_bytes == 200_708
    assert not [rule for rule, _ in found if rule == "needless_retain"]


@pytest.mark.parametrize(
    ("case", "plan", "call", "saves"),
    [
        ("o05_gan_no_detach", "detached_retained", 0, 221_960 - 8),
        ("o06_sac_shared_encoder", "main", 1, 87_564 - 34_312),
        ("o09_frozen_trunk", "main", 0, 136_712 - 516),
    ],
)
def test_needless_flags(findings: Find, case: str, plan: str, call: int, saves: int) -> None:
    found = findings(case, plan)
    assert found["needless_retain", call].saves_bytes == saves
    assert [where for rule, where in found if rule == "needless_retain"] == [call]


def test_o11_a_scalar_that_pins_its_inputs_size(findings: Find) -> None:
    found = findings("o11_style_transfer", "main")
    pins = [one for (rule, _), one in found.items() if rule == "scalar_loss_pins"]
    assert any(102_400 in one.evidence.values() or "100.0 KiB" in one.text for one in pins)


def test_o13_the_advice_is_not_to_retain(findings: Find) -> None:
    found = findings("o13_step_between", "main")
    (changed,) = [one for (rule, _), one in found.items() if rule == "inplace_change"]
    assert changed.severity == "error"
    assert "retain_graph=True" not in changed.advice
    assert "after" in changed.advice  # step after all calls
