"""One step of one strategy: the forward passes and calls, told to an observer one by one.

Who holds what. The step holds the losses (``live``), tensors at a cut (``cut``) and gradients that ``autograd.grad``
returned (``returned``); strategies and observers hold nothing beyond their own frame. So clearing ``live`` and ``cut``
is exactly what "dropping all losses" means wherever retained bytes are defined.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from retainprof.capture.ledger_visits import leaves_of
from retainprof.capture.observe import Observer, StopStep
from retainprof.capture.torch_private import compiled_call, is_compiled
from retainprof.capture.workload import State, Workload, map_tensors, tensors_in
from retainprof.records import CallError, CallSpec
from retainprof.strategies import Strategy

__all__ = ["Entering", "Returned", "StepRunner"]


@dataclass(frozen=True)
class Returned:
    """A gradient that ``autograd.grad`` returned, and for which input (by ``id``; inputs are not kept alive)."""

    gradient: Tensor
    of: int
    batched: bool


@dataclass(frozen=True)
class Entering:
    """With what the engine is being entered; there only from just before a call to just after it."""

    roots: Sequence[Tensor]
    inputs: Sequence[Tensor] | None
    accumulates: bool


class StepRunner:
    """Runs steps of one strategy; implements ``retainprof.strategies.Step``."""

    def __init__(
        self, strategy: Strategy, workload: Workload, state: State, losses: Sequence[str] | None = None
    ) -> None:
        names = tuple(workload.losses if losses is None else losses)
        self._names = names
        self.strategy = strategy
        self.workload = workload
        self.state = state
        self.specs = strategy.calls(names)
        self.used = strategy.used_losses(names)
        self.live: dict[str, Tensor] = {}
        self.cut: list[Tensor] = []
        self.returned: list[Returned] = []
        self.forward_runs = 0
        self._segment = 0
        self._observer = Observer()
        self._current: CallSpec | None = None
        self.entering: Entering | None = None
        self._head: dict[str, list[int]] = {}

    @property
    def is_compiled(self) -> bool:
        """Whether the model, or a module in it, runs through ``torch.compile``."""
        model = self.workload.model
        return any(compiled_call(module) is not None or is_compiled(module) for module in model.modules())

    # --- running ----------------------------------------------------------------------------------------------------

    def with_specs(self, specs: tuple[CallSpec, ...]) -> StepRunner:
        """The same strategy with other flags on its calls."""
        changed = StepRunner(self.strategy, self.workload, self.state, self._names)
        changed.specs = specs
        return changed

    def run(self, observer: Observer) -> CallError | None:
        """One step from the same state as ever; the error of a call that raised, else None.

        The losses and gradients stay until :meth:`drop` and :meth:`clear`, or the next run.
        """
        self.drop()
        self.returned.clear()
        self.state.restore()
        self._observer = observer
        self._segment = self.forward_runs = 0
        self._current = None
        with self._checkpointed():
            observer.step_begin()
            error = self._guarded()
            observer.step_end()
        return error

    def _guarded(self) -> CallError | None:
        try:
            self.strategy.run(self, self.specs)
            return None
        except StopStep:
            self.entering = None
            return None
        except Exception as e:  # noqa: BLE001 - a model may raise anything; it becomes a result
            error = self._error(e)
            traceback.clear_frames(e.__traceback__)
        self.entering = None
        if error.call is not None:
            self._observer.call_failed(error.call)
        return error

    def _error(self, e: Exception) -> CallError:
        spec = self._current
        index, loss = (None, "") if spec is None else (spec.index, ", ".join(spec.losses))
        return CallError(call=index, loss=loss, type=type(e).__name__, message=str(e))

    def drop(self) -> None:
        """Drop all losses, and what else the step holds of the graph."""
        self.live.clear()
        for tensor in self.cut:
            if tensor.is_leaf:
                tensor.grad = None  # with create_graph it refers back to the leaf: a cycle that nothing would collect
        self.cut.clear()

    def rest(self) -> None:
        """Drop the losses and returned gradients; what is in ``.grad`` stays for the next step to meet, or to clear."""
        self.drop()
        self.returned.clear()

    def clear(self) -> None:
        """Let the gradients go, returned ones as well."""
        self.returned.clear()
        for leaf in self.workload.leaves:
            leaf.grad = None

    @contextlib.contextmanager
    def _checkpointed(self) -> Iterator[None]:
        """The submodule that the strategy checkpoints, run through ``torch.utils.checkpoint`` for this step."""
        if self.strategy.checkpoint is None:
            yield
            return
        module = self.workload.model.get_submodule(self.strategy.checkpoint)
        plain = module.forward

        def recomputed(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(plain, *args, use_reentrant=False, **kwargs)

        module.forward = recomputed
        try:
            yield
        finally:
            del module.forward

    # --- what a strategy uses ---------------------------------------------------------------------------------------

    def forward(self, only: Sequence[str] | None = None) -> dict[str, Tensor]:
        """See ``Step.forward``."""
        segment = self._begin_forward()
        with self._contexts():
            losses = self._losses(self.workload.model(*self.workload.inputs), only)
        return self._end_forward(segment, losses)

    def forward_shared(self) -> tuple[list[Tensor], dict[str, Tensor]]:
        """See ``Step.forward_shared``."""
        return self._forward_hooked(lambda _: None)

    def forward_cut(self) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
        """See ``Step.forward_cut``."""
        leaves: list[Tensor] = []

        def leaf_of(tensor: Tensor) -> Tensor:
            leaves.append(tensor.detach().requires_grad_(tensor.requires_grad))
            return leaves[-1]

        def cut(output: Any) -> Any:
            return map_tensors(output, leaf_of)

        shared, losses = self._forward_hooked(cut)
        self.cut += leaves
        return shared, leaves, losses

    def _forward_hooked(self, replace: Callable[[Any], Any]) -> tuple[list[Tensor], dict[str, Tensor]]:
        shared: list[Tensor] = []

        def hook(module: nn.Module, args: Any, output: Any) -> Any:  # noqa: ARG001
            shared.extend(tensors_in(output))
            return replace(output)

        module = self.workload.model.get_submodule(self.workload.shared or "")
        segment = self._begin_forward()
        handle = module.register_forward_hook(hook)
        try:
            with self._contexts():
                losses = self._losses(self.workload.model(*self.workload.inputs), None)
        finally:
            handle.remove()
        shared = [t for t in shared if t.requires_grad]
        self.cut += shared
        return shared, self._end_forward(segment, losses)

    def _begin_forward(self) -> int:
        segment = self._segment
        self._segment += 1
        self.forward_runs += 1
        self._observer.forward_begin(segment)
        return segment

    def _end_forward(self, segment: int, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        self.live.update(losses)
        self._observer.forward_end(segment)
        return losses

    def _losses(self, outputs: Any, only: Sequence[str] | None) -> dict[str, Tensor]:
        losses = {}
        for name in self.used if only is None else only:
            self._observer.loss_begin(name)
            losses[name] = self.workload.losses[name](outputs, self.workload.targets)
            self._observer.loss_end(name)
        return losses

    @contextlib.contextmanager
    def _contexts(self) -> Iterator[None]:
        strategy = self.strategy
        if strategy.autocast is None and not strategy.offload:
            yield
            return
        with ExitStack() as stack:
            if strategy.autocast is not None:
                dtype = getattr(torch, strategy.autocast)
                stack.enter_context(torch.autocast(self.workload.device.type, dtype=dtype))
            if strategy.offload:
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_copy_away, _copy_back))
            yield

    def total(self, losses: dict[str, Tensor]) -> Tensor:
        """See ``Step.total``."""
        segment = self._segment
        self._segment += 1
        self._observer.forward_begin(segment)
        first, *rest = losses.values()
        total = sum(rest, first)
        losses.clear()
        self.live.clear()
        del first, rest
        self.live["sum"] = total
        self._observer.forward_end(segment)
        return total

    def call(
        self,
        spec: CallSpec,
        roots: Sequence[Tensor],
        *,
        grad_tensors: Sequence[Tensor | None] | None = None,
        inputs: Sequence[Tensor] | None = None,
        is_grads_batched: bool = False,
    ) -> tuple[Tensor | None, ...]:
        """See ``Step.call``."""
        self._current, self.entering = spec, Entering(roots, inputs, spec.kind == "backward")
        observer, index, retain, create = self._observer, spec.index, spec.retain_graph, spec.create_graph
        if spec.kind == "backward":
            if len(roots) == 1 and grad_tensors is None:
                (root,) = roots
                observer.call_begin(index)
                root.backward(retain_graph=retain, create_graph=create, inputs=inputs)  # type: ignore[no-untyped-call]
            else:
                observer.call_begin(index)
                torch.autograd.backward(roots, grad_tensors, retain_graph=retain, create_graph=create, inputs=inputs)
            observer.call_end(index)
            self._current = self.entering = None
            return ()
        observer.call_begin(index)
        found = torch.autograd.grad(
            roots,
            inputs or (),
            grad_tensors,
            retain_graph=retain,
            create_graph=create,
            allow_unused=True,
            is_grads_batched=is_grads_batched,
        )
        self.returned += [
            Returned(g, id(x), is_grads_batched) for x, g in zip(inputs or (), found, strict=True) if g is not None
        ]
        observer.call_end(index)
        self._current = self.entering = None
        return found

    def parameters(self) -> list[Tensor]:
        """See ``Step.parameters``."""
        return list(self.workload.leaves)

    def wanted(self, spec: CallSpec) -> list[Tensor] | None:
        """See ``Step.wanted``."""
        names = spec.wrt or spec.inputs
        if not names:
            return None
        if names == ("all parameters",):
            return self.parameters()
        named = self.workload.named_leaves
        missing = [name for name in names if name not in named]
        if missing:
            raise ValueError(f"no trainable parameter {missing[0]!r}; there are {', '.join(named)}")
        return [named[name] for name in names]

    @torch.no_grad()
    def prepare(self, spec: CallSpec) -> None:
        """See ``Step.prepare``."""
        if spec.sgd_before is not None:
            for p in self.workload.model.parameters():
                if p.grad is not None:
                    p.add_(p.grad, alpha=-spec.sgd_before)
        if spec.zero_grad_before is not None:
            self.workload.model.zero_grad(set_to_none=spec.zero_grad_before == "set_to_none")

    def head_parameters(self, loss: str) -> list[Tensor]:
        """See ``Step.head_parameters``; the graph is walked in the first step only, outside every call."""
        leaves = self.workload.leaves
        if loss not in self._head:
            place = {id(leaf): i for i, leaf in enumerate(leaves)}
            behind = leaves_of([self.live[loss]], self.cut)
            self._head[loss] = [place[id(t)] for t in behind if id(t) in place]
        return [leaves[i] for i in self._head[loss]]

    def shared_parameters(self) -> list[Tensor]:
        """See ``Step.shared_parameters``."""
        leaves = self.workload.leaves
        if "" not in self._head:
            place = {id(leaf): i for i, leaf in enumerate(leaves)}
            behind = leaves_of([t for t in self.cut if t.grad_fn is not None])
            self._head[""] = [place[id(t)] for t in behind if id(t) in place]
        return [leaves[i] for i in self._head[""]]

    @torch.no_grad()
    def add_to_grad(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """See ``Step.add_to_grad``."""
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is None:
                continue
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient

    def basis(self, count: int, roots: Sequence[Tensor]) -> list[Tensor]:
        """See ``Step.basis``."""
        eye = torch.eye(count, device=self.workload.device)
        return [eye[:, i].to(root.dtype).reshape(count, *([1] * root.dim())) for i, root in enumerate(roots)]

    def stacked(self, sets: Sequence[Sequence[Tensor | None]]) -> list[Tensor | None]:
        """See ``Step.stacked``; a loss that does not reach a tensor counts as zeros."""
        return [_stack(column) for column in zip(*sets, strict=True)]

    def summed(self, sets: Sequence[Sequence[Tensor | None]]) -> list[Tensor | None]:
        """See ``Step.summed``."""
        return [_sum(column) for column in zip(*sets, strict=True)]

    def weights(self, roots: Sequence[Tensor], factors: Sequence[float]) -> list[Tensor]:
        """See ``Step.weights``."""
        return [torch.full_like(root, factor) for root, factor in zip(roots, factors, strict=True)]


def _copy_away(tensor: Tensor) -> tuple[torch.device, Tensor]:
    """A copy in CPU memory, also of a CPU tensor: torch's own ``save_on_cpu`` hands such a one back as it is, and a packed
    tensor that is its node's own output then keeps itself alive for ever."""
    return tensor.device, tensor.detach().to("cpu", copy=True)


def _copy_back(packed: tuple[torch.device, Tensor]) -> Tensor:
    device, tensor = packed
    return tensor.to(device, non_blocking=True)


def _stack(column: Sequence[Tensor | None]) -> Tensor | None:
    present = next((t for t in column if t is not None), None)
    if present is None:
        return None
    return torch.stack([torch.zeros_like(present) if t is None else t for t in column])


def _sum(column: Sequence[Tensor | None]) -> Tensor | None:
    present = [t for t in column if t is not None]
    return sum(present[1:], present[0]) if present else None
