"""Generated traces of labelled calls over a retained graph: everything their generator knows is found again."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retainprof.trace import Trace, read
from retainprof.trace.calls import Calls, find_calls
from retainprof.trace.engine import engine_calls
from retainprof.trace.facts import Facts
from retainprof.trace.figures import RangeFigures, file_figures, range_figures
from retainprof.trace.held import held
from retainprof.trace.measure import Span, measure

SYNTH = Path(__file__).resolve().parents[3] / "shared" / "traces" / "synth.py"
pytestmark = pytest.mark.skipif(not SYNTH.exists(), reason=f"needs the generator {SYNTH}")
SCALAR_BYTES = 512  # what the allocator hands out for one number
SHAPES = [
    pytest.param(calls, retain_last, seed, id=f"{calls}-calls-{'leak' if retain_last else 'free'}-seed-{seed}")
    for calls in (2, 3, 5, 8)
    for retain_last, seed in ((False, calls), (True, 100 + calls))
]
Generate = Callable[..., tuple[Trace, dict[str, Any]]]


@pytest.fixture
def generate(tmp_path: Path) -> Generate:
    """Makes a trace with the options given and reads it; returns it with its truth."""

    def make(*words: str, suffix: str = ".json") -> tuple[Trace, dict[str, Any]]:
        spec = importlib.util.spec_from_file_location("synth", SYNTH)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        path = tmp_path / f"trace{suffix}"
        module.main(["--out", str(path), *words])
        return read(path), json.loads(Path(f"{path}.truth.json").read_text())

    return make


def _words(calls: int, retain_last: bool, seed: int) -> list[str]:
    shape = f"--steps 3 --calls {calls} --layers 3 --seed {seed}".split()
    return [*shape, *(["--retain-last"] if retain_last else [])]


def _expected(truth: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": step["step"], **call} for step in truth["steps"] for call in step["calls"]]


@pytest.mark.parametrize(("calls", "retain_last", "seed"), SHAPES)
def test_calls(generate: Generate, calls: int, retain_last: bool, seed: int) -> None:
    trace, truth = generate(*_words(calls, retain_last, seed))
    facts = Facts(trace)
    found, expected = find_calls(facts), _expected(truth)
    assert (trace.events, trace.notes) == (truth["events"], ())
    assert file_figures(facts).orphans == truth["orphans"]
    assert len(trace.memory) == truth["memory_events"]
    assert list(found.names) == [call["label"] for call in expected]
    assert found.step.tolist() == [call["step"] for call in expected]
    assert found.index.tolist() == [call["call"] for call in expected]
    assert [start / 1000 for start in found.marks.start.tolist()] == [call["start_us"] for call in expected]
    for one, call in zip(range_figures(facts, found.marks), expected, strict=True):
        assert _launched(one) == _launched_truth(call)
        assert _evaluated(one) == {name: call[name] for name in ("engine_events", "accumulate_grad", "ops")}
        memory = (one.memory_events, one.memory[0].allocated_bytes, one.memory[0].freed_bytes)
        assert memory == (call["memory_events"], call["allocated_bytes"], call["freed_bytes"])


@pytest.mark.parametrize(("calls", "retain_last", "seed"), SHAPES)
def test_accumulation_and_sharing(generate: Generate, calls: int, retain_last: bool, seed: int) -> None:
    trace, truth = generate(*_words(calls, retain_last, seed))
    facts = Facts(trace)
    found, expected = find_calls(facts), _expected(truth)
    for one, call in zip(_measured(facts, found), expected, strict=True):
        assert (one.accumulate.stolen, one.accumulate.added) == (call["steals"], call["adds"])
        assert (one.accumulate.copied, one.fan_in_adds, one.forward_ops_in_backward) == (0, 0, 0)
        assert one.net_bytes == call["allocated_bytes"] - call["freed_bytes"]
    # all but the root of each call and the accumulations (without a number): three nodes a layer
    assert found.shared.tolist() == [0 if call["call"] == 0 else 3 * 3 for call in expected]
    assert len(set(found.graph.tolist())) == truth["number_of_steps"]


def _measured(facts: Facts, calls: Calls) -> tuple[Any, ...]:
    bounds = zip(calls.marks.start.tolist(), calls.marks.end.tolist(), strict=True)
    return measure(facts, [Span("", 0, start, end) for start, end in bounds])


@pytest.mark.parametrize(("calls", "retain_last", "seed"), SHAPES)
def test_retained_bytes(generate: Generate, calls: int, retain_last: bool, seed: int) -> None:
    trace, truth = generate(*_words(calls, retain_last, seed))
    facts = Facts(trace)
    for one, step in zip(held(facts, find_calls(facts)), truth["steps"], strict=True):
        assert one.step == step["step"]
        assert one.after_forward_bytes == step["saved_bytes_after_forward"] + calls * SCALAR_BYTES
        assert list(one.after_call_bytes) == [call["retained_bytes_after"] for call in step["calls"]]
        freed = [sum(r.bytes for r in one.releases if r.freed_in_call == k) for k in range(calls)]
        assert freed == [call["freed_saved_bytes"] for call in step["calls"]]


@pytest.mark.parametrize(("calls", "retain_last", "seed"), SHAPES)
def test_without_labels(generate: Generate, calls: int, retain_last: bool, seed: int) -> None:
    """The engine's own events tell the same calls; only the free of the root's gradient lies after them."""
    trace, truth = generate(*_words(calls, retain_last, seed))
    facts = Facts(trace)
    for one, call in zip(range_figures(facts, engine_calls(facts)), _expected(truth), strict=True):
        assert _launched(one, ends=False) == _launched_truth(call, ends=False)
        assert _evaluated(one) == {name: call[name] for name in ("engine_events", "accumulate_grad", "ops")}
        memory = (one.memory_events, one.memory[0].allocated_bytes, one.memory[0].freed_bytes)
        assert memory == (call["memory_events"] - 1, call["allocated_bytes"], call["freed_bytes"] - SCALAR_BYTES)


def test_other_labels_and_compression(generate: Generate) -> None:
    words = ["--steps", "2", "--calls", "2", "--layers", "2", "--seed", "9", "--label"]
    trace, truth = generate(*words, 'loss "{call}" \\ é backward', suffix=".json.gz")
    found = find_calls(Facts(trace))
    assert list(found.names) == [call["label"] for call in _expected(truth)]
    assert found.names[1] == 'loss "1" \\ é backward'


@pytest.mark.slow
def test_a_million_events(generate: Generate) -> None:
    trace, truth = generate(
        *["--calls", "4", "--layers", "40", "--events", "1000000", "--seed", "5"], suffix=".json.gz"
    )
    facts = Facts(trace)
    found, expected = find_calls(facts), _expected(truth)
    assert trace.events == truth["events"] >= 1_000_000
    assert len(trace.memory) == truth["memory_events"]
    figures = range_figures(facts, found.marks)
    assert [_launched(one) for one in figures] == [_launched_truth(call) for call in expected]
    retained = [held_after for step in held(facts, found) for held_after in step.after_call_bytes]
    assert retained == [call["retained_bytes_after"] for call in expected]
    assert np.array_equal(found.index, [call["call"] for call in expected])


def _launched(one: RangeFigures, *, ends: bool = True) -> dict[str, Any]:
    """The device side, in the words of the truth."""
    return {
        "kernels": one.kernels,
        "copies": one.copies_and_sets,
        "kernel_time_ns": one.kernel_time_ns,
        "on_label_thread": one.kernels + one.copies_and_sets - one.off_thread,
        "device_span_ns": one.device_span_ns,
        "kernels_by_name": {kernel.name: [kernel.count, kernel.ns] for kernel in one.kernels_by_name},
        **({"ends_after_label_ns": one.ends_after_range_ns} if ends else {}),
    }


def _launched_truth(call: dict[str, Any], *, ends: bool = True) -> dict[str, Any]:
    names = ("kernels", "copies", "kernel_time_ns", "on_label_thread", "device_span_ns", "kernels_by_name")
    return {name: call[name] for name in (*names, *(["ends_after_label_ns"] if ends else []))}


def _evaluated(one: RangeFigures) -> dict[str, int]:
    return {name: getattr(one, name) for name in ("engine_events", "accumulate_grad", "ops")}
