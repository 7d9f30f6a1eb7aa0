"""What each kind of autograd node is read for, worked out once per kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor

from retainprof.capture.torch_private import SavedTensor, raw_slots

__all__ = ["NodeKind", "NodeKinds", "copied_leaf", "maker", "saved_by"]

_LEAF: Final = "AccumulateGrad"
_ANY_CPP: Final = "CppFunction"  # the type of every node made in C++ without a Python class of its own
_UNREADABLE: Final = (_ANY_CPP, "CopySlices")
_COPIES: Final = frozenset({"ToCopyBackward0", "CloneBackward0"})
_VIEWS: Final = frozenset(
    f"{name}Backward0" for name in ("T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Unsqueeze")
)


class NodeKind:
    """One kind of node: its name, its packed saved tensors, and what else about it needs a look."""

    __slots__ = (
        "has_context",
        "index",
        "is_copy",
        "is_leaf",
        "is_view",
        "name",
        "readable",
        "slots",
        "special",
        "unreadable",
    )

    def __init__(self, node: Any, index: int) -> None:
        node_type = type(node)
        self.name: str = node.name()
        self.index = index
        self.slots = raw_slots(node_type)
        self.is_leaf = node_type.__name__ == _LEAF
        self.is_copy = node_type.__name__ in _COPIES
        self.is_view = node_type.__name__ in _VIEWS
        self.has_context = node_type.__dictoffset__ != 0  # a custom Function: its context is the node
        self.unreadable = node_type.__name__ in _UNREADABLE
        self.special = self.has_context or self.unreadable
        self.readable = self.is_leaf or self.special or bool(self.slots)

    def ident(self, sequence: int) -> int:
        """A number for one node of this kind that stays the same from walk to walk, and is never 0.

        Sequence numbers count per thread. Nodes that ``create_graph`` made in the engine's own thread (accelerators)
        count apart, so a number is shared only by two nodes of one kind with equal places in two threads.
        """
        return (sequence + 1) << 16 | self.index


def saved_by(node: Any, kind: NodeKind) -> Sequence[Any]:
    """The packed saved tensors of a node; none once a call has freed them."""
    found: list[Any] = []
    for get in kind.slots:
        value = get(node)
        if type(value) is SavedTensor:
            found.append(value)
        elif value is not None:
            found.extend(value)
    return found


class NodeKinds:
    """All kinds met in this process, each read once, so that ids agree between walks."""

    by_type: Final[dict[type, NodeKind]] = {}
    _by_name: Final[dict[str, NodeKind]] = {}

    def of(self, node: Any) -> NodeKind:
        """The kind of ``node``."""
        known = self.by_type.get(type(node))
        return self._learn(node) if known is None else known

    def _learn(self, node: Any) -> NodeKind:
        one_type_for_many = type(node).__name__ == _ANY_CPP
        name: str = node.name()
        if one_type_for_many and name in self._by_name:
            return self._by_name[name]
        kind = NodeKind(node, len(self.by_type) + len(self._by_name))
        if one_type_for_many:
            self._by_name[name] = kind
        else:
            self.by_type[type(node)] = kind
        return kind


def copied_leaf(node: Any, kinds: NodeKinds) -> Tensor | None:
    """The leaf that the tensor made by ``node`` is a copy of: a cast or clone straight from AccumulateGrad, perhaps
    seen through views; None where it is none."""
    copied = False
    while node is not None:
        kind = kinds.of(node)
        if kind.is_leaf:
            leaf: Tensor = node.variable
            return leaf if copied else None
        if not (kind.is_copy or kind.is_view):
            return None
        copied = copied or kind.is_copy
        node = node.next_functions[0][0]
    return None


def maker(node: Any, kinds: NodeKinds) -> Any:
    """The node that made the bytes of a tensor made by ``node``: the first behind its views; None where that is a leaf."""
    while node is not None and kinds.of(node).is_view:
        node = node.next_functions[0][0]
    return None if node is None or kinds.of(node).is_leaf else node
