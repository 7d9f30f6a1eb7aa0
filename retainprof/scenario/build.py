"""Models, batches and losses of a scenario. The only file of this package that imports torch, beside ``targets``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from retainprof.errors import FactoryError, WorkloadError
from retainprof.scenario.batches import FactoryBatch, Random
from retainprof.scenario.imports import Imports, arguments
from retainprof.scenario.losses import FactoryLoss, LossPart, OutputLoss, RegisteredLoss
from retainprof.scenario.model import Scenario
from retainprof.scenario.models import FactoryModel, ModelPart, RegisteredModel
from retainprof.scenario.names import hint
from retainprof.scenario.special_losses import SeveralOutputsLoss
from retainprof.scenario.targets import Maker

__all__ = ["Batch", "LossFunction", "build_batch", "build_losses", "build_model"]

LossFunction = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Batch:
    """``outputs = model(*inputs)``; every loss gets ``(outputs, targets)``."""

    inputs: tuple[Any, ...]
    targets: Any


def build_model(scenario: Scenario, imports: Imports) -> nn.Module:
    """The model, in training mode as its maker left it, seeded by ``scenario.seed``.

    Raises:
        ImportRefused, FactoryError: see :meth:`Imports.make`.
        WorkloadError: a submodule or parameter that the scenario names is not there.
    """
    torch.manual_seed(scenario.seed)
    part = scenario.model
    model = imports.make(part, "model", nn.Module) if isinstance(part, FactoryModel) else _registered(part)
    if part.dtype is not None:
        model = model.to(getattr(torch, part.dtype))
    for prefix in part.frozen:
        for parameter in _parameters(model, prefix, "model.frozen"):
            parameter.requires_grad_(False)
    _check_names(scenario, model)
    return model


def _registered(part: ModelPart) -> nn.Module:
    assert isinstance(part, RegisteredModel)
    return part.make()


def _parameters(model: nn.Module, prefix: str, key: str) -> list[nn.Parameter]:
    """Parameters of a submodule, or the one of that name."""
    named = dict(model.named_parameters())
    found = [p for name, p in named.items() if name == prefix or name.startswith(prefix + ".")]
    if not found:
        raise WorkloadError(
            f"{key}: no parameter is called {prefix!r} or lies in it", hint=hint(prefix, named, "there")
        )
    return found


def _check_names(scenario: Scenario, model: nn.Module) -> None:
    submodules = [name for name, _ in model.named_modules() if name]
    used = [("shared", scenario.shared)]
    used += [(f"strategy {s.title}: checkpoint", s.checkpoint) for s in scenario.strategies]
    for key, name in used:
        if name is not None and name not in submodules:
            raise WorkloadError(f"{key}: the model has no submodule {name!r}", hint=hint(name, submodules, "it has"))
    for loss_name, loss in scenario.losses.items():
        for prefix in loss.owns or ():
            _parameters(model, prefix, f"losses.{loss_name}.owns")


def build_batch(scenario: Scenario, model: nn.Module, imports: Imports) -> Batch:
    """Inputs and targets on the CPU, seeded by ``scenario.seed`` apart from the model.

    Raises:
        ImportRefused, FactoryError: see :meth:`Imports.make`; a factory that returns no pair, or inputs that are no tuple.
    """
    part = scenario.batch
    if isinstance(part, FactoryBatch):
        torch.manual_seed(scenario.seed)
        return _batch_of(part.factory, imports.make(part, "batch", (tuple, list)))
    assert isinstance(part, Random)
    return _random(scenario, part, model)


def _batch_of(factory: str, made: Any) -> Batch:
    if len(made) != 2:
        raise FactoryError(f"the batch's factory {factory} returned {len(made)} things, expected (inputs, targets)")
    inputs, targets = made
    if not isinstance(inputs, (tuple, list)):
        raise FactoryError(
            f"the batch's factory {factory} returned inputs of type {type(inputs).__name__}, expected a tuple",
            hint="outputs = model(*inputs); for one input return ((x,), targets)",
        )
    return Batch(tuple(inputs), targets)


def _random(scenario: Scenario, part: Random, model: nn.Module) -> Batch:
    known = scenario.model
    assert isinstance(known, RegisteredModel)
    floats = [p.dtype for p in model.parameters() if p.is_floating_point() or p.is_complex()]
    dtype = getattr(torch, part.dtype) if part.dtype else next(iter(floats), torch.get_default_dtype())
    maker = Maker(scenario.seed, dtype)
    inputs = tuple(maker.input(spec, part.size, part.values) for spec in known.inputs_needed())
    if part.requires_grad:
        inputs = tuple(x.requires_grad_() for x in inputs)
    outputs = known.outputs()
    targets = {}
    for name, loss in scenario.losses.items():
        if not isinstance(loss, OutputLoss) or loss.target_values == "none":
            continue
        shape = outputs[loss.output or next(iter(outputs))]
        made = inputs[0] if loss.target_values == "input" else maker.target(loss.target_values, (part.size, *shape))
        targets[name] = made
    return Batch(inputs, targets)


def build_losses(scenario: Scenario, imports: Imports) -> dict[str, LossFunction]:
    """Loss functions by name, in the scenario's order; each takes ``(outputs, targets)`` and has its weight in it.

    Raises:
        ImportRefused, FactoryError: see :meth:`Imports.find`.
    """
    return {name: _weighted(_loss(name, loss, imports), loss.weight) for name, loss in scenario.losses.items()}


def _weighted(function: LossFunction, weight: float) -> LossFunction:
    if weight == 1:
        return function

    def weighted(outputs: Any, targets: Any) -> Tensor:
        return function(outputs, targets) * weight

    return weighted


def _loss(name: str, loss: LossPart, imports: Imports) -> LossFunction:
    if isinstance(loss, FactoryLoss):
        found = imports.find(loss)
        bound = arguments(loss)
        return partial(found, **bound) if bound else found
    assert isinstance(loss, RegisteredLoss)
    return _of_outputs(loss) if isinstance(loss, SeveralOutputsLoss) else _of_one_output(name, loss)


def _of_outputs(loss: SeveralOutputsLoss) -> LossFunction:
    function, names = loss.function(), loss.outputs_used()

    def of_outputs(outputs: Any, targets: Any) -> Tensor:  # noqa: ARG001
        return function(*(_pick(outputs, name) for name in names))

    return of_outputs


def _of_one_output(name: str, loss: RegisteredLoss) -> LossFunction:
    assert isinstance(loss, OutputLoss)
    function, output = loss.function(), loss.output
    if loss.target_values == "none":
        return lambda outputs, targets: function(_pick(outputs, output))  # noqa: ARG005
    keys = tuple(key for key in (loss.target, name, output) if key is not None)

    def of_one(outputs: Any, targets: Any) -> Tensor:
        return function(_pick(outputs, output), _target(targets, keys))

    return of_one


def _pick(outputs: Any, name: str | None) -> Any:
    """The named output of a mapping, or of an object with that attribute; without a name the only one."""
    if name is None:
        return next(iter(outputs.values())) if isinstance(outputs, Mapping) and len(outputs) == 1 else outputs
    if not isinstance(outputs, Mapping):
        return getattr(outputs, name)
    if name not in outputs:
        raise KeyError(f"the model has no output {name!r}; it has {', '.join(map(str, outputs))}")
    return outputs[name]


def _target(targets: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(targets, Mapping):
        return targets
    for key in keys:
        if key in targets:
            return targets[key]
    raise KeyError(f"the batch has no target {keys[0]!r}; it has {', '.join(map(str, targets))}")
