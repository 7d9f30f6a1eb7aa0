"""Which nodes a call would visit, and which of them keep saved tensors; from that, whether a retain was needed."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from torch import Tensor

from retainprof.capture.ledger_nodes import NodeKinds, saved_by
from retainprof.capture.torch_private import SHALLOW, cushion, next_cushion, packed, sequence_number, undisturbed
from retainprof.records import Record

__all__ = ["Visit", "leaves_of", "nodes_of", "retain_needed", "visit"]


class Visit(Record, frozen=True, kw_only=True):
    """What one call would do to the graph, as ids of nodes (the ids of ``Held.keepers``).

    ``evaluated`` are all nodes that the engine evaluates, leaves included; ``keeping`` those of them that run and have
    saved tensors now: they let go in a call that does not retain, and fail in a later call that needs them.
    """

    evaluated: frozenset[int]
    keeping: frozenset[int]


def visit(roots: Sequence[Tensor], inputs: Sequence[Tensor] | None = None, *, accumulate: bool = True) -> Visit:
    """The nodes that ``backward(roots)`` would visit, without visiting them.

    With ``inputs`` only nodes on a path to one of them are evaluated, and the inputs' own. ``accumulate`` False stands
    for ``autograd.grad``, where the node that made an input is evaluated but does not run. The result has numbers only.
    """
    with undisturbed():
        graph = _Graph(roots, upward=inputs is not None)
        if inputs is None:
            runs: AbstractSet[Any] = graph.nodes.keys()
            evaluated = runs
        else:
            ends = graph.ends(inputs)
            above = graph.above(ends)
            evaluated = above | ends
            runs = evaluated if accumulate else above
        return Visit(
            evaluated=frozenset(map(graph.ident, evaluated)),
            keeping=frozenset(graph.ident(node) for node in runs if graph.keeps(node)),
        )


def nodes_of(roots: Sequence[Tensor]) -> frozenset[Any]:
    """The nodes behind ``roots`` themselves. While the set lives, so do the nodes and all they saved: use it at once."""
    return frozenset(_Graph(roots).nodes)


def leaves_of(roots: Sequence[Tensor], stop_at: Sequence[Tensor] = ()) -> list[Tensor]:
    """The leaves that the graphs of ``roots`` would accumulate into, without passing the nodes that made ``stop_at``."""
    barriers = {tensor.grad_fn for tensor in stop_at if tensor.grad_fn is not None}
    with undisturbed():
        graph = _Graph(roots, barriers=barriers)
        return [node.variable for node in graph.nodes if graph.is_leaf(node)]


def retain_needed(visits: Sequence[Visit], retained: Sequence[bool]) -> tuple[bool | None, ...]:
    """For each call: would a later call have failed had this one not retained? None for a call that did not retain."""
    return tuple(
        any(not mine.keeping.isdisjoint(later.keeping) for later in visits[index + 1 :]) if kept else None
        for index, (mine, kept) in enumerate(zip(visits, retained, strict=True))
    )


class _Graph:
    """All nodes behind some tensors, with the edges back up where they are asked for. Lives within one function call."""

    def __init__(
        self, roots: Sequence[Tensor], *, upward: bool = False, barriers: AbstractSet[Any] = frozenset()
    ) -> None:
        self.nodes: dict[Any, None] = {}  # in the order in which they are met
        self._parents: dict[Any, list[Any]] = {}
        self._kinds = NodeKinds()
        soft = SHALLOW
        todo: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
        while todo:
            node = todo.pop()
            if node in self.nodes or node in barriers:
                continue
            self.nodes[node] = None
            following = node.next_functions
            if len(self.nodes) > soft:
                cushion(node, following)
                soft = next_cushion(len(self.nodes))
            children = [child for child, _ in following if child is not None]
            todo += children
            if upward:
                for child in children:
                    self._parents.setdefault(child, []).append(node)

    def ends(self, inputs: Sequence[Tensor]) -> set[Any]:
        """The nodes of ``inputs`` that are in the graph: AccumulateGrad of a leaf, else the node that made the tensor."""
        leaves = {id(one) for one in inputs if one.grad_fn is None}
        made = {one.grad_fn for one in inputs if one.grad_fn is not None}
        return {node for node in self.nodes if node in made or (self.is_leaf(node) and id(node.variable) in leaves)}

    def is_leaf(self, node: Any) -> bool:
        """Whether the node accumulates into a leaf."""
        return self._kinds.of(node).is_leaf

    def above(self, ends: set[Any]) -> set[Any]:
        """Nodes from which a path of at least one edge leads to one of ``ends``."""
        found: set[Any] = set()
        todo = list(ends)
        while todo:
            for parent in self._parents.get(todo.pop(), ()):
                if parent not in found:
                    found.add(parent)
                    todo.append(parent)
        return found

    def ident(self, node: Any) -> int:
        """An id that is the same in a later walk; a leaf's is minus that of its tensor."""
        kind = self._kinds.of(node)
        return -id(node.variable) if kind.is_leaf else kind.ident(sequence_number(node))

    def keeps(self, node: Any) -> bool:
        """Whether the node has saved tensors at this moment."""
        for saved in saved_by(node, self._kinds.of(node)):
            data, hook = packed(saved)
            if data is not None or hook is not None:
                return True
        return False
