"""Generated traces: every figure of the generator's own books, with and without labels."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from retainprof.trace import TraceReport, analyze, read
from retainprof.trace.engine import engine_calls
from retainprof.trace.facts import Facts
from retainprof.trace.figures import range_figures
from retainprof.trace.report import TraceCall
from retainprof.trace.select import labelled

SYNTH = Path(__file__).resolve().parents[3] / "shared" / "traces" / "synth.py"
pytestmark = pytest.mark.skipif(not SYNTH.exists(), reason=f"needs {SYNTH}")

PLANS = {
    "two calls": "--calls 2 --layers 1 --steps 2 --seed 1",
    "three calls, compressed": "--calls 3 --layers 4 --steps 3 --seed 2 --gzip",
    "eight calls, last retains": "--calls 8 --layers 3 --steps 2 --seed 3 --retain-last",
    "five calls, other sizes": "--calls 5 --layers 2 --steps 1 --seed 4 --params-bytes 1000 --saved-bytes 70000",
    "one step of a deep one": "--calls 4 --layers 60 --steps 1 --seed 5 --retain-last",
    "own labels": "--calls 3 --layers 2 --steps 2 --seed 6 --label retainprof::call[{call}]",
    "100,000 events": "--calls 3 --layers 20 --events 100000 --seed 7",
}


@cache
def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("synth", SYNTH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=PLANS, scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A trace and its truth."""
    path = tmp_path_factory.mktemp("synth") / "host_0.1.pt.trace.json"
    _generator().main(["--out", str(path), *PLANS[request.param].split()])
    return path, json.loads(Path(f"{path}.truth.json").read_text())


def test_every_call(made: tuple[Path, dict[str, Any]]) -> None:
    path, truth = made
    report = analyze(read(path))
    assert report.file.events == truth["events"]
    assert report.file.orphans == truth["orphans"]
    assert report.file.memory_events == truth["memory_events"]
    assert report.file.memory_order_breaks == 0
    assert report.file.frees_of_unknown_birth == 0
    assert (report.steps, report.found_by, report.steps_by) == (truth["number_of_steps"], "label", "ProfilerStep")
    expected = [call for step in truth["steps"] for call in step["calls"]]
    assert len(report.calls) == len(expected)
    for call, want in zip(report.calls, expected, strict=True):
        assert _call(call) == {name: want[name] for name in _call(call)}
    _retained(report, truth)


def _call(call: TraceCall) -> dict[str, Any]:
    """A call in the names and units of the truth."""
    figures = call.figures
    assert call.device is not None
    assert call.freed_bytes is not None
    return {
        "call": call.index,
        "label": call.label,
        "start_us": call.start_ns / 1000,
        "dur_us": call.profiled_wall_ns / 1000,
        "kernels": call.kernels,
        "copies": call.copies_and_sets,
        "kernel_time_ns": figures.kernel_time_ns,
        "on_label_thread": call.kernels + call.copies_and_sets - figures.off_thread,
        "device_span_ns": call.device.span_ns,
        "ends_after_label_ns": call.device.ends_after_range_ns,
        "engine_events": call.nodes,
        "accumulate_grad": figures.accumulate_grad,
        "steals": call.accumulate.stolen,
        "adds": call.accumulate.added,
        "ops": figures.ops,
        "memory_events": figures.memory_events,
        "allocated_bytes": call.allocated_bytes,
        "freed_bytes": call.freed_bytes,
        "retained_bytes_after": call.retained_bytes_after,
        "kernels_by_name": {kernel.name: [kernel.count, kernel.ns] for kernel in figures.kernels_by_name},
    }


def _retained(report: TraceReport, truth: dict[str, Any]) -> None:
    """What the graph saved and the losses' scalars are alive after the forward; each call frees what the books say."""
    for held, step in zip(report.retained, truth["steps"], strict=True):
        scalars = step["calls"][0]["retained_bytes_after"] - step["calls"][0]["saved_bytes_held_after"]
        assert held.after_forward_bytes == step["saved_bytes_after_forward"] + scalars
        for call in step["calls"]:
            freed = sum(release.bytes for release in held.releases if release.freed_in_call == call["call"])
            assert freed == call["freed_saved_bytes"]


def test_calls_share_one_graph(made: tuple[Path, dict[str, Any]]) -> None:
    """Each call has one node of its own, its loss's; relu, addmm and t of every layer are shared with call 0."""
    path, truth = made
    for call in analyze(read(path)).calls:
        assert call.graph == 0
        assert call.nodes_shared_with_earlier == (3 * truth["layers"] if call.index else 0)


def test_first_against_later(made: tuple[Path, dict[str, Any]]) -> None:
    """A later call adds where the first one steals: one kernel for each weight and bias, and nothing else."""
    path, truth = made
    for later in analyze(read(path)).first_vs_later:
        different = [row for row in later.kernels if row.status != "same"]
        assert [(row.status, row.first_count, row.later_count) for row in different] == [
            ("only_later", 0, 2 * truth["layers"])
        ]
        assert "CUDAFunctor_add" in different[0].name


def test_without_labels_the_same_calls(made: tuple[Path, dict[str, Any]]) -> None:
    path, truth = made
    trace = read(path)
    facts = Facts(trace)
    found = engine_calls(facts)
    labels = trace.marks.take(labelled(trace))
    assert len(found) == len(labels) == truth["number_of_steps"] * truth["calls_per_step"]
    for mine, theirs in zip(range_figures(facts, found), range_figures(facts, labels), strict=True):
        assert mine.engine_events == theirs.engine_events
        assert mine.kernels_by_name == theirs.kernels_by_name
        assert mine.off_thread == theirs.off_thread


def test_forward_behind_the_kernels_of_every_call(made: tuple[Path, dict[str, Any]]) -> None:
    """Arrows link only the first evaluation of a node; sequence numbers link all."""
    path, truth = made
    layers = truth["layers"]
    for call in analyze(read(path)).by_call:
        behind = {node.node: (node.forward_op, node.evaluations) for node in call.nodes if node.node}
        assert behind["AddmmBackward0"] == ("aten::addmm", layers)
        assert behind["TBackward0"] == ("aten::t", layers)
        assert behind["MseLossBackward0"] == ("aten::mse_loss", 1)
        assert behind["torch::autograd::AccumulateGrad"] == ("", 2 * layers)


@pytest.mark.slow
def test_a_million_events(tmp_path: Path) -> None:
    """The same books at the size of a long profile: about 300 MB of JSON."""
    path = tmp_path / "host_0.1.pt.trace.json"
    _generator().main(["--out", str(path), *["--calls", "4", "--layers", "40", "--events", "1000000", "--seed", "8"]])
    truth = json.loads(Path(f"{path}.truth.json").read_text())
    assert truth["events"] >= 1_000_000
    test_every_call((path, truth))
