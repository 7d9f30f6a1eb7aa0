"""``retainprof analyze``: reports, JSON, CSV, labels, folders and errors, on a trace written by the test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from trace_builders import rows, run, trace

from retainprof.errors import TraceError


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace(tmp_path)) == 0
    text = capsys.readouterr().out
    assert "4 backward calls in 2 steps, found by their labels; steps by ProfilerStep" in text
    assert "Call 1 against call 0: wall 1.000x (profiled, median of 2 steps)" in text
    assert "aten::add_" in text


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace(tmp_path), "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(c["step"], c["index"], c["label"]) for c in found["calls"]] == [
        *(
            (0, 0, "## backward a ##"),
            (0, 1, "## backward b ##"),
            (1, 0, "## backward a ##"),
            (1, 1, "## backward b ##"),
        )
    ]
    assert [c["accumulate"]["stolen"] for c in found["calls"]] == [1, 0, 1, 0]
    assert [c["accumulate"]["added"] for c in found["calls"]] == [0, 1, 0, 1]
    assert {c["profiled_wall_ns"] for c in found["calls"]} == {90_000}
    (change,) = [k for k in found["first_vs_later"][0]["kernels"] if k["leaf"] and k["status"] == "only_later"]
    assert (change["name"], change["shapes"], change["later_count"], change["later_self_ns"]) == (
        "aten::add_",
        "3, 3",
        1,
        20_000,
    )
    assert (change["difference_ns"], change["difference_ci95"]) == (20_000, [20_000, 20_000])


def test_csv(tmp_path: Path) -> None:
    assert run(trace(tmp_path), "--csv", tmp_path / "tables", "--quiet") == 0
    calls = rows(tmp_path / "tables" / "calls.csv")
    assert [(c["step"], c["index"], c["nodes"], c["accumulate_added"], c["net_bytes"]) for c in calls] == [
        *(("0", "0", "1", "0", ""), ("0", "1", "1", "1", ""), ("1", "0", "1", "0", ""), ("1", "1", "1", "1", ""))
    ]
    kernels = {(k["call"], k["name"]): k["self_ns"] for k in rows(tmp_path / "tables" / "kernels.csv")}
    assert kernels[("0", "aten::detach")] == kernels[("1", "aten::add_")] == "20000"


def test_labels_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace(tmp_path), "--label", "backward b", "--json", "-") == 0
    assert [c["label"] for c in json.loads(capsys.readouterr().out)["calls"]] == ["## backward b ##"] * 2


def test_a_label_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace(tmp_path), "--label", "nothing", "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["calls"]), found["found_by"]) == (4, "engine")
    assert found["notes"] == ["no annotation matches 'nothing': calls were found by the engine's events"]


def test_a_folder_of_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace(tmp_path, "b.json", rank=1)
    trace(tmp_path, "c.json", rank=0)
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "notes.txt").write_text("x")
    assert run(tmp_path, "--json", "-", "--csv", tmp_path / "tables") == 0
    printed = capsys.readouterr()
    assert [(one["rank"], one["trace"]) for one in json.loads(printed.out)["traces"]] == [(0, "c.json"), (1, "b.json")]
    assert "passed over" in printed.err
    assert "other.json" in printed.err
    assert [c["rank"] for c in rows(tmp_path / "tables" / "calls.csv")] == ["0"] * 4 + ["1"] * 4


def test_what_cannot_be_analyzed(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(TraceError, match="is no trace"):
        run(tmp_path / "other.json")
    with pytest.raises(TraceError, match="is not there"):
        run(tmp_path / "missing.json")
    with pytest.raises(TraceError, match="no trace among"):
        run(tmp_path)
    with pytest.raises(SystemExit):
        run(trace(tmp_path), "--label", "(")


def test_torch_is_not_imported(tmp_path: Path) -> None:
    code = f"import sys; from retainprof.trace import *; analyze(read(__import__('pathlib').Path({str(trace(tmp_path))!r})))"
    found = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert (found.stdout.strip(), found.returncode) == ("False", 0)
