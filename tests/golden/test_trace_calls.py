"""Calls of the public traces: those that labels tell are found without labels, too."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from retainprof.trace import read
from retainprof.trace.calls import find_calls
from retainprof.trace.engine import engine_calls
from retainprof.trace.facts import Facts
from retainprof.trace.figures import range_figures
from retainprof.trace.select import labelled

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
LABELLED = {"hta_nccl": 3, "hta_ns_resolution": 5, "hta_sampled_rank0": 2, "param_dlrm_rank0": 1, "param_dlrm_rank1": 1}
# kernels of the loss (cross entropy; a sum), which these labels hold beside the backward
LOSS_KERNELS = {
    "hta_nccl": 5,
    "hta_ns_resolution": 5,
    "hta_sampled_rank0": 0,
    "param_dlrm_rank0": 1,
    "param_dlrm_rank1": 1,
}
CALLS_A_STEP = {  # steps with a backward, and calls
    "hta_df_index": (5, 5),
    "hta_mi250_minitoy": (1, 1),  # and a step without a backward
    "kineto_resnet50_2021": (6, 6),
    "param_linear": (40, 40),
    "tracelens_mi300_resnet_checkpoint": (3, 3),
}
WITHOUT = ("hta_cpu_only", "tracelens_h100_falconsai", "tracelens_vllm_graph")
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"needs the shared traces in {TRACES}")


@cache
def facts_of(name: str) -> Facts:
    """The facts of a trace, read once."""
    return Facts(read(TRACES / f"{name}.json.gz"))


@pytest.mark.parametrize("name", LABELLED)
def test_labels_and_engine_agree(name: str) -> None:
    """As many calls, each with the very same evaluations."""
    facts = facts_of(name)
    marks, found = facts.trace.marks.take(labelled(facts.trace)), engine_calls(facts)
    assert len(marks) == len(found) == LABELLED[name]
    operators = facts.trace.operators
    for label, call in zip(range(len(marks)), range(len(found)), strict=True):
        inside = [
            np.flatnonzero(facts.engine & (operators.start >= one.start[i]) & (operators.start <= one.end[i]))
            for one, i in ((marks, label), (found, call))
        ]
        assert inside[0].tolist() == inside[1].tolist()


@pytest.mark.parametrize("name", LABELLED)
def test_device_events_agree(name: str) -> None:
    facts = facts_of(name)
    by_label = range_figures(facts, facts.trace.marks.take(labelled(facts.trace)))
    by_engine = range_figures(facts, engine_calls(facts))
    for one, other in zip(by_label, by_engine, strict=True):
        kernels = other.kernels + LOSS_KERNELS[name]
        assert (one.kernels, one.memcpys, one.memsets) == (kernels, other.memcpys, other.memsets)
        assert one.accumulate_grad_inside == other.accumulate_grad_inside


@pytest.mark.parametrize("name", CALLS_A_STEP)
def test_one_call_a_step(name: str) -> None:
    """Training loops that call backward once a step, without a label round it."""
    calls = find_calls(facts_of(name))
    steps, count = CALLS_A_STEP[name]
    assert calls.found_by == "engine"
    assert len(calls) == count
    assert calls.index.tolist() == [0] * count
    assert calls.step.tolist() == list(range(steps))
    assert calls.shared.tolist() == [0] * count


@pytest.mark.parametrize("name", WITHOUT)
def test_inference_has_no_calls(name: str) -> None:
    assert len(find_calls(facts_of(name))) == 0
