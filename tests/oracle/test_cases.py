"""Every reference case through the command line: all stable fields of its recorded truth must be equal.

The cases' own ``reference.py`` is the second implementation; it shares no code with the package. A scenario is written for
each plan, with the plan's calls spelled out and a summed backward beside them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from retainprof import store
from retainprof.cli import main
from retainprof.records import CallResult, Result, StrategyResult

CASES = {
    "o01_two_heads": ["main", "reversed"],
    "o02_kept_graph": ["main"],
    "o03_cleared_between": ["main", "zeroed"],
    "o04_create_graph": ["main", "first_order"],
    "o05_gan_no_detach": ["main", "detached", "detached_retained"],
    "o06_sac_shared_encoder": ["main", "actor_frees"],
    "o07_jacobian_rows": ["main", "last_frees", "backward"],
    "o08_pinn": ["main", "as_needed"],
    "o09_frozen_trunk": ["main", "not_retained"],
    "o10_frozen_head": ["main"],
    "o11_style_transfer": ["main"],
    "o12_maml": ["main", "steps3", "steps5", "first_order3"],
    "o13_step_between": ["main"],
    "o14_compiled": ["main", "plain_first"],
    "o15_seed_benchmark": ["main", "plain_input", "kept"],
}
PLANS = [
    pytest.param(case, plan, marks=pytest.mark.slow if case == "o14_compiled" else ())
    for case, plans in CASES.items()
    for plan in plans
]
EXACT = (
    *("nodes", "ops", "fan_in_adds", "allocated_bytes", "freed_bytes", "net_bytes", "peak_bytes"),
    *("retained_bytes_before", "retained_bytes_after", "pinned_by_grads_bytes", "returned_grad_bytes"),
    *("grad_bytes_after", "params_with_grad_after", "inputs_with_grad_after"),
    *("residue_bytes", "pinned_residue_bytes", "unexplained_bytes"),
)
MODULE = """\
import {case} as case

plan = {{"main": {{}}, **getattr(case, "VARIANTS", {{}})}}[{plan!r}]
make_model, make_batch, PLAN = (plan.get(key, getattr(case, key)) for key in ("make_model", "make_batch", "PLAN"))
losses = {{fn.__name__: fn for fn in case.losses}}
globals().update(losses)
"""


def spelled(call: dict[str, Any]) -> dict[str, Any]:
    """A case's call in the words of a scenario."""
    found: dict[str, Any] = {call.get("kind", "backward"): call["loss"], "retain": call.get("retain", False)}
    found["create_graph"] = call.get("create_graph", False)
    if call.get("wrt"):
        found["wrt"] = list(call["wrt"])
    if call.get("zero_grad_before"):
        found["zero_grad"] = {"none": "before", "zero": "zero"}[call["zero_grad_before"]]
    if call.get("sgd_before"):
        found["step"] = {"sgd": call["sgd_before"]}
    return found


def measure(case: str, plan: str, folder: Path, with_summed: bool = True) -> tuple[int, Result]:
    """Run a plan through the command line; the exit code and the result."""
    name = f"{case}_{plan}"
    (folder / f"{name}.py").write_text(MODULE.format(case=case, plan=plan))
    import importlib

    module = importlib.import_module(name)
    strategies: list[Any] = [{"name": "plan", "kind": "calls", "calls": [spelled(call) for call in module.PLAN]}]
    scenario = {
        "schema": 1,
        "name": name,
        "device": "cpu",
        "threads": 1,
        "model": {"factory": f"{name}:make_model"},
        "batch": {"factory": f"{name}:make_batch"},
        "losses": {loss: {"factory": f"{name}:{loss}"} for loss in module.losses},
        "strategies": [*strategies, *(["summed"] if with_summed else [])],
        "measure": {"rounds": 1, "warmup": 1, "cold": 0},
        "profile": {"steps": 1},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(scenario, sort_keys=False))
    code = main([str(path), "--out", str(folder / "runs"), "--allow-import", name, "--quiet"])
    (run,) = (folder / "runs").iterdir()
    return code, store.read(run)


def compare_call(found: CallResult, truth: dict[str, Any], where: str) -> None:
    """Every field of a call."""
    for key in EXACT:
        assert getattr(found, key) == truth[key], f"{where}.{key}"
    did = found.accumulate
    assert did is not None
    assert {"stolen": did.stolen, "copied": did.copied, "added": did.added} == truth["accumulate"], where
    for key in ("grad_sum", "grad_abs_sum"):
        value = getattr(found, f"{key}_after")
        assert value == pytest.approx(truth[key], abs=1e-5 * truth["grad_abs_sum"]), f"{where}.{key}"


def compare_forward(found: StrategyResult, truth: dict[str, Any]) -> None:
    """What the forward ran, and every storage that its losses hold."""
    assert found.forward.nodes == truth["nodes"]
    assert found.forward.net_bytes == truth["net_bytes"]
    assert found.retained.after_forward_bytes == truth["retained_bytes"]
    assert found.retained.residue_bytes == truth["residue_bytes"] == 0
    expected = sorted((-held["bytes"], held["kept_by"]) for held in truth["storages"])
    assert sorted((-held.bytes, sorted(held.kept_by)) for held in found.retained.storages) == expected
    assert sum(row.bytes for row in found.retained.by_node) == truth["retained_bytes"]
    assert sum(row.bytes for row in found.retained.by_module) == truth["retained_bytes"]


@pytest.mark.parametrize(("case", "plan"), PLANS)
def test_case(case: str, plan: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(shared / "cases"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    truth = json.loads((shared / "cases" / "truth" / f"{case[1:3]}.json").read_text())["plans"][plan]
    known = set(sys.modules)
    try:
        # a compiled model's first backward decides, so there the summed strategy would change what the plan finds
        code, result = measure(case, plan, tmp_path, with_summed=case != "o14_compiled")
    finally:
        for name in set(sys.modules) - known:
            if name.startswith("o") and name[1:3].isdigit():
                del sys.modules[name]
    found = result.strategies[0]
    error = truth["calls"][-1]["error"]
    assert code == (3 if error else 0)
    compare_forward(found, truth["forward"])
    for call, expected in zip(found.calls, truth["calls"], strict=False):
        compare_call(call, expected, f"{case} {plan} call {call.index}")
        assert (call.losses, call.kind) == ((expected["loss"],), expected["kind"])
        assert (call.retain_graph, call.create_graph) == (expected["retain_graph"], expected["create_graph"])
    assert found.gradients is not None
    assert found.gradients.relation == truth["gradients_against_summed"]["relation"]
    if error:
        assert found.error is not None
        assert (found.error.call, found.error.type) == (truth["calls"][-1]["index"], error["type"])
        assert found.error.message.startswith(error["message"])
        assert found.error.operator == error["operator"]
        assert found.gradients.sum is None
        for call in found.calls[len(truth["calls"]) :]:
            assert call.nodes is None
    else:
        assert len(found.calls) == len(truth["calls"])
    if len(result.strategies) > 1:
        compare_call(result.strategies[1].calls[0], truth["summed"], f"{case} {plan} summed")
