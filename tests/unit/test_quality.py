"""Types and style are checked with the tests; the README's commands are the ones that CI runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["mypy"], ["ruff", "check", "."], ["ruff", "format", "--check", "."]], ids=["mypy", "check", "format"]
)
def test_clean(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_runs_the_readme() -> None:
    commands = re.findall(r"^    (python3 -m venv .*)$", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) == 2
    script = (ROOT / ".ci" / "run").read_text()
    for command in commands:
        assert command in script.replace("pip install -q", "pip install")


def test_no_place_of_one_machine_is_named() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in (".py", ".md", ".cfg", ".toml", ".yaml", ".txt", ".js", ".html", ".css"):
            text = path.read_text(encoding="utf-8", errors="replace")
            assert "/ro" + "ot/" not in text, name
            assert "/wo" + "rk/" not in text, name
