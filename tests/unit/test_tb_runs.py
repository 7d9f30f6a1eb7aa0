"""Finding runs below a log directory, without a server."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from retainprof.errors import StoreError, TraceError
from retainprof.records import CallResult, Environment, KernelRow, Result, StrategyResult, TimelinePoint
from retainprof.report.bundle import embed, module, script
from retainprof.report.page_data import page, thin
from retainprof.tb import runs as runs_module
from retainprof.tb import trace
from retainprof.tb.loader import Loader
from retainprof.tb.runs import Runs


def _run(folder: Path, text: str = "{}") -> None:
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(text)


@pytest.fixture(autouse=True)
def always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "FRESH_SECONDS", 0.0)


def test_runs_come_and_go(tmp_path: Path) -> None:
    found = Runs([tmp_path])
    assert found.all() == []
    _run(tmp_path / "a")
    _run(tmp_path / "deep" / "er" / "b")
    assert {run.id for run in found.all()} == {"a", "deep/er/b"}
    (tmp_path / "a" / "result.json").unlink()
    assert {run.id for run in found.all()} == {"deep/er/b"}


def test_nothing_below_a_run_and_no_link_is_followed(tmp_path: Path) -> None:
    _run(tmp_path / "elsewhere" / "x")
    _run(tmp_path / "logs" / "a")
    _run(tmp_path / "logs" / "a" / "traces" / "inner")
    (tmp_path / "logs" / "link").symlink_to(tmp_path / "elsewhere")
    found = Runs([tmp_path / "logs"])
    assert [run.id for run in found.all()] == ["a"]
    for name in ("../elsewhere/x", "link/x", str(tmp_path / "elsewhere" / "x"), "", "."):
        with pytest.raises(StoreError, match="no run"):
            found.find(name)


def test_settled_folders_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        _run(tmp_path / f"run{i}")
    for folder in (tmp_path, *tmp_path.iterdir()):
        os.utime(folder, (1e9, 1e9))
    found, listed = Runs([tmp_path]), []
    original = runs_module._list
    monkeypatch.setattr(runs_module, "_list", lambda path: listed.append(path) or original(path))  # type: ignore[func-returns-value]
    assert len(found.all()) == 20
    assert len(listed) == 21
    assert len(found.all()) == 20
    assert len(listed) == 21


def test_odd_results_have_a_problem_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder" / "result.json").mkdir(parents=True)
    _run(tmp_path / "large", " " * 100)
    monkeypatch.setattr(runs_module, "MAX_RESULT_BYTES", 99)
    found = Runs([tmp_path])
    assert "no regular file" in found.find("folder").problem
    assert "has 100 bytes" in found.find("large").problem
    with pytest.raises(StoreError, match="no regular file"):
        found.read("folder")


def test_two_log_directories_keep_their_runs_apart(tmp_path: Path) -> None:
    _run(tmp_path / "one" / "same")
    _run(tmp_path / "two" / "same")
    assert {run.id for run in Runs([tmp_path / "one", tmp_path / "two"]).all()} == {"0:same", "1:same"}


def test_the_loader_returns_none_where_the_plugin_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "retainprof.tb.plugin", None)
    assert Loader().load(None) is None


def _trace(folder: Path, events: list[dict[str, object]]) -> Path:
    path = folder / "host_0.1.pt.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def _event(name: str, ts: float, dur: float, cat: str = "cpu_op") -> dict[str, object]:
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "tid": 7, "cat": cat}


def test_events_of_a_call_by_hand(tmp_path: Path) -> None:
    call = _event("retainprof::call[0] a", 100, 100, "user_annotation")
    inner, outer, before = _event("inner", 120, 10), _event("outer", 110, 50), _event("before", 0, 10)
    found = trace.events(_trace(tmp_path, [inner, before, call, outer]), 0)
    named = [(found["names"][row[0]], *row[2:]) for row in found["rows"]]
    # depth below the label, then ns from the call's start and ns long; "before" ends long before the call
    assert named == [
        ("retainprof::call[0] a", 0, 0, 100_000),
        ("outer", 1, 10_000, 50_000),
        ("inner", 2, 20_000, 10_000),
    ]
    assert (found["lanes"], found["calls"], found["span_ns"], found["left"]) == (["thread 7"], [0], 100_000, 0)
    with pytest.raises(TraceError, match="no call 5"):
        trace.events(tmp_path / "host_0.1.pt.trace.json.gz", 5)


@pytest.mark.parametrize("named", ["../out.json", "/etc/passwd", "result.json/../../out.json", "a.txt", "gone.json"])
def test_traces_stay_inside_the_run(named: str, tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("{}")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.txt").write_text("")
    with pytest.raises(TraceError):
        trace.trace_file(tmp_path / "run", StrategyResult(name="s", kind="retain", traces=(named,)))


def test_a_broken_trace_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"{}" * 50)[:20])
    with pytest.raises(TraceError, match="no readable trace"):
        trace.events(path, 0)


def test_thinning_keeps_ends_and_extremes() -> None:
    points = [TimelinePoint(at_ns=i, bytes=i % 7) for i in range(10_000)]
    points[5_003] = TimelinePoint(at_ns=5_003, bytes=10**9)
    kept = thin(points, 100)
    assert len(kept) <= 100
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert points[5_003] in kept
    assert [p.at_ns for p in kept] == sorted(p.at_ns for p in kept)
    assert thin(points[:50], 100) == points[:50]


def test_embedded_json_cannot_leave_its_element() -> None:
    text = embed({"a": "</script><!-- & \u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!-- & \u2028"}


def test_modules_become_one_script(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import {b} from "./b.js";\nexport function a() { return b; }\n')
    (tmp_path / "b.js").write_text("export const b = 1;\n")
    text = script("a.js", tmp_path)
    assert text.index("// b.js") < text.index("const {b} = module_0;")
    (tmp_path / "b.js").write_text('import {a} from "./a.js";\nexport const b = 1;\n')
    with pytest.raises(ValueError, match="import each other"):
        script("a.js", tmp_path)


def test_one_module_exports_what_its_entry_exports(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text(
        'import {b} from "./b.js";\nexport async function a() { return b; }\nexport const c = 2;\n'
    )
    (tmp_path / "b.js").write_text("export const b = 1;\n")
    lines = module("a.js", tmp_path).splitlines()
    assert lines[-1] == "export const {a, c} = module_1;"
    assert not [line for line in lines[:-1] if line.startswith(("import", "export"))]
    assert module("index.js").splitlines()[-1].startswith("export const {render} = ")


def test_a_page_counts_kernels_without_carrying_them() -> None:
    rows = tuple(KernelRow(name=f"k{i}") for i in range(3))
    call = CallResult(
        index=0, losses=("a",), kind="backward", retain_graph=False, create_graph=False, label="", kernel_rows=rows
    )
    where = Environment(
        python="", torch="", device="", device_name="", threads=1, interop_threads=1, platform="", cpu="", cpus=1
    )
    strategy = StrategyResult(name="s", kind="retain", calls=(call,))
    result = Result(retainprof="0", scenario={}, environment=where, status="ok", strategies=(strategy,))
    (shown,) = page(result, ())["result"]["strategies"]
    assert shown["calls"][0]["kernel_rows"] == 3
    assert result.strategies[0].calls[0].kernel_rows == rows
