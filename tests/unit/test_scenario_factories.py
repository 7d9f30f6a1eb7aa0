"""Models, batches and losses of the user's own: found, refused, failing, wrong, right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from retainprof.errors import FactoryError, ImportRefused
from retainprof.scenario import Imports, Scenario, load
from retainprof.scenario.build import build_batch, build_losses, build_model

MODULE = """
from functools import partial
import torch
from torch import nn

calls = []

def model(width=4, layers=(1,)):
    calls.append((width, layers))
    return nn.Linear(3, width)

def batch(size=2):
    return (torch.ones(size, 3),), {"l": torch.zeros(size, 4)}

def loss(outputs, targets, scale=1.0):
    return scale * (outputs - targets["l"]).square().mean()

wide = partial(model, width=9)
number = 7

class Space:
    @staticmethod
    def model():
        return nn.Linear(3, 4)

def raising():
    return helper()

def helper():
    raise RuntimeError("out of cheese")

def leaving():
    raise SystemExit(3)

def no_module():
    return "a model"

def triple():
    return 1, 2, 3

def bare():
    return torch.ones(2, 3), None
"""
SCENARIO = """\
schema: 1
name: own
model: {{factory: "{module}:{model}"{model_args}}}
batch: {{factory: "{module}:{batch}"}}
losses:
  l: {{factory: "{module}:{loss}"{loss_args}}}
strategies: [summed]
"""


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(("torch", "retainprof")):
            del sys.modules[name]


def own(folder: Path, module: str = "mymodels", text: str = MODULE, **names: str) -> Scenario:
    folder.mkdir(exist_ok=True)
    (folder / f"{module.replace('.', '/')}.py").write_text(text)
    options = {"model": "model", "batch": "batch", "loss": "loss", "model_args": "", "loss_args": ""} | names
    file = folder / "own.yaml"
    file.write_text(SCENARIO.format(module=module, **options))
    return load(file)


def allowed(scenario: Scenario, *packages: str) -> Imports:
    return Imports.allowing(scenario, packages or ("mymodels",))


def test_factories_make_everything(tmp_path: Path) -> None:
    s = own(tmp_path, model_args=", args: {width: 4, layers: [2, 3]}", loss_args=", args: {scale: 2}, weight: 3")
    imports = allowed(s)
    model = build_model(s, imports)
    batch = build_batch(s, model, imports)
    value = build_losses(s, imports)["l"](model(*batch.inputs), batch.targets)
    torch.testing.assert_close(value, 6 * model(torch.ones(2, 3)).square().mean())
    assert sys.modules["mymodels"].calls == [(4, [2, 3])]


@pytest.mark.parametrize("name", ["wide", "Space.model"])
def test_partials_and_methods_are_factories(tmp_path: Path, name: str) -> None:
    s = own(tmp_path, model=name)
    model = build_model(s, allowed(s))
    assert isinstance(model, nn.Linear)
    assert model.out_features == {"wide": 9, "Space.model": 4}[name]


def test_the_seed_reaches_the_factory(tmp_path: Path) -> None:
    s = own(tmp_path)
    models = [build_model(s, allowed(s)) for _ in range(2)]
    assert torch.equal(*(model.get_parameter("weight") for model in models))
    torch.manual_seed(s.seed)
    assert torch.equal(models[0].get_parameter("weight"), nn.Linear(3, 4).weight)


def test_nothing_is_imported_until_allowed(tmp_path: Path) -> None:
    s = own(tmp_path, text="raise SystemExit('imported')")
    with pytest.raises(ImportRefused, match="mymodels:model would be imported") as caught:
        Imports.allowing(s, ())
    assert caught.value.hint.endswith("--allow-import mymodels")
    with pytest.raises(ImportRefused):
        build_model(s, Imports(("mymodel", "my"), tmp_path))
    assert "mymodels" not in sys.modules


def test_a_package_allows_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    s = own(tmp_path, module="pack.inner")
    for names in (("pack",), ("pack.inner",)):
        assert isinstance(build_model(s, allowed(s, *names)), nn.Linear)
    with pytest.raises(ImportRefused, match=r"pack.inner:model") as caught:
        allowed(s, "pack.other")
    assert caught.value.hint.endswith("--allow-import pack")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("modle", "mymodels:modle: mymodels has no 'modle'", "did you mean model?"),
        ("number", "mymodels:number is int, expected a function", "name what makes it"),
        ("no_module", "the model's factory mymodels:no_module returned str, expected Module", ""),
        ("raising", "the model's factory mymodels:raising raised RuntimeError: out of cheese", "in helper"),
        ("leaving", "the model's factory mymodels:leaving raised SystemExit: 3", "in leaving"),
        ("loss", "the model's factory mymodels:loss raised TypeError", "missing 2 required positional arguments"),
    ],
)
def test_factories_that_fail(tmp_path: Path, name: str, message: str, hint: str) -> None:
    s = own(tmp_path, model=name)
    with pytest.raises(FactoryError) as caught:
        build_model(s, allowed(s))
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_the_traceback_begins_in_the_users_code(tmp_path: Path) -> None:
    s = own(tmp_path, model="raising")
    with pytest.raises(FactoryError) as caught:
        build_model(s, allowed(s))
    files = [row for row in caught.value.hint.splitlines() if row.strip().startswith("File ")]
    assert len(files) == 2
    assert all("mymodels.py" in row for row in files)
    assert caught.value.hint.endswith("RuntimeError: out of cheese")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("triple", "returned 3 things, expected (inputs, targets)"),
        ("bare", "returned inputs of type Tensor, expected a tuple"),
        ("no_module", "returned str, expected tuple or list"),
    ],
)
def test_batches_of_the_wrong_kind(tmp_path: Path, name: str, message: str) -> None:
    s = own(tmp_path, batch=name)
    with pytest.raises(FactoryError) as caught:
        build_batch(s, nn.Identity(), allowed(s))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("import not_there_at_all", "importing mymodels raised ModuleNotFoundError", "import not_there_at_all"),
        ("def broken(:\n", "importing mymodels raised SyntaxError", "def broken(:"),
        ("1 / 0", "importing mymodels raised ZeroDivisionError", "1 / 0"),
        ("import argparse\nraise SystemExit(2)", "importing mymodels raised SystemExit: 2", "raise SystemExit(2)"),
    ],
)
def test_modules_that_cannot_be_imported(tmp_path: Path, text: str, message: str, hint: str) -> None:
    s = own(tmp_path, text=text)
    with pytest.raises(FactoryError) as caught:
        build_model(s, allowed(s))
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert "importlib" not in caught.value.hint


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    s = own(tmp_path).model_copy(update={"model": own(tmp_path).model.model_copy(update={"factory": "nowhere.at:all"})})
    with pytest.raises(FactoryError, match=r"no module 'nowhere' on sys\.path and"):
        build_model(s, allowed(s, "mymodels", "nowhere"))


def test_two_scenarios_with_modules_of_the_same_name(tmp_path: Path) -> None:
    for width in (5, 6, 5):
        text = f"from torch import nn\ndef model():\n    return nn.Linear(3, {width})\n"
        s = own(tmp_path / str(width), text=text)
        model = build_model(s, allowed(s))
        assert isinstance(model, nn.Linear)
        assert model.out_features == width


def test_registered_losses_look_at_a_factorys_outputs(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    (tmp_path / "mymodels.py").write_text(MODULE)
    text = SCENARIO.format(module="mymodels", model="model", batch="batch", loss="loss", model_args="", loss_args="")
    file.write_text(text.replace("strategies", "  m: {kind: mse, target: l}\nstrategies"))
    s = load(file)
    imports = allowed(s)
    model = build_model(s, imports)
    batch = build_batch(s, model, imports)
    values = [f(model(*batch.inputs), batch.targets) for f in build_losses(s, imports).values()]
    torch.testing.assert_close(*values)


# --- the reference cases are scenarios --------------------------------------------------------------------------------------

CASES = {
    "o01_two_heads": ["cls", "reg"],
    "o04_create_graph": ["fit", "small"],
    "o05_gan_no_detach": ["disc", "gen"],
    "o06_sac_shared_encoder": ["critic", "actor", "alpha"],
    "o07_jacobian_rows": ["row00", "row23"],
    "o08_pinn": ["pde", "gpde", "ic", "bc"],
    "o09_frozen_trunk": ["cls", "reg"],
    "o10_frozen_head": ["cls", "reg"],
    "o11_style_transfer": ["style1", "style2", "style3", "content"],
    "o12_maml": ["query"],
}


@pytest.mark.parametrize("case", list(CASES))
def test_reference_cases_are_scenarios(shared: Path, tmp_path: Path, case: str) -> None:
    for program in (shared / "cases").glob("o*.py"):
        (tmp_path / program.name).write_text(program.read_text())
    rows = "".join(f'  {name}: {{factory: "{case}:{name}"}}\n' for name in CASES[case])
    file = tmp_path / "case.yaml"
    file.write_text(
        f"schema: 1\nname: {case}\nmodel: {{factory: '{case}:make_model'}}\nbatch: {{factory: '{case}:make_batch'}}\n"
        f"losses:\n{rows}strategies: [summed]\n"
    )
    s = load(file)
    imports = Imports.allowing(s, (case,))
    model = build_model(s, imports)
    batch = build_batch(s, model, imports)
    module: Any = sys.modules[case]
    inputs, targets = module.make_batch()
    expected = module.make_model()(*inputs)
    for name, loss in build_losses(s, imports).items():
        value = loss(model(*batch.inputs), batch.targets)
        assert value.requires_grad
        assert torch.equal(value, getattr(module, name)(expected, targets))
