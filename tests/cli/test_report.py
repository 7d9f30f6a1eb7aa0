"""``retainprof report``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from retainprof import store
from retainprof.cli import main
from retainprof.records import Result

Run = Callable[..., tuple[int, Result | None]]


def test_every_format(
    scenario: Callable[..., Path], run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = run(scenario(), "--quiet")
    assert code == 0
    assert result is not None
    folder = next((tmp_path / "runs").glob("*/result.json")).parent
    for name, original in (("a.html", "report.html"), ("a.md", "report.md"), ("a.json", "result.json")):
        assert main(["report", str(folder), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes() == (folder / original).read_bytes()
    capsys.readouterr()
    assert main(["report", str(folder / "result.json"), "--format", "json"]) == 0
    assert store.decode(capsys.readouterr().out.encode(), "output") == result


def test_no_run_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "name a run folder" in capsys.readouterr().err
