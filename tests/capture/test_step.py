"""Steps: every strategy makes the calls it says, leaves the gradients it says, and starts from the same state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from retainprof.capture.ledger_visits import leaves_of
from retainprof.capture.observe import Observer, StopStep
from retainprof.capture.step import StepRunner
from retainprof.capture.workload import Workload
from retainprof.strategies import REGISTRY

MakeRunner = Callable[..., StepRunner]
WRITING = ["summed", "joint", "retain", "separate", "two_stage", "edge"]
RETURNING = ["grad", "batched", "two_stage_per_loss"]


class Log(Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def step_begin(self) -> None:
        self.told.append("step")

    def forward_begin(self, segment: int) -> None:
        self.told.append(f"forward {segment}")

    def loss_end(self, name: str) -> None:
        self.told.append(name)

    def call_begin(self, index: int) -> None:
        self.told.append(f"call {index}")

    def call_end(self, index: int) -> None:
        self.told.append(f"called {index}")

    def call_failed(self, index: int) -> None:
        self.told.append(f"failed {index}")

    def step_end(self) -> None:
        self.told.append("end")


def by_hand(workload: Workload) -> dict[str, Tensor]:
    """Gradients of the sum of the losses, without any of the package's own steps."""
    outputs = workload.model(*workload.inputs)
    total = torch.stack([fn(outputs, workload.targets) for fn in workload.losses.values()]).sum()
    named = dict(workload.model.named_parameters())
    return dict(zip(named, torch.autograd.grad(total, list(named.values())), strict=True))


def test_every_registered_strategy_is_covered() -> None:
    assert sorted(REGISTRY) == sorted([*WRITING, *RETURNING, "calls"])


@pytest.mark.parametrize("kind", WRITING)
def test_writing_strategies_leave_the_summed_gradients(runner_of: MakeRunner, workload: Workload, kind: str) -> None:
    runner = runner_of(kind)
    assert runner.run(Observer()) is None
    for name, expected in by_hand(workload).items():
        found = workload.named_leaves[name].grad
        assert found is not None
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", [*RETURNING])
def test_returning_strategies_return_them_and_leave_grad_alone(
    runner_of: MakeRunner, workload: Workload, kind: str
) -> None:
    runner = runner_of(kind)
    assert runner.run(Observer()) is None
    assert all(leaf.grad is None for leaf in workload.leaves)
    sums: dict[int, Tensor] = {}
    for item in runner.returned:
        gradient = item.gradient.sum(0) if item.batched else item.gradient
        sums[item.of] = sums[item.of] + gradient if item.of in sums else gradient
    for name, expected in by_hand(workload).items():
        torch.testing.assert_close(sums[id(workload.named_leaves[name])], expected)


def test_batched_trunk_returns_one_set_for_each_loss(runner_of: MakeRunner, workload: Workload) -> None:
    runner = runner_of("two_stage_per_loss", batched=True)
    assert len(runner.specs) == 3
    assert runner.run(Observer()) is None
    weight = workload.named_leaves["trunk.0.weight"]
    (batched,) = [item for item in runner.returned if item.of == id(weight)]
    assert batched.gradient.shape == (2, *weight.shape)
    torch.testing.assert_close(batched.gradient.sum(0), by_hand(workload)["trunk.0.weight"])


def test_observer_is_told_in_order(runner_of: MakeRunner) -> None:
    log = Log()
    runner_of("separate").run(log)
    assert log.told == [
        *("step", "forward 0", "cls", "call 0", "called 0"),
        *("forward 1", "reg", "call 1", "called 1", "end"),
    ]


def test_retain_order_and_flags(runner_of: MakeRunner) -> None:
    runner = runner_of("retain", order=["reg", "cls"])
    assert [(spec.losses, spec.retain_graph) for spec in runner.specs] == [(("reg",), True), (("cls",), False)]
    kept = runner_of("retain", retain_last=True)
    assert [spec.retain_graph for spec in kept.specs] == [True, True]


def test_forward_runs(runner_of: MakeRunner) -> None:
    found = {}
    for kind in [*WRITING, *RETURNING]:
        runner = runner_of(kind)
        runner.run(Observer())
        found[kind] = runner.forward_runs
    assert found == dict.fromkeys([*WRITING, *RETURNING], 1) | {"separate": 2}
    per_loss = runner_of("summed", forward_per_loss=True)
    per_loss.run(Observer())
    assert per_loss.forward_runs == 2


def test_a_failing_call_is_told_and_keeps_what_came_before(runner_of: MakeRunner, workload: Workload) -> None:
    log = Log()
    runner = runner_of("calls", calls=[{"backward": "cls"}, {"backward": "reg"}])
    error = runner.run(log)
    assert error is not None
    assert (error.call, error.loss, error.type) == (1, "reg", "RuntimeError")
    assert "second time" in error.message
    assert log.told[-3:] == ["call 1", "failed 1", "end"]
    assert workload.named_leaves["trunk.0.weight"].grad is not None


def test_an_observer_can_end_the_step(runner_of: MakeRunner) -> None:
    class Stop(Log):
        def call_end(self, index: int) -> None:
            raise StopStep

    log = Stop()
    assert runner_of("retain").run(log) is None
    assert log.told[-2:] == ["call 0", "end"]


def test_sgd_and_zero_grad_between_calls(runner_of: MakeRunner, workload: Workload) -> None:
    before = {name: p.detach().clone() for name, p in workload.named_leaves.items()}
    runner = runner_of(
        "calls",
        calls=[{"backward": "cls", "retain": True}, {"backward": "reg", "zero_grad": "before"}],
    )
    assert runner.run(Observer()) is None
    cleared = [name for name, leaf in workload.named_leaves.items() if leaf.grad is None]
    assert "heads.cls.weight" in cleared  # and reg does not reach it
    stepping = runner_of("calls", calls=[{"backward": "cls", "retain": True}, {"grad": "cls", "step": {"sgd": 0.5}}])
    stepping.run(Observer())
    gradient = workload.named_leaves["heads.cls.weight"].grad
    assert gradient is not None
    torch.testing.assert_close(
        workload.named_leaves["heads.cls.weight"].detach(), before["heads.cls.weight"] - 0.5 * gradient
    )
    stepping.state.restore()
    for name, p in workload.named_leaves.items():
        assert torch.equal(p, before[name])


def test_weights_are_grad_tensors(runner_of: MakeRunner, workload: Workload) -> None:
    runner_of("calls", calls=[{"backward": ["cls", "reg"], "weights": [0.0, 3.0]}]).run(Observer())
    only_reg = workload.named_leaves["heads.reg.bias"].grad
    assert only_reg is not None
    outputs = workload.model(*workload.inputs)
    expected = 3 * 2 * (outputs["reg"] - workload.targets["reg"]).mean(0)  # derivative of the mean square
    torch.testing.assert_close(only_reg, expected.detach())


def test_inputs_restrict_what_is_written(runner_of: MakeRunner, workload: Workload) -> None:
    runner_of("calls", calls=[{"backward": "cls", "inputs": "heads.cls.weight"}]).run(Observer())
    written = [name for name, leaf in workload.named_leaves.items() if leaf.grad is not None]
    assert written == ["heads.cls.weight"]


def test_an_unknown_parameter_names_those_that_there_are(runner_of: MakeRunner) -> None:
    error = runner_of("calls", calls=[{"grad": "cls", "wrt": "heads.cls.wieght"}]).run(Observer())
    assert error is not None
    assert "no trainable parameter 'heads.cls.wieght'" in error.message
    assert "heads.cls.weight" in error.message


@pytest.mark.parametrize(("zero_grad", "expected"), [("zero", 1.0), ("keep", 2.0)])
def test_zero_grad_says_what_the_first_call_meets(
    runner_of: MakeRunner, workload: Workload, zero_grad: str, expected: float
) -> None:
    runner = runner_of("summed", zero_grad=zero_grad)
    wanted = by_hand(workload)
    if zero_grad == "keep":
        runner.state.keep([wanted[name] for name in workload.named_leaves])
    for _ in range(2):  # the second step starts like the first
        runner.run(Observer())
        for name, leaf in workload.named_leaves.items():
            assert leaf.grad is not None
            torch.testing.assert_close(leaf.grad, expected * wanted[name])


def test_every_step_starts_from_the_same_state(runner_of: MakeRunner, workload_with: Callable[..., Workload]) -> None:
    """Dropout draws the same mask in every step, BatchNorm starts from the same statistics."""
    for options in ({"dropout": 0.5}, {"norm": True}):
        workload = workload_with(**options)
        runner = runner_of("summed", on=workload)
        seen = []
        for _ in range(2):
            runner.run(Observer())
            grads = [leaf.grad.clone() for leaf in workload.leaves if leaf.grad is not None]
            seen.append([*grads, *(b.clone() for b in workload.model.buffers())])
        for one, other in zip(*seen, strict=True):
            assert torch.equal(one, other)


def test_drop_and_clear_leave_nothing(runner_of: MakeRunner, workload: Workload) -> None:
    runner = runner_of("two_stage")
    runner.run(Observer())
    assert runner.live
    assert runner.cut
    runner.drop()
    runner.clear()
    assert not runner.live
    assert not runner.cut
    assert all(leaf.grad is None for leaf in workload.leaves)


def test_checkpoint_recomputes_once_a_call_and_is_taken_off(runner_of: MakeRunner, workload: Workload) -> None:
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1

    handle = workload.model.get_submodule("trunk.0").register_forward_hook(count)
    runner_of("retain", checkpoint="trunk").run(Observer())
    assert seen == 3  # the forward, and once in each of two calls
    handle.remove()
    assert "forward" not in vars(workload.model.get_submodule("trunk"))


def test_leaves_of_stops_at_the_cut(workload: Workload) -> None:
    z = workload.model.get_submodule("trunk")(*workload.inputs)
    loss = workload.model.get_submodule("heads.cls")(z).sum()
    names = {id(p): name for name, p in workload.model.named_parameters()}
    assert {names[id(t)] for t in leaves_of([loss])} == {
        *("trunk.0.weight", "trunk.0.bias", "heads.cls.weight", "heads.cls.bias")
    }
    assert {names[id(t)] for t in leaves_of([loss], [z])} == {"heads.cls.weight", "heads.cls.bias"}
