"""The scenarios that ship: each loads, explains itself, names its schema, and every strategy of it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from retainprof.capture.build import build_runner, build_workload
from retainprof.capture.observe import Observer
from retainprof.capture.probe import probe
from retainprof.scenario import Imports, load, schema
from retainprof.scenario.reading import read

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
SHIPPED = sorted(FOLDER.glob("*.yaml"))
WANTED = {
    "multitask", "seed", "conv", "transformer", "lstm", "gan", "actor_critic", "pinn", "jacobian", "style_transfer",
    "maml", "frozen_head", "create_graph",
}  # fmt: skip


def test_all_are_there() -> None:
    assert {file.stem for file in SHIPPED} >= WANTED


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_each_explains_itself(file: Path) -> None:
    first, *rows = file.read_text(encoding="utf-8").splitlines()
    assert first == "# yaml-language-server: $schema=schema.json"
    comment = [row for row in rows[: rows.index("schema: 1")] if row.strip("# ")]
    assert len(comment) >= 4
    scenario = load(file)
    assert scenario.name == file.stem
    assert scenario.description.endswith("?")
    assert not scenario.factories


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_commands_in_the_explanation_work(file: Path) -> None:
    words = file.read_text(encoding="utf-8").replace("\n#", "").split("--set ")[1:]
    for text in words:
        override = text[1:].partition("'")[0] if text.startswith("'") else text.split()[0].rstrip(".,:;)")
        load(file, [override])


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_strategy_runs(file: Path) -> None:
    overrides = {"seed": ["model.trunk=[64, 64]"], "conv": ["model.image=8"]}.get(file.stem, [])
    scenario = load(file, overrides)
    workload = build_workload(scenario, Imports.allowing(scenario, ()), torch.device("cpu"))
    assert probe(workload) == ()
    for strategy in scenario.strategies:
        runner = build_runner(scenario, strategy, workload)
        assert runner.run(Observer()) is None, strategy.title
        gained = [leaf.grad for leaf in workload.leaves if leaf.grad is not None]
        assert bool(gained) != strategy.returns_gradients
        runner.drop()
        runner.clear()


def test_seed_is_the_historical_benchmark() -> None:
    scenario = load(FOLDER / "seed.yaml")
    workload = build_workload(scenario, Imports(), torch.device("cpu"))
    parameters = [tuple(p.shape) for p in workload.model.parameters()]
    assert parameters == [(4096, 1024), (4096,), (4096, 4096), (4096,), (1024, 4096), (1024,)]
    assert sum(p.numel() for p in workload.model.parameters()) == 25_175_040
    (x,) = workload.inputs
    assert (x.shape, x.requires_grad) == ((1, 1024), True)


def test_the_shipped_schema_is_the_generated_one() -> None:
    shipped = json.loads((FOLDER / "schema.json").read_text(encoding="utf-8"))
    assert shipped == json.loads(json.dumps(schema())), "write it anew: retainprof schema > scenarios/schema.json"


# --- the schema says what the loader does, by another implementation -------------------------------------------------------


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_scenarios_fit_the_schema(file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    assert [error.message for error in validator.iter_errors(read(file).data)] == []


@pytest.mark.parametrize(
    "override",
    [
        "nmae=x",
        "batch.size=big",
        "batch.size=0",
        "losses.cls.kind=mes",
        "losses.cls.wieght=2",
        "strategies=[retian]",
        "strategies=[]",
        "measure.rounds=atuo",
        "measure.budget=6x",
        "model.kind=mpl",
        "schema=2",
        "device=cdua",
        "strategies=[{kind: calls, calls: [{backwar: cls}]}]",
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(override: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    from retainprof.errors import ScenarioError
    from retainprof.scenario import overrides

    with pytest.raises(ScenarioError):
        load(FOLDER / "multitask.yaml", [override])
    document = read(FOLDER / "multitask.yaml")
    overrides.apply(document, [override])
    if not document.faults:  # a key that --set itself refuses to add
        assert list(jsonschema.Draft202012Validator(schema()).iter_errors(document.data))
