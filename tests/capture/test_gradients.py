"""Relations of gradients to the summed reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from retainprof.capture.gradients import compare, final_gradients, reference_runner
from retainprof.capture.step import StepRunner
from retainprof.capture.workload import Workload
from retainprof.records import Gradients

MakeRunner = Callable[..., StepRunner]


def relation(runner: StepRunner) -> Gradients:
    """The verdict on one strategy."""
    return compare(runner, final_gradients(runner), final_gradients(reference_runner(runner)), "summed")


@pytest.mark.parametrize("kind", ["summed", "joint", "two_stage", "edge"])
def test_the_same_operations_in_the_same_order_are_bitwise_equal(runner_of: MakeRunner, kind: str) -> None:
    """With two losses, both ways add the two cotangents of the trunk's output in one addition."""
    found = relation(runner_of(kind))
    assert (found.relation, found.max_rel_difference) == ("bitwise", 0.0)


def test_retain_differs_by_rounding(runner_of: MakeRunner) -> None:
    found = relation(runner_of("retain"))
    assert found.relation == "close"
    assert found.max_rel_difference is not None
    assert 0 < found.max_rel_difference < 1e-5  # float32 rounding, seven digits
    assert found.worst_parameter in ("trunk.0.weight", "trunk.0.bias")


def test_a_loss_of_weight_two_is_different(runner_of: MakeRunner) -> None:
    calls = [{"backward": ["cls", "reg"], "weights": [1.0, 2.0]}]
    found = relation(runner_of("calls", calls=calls))
    assert found.relation == "different"
    assert found.max_rel_difference is not None
    assert found.max_rel_difference >= 0.5  # the regression head's gradient is twice the reference's, others less so


def test_sum_and_absolute_sum(runner_of: MakeRunner, workload: Workload) -> None:
    found = relation(runner_of("summed"))
    runner = runner_of("joint")
    runner.run(__import__("retainprof.capture.observe", fromlist=["Observer"]).Observer())
    flat = torch.cat([leaf.grad.double().flatten() for leaf in workload.leaves if leaf.grad is not None])
    assert found.sum == pytest.approx(flat.sum().item(), abs=1e-9)
    assert found.abs_sum == pytest.approx(flat.abs().sum().item(), abs=1e-9)


@pytest.mark.parametrize("kind", ["grad", "batched", "two_stage_per_loss"])
def test_returned_gradients_are_compared_by_their_sum(runner_of: MakeRunner, kind: str) -> None:
    found = relation(runner_of(kind))
    assert found.relation == "not_comparable"
    assert found.returned_relation in ("close", "bitwise")
    assert found.max_rel_difference is None


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([{"backward": "cls", "retain": True}, {"backward": "reg", "zero_grad": "zero"}], "cleared"),
        ([{"backward": "cls", "retain": True}, {"grad": "reg", "wrt": "heads.reg.bias"}], "returned"),
    ],
)
def test_not_comparable_by_plan(runner_of: MakeRunner, calls: list[dict[str, Any]], reason: str) -> None:
    found = relation(runner_of("calls", calls=calls))
    assert found.relation == "not_comparable"
    assert reason in found.reason
    assert found.max_rel_difference is None


def test_a_failed_strategy_is_partial_and_has_no_sum(runner_of: MakeRunner) -> None:
    found = relation(runner_of("calls", calls=[{"backward": "cls"}, {"backward": "reg"}]))
    assert (found.relation, found.sum, found.abs_sum) == ("partial", None, None)


@pytest.mark.parametrize(("options", "word"), [({"dropout": 0.5}, "dropout"), ({"norm": True}, "BatchNorm")])
def test_several_forwards_of_a_model_with_state(
    runner_of: MakeRunner, workload_with: Callable[..., Workload], options: dict[str, Any], word: str
) -> None:
    workload = workload_with(**options)
    found = relation(runner_of("separate", on=workload))
    assert found.relation == "not_comparable"
    assert word in found.reason
    assert relation(runner_of("retain", on=workload)).relation == "close"


def test_a_subset_of_the_losses_has_a_reference_of_its_own(runner_of: MakeRunner) -> None:
    found = relation(runner_of("calls", calls=[{"backward": "cls"}]))
    assert found.relation == "bitwise"


def test_not_finite_gradients_are_named(runner_of: MakeRunner, workload: Workload) -> None:
    with torch.no_grad():
        workload.model.get_parameter("heads.cls.bias").fill_(float("nan"))
    found = relation(runner_of("summed"))
    assert "heads.cls.bias" in found.not_finite
    assert "heads.reg.bias" not in found.not_finite
