"""The walk itself: nodes in, storages with their keepers out. ``ledger.walk`` is the way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from retainprof.capture.ledger_nodes import NodeKind, NodeKinds
from retainprof.capture.ledger_objects import Contents, ObjectReader
from retainprof.capture.ledger_records import NEVER, Kind
from retainprof.capture.ledger_tensors import PLAIN, dense
from retainprof.capture.torch_private import (
    LEAF_SEQUENCE,
    SHALLOW,
    SavedTensor,
    cushion,
    data_address,
    next_cushion,
    packed,
    sequence_number,
)

__all__ = ["GRADIENT", "LOSS", "OUTPUT", "RANKS", "Hold", "Walker"]

# ranks: the smallest that applies names the kind of a storage
LOSS: Final = 0
OUTPUT: Final = 1
GRADIENT: Final = OUTPUT  # gradients are owned: their rank is never seen
LEAF_GRAD: Final = 2
SAVED: Final = 3
CLOSURE: Final = 4
CTX: Final = 5
RANKS: Final[tuple[Kind, ...]] = ("loss", "output", "leaf_grad", "saved", "closure", "ctx")
_ROOT: Final = -1  # sequence number that puts a root before all nodes

Keeper: TypeAlias = tuple[int, str, int]  # sequence number, name, id of a node; a plain tuple, since there are many
Hold: TypeAlias = tuple[int, str, int, int, Tensor]  # the same, then rank and tensor


def _addresses(tensor: Tensor) -> list[int]:
    """Where the storages of any tensor lie."""
    return [data_address(part) for part in dense(tensor)]


class Walker:
    """One walk, inside ``undisturbed()``: nodes ``seen``, and by address of a storage ``found``, who holds it how.

    Storages of ``owned`` tensors and those at the addresses ``beside`` are left out.
    """

    def __init__(self, owned: Iterable[Tensor], beside: Iterable[int] = ()) -> None:
        self.seen: set[Any] = set()
        self.found: dict[int, list[Hold]] = {}
        self.unreadable: set[str] = set()
        self._kinds = NodeKinds()
        self._objects = ObjectReader()
        owned = tuple(owned)
        self._owned_ids = {id(one) for one in owned}
        self._owned = set[int]()
        for one in owned:
            if type(one) in PLAIN and one.layout is torch.strided:  # nearly always: the rest of the loop costs more
                self._owned.add(data_address(one))
            else:
                self._owned.update(_addresses(one))
        self._left_out = self._owned.union(beside)
        self._todo: list[Any] = []

    def collect(self, roots: Sequence[Tensor], rank: int) -> None:
        """Find what the graphs of ``roots`` keep; the roots' own storages count with ``rank``."""
        for root in roots:
            self._keep(root, rank, (_ROOT, RANKS[rank], NEVER))
            if root.grad_fn is not None:
                self._todo.append(root.grad_fn)
        self._visit_all()

    def _visit_all(self) -> None:
        todo, seen, known, owned = self._todo, self.seen, self._kinds.by_type, self._owned_ids
        soft = SHALLOW
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            kind = known.get(type(node)) or self._kinds.of(node)
            if kind.is_leaf:
                leaf = node.variable
                if id(leaf) not in owned:
                    self._leaf(leaf, kind)
                continue
            following = node.next_functions
            for child, _ in following:
                if child is not None:
                    todo.append(child)
            if kind.readable:
                self._read(node, kind)
            if len(seen) > soft:
                cushion(node, following)
                soft = next_cushion(len(seen))

    def _read(self, node: Any, kind: NodeKind) -> None:
        sequence = sequence_number(node)
        keeper = (sequence, kind.name, kind.ident(sequence))
        for get in kind.slots:
            saved = get(node)
            if type(saved) is SavedTensor:
                self._saved(saved, keeper)
            elif saved is not None:
                for one in saved:
                    self._saved(one, keeper)
        if kind.special:
            self._special(node, kind, sequence)

    def _saved(self, saved: Any, keeper: Keeper) -> None:
        """What a packed saved tensor holds; the usual case, a plain tensor without hooks, comes without a detour."""
        data, hook = packed(saved)
        if hook is not None:
            self._contents(self._objects.read(data), CLOSURE, keeper)
            self._contents(self._objects.read(hook), CLOSURE, keeper)
        elif type(data) is Tensor:
            try:
                self._count(data, (*keeper, SAVED, data))
            except RuntimeError:  # sparse: no storage of its own
                self._keep(data, SAVED, keeper)
        elif data is not None:
            self._keep(data, SAVED, keeper)

    def _special(self, node: Any, kind: NodeKind, sequence: int) -> None:
        """What some nodes keep beside saved tensors."""
        if kind.has_context:
            self._contents(self._objects.read(vars(node)), CTX, (sequence, kind.name, NEVER))
        if kind.unreadable:
            self.unreadable.add(kind.name)

    def _contents(self, contents: Contents, rank: int, keeper: Keeper) -> None:
        """Tensors found in Python objects; the graphs behind them are held as well."""
        for tensor in contents.tensors:
            self._keep(tensor, rank, keeper)
            if tensor.grad_fn is not None:
                self._todo.append(tensor.grad_fn)
        self._todo.extend(contents.nodes)
        if not contents.complete:
            self.unreadable.add(f"{keeper[1]} (too many objects)")

    def _leaf(self, leaf: Tensor, kind: NodeKind) -> None:
        """A leaf and its ``.grad``, unless the leaf's bytes are owned."""
        if not self._owned.isdisjoint(_addresses(leaf)):
            return
        keeper = (LEAF_SEQUENCE, kind.name, NEVER)
        self._keep(leaf, SAVED, keeper)
        if leaf.grad is not None:
            self._keep(leaf.grad, LEAF_GRAD, keeper)
            if leaf.grad.grad_fn is not None:
                self._todo.append(leaf.grad.grad_fn)

    def _keep(self, tensor: Tensor, rank: int, keeper: Keeper) -> None:
        """Count the storage of ``tensor``, or those of its parts."""
        for part in dense(tensor):
            self._count(part, (*keeper, rank, part))

    def _count(self, tensor: Tensor, hold: Hold) -> None:
        """Raises RuntimeError for a tensor without a storage."""
        key = data_address(tensor)
        if key in self._left_out:
            return
        holds = self.found.get(key)
        if holds is None:
            self.found[key] = [hold]
        else:
            holds.append(hold)
