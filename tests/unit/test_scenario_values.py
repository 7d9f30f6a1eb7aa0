"""What a good file says: YAML's numbers and booleans, anchors, defaults, times, ``--set``; and mutations of a good file."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from retainprof.errors import ScenarioError
from retainprof.scenario import LOSSES, MODELS, Scenario, load
from retainprof.scenario.losses import RegisteredLoss
from retainprof.scenario.networks import Conv, MultitaskMlp
from retainprof.scenario.part import Registry
from retainprof.strategies import Calls, Retain, Summed

GOOD = """\
schema: 1
name: two
model:
  kind: multitask_mlp
  inputs: 8
  trunk: [16]
  heads: {cls: 3, reg: 1}
batch: {kind: random, size: 4}
losses:
  cls: {kind: cross_entropy, output: cls}
  reg: {kind: mse, output: reg}
strategies: [retain, {kind: summed, name: reference}]
"""


def loaded(tmp_path: Path, text: str = GOOD, *overrides: str) -> Scenario:
    file = tmp_path / "s.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, overrides)


def test_defaults(tmp_path: Path) -> None:
    scenario = loaded(tmp_path)
    assert (scenario.seed, scenario.device, scenario.threads, scenario.shared) == (0, "auto", None, None)
    measure, profile = scenario.measure, scenario.profile
    assert (measure.rounds, measure.warmup, measure.cold, measure.budget) == ("auto", 3, 5, 60.0)
    assert measure.zero_grad == "set_to_none"
    assert (profile.steps, profile.record_shapes, profile.with_stack) == (3, True, False)


def test_the_name_is_the_files_where_left_out(tmp_path: Path) -> None:
    assert loaded(tmp_path, GOOD.replace("name: two\n", "")).name == "s"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60.0), ("2min", 120.0), ("1h", 3600.0), ("500ms", 0.5), ("1.5 s", 1.5), ("7", 7.0), ("0.25", 0.25)],
)
def test_budget_in_seconds_or_as_text(tmp_path: Path, text: str, seconds: float) -> None:
    assert loaded(tmp_path, GOOD + f"measure: {{budget: {text}}}\n").measure.budget == seconds


@pytest.mark.parametrize(
    ("text", "weight"),
    [("1e-3", 0.001), ("1.0e-3", 0.001), ("1E3", 1000.0), ("-2", -2.0), (".5", 0.5), ("2.", 2.0), ("1_000.5", 1000.5)],
)
def test_numbers_are_numbers(tmp_path: Path, text: str, weight: float) -> None:
    scenario = loaded(tmp_path, GOOD.replace("output: reg", f"output: reg, weight: {text}"))
    assert scenario.losses["reg"].weight == weight


@pytest.mark.parametrize("text", ["010", "1:30", "2001-01-01", "1e", "0x"])
def test_what_yaml_1_1_would_turn_into_other_numbers_is_text(tmp_path: Path, text: str) -> None:
    assert loaded(tmp_path, GOOD.replace("name: two", f"name: {text}")).name == text


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("off", False), ("true", True), ("False", False)])
def test_booleans(tmp_path: Path, text: str, value: bool) -> None:
    assert loaded(tmp_path, GOOD + f"profile: {{with_stack: {text}}}\n").profile.with_stack is value


def test_anchors_aliases_and_merge_keys(tmp_path: Path) -> None:
    text = GOOD.replace("cls: {kind: cross_entropy, output: cls}", "cls: &base {kind: mse, output: cls, weight: 2}")
    text = text.replace("reg: {kind: mse, output: reg}", "reg: {output: reg, <<: *base}\n  again: *base")
    losses = loaded(tmp_path, text).losses
    assert {name: (loss.weight, getattr(loss, "output", "")) for name, loss in losses.items()} == {
        "cls": (2.0, "cls"),
        "reg": (2.0, "reg"),
        "again": (2.0, "cls"),
    }


def test_a_list_of_merge_keys_prefers_the_first(tmp_path: Path) -> None:
    text = GOOD.replace("cls: {kind", "cls: &a {weight: 2, kind").replace(
        "reg: {kind: mse", "reg: &b {weight: 3, kind: mse"
    )
    text = text.replace("strategies:", "  c: {<<: [*b, *a]}\nstrategies:")
    loss = loaded(tmp_path, text).losses["c"]
    assert (loss.weight, loss.model_dump()["kind"]) == (3.0, "mse")


def test_spellings_of_torch(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, GOOD.replace("kind: mse", "kind: mse_loss"))
    assert type(scenario.losses["reg"]) is LOSSES["mse"]


def test_byte_order_mark_and_non_ascii(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, "\ufeff" + GOOD.replace("name: two", "name: Zwei Köpfe ‘quoted’ \U0001f600"))
    assert scenario.name == "Zwei Köpfe ‘quoted’ \U0001f600"


def test_pickled_copied_and_dumped(tmp_path: Path) -> None:
    scenario = loaded(tmp_path)
    assert pickle.loads(pickle.dumps(scenario)) == scenario
    dumped = scenario.model_dump(mode="json", by_alias=True)
    assert dumped["schema"] == 1
    assert "source" not in dumped
    assert dumped["losses"]["reg"]["output"] == "reg"
    again = Scenario.model_validate(dumped)
    assert again.model_copy(update={"source": scenario.source}) == scenario


# --- --set ---------------------------------------------------------------------------------------------------------------


def test_set_changes_any_key(tmp_path: Path) -> None:
    scenario = loaded(
        tmp_path,
        GOOD,
        "losses.cls.weight=2",
        "strategies.0.retain_last=true",
        "strategies.reference.forward_per_loss=yes",
        "measure.budget=2min",
        "device=cpu",
        "model.trunk=[4, 5]",
        "model.heads.cls=7",
        "threads=1",
        "description=a = b",
    )
    retain, summed = scenario.strategies
    assert scenario.losses["cls"].weight == 2.0
    assert isinstance(retain, Retain)
    assert retain.retain_last is True
    assert isinstance(summed, Summed)
    assert summed.forward_per_loss is True
    assert isinstance(scenario.model, MultitaskMlp)
    assert (scenario.model.trunk, scenario.model.heads) == ((4, 5), {"cls": 7, "reg": 1})
    assert (scenario.measure.budget, scenario.device, scenario.threads) == (120.0, "cpu", 1)
    assert scenario.description == "a = b"


def test_set_replaces_a_whole_section(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, GOOD, "model={kind: conv, heads: {cls: 3, reg: 1}}", "strategies=[summed]")
    assert isinstance(scenario.model, Conv)
    assert [strategy.title for strategy in scenario.strategies] == ["summed"]


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        (
            "losses.cls.wieght=2",
            "--set losses.cls.wieght=2: unknown key 'wieght' in losses.cls",
            "did you mean weight?",
        ),
        ("losses.csl.weight=2", "--set losses.csl.weight=2: losses has no 'csl'", "did you mean cls?"),
        ("mesure.rounds=2", "--set mesure.rounds=2: a scenario has no 'mesure'", "did you mean measure?"),
        ("strategies.5.name=x", "strategies has no entry '5'; the first of 2 is 0", "retain, reference"),
        ("strategies.retian.name=x", "strategies has no entry 'retian'", "did you mean retain?"),
        ("name.x=1", "name is no mapping or list", ""),
        ("measure.rounds", "expected KEY=VALUE", "--set losses.cls.weight=2"),
        ("=1", "expected KEY=VALUE", ""),
        ("name=no", "--set name=no: name: expected text, got no, which YAML reads as false", 'quotes: "no"'),
        ("batch.size=big", "--set batch.size=big: batch.size: expected a whole number, got text 'big'", ""),
        ("batch.size=[", "the value is no YAML", ""),
        ("batch.size=", "batch.size: expected a whole number, got nothing", ""),
        ("device=cudda", "--set device=cudda: device: expected a device", "did you mean cuda?"),
    ],
)
def test_faults_of_set_name_the_text(tmp_path: Path, override: str, message: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loaded(tmp_path, GOOD, override)
    (fault,) = caught.value.faults
    assert message in fault.message
    assert hint in fault.hint


# --- registries ----------------------------------------------------------------------------------------------------------


def test_registries_refuse_a_second_of_the_same_name() -> None:
    with pytest.raises(ValueError, match="model 'mlp' is registered twice: Mlp and Mlp"):
        MODELS.register(MODELS["mlp"])
    registry: Registry[BaseModel] = Registry("thing")
    registry.register(LOSSES["mse"])
    assert list(registry) == ["mse"]
    assert registry["mse_loss"] is LOSSES["mse"]


def test_everything_registered_says_what_it_is() -> None:
    for registry in (MODELS, LOSSES):
        assert all(cls.summary and cls.__doc__ for cls in registry.values())


def test_calls_are_read(tmp_path: Path) -> None:
    calls = (
        "[{backward: [cls, reg], weights: [1, 0.5], retain: true}, {grad: reg, wrt: trunk.0.weight, step: {sgd: 0.1}}]"
    )
    scenario = loaded(tmp_path, GOOD.replace("[retain, {", f"[{{kind: calls, calls: {calls}}}, {{"))
    strategy = scenario.strategies[0]
    assert isinstance(strategy, Calls)
    first, second = strategy.calls(tuple(scenario.losses))
    assert (first.losses, first.weights, first.retain_graph, first.kind) == (
        ("cls", "reg"),
        (1.0, 0.5),
        True,
        "backward",
    )
    assert (second.wrt, second.sgd_before, second.kind) == (("trunk.0.weight",), 0.1, "grad")


# --- mutations -----------------------------------------------------------------------------------------------------------

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
SHIPPED = sorted(SCENARIOS.glob("*.yaml"))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["kind", "factory", "retain", "mse", "<mse>", "cls", "auto", "a:b", "name", "[key]", "calls"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in nested mappings and lists."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


def outcome(file: Path, *overrides: str) -> Scenario | ScenarioError:
    """What loading gives; anything but these two is a failure."""
    try:
        return load(file, overrides)
    except ScenarioError as e:
        return e


def mutate(draw: st.DataObject, data: Any) -> Any:
    """Replace, remove or add one thing somewhere."""
    path = draw.draw(st.sampled_from(places(data)[1:]))
    here = data
    for key in path[:-1]:
        here = here[key]
    change = draw.draw(st.sampled_from(["replace", "remove", "add"]))
    if change == "remove":
        del here[path[-1]]
    elif change == "replace":
        here[path[-1]] = draw.draw(values)
    elif isinstance(here, dict):
        here[draw.draw(st.text(max_size=6) | st.sampled_from(["kind", "factory", "args", "weight"]))] = draw.draw(
            values
        )
    else:
        here.insert(path[-1], draw.draw(values))
    return data


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_data_loads_or_raises_scenario_error(tmp_path: Path, data: st.DataObject) -> None:
    mutated = copy.deepcopy(yaml.safe_load(data.draw(st.sampled_from(SHIPPED)).read_text()))
    for _ in range(data.draw(st.integers(1, 3))):
        if len(places(mutated)) > 1:
            mutated = mutate(data, mutated)
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(mutated), encoding="utf-8", errors="replace")
    found = outcome(file)
    if isinstance(found, ScenarioError):
        assert found.faults
        assert all(fault.line > 0 for fault in found.faults), str(found)
    else:
        assert all(not isinstance(loss, RegisteredLoss) or loss.kind in LOSSES for loss in found.losses.values())


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_bytes_load_or_raise_scenario_error(tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(SHIPPED)).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        size = data.draw(st.integers(0, 5))
        raw[at : at + size] = data.draw(
            st.binary(max_size=4) | st.sampled_from([b"*", b"&", b"<<:", b"---\n", b"\t", b"["])
        )
    file = tmp_path / "s.yaml"
    file.write_bytes(bytes(raw))
    found = outcome(file)
    assert not isinstance(found, ScenarioError) or (found.faults and str(found))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.text(max_size=12) | st.sampled_from(["losses.cls.weight=", "a.b.c=1", "strategies.0=", "model="]), max_size=3
    )
)
def test_any_set_text_loads_or_raises_scenario_error(tmp_path: Path, texts: list[str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(GOOD)
    found = outcome(file, *texts)
    assert not isinstance(found, ScenarioError) or str(found)
