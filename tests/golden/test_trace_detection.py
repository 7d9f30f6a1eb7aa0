"""Calls found without labels are the labelled ones, on every public trace that has labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retainprof.trace import analyze, read
from retainprof.trace.calls import find_calls
from retainprof.trace.engine import engine_calls
from retainprof.trace.facts import Facts
from retainprof.trace.ranges import Ranges
from retainprof.trace.select import labelled

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
LABELS = {"hta_nccl": 3, "hta_ns_resolution": 5, "hta_sampled_rank0": 2, "param_dlrm_rank0": 1, "param_dlrm_rank1": 1}
CALLS = {  # without labels: one call a step, by the traces' own descriptions
    "hta_df_index": 5,
    "hta_mi250_minitoy": 1,
    "kineto_resnet50_2021": 6,
    "param_linear": 40,
    "tracelens_mi300_resnet_checkpoint": 3,
    "tracelens_h100_falconsai": 0,
    "tracelens_vllm_graph": 0,
}
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"needs the shared traces in {TRACES}")


@pytest.mark.parametrize("name", LABELS)
def test_engine_events_of_each_label(name: str) -> None:
    trace = read(TRACES / f"{name}.json.gz")
    facts = Facts(trace)
    found, labels = engine_calls(facts), trace.marks.take(labelled(trace))
    assert len(found) == len(labels) == LABELS[name]
    operators = trace.operators
    inside = [Ranges(marks.start, marks.end).inside(operators).expand(facts.engine) for marks in (found, labels)]
    assert np.array_equal(inside[0], inside[1])
    assert not len(np.setdiff1d(np.flatnonzero(facts.engine), inside[0][1]))


@pytest.mark.parametrize("name", CALLS)
def test_calls_without_labels(name: str) -> None:
    facts = Facts(read(TRACES / f"{name}.json.gz"))
    calls = find_calls(facts)
    assert calls.found_by == "engine"
    assert len(calls) == CALLS[name]
    assert calls.step.tolist() == list(range(CALLS[name]))
    assert not calls.index.any()


@pytest.mark.parametrize(("name", "kernels", "others"), [("hta_nccl", 598, 199), ("hta_ns_resolution", 562, 188)])
def test_all_device_events_of_a_label(name: str, kernels: int, others: int) -> None:
    """The label's thread, and so the trace's own device annotation, has launched six of them."""
    for call in analyze(read(TRACES / f"{name}.json.gz")).calls:
        assert (call.kernels, call.copies_and_sets) == (kernels, others)
        assert call.kernels + call.copies_and_sets - call.figures.off_thread == 6


def test_checkpoint_that_is_not_reentrant() -> None:
    """Its forward runs again inside engine events, in each of the three steps equally."""
    report = analyze(read(TRACES / "tracelens_mi300_resnet_checkpoint.json.gz"))
    again = [call.forward_ops_in_backward for call in report.calls]
    assert again[0] > 0
    assert len(set(again)) == 1
