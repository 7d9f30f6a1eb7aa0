"""Every kind of fault: its message, its place and the right name; all of a file at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from retainprof.errors import ScenarioError
from retainprof.scenario import load

GOOD = """\
schema: 1
name: two
model:
  kind: multitask_mlp
  inputs: 8
  trunk: [16]
  heads: {cls: 3, reg: 1}
shared: trunk
batch: {kind: random, size: 4}
losses:
  cls: {kind: cross_entropy, output: cls}
  reg: {kind: mse, output: reg}
strategies: [retain, summed]
"""


def faults(tmp_path: Path, text: str | bytes, *overrides: str) -> ScenarioError:
    file = tmp_path / "s.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ScenarioError) as caught:
        load(file, overrides)
    return caught.value


def only(tmp_path: Path, old: str, new: str) -> tuple[str, int, int, str]:
    """The one fault after a change of the good file: message, line, column, hint."""
    assert GOOD.count(old) == 1
    error = faults(tmp_path, GOOD.replace(old, new))
    assert len(error.faults) == 1, str(error)
    fault = error.faults[0]
    return fault.message, fault.line, fault.column, fault.hint


def test_the_good_file_is_good(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(GOOD)
    scenario = load(file)
    assert list(scenario.losses) == ["cls", "reg"]
    assert [strategy.title for strategy in scenario.strategies] == ["retain", "summed"]
    assert scenario.source == file


@pytest.mark.parametrize(
    ("old", "new", "message", "line", "column", "hint"),
    [
        ("name: two", "nmae: two", "unknown key 'nmae' in a scenario", 2, 1, "did you mean name?"),
        ("output: reg}", "output: reg, wieght: 2}", "unknown key 'wieght' in losses.reg", 12, 33, "weight?"),
        ("size: 4", "size: 4, x: 1", "unknown key 'x' in batch", 9, 32, "keys there: kind, size"),
        ("size: 4}", 'size: "4"}', "batch.size: expected a whole number, got text '4'", 9, 29, "without quotes"),
        ("size: 4}", "size: 4.5}", "batch.size: expected a whole number, got 4.5", 9, 29, ""),
        ("size: 4}", "size: yes}", "batch.size: expected a whole number, got yes, which YAML reads as true", 9, 29, ""),
        ("size: 4}", "size: 0}", "batch.size: expected at least 1, got 0", 9, 29, ""),
        ("size: 4}", "}", "batch: key 'size' is missing", 9, 1, ""),
        ("name: two", "name: no", "name: expected text, got no, which YAML reads as false", 2, 7, 'quotes: "no"'),
        ("name: two", "name: off", "name: expected text, got off, which YAML reads as false", 2, 7, '"off"'),
        ("name: two", "name: 1e-3", "name: expected text, got 1e-3", 2, 7, 'quotes: "1e-3"'),
        ("name: two", "name:", "name: expected text, got nothing", 2, 6, ""),
        ("cls: {kind: cross", "no: {kind: cross", "key no: YAML reads this bare word as true or false", 11, 3, '"no"'),
        ("kind: multitask_mlp", "kind: multitask_mpl", "model.kind: unknown model 'multitask_mpl'", 4, 9, "mlp?"),
        ("kind: multitask_mlp", "knd: multitask_mlp", "model: needs a kind or factory", 3, 1, "did you mean kind?"),
        ("kind: random", "kind: rndom", "batch.kind: unknown batch 'rndom'", 9, 15, "did you mean random?"),
        ("kind: mse", "kind: msse", "losses.reg.kind: unknown loss 'msse'", 12, 15, "did you mean mse?"),
        ("kind: mse", "kind: [mse]", "losses.reg.kind: expected a loss's name, got a list", 12, 15, ""),
        ("kind: mse", "kind: mse, factory: a:b", "losses.reg has both kind and factory", 12, 20, "keep the one"),
        ("{kind: mse, output: reg}", "{factory: mse}", "losses.reg.factory: expected package.module:f", 12, 18, ""),
        ("{kind: mse, output: reg}", "3", "losses.reg: expected a mapping with kind or factory, got 3", 12, 8, ""),
        ("output: reg", "output: rge", "losses.reg.output: the model has no output 'rge'", 12, 28, "did you mean reg?"),
        (", output: reg", "", "losses.reg: say which output it looks at", 12, 8, "output: cls | reg"),
        ("shared: trunk", "shared: trnk", "shared: the model has no submodule 'trnk'", 8, 9, "did you mean trunk?"),
        (
            "[retain, summed]",
            "[retain, sumed]",
            "strategies[1]: unknown strategy 'sumed'",
            13,
            22,
            "did you mean summed?",
        ),
        ("[retain, summed]", "[retain, retain]", "strategies[1]: a second strategy named 'retain'", 13, 22, "a name"),
        ("[retain, summed]", "[retain, 7]", "strategies[1]: expected a mapping with kind, got 7", 13, 22, ""),
        ("[retain, summed]", "retain", "strategies: expected a list, got text 'retain'", 13, 13, ""),
        ("[retain, summed]", "[]", "strategies: expected 1 or more entries, got an empty list", 13, 13, ""),
        (
            "[retain, summed]",
            "[{kind: retain, order: [cls, rge]}]",
            "strategies[0].order[1]: no loss 'rge'",
            13,
            42,
            "reg?",
        ),
        ("[retain, summed]", "[{kind: retain, order: [cls, cls]}]", "loss 'cls' is there twice", 13, 42, ""),
        (
            "shared: trunk\n",
            "",
            "strategies[0]: two_stage needs the scenario's shared submodule",
            12,
            14,
            "shared: trunk",
        ),
        ("schema: 1", "schema: 2", "schema: expected 1, got 2", 1, 9, ""),
        ("schema: 1\n", "", "key 'schema' is missing", 1, 1, ""),
        ("schema: 1", "schema: 1\nseed: -1", "seed: expected at least 0, got -1", 2, 7, ""),
        ("schema: 1", "schema: 1\nseed: " + "9" * 5000, "is not of the type int", 2, 7, ""),
        ("schema: 1", "schema: 1\ndevice: cdua", "device: expected a device: auto, cpu, cuda", 2, 9, "cuda?"),
        ("schema: 1", "schema: 1\nsource: x", "unknown key 'source' in a scenario", 2, 1, ""),
        ("schema: 1", "schema: 1\nmeasure: {rounds: atuo}", "rounds: expected auto or a whole number", 2, 19, "auto?"),
        ("schema: 1", "schema: 1\nmeasure: {budget: 6x}", "measure.budget: '6x' is no time", 2, 19, ""),
        ("schema: 1", "schema: 1\nmeasure: {budget: .nan}", "got .nan", 2, 19, ""),
        (
            "schema: 1",
            "schema: 1\nmeasure: {zero_grad: zeroo}",
            "set_to_none, zero or keep",
            2,
            22,
            "did you mean zero?",
        ),
        ("schema: 1", "schema: 1\nname: x", "key 'name' is there twice", 3, 1, "the first is in line 2"),
        ("schema: 1", "schema: 1\nprofile: [1]", "profile: expected a mapping, got a list", 2, 10, ""),
        ("schema: 1", "schema: 1\nprofile: !!python/name:os.system x", "tag:yaml.org,2002:python/name", 2, 10, ""),
        ("schema: 1", 'schema: 1\ndescription: "\\ud800"', "half of a surrogate pair", 2, 14, ""),
    ],
)
def test_one_fault(tmp_path: Path, old: str, new: str, message: str, line: int, column: int, hint: str) -> None:
    if "shared submodule" in message:
        file = GOOD.replace(old, new).replace("[retain,", "[two_stage,")
        (fault,) = faults(tmp_path, file).faults
        found = (fault.message, fault.line, fault.column, fault.hint)
    else:
        found = only(tmp_path, old, new)
    assert message in found[0]
    assert found[1:3] == (line, column)
    assert hint in found[3]


@pytest.mark.parametrize(
    ("call", "message", "at"),
    [
        ("{backward: rge}", "calls[0].backward: no loss 'rge'", "rge"),
        ("{backward: [cls, rge]}", "calls[0].backward[1]: no loss 'rge'", "rge"),
        ("{grad: cls, wrt: trnk.0.weight}", "calls[0].wrt: the model has no submodule 'trnk.0.weight'", "trnk"),
        ("{backward: cls, grad: reg}", "a call is either {backward: losses} or {grad: losses}", "{backward"),
        ("{backward: cls, retian: true}", "unknown key 'retian' in strategies[0].calls[0]", "retian"),
        ("{backward: cls, step: {sgdd: 1}}", "unknown key 'sgdd' in strategies[0].calls[0].step", "sgdd"),
        ("{backward: cls, step: adam}", "calls[0].step: expected sgd or a mapping, got text 'adam'", "adam"),
        ("{backward: [cls, reg], weights: [1]}", "1 weights for 2 losses", "{backward"),
    ],
)
def test_spelled_out_calls(tmp_path: Path, call: str, message: str, at: str) -> None:
    text = GOOD.replace("[retain, summed]", f"[{{kind: calls, calls: [{call}]}}]")
    error = faults(tmp_path, text)
    found = [fault for fault in error.faults if message in fault.message]
    assert found, str(error)
    assert found[0].line == 13
    assert found[0].column == text.splitlines()[12].index(at) + 1


def test_all_faults_at_once_with_carets(tmp_path: Path) -> None:
    text = GOOD.replace("name: two", "name: yes").replace("kind: mse", "kind: mes").replace("size: 4", "sise: 4")
    text = text.replace("[retain, summed]", "[retian]").replace("shared: trunk", "shared: trnk")
    error = faults(tmp_path, text)
    assert [fault.line for fault in error.faults] == sorted(fault.line for fault in error.faults)
    for part in ("name: expected text", "'trnk'", "unknown key 'sise'", "'size' is missing", "'mes'", "'retian'"):
        assert part in str(error)
    shown = str(error).splitlines()
    at = next(i for i, row in enumerate(shown) if "unknown loss" in row)
    assert shown[at].startswith(f"{tmp_path / 's.yaml'}:12:15: error: ")
    assert shown[at + 1] == "      reg: {kind: mes, output: reg}"
    assert shown[at + 2].index("^") == shown[at + 1].index("mes")


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "the file is empty", 0),
        ("# only a comment\n", "the file is empty", 0),
        ("- a\n- b\n", "a scenario is a mapping", 1),
        ("just text", "a scenario is a mapping", 1),
        (GOOD + "---\n" + GOOD, "a second document", 14),
        (GOOD.replace("  inputs", "\tinputs"), "a tab where YAML wants spaces", 5),
        (GOOD.replace("{cls: 3", "{cls: [3"), "", 7),
        (b"name: \xff\n", "not UTF-8: byte 0xff in line 1", 0),
        (b"schema: 1\nname: a\x00b\n", "character U+0000 is not allowed in YAML", 2),
        ("a: &a [*a]\n", "this anchor contains an alias to itself", 1),
        ("a: &a {<<: *a}\n", "this anchor contains an alias to itself", 1),
        ("x: &x {<<: &y {<<: *y}}\n", "this anchor contains an alias to itself", 1),
        ("a: " + "[" * 5000 + "]" * 5000, "nested more than 40 deep", 1),
        ("a: [" + "1," * 30000 + "]", "more than 20,000 values", 1),
        ("a: *nowhere\n", "found undefined alias", 1),
        ("a: " + "x" * 1_000_001, "larger than 1,000,000 bytes", 0),
    ],
)
def test_files_that_are_no_scenario(tmp_path: Path, text: str | bytes, message: str, line: int) -> None:
    (fault,) = faults(tmp_path, text).faults
    assert message in fault.message
    assert fault.line == line


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1,1,1,1,1,1,1,1,1]"]
    rows += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (fault,) = faults(tmp_path, "\n".join(rows)).faults
    assert "more than 20,000 values once aliases are followed" in fault.message


def test_aliases_that_deepen_are_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1]"] + [f"a{i}: &a{i} " + "[" * 30 + f"*a{i - 1}" + "]" * 30 for i in range(1, 9)]
    (fault,) = faults(tmp_path, "\n".join(rows)).faults
    assert "nested more than 40 deep once aliases are followed" in fault.message


def test_missing_file_and_folder_name_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(GOOD)
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ScenarioError, match="cannot be read") as caught:
            load(path)
        assert "other.yaml" in str(caught.value)
    with pytest.raises(ScenarioError, match="cannot be read"):
        load("a\0b")


def test_names_with_control_characters_stay_off_the_terminal(tmp_path: Path) -> None:
    text = GOOD.replace("  reg: {kind: mse", '  "\\e[31mreg": {kind: mes')
    assert "\x1b" not in str(faults(tmp_path, text))


def test_loading_imports_no_torch(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(GOOD)
    program = "import sys; from retainprof.scenario import load, schema; load('s.yaml'); schema()"
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program + "; print('torch' in sys.modules)"],
        cwd=tmp_path,
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
