"""Every option with every strategy: no error, two methods that agree to the byte, and gradients as they should be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from retainprof.capture.bytes import Point
from retainprof.capture.evidence import Evidence, EvidencePlan, gather
from retainprof.capture.gradients import compare, final_gradients, reference_runner
from retainprof.capture.step import StepRunner
from retainprof.strategies import REGISTRY

MakeRunner = Callable[..., StepRunner]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpoint": {"checkpoint": "trunk"},
    "offload": {"offload": True},
    "autocast": {"autocast": "bfloat16"},
    "create_graph": {"create_graph": True},
    "all": {"checkpoint": "trunk", "offload": True, "autocast": "bfloat16"},
}
CALLS = {"calls": [{"backward": "cls", "retain": True}, {"backward": "reg"}]}


@pytest.mark.parametrize("kind", sorted(REGISTRY))
@pytest.mark.parametrize("option", list(OPTIONS))
def test_residues_are_zero(runner_of: MakeRunner, kind: str, option: str) -> None:
    runner = runner_of(kind, **OPTIONS[option], **(CALLS if kind == "calls" else {}))
    evidence = Evidence()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True")
        gather(runner, EvidencePlan(steps=1, record_shapes=True, with_stack=False), evidence)
    assert evidence.error is None
    books = evidence.books
    assert books is not None
    assert len(books.points) == 2 * len(runner.specs)
    for point in books.points:
        released = evidence.released[point]
        assert released.dropped == books.held[point].total_bytes, point
        pinned = released.cleared - books.gradients[point].all_bytes
        assert pinned == books.pinned[point].total_bytes, point
        if option != "create_graph":
            assert pinned == 0


def test_nodes_visited_by_the_walk_are_those_the_engine_evaluates(runner_of: MakeRunner) -> None:
    for kind in sorted(REGISTRY):
        runner = runner_of(kind, **(CALLS if kind == "calls" else {}))
        evidence = Evidence()
        gather(runner, EvidencePlan(steps=1, record_shapes=False, with_stack=False), evidence)
        assert evidence.books is not None
        for spec in runner.specs:
            several_roots = kind in ("joint", "batched")  # then the engine evaluates a node of its own, GraphRoot
            walked = len(evidence.books.visits[spec.index]) + several_roots
            assert walked == evidence.calls[spec.index].nodes, (kind, spec.index)


@pytest.mark.parametrize("option", ["checkpoint", "offload"])
def test_what_only_changes_memory_leaves_the_same_gradients(runner_of: MakeRunner, option: str) -> None:
    runner = runner_of("summed", **OPTIONS[option])
    found = compare(runner, final_gradients(runner), final_gradients(reference_runner(runner)), "summed")
    assert (found.relation, found.max_rel_difference) == ("bitwise", 0.0)


def test_recomputation_is_counted_in_every_call(runner_of: MakeRunner) -> None:
    """The trunk's Linear and Tanh run again in each call that goes through it."""
    evidence = Evidence()
    gather(
        runner_of("retain", checkpoint="trunk"), EvidencePlan(steps=1, record_shapes=True, with_stack=False), evidence
    )
    assert [found.forward_ops_in_backward for found in evidence.calls.values()] == [2, 2]


def test_checkpoint_holds_less_after_the_forward(runner_of: MakeRunner) -> None:
    """Without: Tanh's output (32 x 16), which the heads save, stays. With: the same, since the heads save it; nothing more."""
    held = {}
    for name, options in (("plain", {}), ("checkpoint", {"checkpoint": "trunk"})):
        evidence = Evidence()
        gather(runner_of("retain", **options), EvidencePlan(steps=1, record_shapes=True, with_stack=False), evidence)
        held[name] = evidence.released[Point("before", 0)].dropped
    rng_state = 5056  # torch.utils.checkpoint keeps it, to draw the same random numbers again
    assert held["checkpoint"] == held["plain"] + rng_state
