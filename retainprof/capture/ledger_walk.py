"""The walk itself: nodes in, storages with their keepers out. ``ledger.walk`` is the way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from retainprof.capture.ledger_nodes import NodeKind, NodeKinds, copied_parameter
from retainprof.capture.ledger_objects import Contents, ObjectReader
from retainprof.capture.ledger_records import NEVER, Kind
from retainprof.capture.ledger_tensors import dense
from retainprof.capture.torch_private import LEAF_SEQUENCE, data_address, sequence_number

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
_PLAIN: Final = (Tensor, nn.Parameter)
_ROOT: Final = -1  # sequence number that puts a root before all nodes


class Keeper:
    """One node, or one root, while the walk is at it."""

    __slots__ = ("copies", "id", "name", "sequence")

    def __init__(self, name: str, sequence: int, ident: int, copies: Sequence[Tensor] = ()) -> None:
        self.name = name
        self.sequence = sequence
        self.id = ident
        self.copies = copies  # parameters of which the node's inputs are copies


class Kept:
    """A storage during the walk: the tensor that its earliest keeper has, and all keepers as (sequence, name, id)."""

    __slots__ = ("copy_of", "keepers", "nbytes", "rank", "sequence", "storage", "tensor")

    def __init__(self, tensor: Tensor, storage: torch.UntypedStorage, nbytes: int, rank: int, sequence: int) -> None:
        self.tensor = tensor
        self.storage = storage
        self.nbytes = nbytes
        self.rank = rank
        self.sequence = sequence
        self.keepers: list[tuple[int, str, int]] = []
        self.copy_of: Tensor | None = None


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
            self._keep(root, rank, Keeper(RANKS[rank], _ROOT, NEVER))
            if root.grad_fn is not None:
                self._todo.append(root.grad_fn)
        self._visit_all()

    def _visit_all(self) -> None:
        todo, seen, kinds = self._todo, self.seen, self._kinds
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            kind = kinds.of(node)
            following = node.next_functions
            for child, _ in following:
                if child is not None and child not in seen:
                    todo.append(child)
            if kind.slots or kind.special:
                self._read(node, kind, following)

    def _read(self, node: Any, kind: NodeKind, following: Any) -> None:
        if kind.is_leaf:
            self._leaf(node, kind)
            return
        sequence = sequence_number(node)
        copies = copied_parameter(following, self._kinds) if kind.slots else ()
        keeper = Keeper(kind.name, sequence, kind.ident(sequence), copies)
        for slot in kind.read(node):
            data, hook = slot.data, slot.unpack_hook
            if hook is not None:
                self._contents(self._objects.read(data), CLOSURE, keeper)
                self._contents(self._objects.read(hook), CLOSURE, keeper)
            elif data is not None:
                self._keep(data, SAVED, keeper)
        if kind.has_context:
            self._contents(self._objects.read(vars(node)), CTX, Keeper(kind.name, sequence, NEVER))
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
        keeper = Keeper(kind.name, LEAF_SEQUENCE, NEVER)
        self._keep(leaf, SAVED, keeper)
        if leaf.grad is not None:
            self._keep(leaf.grad, LEAF_GRAD, keeper)
            if leaf.grad.grad_fn is not None:
                self._todo.append(leaf.grad.grad_fn)

    def _keep(self, tensor: Tensor, rank: int, keeper: Keeper) -> None:
        if type(tensor) in _PLAIN and tensor.layout is torch.strided:
            self._keep_dense(tensor, rank, keeper)
            return
        for part in dense(tensor):
            self._keep_dense(part, rank, keeper)

    def _keep_dense(self, tensor: Tensor, rank: int, keeper: Keeper) -> None:
        storage = tensor.untyped_storage()
        key = data_address(storage)
        if key in self._left_out:
            return
        sequence = keeper.sequence
        kept = self.found.get(key)
        if kept is None:
            nbytes = storage.nbytes()
            if not nbytes:
                return
            kept = self.found[key] = Kept(tensor, storage, nbytes, rank, sequence)
        else:
            if rank < kept.rank:
                kept.rank = rank
            if sequence < kept.sequence:
                kept.sequence, kept.tensor = sequence, tensor
        kept.keepers.append((sequence, keeper.name, keeper.id))
        if keeper.copies and kept.copy_of is None:
            kept.copy_of = next((p for p in keeper.copies if p.numel() == tensor.numel()), None)
