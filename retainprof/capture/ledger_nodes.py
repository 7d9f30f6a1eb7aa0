"""What each kind of autograd node is read for, worked out once per kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from torch import Tensor

from retainprof.capture.torch_private import raw_slots

__all__ = ["NodeKind", "NodeKinds", "copied_parameter"]

_LEAF: Final = "AccumulateGrad"
_ANY_CPP: Final = "CppFunction"  # the type of every node made in C++ without a Python class of its own
_UNREADABLE: Final = (_ANY_CPP, "CopySlices")
_COPIES: Final = frozenset({"ToCopyBackward0", "CloneBackward0"})
_VIEWS: Final = frozenset(
    f"{name}Backward0" for name in ("T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Unsqueeze")
)


class NodeKind:
    """One kind of node: its name, its packed saved tensors, and what else about it needs a look."""

    __slots__ = ("has_context", "index", "is_leaf", "name", "passes", "slots", "special", "unreadable")

    def __init__(self, node: Any, index: int) -> None:
        node_type = type(node)
        self.name: str = node.name()
        self.index = index
        self.slots = raw_slots(node_type)
        self.is_leaf = node_type.__name__ == _LEAF
        self.has_context = node_type.__dictoffset__ != 0  # a custom Function: its context is the node
        self.unreadable = node_type.__name__ in _UNREADABLE
        self.passes = node_type.__name__ in _COPIES or node_type.__name__ in _VIEWS
        self.special = self.is_leaf or self.has_context or self.unreadable

    def ident(self, sequence: int) -> int:
        """A number for one node of this kind that stays the same from walk to walk, and is never 0.

        Sequence numbers count per thread. Nodes that ``create_graph`` made in the engine's own thread (accelerators)
        count apart, so a number is shared only by two nodes of one kind with equal places in two threads.
        """
        return (sequence + 1) << 16 | self.index

    def read(self, node: Any) -> Iterator[Any]:
        """The packed saved tensors of a node of this kind; nothing is unpacked."""
        for name in self.slots:
            try:
                value = getattr(node, name)
            except RuntimeError:  # a custom Function raises once its tensors are gone; other nodes answer None
                continue
            if type(value) is tuple or type(value) is list:
                yield from value
            elif value is not None:
                yield value


class NodeKinds:
    """All kinds met in one process, each read once."""

    _by_type: dict[type, NodeKind] = {}  # noqa: RUF012 - shared on purpose, so that ids agree between walks
    _by_name: dict[str, NodeKind] = {}  # noqa: RUF012

    def of(self, node: Any) -> NodeKind:
        """The kind of ``node``."""
        known = self._by_type.get(type(node))
        if known is None:
            known = self._learn(node)
        return known

    def _learn(self, node: Any) -> NodeKind:
        by_type = type(node).__name__ != _ANY_CPP
        name = node.name()
        if not by_type and name in self._by_name:
            return self._by_name[name]
        kind = NodeKind(node, len(self._by_type) + len(self._by_name))
        if by_type:
            self._by_type[type(node)] = kind
        else:
            self._by_name[name] = kind
        return kind


def copied_parameter(following: Sequence[tuple[Any, int]], kinds: NodeKinds) -> Sequence[Tensor]:
    """Leaves of which a node's inputs are copies: casts, clones and views of these, straight from AccumulateGrad."""
    found: list[Tensor] = []
    for child, _ in following:
        if child is None or not kinds.of(child).passes:
            continue
        node, kind, copied = child, kinds.of(child), False
        while node is not None and kind.passes:
            copied = copied or kind.name in _COPIES
            node = node.next_functions[0][0]
            kind = kind if node is None else kinds.of(node)
        if copied and node is not None and kind.is_leaf:
            found.append(node.variable)
    return found
