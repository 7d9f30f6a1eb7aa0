"""Tensors inside Python objects that a graph keeps."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from retainprof.capture.ledger_objects import ObjectReader


class Slotted:
    """Attributes in slots, one of them empty."""

    __slots__ = ("empty", "filled")

    def __init__(self, filled: Any) -> None:
        self.filled = filled


class Trap:
    """Code that must not run."""

    def __init__(self, inside: Tensor) -> None:
        self.inside = inside

    @property
    def boom(self) -> Tensor:
        raise AssertionError("a property was evaluated")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"__getattr__({name}) was called")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(self) -> int:
        raise AssertionError("hashed")


class Pack:
    """A bound method is a hook that keeps its instance."""

    def __init__(self, inside: Tensor) -> None:
        self.inside = inside

    def unpack(self, packed: object) -> Tensor:
        return self.inside


def closure(tensor: Tensor) -> Callable[[], Tensor]:
    return lambda: tensor


def default(tensor: Tensor) -> Callable[..., Tensor]:
    def function(value: Tensor = tensor, *, other: Tensor = tensor) -> Tensor:
        return value + other

    return function


WRAPPINGS: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda t: t,
    "list": lambda t: [1, [t]],
    "tuple and dict": lambda t: ({"a": {"b": t}},),
    "key": lambda t: {t: 1},
    "set": lambda t: {t},
    "deque": lambda t: deque([t]),
    "ordered": lambda t: OrderedDict(a=t),
    "closure": closure,
    "closure of a closure": lambda t: closure(closure(t)),  # type: ignore[arg-type]
    "default": default,
    "partial": lambda t: functools.partial(print, 1, end=t),
    "bound method": lambda t: Pack(t).unpack,
    "slots": Slotted,
    "trap": Trap,
}


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS.keys())
def test_tensor_is_found_once(wrap: Callable[[Tensor], Any]) -> None:
    tensor = torch.ones(2)
    found = ObjectReader().read(wrap(tensor))
    assert [t is tensor for t in found.tensors] == [True]
    assert found.complete


def test_what_is_owned_elsewhere_is_not_entered() -> None:
    dead = weakref.proxy(Pack(torch.ones(1)))
    alive = Pack(torch.ones(1))
    for value in (nn.Linear(2, 2), torch, nn.Linear, weakref.ref(alive), weakref.proxy(alive), dead, "text", 5, None):
        assert ObjectReader().read([value]).tensors == []


def test_nodes_are_found() -> None:
    node = torch.ones(2, requires_grad=True).exp().grad_fn
    assert ObjectReader().read({"node": [node]}).nodes == [node]


def test_cycles_end() -> None:
    ring: list[Any] = [torch.ones(1)]
    ring.append(ring)
    assert len(ObjectReader().read(ring).tensors) == 1


def test_an_endless_search_is_cut_off_and_says_so() -> None:
    found = ObjectReader().read([[i] for i in range(50_000)])
    assert not found.complete


def test_what_is_shared_is_read_once() -> None:
    """A thousand nodes with one hook: one search. The second answer is the first one."""
    reader = ObjectReader()
    hook = closure(torch.ones(1))
    assert reader.read(hook) is reader.read(hook)
