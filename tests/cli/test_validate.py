"""``validate``, ``schema`` and ``list``, by calling ``main``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retainprof.cli import main

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios"


def test_validate_good_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(SCENARIOS / "multitask.yaml"), str(SCENARIOS / "maml.yaml")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{SCENARIOS / 'multitask.yaml'}: ok: 2 losses, 5 strategies",
        f"{SCENARIOS / 'maml.yaml'}: ok: 2 losses, 4 strategies",
    ]
    assert err == ""


def test_validate_goes_on_after_a_bad_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text((SCENARIOS / "multitask.yaml").read_text().replace("- separate", "- seperate"))
    assert main(["validate", str(bad), str(SCENARIOS / "lstm.yaml")]) == 2
    out, err = capsys.readouterr()
    assert "lstm.yaml: ok" in out
    line = bad.read_text().splitlines().index("  - seperate") + 1
    assert err.splitlines() == [
        f"{bad}:{line}:5: error: strategies[3]: unknown strategy 'seperate'",
        "      - seperate",
        "        ^",
        "    did you mean separate?",
    ]


def test_validate_with_set(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(SCENARIOS / "multitask.yaml")
    assert main(["validate", file, "--set", "strategies=[summed]"]) == 0
    assert "1 strategy" in capsys.readouterr().out
    assert main(["validate", file, "--set", "losses.cls.weight=heavy"]) == 2
    assert "--set losses.cls.weight=heavy: losses.cls.weight: expected a number" in capsys.readouterr().err


def test_validate_says_what_would_be_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (SCENARIOS / "create_graph.yaml").read_text()
    text = text.replace("fit: {kind: mse}", "fit: {factory: my.losses:fit}")
    file = tmp_path / "own.yaml"
    file.write_text(text)
    assert main(["validate", str(file)]) == 0
    assert "runs code of my: needs --allow-import my" in capsys.readouterr().out


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["properties"]["schema"]["const"] == 1
    assert {"schema", "model", "batch", "losses", "strategies"} <= set(printed["required"])
    assert "source" not in printed["properties"]


def test_list_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    from retainprof.scenario import BATCHES, LOSSES, MODELS
    from retainprof.strategies import REGISTRY

    assert main(["list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    titles = [row for row in rows if not row.startswith("  ")]
    assert titles == ["models:", "batches:", "losses:", "strategies:"]
    listed = [row.split()[0] for row in rows if row.startswith("  ")]
    assert listed == [*MODELS, *BATCHES, *LOSSES, *REGISTRY]
    assert all(len(row.split()) > 1 for row in rows if row.startswith("  "))


@pytest.mark.parametrize("words", [["validate", "scenarios/seed.yaml"], ["schema"], ["list"], ["--help"]])
def test_none_of_them_imports_torch(words: list[str]) -> None:
    program = (
        "import sys; from retainprof.cli import main\n"
        f"try: code = main({words!r})\nexcept SystemExit as e: code = e.code\n"
        "print('torch' in sys.modules, code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "False 0"
