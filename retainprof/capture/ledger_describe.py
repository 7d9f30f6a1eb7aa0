"""From the storages of a walk to records: who made them, who keeps them, how large a tensor they back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import Tensor

from retainprof.capture.ledger_nodes import NodeKinds, copied_leaf, maker
from retainprof.capture.ledger_records import Held, Modules
from retainprof.capture.ledger_walk import RANKS, Hold
from retainprof.capture.torch_private import LEAF_SEQUENCE, data_address, sequence_number

__all__ = ["describe"]


def describe(found: Mapping[int, list[Hold]], modules: Modules | None) -> tuple[Held, ...]:
    """The records of ``found`` (by address), largest first; empty storages are left out."""
    texts, places = _Texts(), None if modules is None else _Places(modules)
    held = [_record(key, holds, texts, places) for key, holds in found.items()]
    held = [one for one in held if one.bytes]
    held.sort(key=attrgetter("bytes"), reverse=True)
    return tuple(held)


def _record(key: int, holds: list[Hold], texts: _Texts, places: _Places | None) -> Held:
    kept_by, keepers, rank, tensor = _together(holds)
    module, node_module, modules, copy_of = _NOWHERE if places is None else places.of(holds)
    return Held(
        key=key,
        bytes=tensor.untyped_storage().nbytes(),
        kept_by=kept_by,
        keepers=keepers,
        module=module,
        node_module=node_module,
        modules=modules,
        shape=tuple(tensor.shape),
        dtype=texts[tensor.dtype],
        device=texts[tensor.device],
        kind=RANKS[rank],
        tensor_bytes=tensor.nbytes,
        copy_of=copy_of,
    )


def _together(holds: list[Hold]) -> tuple[tuple[str, ...], tuple[int, ...], int, Tensor]:
    """Names and ids of all who hold a storage, in the order of the forward; the rank that applies; the first's tensor."""
    if len(holds) == 1:
        _, name, ident, rank, tensor = holds[0]
        return (name,), (ident,), rank, tensor
    holds.sort(key=itemgetter(0))
    _, names, keepers, ranks, tensors = zip(*holds, strict=True)
    return _unique(names), keepers, min(ranks), tensors[0]


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


class _Texts(dict[Any, str]):
    """Names of dtypes and devices, each made once."""

    def __missing__(self, value: torch.dtype | torch.device) -> str:
        text = self[value] = str(value).removeprefix("torch.")
        return text


_Place = tuple[str, str, tuple[str, ...], str | None]  # module, node_module, modules, copy_of
_NOWHERE: _Place = ("", "", (), None)


class _Places:
    """Where in the model a storage was made and is kept."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._kinds = NodeKinds()

    def of(self, holds: list[Hold]) -> _Place:
        tensor = holds[0][4]
        ran_in = [self._ran_in(hold[0]) for hold in holds]
        copy_of = self._copied(tensor)
        module = self._made_in(tensor, ran_in[0]) if copy_of is None else copy_of.rpartition(".")[0]
        return module, ran_in[0], _unique([module, *ran_in]), copy_of

    def _ran_in(self, sequence: int) -> str:
        """Where a node ran; "" for a root or a leaf, which ran nowhere."""
        return self._modules.of_node(sequence) if 0 <= sequence < LEAF_SEQUENCE else ""

    def _copied(self, tensor: Tensor) -> str | None:
        """Name of the parameter that the tensor is a copy of; None if of none."""
        leaf = copied_leaf(tensor.grad_fn, self._kinds)
        return None if leaf is None else self._modules.parameter(data_address(leaf))

    def _made_in(self, tensor: Tensor, ran_in: str) -> str:
        """The module seen to make the storage; else where the node ran that made the tensor, or its first keeper."""
        seen = self._modules.of_storage(tensor.untyped_storage())
        if seen is not None:
            return seen
        node = maker(tensor.grad_fn, self._kinds)
        return ran_in if node is None else self._modules.of_node(sequence_number(node))
