"""From a scenario to things that run: the workload on its device, and a runner for each strategy."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from retainprof.capture.step import StepRunner
from retainprof.capture.workload import State, Workload, map_tensors
from retainprof.strategies import Strategy

if TYPE_CHECKING:
    from retainprof.scenario import Imports, Scenario

__all__ = ["build_runner", "build_runners", "build_workload"]


def build_workload(scenario: Scenario, imports: Imports, device: torch.device) -> Workload:
    """Model, batch and losses of a scenario, on ``device``; seeded, so that two builds are equal.

    Raises:
        ImportRefused, FactoryError: see ``retainprof.scenario.build``.
    """
    from retainprof.scenario.build import build_batch, build_losses, build_model

    model = build_model(scenario, imports).to(device)
    batch = build_batch(scenario, model, imports)
    losses = build_losses(scenario, imports)
    torch.manual_seed(scenario.seed)

    moved: dict[int, Tensor] = {}  # an input that is a target as well stays one tensor

    def there(tensor: Tensor) -> Tensor:
        if id(tensor) not in moved:
            moved[id(tensor)] = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        return moved[id(tensor)]

    if device.type == "cpu":
        inputs, targets = batch.inputs, batch.targets
    else:
        inputs, targets = map_tensors((batch.inputs, batch.targets), there)
    return Workload(model=model, inputs=inputs, targets=targets, losses=losses, device=device, shared=scenario.shared)


def build_runner(scenario: Scenario, strategy: Strategy, workload: Workload) -> StepRunner:
    """A runner of one strategy. A compiled strategy has a model of its own: the first backward of a compiled graph
    decides what later ones may do, so strategies must not share one."""
    if strategy.compile:
        torch.compiler.config.force_disable_caches = True  # they carry that decision from process to process
        model = copy.deepcopy(workload.model)
        model.compile()
        workload = workload.with_model(model)
    some_change = any(other.changes_parameters for other in scenario.strategies)  # they share the model
    state = State(workload, scenario.measure.zero_grad, some_change)
    return StepRunner(strategy, workload, state)


def build_runners(scenario: Scenario, imports: Imports, workload: Workload) -> list[StepRunner]:
    """A runner for each strategy. Where the model comes compiled from its factory, each gets one of its own, so that the
    order of the strategies does not matter."""
    runners: list[StepRunner] = []
    for strategy in scenario.strategies:
        alone = bool(runners) and runners[0].is_compiled and not strategy.compile
        there = build_workload(scenario, imports, workload.device) if alone else workload
        runners.append(build_runner(scenario, strategy, there))
    return runners
