"""Tensors and nodes inside Python objects that a graph keeps: contexts of custom Functions, hooks and their closures."""

from __future__ import annotations

import functools
import types
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from retainprof.capture.torch_private import SavedTensor, packed

__all__ = ["Contents", "ObjectReader"]

_SKIPPED: Final = (  # what owns its tensors itself, or can hold none
    *weakref.ProxyTypes,  # first: a dead proxy must not be asked for its class
    nn.Module,
    types.ModuleType,
    type,
    str,
    bytes,
    int,
    float,
    complex,
    weakref.ref,
    torch.dtype,
    torch.device,
    torch.Generator,
    types.BuiltinFunctionType,
    types.CodeType,
)
_SEQUENCES: Final = (list, tuple, set, frozenset, deque)
_LIMIT: Final = 20_000  # objects behind one hook or context; a graph keeps few, a whole program hangs on some


class Contents:
    """What was found behind one object: tensors and autograd nodes; ``complete`` is False where the search was cut off."""

    __slots__ = ("complete", "nodes", "tensors")

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.complete = True


def _cell_contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _function_parts(function: types.FunctionType) -> Iterable[Any]:
    yield from map(_cell_contents, function.__closure__ or ())
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _attributes(value: Any) -> dict[str, Any]:
    """The instance's ``__dict__``, read past any ``__getattr__``; empty where it has none."""
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found


def _slot(descriptor: types.MemberDescriptorType, value: Any) -> Any:
    try:
        return descriptor.__get__(value)
    except AttributeError:  # a slot without a value
        return None


def _instance_parts(value: Any) -> Iterable[Any]:
    """Attributes of an instance, in its ``__dict__`` and its slots; no property is evaluated."""
    yield from _attributes(value).values()
    for cls in type(value).__mro__:
        for descriptor in vars(cls).values():
            if isinstance(descriptor, types.MemberDescriptorType):
                yield _slot(descriptor, value)


def _parts(value: Any) -> Iterable[Any]:
    """The objects one step behind ``value``."""
    if isinstance(value, dict):
        return [*dict.keys(value), *dict.values(value)]
    if isinstance(value, _SEQUENCES):
        return value
    if isinstance(value, types.FunctionType):
        return _function_parts(value)
    if isinstance(value, types.MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, functools.partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, SavedTensor):
        return packed(value)
    return _instance_parts(value)


class ObjectReader:
    """Searches objects for tensors, iteratively, each object once: a hook that many nodes share is read one time.

    Modules are not entered: they own their parameters and are owned by the program. The reader refers to what it has
    read, so that addresses stay unique; drop it with the walk.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Contents]] = {}

    def read(self, value: Any) -> Contents:
        """Tensors and nodes behind ``value``; nothing of them is evaluated, called or unpacked."""
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, self._search(value))
        return known[1]

    @staticmethod
    def _search(value: Any) -> Contents:
        found = Contents()
        seen: dict[int, Any] = {}
        todo = [value]
        while todo:
            value = todo.pop()
            if value is None or isinstance(value, _SKIPPED) or id(value) in seen:
                continue
            seen[id(value)] = value
            if isinstance(value, Tensor):
                found.tensors.append(value)
            elif isinstance(value, Node):
                found.nodes.append(value)
            elif len(seen) > _LIMIT:
                found.complete = False
                break
            else:
                todo.extend(_parts(value))
        return found
