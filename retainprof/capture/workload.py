"""The model, batch and losses that all strategies share, and the state that every step starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

__all__ = ["LossFunction", "State", "Workload", "map_tensors", "tensors_in"]

LossFunction = Callable[[Any, Any], Tensor]
ZeroGrad = Literal["set_to_none", "zero", "keep"]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Tensors inside nested mappings, sequences and dataclass-like outputs, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with every tensor inside changed; containers are made anew, of the same type."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return type(value)({k: map_tensors(v, change) for k, v in value.items()})  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(v, change) for v in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(v, change) for v in value)
    return value


@dataclass(frozen=True)
class Workload:
    """What a step works on; everything is on ``device``. ``shared`` names the submodule where two-stage strategies cut."""

    model: nn.Module
    inputs: tuple[Any, ...]
    targets: Any
    losses: Mapping[str, LossFunction]
    device: torch.device
    shared: str | None = None

    @cached_property
    def leaves(self) -> tuple[Tensor, ...]:
        """Trainable parameters in the model's order, then inputs that require a gradient."""
        return tuple(self.named_leaves.values())

    @cached_property
    def named_leaves(self) -> Mapping[str, Tensor]:
        """The leaves by name; inputs are called ``input[0]`` and so on."""
        named = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        inputs = [x for x in tensors_in(self.inputs) if x.requires_grad]
        return named | {f"input[{i}]": x for i, x in enumerate(inputs)}

    @property
    def owned(self) -> list[Tensor]:
        """Tensors that are there whether or not a graph is: parameters, buffers, inputs, targets."""
        return [
            *self.model.parameters(),
            *self.model.buffers(),
            *tensors_in(self.inputs),
            *tensors_in(self.targets),
        ]

    def with_model(self, model: nn.Module) -> Workload:
        """The same with another model (a compiled copy)."""
        return replace(self, model=model)


@dataclass
class State:
    """Puts buffers, random numbers, ``.grad`` and, where a step changes them, parameters back to where they were.

    ``zero_grad`` says what the first call meets in ``.grad``: None, zeros in memory that stays, or (keep) the gradients
    that a summed step left. All leaves count, inputs that require a gradient too.
    """

    workload: Workload
    zero_grad: ZeroGrad
    parameters_change: bool
    _buffers: list[tuple[Tensor, Tensor]] = field(init=False)
    _parameters: list[tuple[Tensor, Tensor]] = field(init=False)
    _kept: list[Tensor] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        model = self.workload.model
        self._buffers = [(b, b.detach().clone()) for b in model.buffers()]
        changing = list(model.parameters()) if self.parameters_change else []
        self._parameters = [(p, p.detach().clone()) for p in changing]
        self._leaves = self.workload.leaves
        self.rng = torch.get_rng_state()
        self._device_rng = self._read_device_rng()

    def _read_device_rng(self) -> Tensor | None:
        device = self.workload.device
        if device.type == "cpu":
            return None
        state: Tensor = torch.get_device_module(device).get_rng_state(device)
        return state

    def buffers_moved(self) -> bool:
        """Whether the last step changed a buffer."""
        return any(not torch.equal(now, before) for now, before in self._buffers)

    def keep(self, gradients: Sequence[Tensor | None]) -> None:
        """The gradients that ``zero_grad: keep`` starts every step from (None counts as zeros)."""
        pairs = zip(self._leaves, gradients, strict=True)
        self._kept = [torch.zeros_like(leaf) if g is None else g.detach().clone() for leaf, g in pairs]

    @torch.no_grad()
    def restore(self) -> None:
        """Back to the start; costs time, so it happens outside every timed part."""
        for now, before in (*self._buffers, *self._parameters):
            now.copy_(before)
        torch.set_rng_state(self.rng)
        if self._device_rng is not None:
            device = self.workload.device
            torch.get_device_module(device).set_rng_state(self._device_rng, device)
        if self.zero_grad == "set_to_none":
            for leaf in self._leaves:
                leaf.grad = None
            return
        for i, leaf in enumerate(self._leaves):
            grad = leaf.grad if _is_plain(leaf) else None
            if grad is None:
                grad = leaf.grad = torch.zeros_like(leaf)
            if self._kept:
                grad.copy_(self._kept[i])
            else:
                grad.zero_()


def _is_plain(leaf: Tensor) -> bool:
    """Whether ``.grad`` is there and can be written in place: dense, of the leaf's layout, without a graph of its own.

    Nothing but the leaf holds it, so that clearing ``.grad`` releases its bytes."""
    grad = leaf.grad
    return (
        grad is not None and grad.layout == torch.strided and grad.stride() == leaf.stride() and not grad.requires_grad
    )
