"""The walk itself: nodes in, storages with their keepers out. ``ledger.walk`` is the way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from retainprof.capture.ledger_nodes import NodeKind, NodeKinds
from retainprof.capture.ledger_objects import Contents, ObjectReader
from retainprof.capture.ledger_records import NEVER, Kind
from retainprof.capture.ledger_tensors import dense
from retainprof.capture.torch_private import LEAF_SEQUENCE, SHALLOW, cushion, data_address, sequence_number

__all__ = ["GRADIENT", "LOSS", "OUTPUT", "RANKS", "Kept", "Walker"]

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


class Keeper(NamedTuple):
    """A node, or a root, as one that keeps a storage: its place in the forward, its name and its id."""

    sequence: int
    name: str
    id: int


class Kept:
    """A storage during the walk; ``tensor`` is the one that the earliest of its ``keepers`` has."""

    __slots__ = ("first", "keepers", "nbytes", "rank", "storage", "tensor")

    def __init__(self, tensor: Tensor, storage: torch.UntypedStorage, nbytes: int, rank: int, keeper: Keeper) -> None:
        self.tensor = tensor
        self.storage = storage
        self.nbytes = nbytes
        self.rank = rank
        self.first = keeper
        self.keepers = [keeper]

    def add(self, tensor: Tensor, rank: int, keeper: Keeper) -> None:
        """Note another keeper."""
        self.keepers.append(keeper)
        self.rank = min(self.rank, rank)
        if keeper.sequence < self.first.sequence:
            self.first, self.tensor = keeper, tensor


class Walker:
    """One walk, inside ``undisturbed()``: nodes ``seen``, storages ``found`` by address.

    Storages of ``owned`` tensors and those at the addresses ``beside`` are left out.
    """

    def __init__(self, owned: Iterable[Tensor], beside: Iterable[int] = ()) -> None:
        self.seen: set[Any] = set()
        self.found: dict[int, Kept] = {}
        self.unreadable: set[str] = set()
        self._kinds = NodeKinds()
        self._objects = ObjectReader()
        self._owned = {data_address(t.untyped_storage()) for one in owned for t in dense(one)}
        self._left_out = self._owned.union(beside)
        self._todo: list[Any] = []

    def collect(self, roots: Sequence[Tensor], rank: int) -> None:
        """Find what the graphs of ``roots`` keep; the roots' own storages count with ``rank``."""
        for root in roots:
            self._keep(root, rank, Keeper(_ROOT, RANKS[rank], NEVER))
            if root.grad_fn is not None:
                self._todo.append(root.grad_fn)
        self._visit_all()

    def _visit_all(self) -> None:
        todo, seen, kinds = self._todo, self.seen, self._kinds.by_type
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            kind = kinds.get(type(node)) or self._kinds.of(node)
            following = node.next_functions
            for child, _ in following:
                if child is not None and child not in seen:
                    todo.append(child)
            if kind.is_leaf:
                self._leaf(node, kind)
            elif kind.readable:
                self._read(node, kind)
            if len(seen) > SHALLOW:
                cushion(node, following)

    def _read(self, node: Any, kind: NodeKind) -> None:
        """What a node that is no leaf keeps."""
        sequence = sequence_number(node)
        keeper = Keeper(sequence, kind.name, kind.ident(sequence))
        for slot in kind.slots_of(node):
            data, hook = slot.data, slot.unpack_hook
            if hook is not None:
                self._contents(self._objects.read(data), CLOSURE, keeper)
                self._contents(self._objects.read(hook), CLOSURE, keeper)
            elif data is not None:
                self._keep(data, SAVED, keeper)
        if kind.has_context:
            self._contents(self._objects.read(vars(node)), CTX, keeper._replace(id=NEVER))
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
            self.unreadable.add(f"{keeper.name} (too many objects)")

    def _leaf(self, node: Any, kind: NodeKind) -> None:
        """A leaf and its ``.grad``, unless the leaf is owned."""
        leaf = node.variable
        if any(data_address(t.untyped_storage()) in self._owned for t in dense(leaf)):
            return
        keeper = Keeper(LEAF_SEQUENCE, kind.name, NEVER)
        self._keep(leaf, SAVED, keeper)
        if leaf.grad is not None:
            self._keep(leaf.grad, LEAF_GRAD, keeper)
            if leaf.grad.grad_fn is not None:
                self._todo.append(leaf.grad.grad_fn)

    def _keep(self, tensor: Tensor, rank: int, keeper: Keeper) -> None:
        """Count the storage of ``tensor``, or those of its parts."""
        if type(tensor) is Tensor and tensor.layout is torch.strided:  # the usual case, without a detour
            self._count(tensor, rank, keeper)
        else:
            for part in dense(tensor):
                self._count(part, rank, keeper)

    def _count(self, tensor: Tensor, rank: int, keeper: Keeper) -> None:
        storage = tensor.untyped_storage()
        key = data_address(storage)
        if key in self._left_out:
            return
        kept = self.found.get(key)
        if kept is not None:
            kept.add(tensor, rank, keeper)
            return
        nbytes = storage.nbytes()
        if nbytes:
            self.found[key] = Kept(tensor, storage, nbytes, rank, keeper)
