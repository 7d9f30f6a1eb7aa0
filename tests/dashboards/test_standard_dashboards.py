"""A real TensorBoard on our runs: the standard dashboards, and torch-tb-profiler's views of our traces, by HTTP."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retainprof import store
from retainprof.cli import main
from retainprof.records import Result

SCENARIO = """\
schema: 1
name: board
device: cpu
threads: 1
model: {kind: multitask_mlp, inputs: 8, trunk: [16], heads: {cls: 4, reg: 1}}
shared: trunk
batch: {kind: random, size: 32}
losses:
  cls: {kind: cross_entropy, output: cls}
  reg: {kind: mse, output: reg}
strategies: [retain, {name: all at once, kind: summed}]
measure: {rounds: 3, warmup: 1, cold: 0, budget: 20s}
profile: {steps: 2}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run's folder; it is the only one below its parent."""
    base = tmp_path_factory.mktemp("board")
    (base / "board.yaml").write_text(SCENARIO)
    assert main([str(base / "board.yaml"), "--out", str(base / "runs"), "--quiet"]) == 0
    (folder,) = (base / "runs").iterdir()
    return folder


class Board:
    """A TensorBoard server on this machine."""

    def __init__(self, logdir: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "tensorboard.main",
            "--logdir",
            str(logdir),
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        ]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.root = f"http://127.0.0.1:{found[1]}/data/"
                break
        else:
            raise RuntimeError("TensorBoard did not start")

    def get(self, path: str, **query: object) -> Any:
        """JSON from an endpoint."""
        text = self.raw(path, **query)
        return json.loads(text)

    def raw(self, path: str, **query: object) -> bytes:
        """Bytes from an endpoint."""
        url = f"{self.root}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            data: bytes = answer.read()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data

    def wait(self, path: str, ready: Any, **query: object) -> Any:
        """Ask again until ``ready(answer)``; dashboards load in the background."""
        deadline = time.monotonic() + 90
        while True:
            try:
                answer = self.get(path, **query)
            except urllib.error.HTTPError:
                answer = None
            if answer is not None and ready(answer):
                return answer
            assert time.monotonic() < deadline, f"{path} never answered as expected, last with {answer}"
            time.sleep(0.3)


@pytest.fixture(scope="module")
def board(run: Path) -> Iterator[Board]:
    """A server on the folder above the run."""
    server = Board(run.parent)
    yield server
    server.process.terminate()
    server.process.wait(timeout=30)


@pytest.fixture(scope="module")
def result(run: Path) -> Result:
    """The run's result."""
    return store.read(run)


def test_call_scalars_are_the_results(board: Board, run: Path, result: Result) -> None:
    names = {"retain": f"{run.name}/tb/retain", "all at once": f"{run.name}/tb/all_at_once"}
    tags = board.wait("plugin/scalars/tags", lambda found: set(names.values()) <= set(found))
    for strategy in result.strategies:
        there = names[strategy.name]
        assert {"call/wall_ms", "call/cpu_ms", "call/retained_after_bytes", "step/wall_ms"} <= set(tags[there])
        points = board.get("plugin/scalars/scalars", run=there, tag="call/wall_ms")
        expected = [(call.index, call.wall_ns.median) for call in strategy.calls]
        assert [step for _, step, _ in points] == [index for index, _ in expected]
        for (_, _, value), (_, median) in zip(points, expected, strict=True):
            assert median is not None
            assert value == pytest.approx(median / 1e6, rel=1e-6)  # stored as float32
        kept = board.get("plugin/scalars/scalars", run=there, tag="call/retained_after_bytes")
        assert [value for _, _, value in kept] == [call.retained_bytes_after for call in strategy.calls]


def test_report_layout_and_hparams(board: Board, run: Path) -> None:
    where = f"{run.name}/tb/report"
    board.wait("plugin/text/tags", lambda found: "report" in str(found.get(where)))
    (text,) = board.get("plugin/text/text", run=where, tag="report/text_summary")
    assert "Is the first backward slower" in text["text"]
    layout = board.wait("plugin/custom_scalars/layout", lambda found: bool(found))
    assert "call/wall_ms" in json.dumps(layout)
    listed = board.get("plugins_listing")
    assert {"scalars", "text", "hparams", "custom_scalars", "pytorch_profiler"} <= set(listed)
    assert listed["hparams"]["enabled"]


def test_profiler_plugin_serves_its_views(board: Board, run: Path) -> None:
    """Overview, Operator, Trace and Memory of every strategy's trace."""
    names = {f"{run.name}/traces/retain", f"{run.name}/traces/all_at_once"}
    board.wait("plugin/pytorch_profiler/runs", lambda found: names <= set(found["runs"]) and not found["loading"])
    for name in sorted(names):
        views = board.get("plugin/pytorch_profiler/views", run=name)
        assert {"Overview", "Operator", "Trace", "Memory"} <= set(views)
        (worker,) = board.get("plugin/pytorch_profiler/workers", run=name, view="Overview")
        (span,) = board.get("plugin/pytorch_profiler/spans", run=name, worker=worker)
        where = {"run": name, "worker": worker, "span": span}
        overview = board.get("plugin/pytorch_profiler/overview", **where)
        assert len(overview["steps"]["rows"]) == 2  # the profiled steps
        table = board.get("plugin/pytorch_profiler/operation/table", group_by="Operation", **where)
        assert "aten::addmm" in {row["name"] for row in table["data"]}
        trace = json.loads(board.raw("plugin/pytorch_profiler/trace", **where))
        labels = {event.get("name") for event in trace["traceEvents"]}
        assert any(str(label).startswith("retainprof::call[0]") for label in labels)
        memory = board.get("plugin/pytorch_profiler/memory", **where)
        assert "CPU" in json.dumps(memory["metadata"])


def test_rules_of_hta_and_chrome_for_files(run: Path, result: Result) -> None:
    """HTA takes every ``.json`` and ``.gz`` of a folder for a trace and looks for the rank as text; Chrome wants JSON."""
    for strategy in result.strategies:
        (relative,) = strategy.traces
        path = run / relative
        assert [other.name for other in path.parent.iterdir()] == [path.name]
        assert re.fullmatch(r"(.+)_(\d+)\.\d+\.pt\.trace\.json\.gz", path.name)
        text = gzip.decompress(path.read_bytes()).decode()
        assert re.search(r'"distributedInfo": \{.*?"rank": 0', text, re.S)
        events = json.loads(text)["traceEvents"]
        assert {"ph", "name", "pid", "tid", "ts"} <= set(events[-5])
        spans = [event for event in events if event.get("cat") == "user_annotation"]
        steps = [event for event in spans if event["name"].startswith("ProfilerStep#")]
        assert len(steps) == 2
        for index, _ in enumerate(strategy.calls):
            calls = [event for event in spans if event["name"].startswith(f"retainprof::call[{index}]")]
            assert len(calls) == 2
