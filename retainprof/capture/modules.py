"""Which module made a node or a storage: a map that is drawn during one forward."""

from __future__ import annotations

import functools
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.hooks import RemovableHandle

from retainprof.capture.ledger_tensors import dense
from retainprof.capture.torch_private import (
    compiled_call,
    data_address,
    is_compiled,
    next_sequence_number,
    set_compiled_call,
    storage_identity,
    storage_reference,
    undisturbed,
)

__all__ = ["ModuleMap"]


class ModuleMap:
    """Draws the map while it is entered; it can be asked afterwards, for as long as it lives.

    Nodes: the innermost module that was running when the node's sequence number was given out, in the thread that
    entered the map. Storages: the module whose output the storage first was; one that entered a module from outside
    without being any module's output was made by the enclosing one. Storages are recognised by weak references, so no
    tensor is kept alive; memory that is used again is not mistaken.

    Inside of a compiled module nothing is hooked, since that would compile it again: all it makes belongs to it as a
    whole. Scripted modules are left alone likewise.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._thread = 0
        self._starts: list[int] = []  # sequence numbers at which another module began to run ...
        self._running: list[str] = []  # ... and which
        self._stack: list[str] = []
        self._made: dict[int, tuple[StorageWeakRef, str]] = {}
        self._parameters: dict[int, str] = {}
        self._handles: list[RemovableHandle] = []
        self._wrapped: list[tuple[nn.Module, Callable[..., Any]]] = []

    # --- drawing ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> ModuleMap:
        self._thread = threading.get_ident()
        for name, parameter in self._model.named_parameters():
            for part in dense(parameter):
                self._parameters.setdefault(data_address(part), name)
        for path, module in _open_modules(self._model):
            self._watch(path, module)
        self._switch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Take all hooks off; the map stays. Harmless when done already."""
        for handle in self._handles:
            handle.remove()
        for module, call in self._wrapped:
            set_compiled_call(module, call)
        self._handles.clear()
        self._wrapped.clear()

    def _watch(self, path: str, module: nn.Module) -> None:
        call = compiled_call(module)
        if call is not None:
            self._wrapped.append((module, call))
            set_compiled_call(module, self._around(path, call))
            return
        before = functools.partial(self._before, path)
        after = functools.partial(self._after, path)
        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        self._handles.append(module.register_forward_hook(after, always_call=True))

    def _around(self, path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def observed(*args: Any, **kwargs: Any) -> Any:
            output = None
            self._begin(path, (args, kwargs))
            try:
                output = call(*args, **kwargs)
            finally:
                self._end(path, output)
            return output

        return observed

    def _before(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        if not torch.compiler.is_compiling():
            self._begin(path, (args, kwargs))

    def _after(self, path: str, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if not torch.compiler.is_compiling():
            self._end(path, output)

    def _begin(self, path: str, inputs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        self._note(inputs, self._stack[-1] if self._stack else "")
        self._stack.append(path)
        self._switch()

    def _end(self, path: str, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        self._note(output, path)
        if path in self._stack:  # not where the module was entered before the map began
            while self._stack.pop() != path:
                continue
        self._switch()

    def _switch(self) -> None:
        """From the next node on, the module on top of the stack is at work."""
        start, running = next_sequence_number(), self._stack[-1] if self._stack else ""
        if self._starts and self._starts[-1] == start:
            self._running[-1] = running
        else:
            self._starts.append(start)
            self._running.append(running)

    def _note(self, value: Any, path: str) -> None:
        with undisturbed():
            for tensor in _tensors(value):
                for part in dense(tensor):
                    storage = part.untyped_storage()
                    identity = storage_identity(storage)
                    if identity not in self._made:
                        self._made[identity] = (storage_reference(storage), path)

    # --- asking -----------------------------------------------------------------------------------------------------

    def of_node(self, sequence: int) -> str:
        """Path of the module that was running when the node was made; "" outside of all, or before the map began."""
        place = bisect_right(self._starts, sequence) - 1
        return self._running[place] if place >= 0 else ""

    def of_storage(self, storage: torch.UntypedStorage) -> str | None:
        """Path of the module that made the storage; None where it passed no module's border."""
        found = self._made.get(storage_identity(storage))
        return None if found is None else found[1]

    def parameter(self, address: int) -> str | None:
        """Name of the parameter whose bytes are at ``address``."""
        return self._parameters.get(address)


def _open_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules by path that can be hooked, and the borders of compiled ones; each once."""
    seen: set[nn.Module] = set()
    todo = [("", model)]
    while todo:
        path, module = todo.pop()
        if module in seen or isinstance(module, torch.jit.ScriptModule):
            continue
        seen.add(module)
        yield path, module
        if compiled_call(module) is None and not is_compiled(module):
            todo += [(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]


def _tensors(value: Any) -> Iterator[Tensor]:
    """Tensors in the usual containers."""
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, (tuple, list)):
            todo.extend(value)
