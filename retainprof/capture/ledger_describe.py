"""From the storages of a walk to records: who made them, who keeps them, how large a tensor they back."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import torch

from retainprof.capture.ledger_nodes import NodeKinds, copied_leaf, maker
from retainprof.capture.ledger_records import Held, Modules
from retainprof.capture.ledger_walk import RANKS, Keeper, Kept
from retainprof.capture.torch_private import LEAF_SEQUENCE, data_address, sequence_number

__all__ = ["describe"]

_KINDS = NodeKinds()


class _Texts:
    """Names of dtypes and devices, each made once."""

    def __init__(self) -> None:
        self._known: dict[torch.dtype | torch.device, str] = {}

    def of(self, value: torch.dtype | torch.device) -> str:
        text = self._known.get(value)
        if text is None:
            text = self._known[value] = str(value).removeprefix("torch.")
        return text


class _Nowhere:
    """Stands in where no modules are known."""

    def of_node(self, sequence: int) -> str:  # noqa: ARG002
        return ""

    def of_storage(self, storage: torch.UntypedStorage) -> str | None:  # noqa: ARG002
        return None

    def parameter(self, address: int) -> str | None:  # noqa: ARG002
        return None


def describe(found: dict[int, Kept], modules: Modules | None) -> tuple[Held, ...]:
    """The records of ``found`` (by address), largest first."""
    texts, where = _Texts(), _Nowhere() if modules is None else modules
    held = [_record(key, kept, texts, where) for key, kept in found.items()]
    held.sort(key=attrgetter("bytes"), reverse=True)
    return tuple(held)


def _record(key: int, kept: Kept, texts: _Texts, modules: Modules) -> Held:
    tensor, keepers = kept.tensor, kept.keepers
    if len(keepers) > 1:
        keepers.sort()
    copy_of = _copied(kept, modules)
    ran_in = [_of(keeper, modules) for keeper in keepers]
    module = _made_in(kept, modules, copy_of, ran_in[0])
    return Held(
        key=key,
        bytes=kept.nbytes,
        kept_by=_unique(keeper.name for keeper in keepers),
        keepers=tuple([keeper.id for keeper in keepers]),
        module=module,
        node_module=ran_in[0],
        modules=_unique((module, *ran_in)),
        shape=tuple(tensor.shape),
        dtype=texts.of(tensor.dtype),
        device=texts.of(tensor.device),
        kind=RANKS[kept.rank],
        tensor_bytes=tensor.numel() * tensor.itemsize,
        copy_of=copy_of,
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _of(keeper: Keeper, modules: Modules) -> str:
    """Where the keeper ran; "" for a root or a leaf, which ran nowhere."""
    return modules.of_node(keeper.sequence) if 0 <= keeper.sequence < LEAF_SEQUENCE else ""


def _copied(kept: Kept, modules: Modules) -> str | None:
    """Name of the parameter that the storage is a copy of; "a leaf" where it has no name."""
    leaf = copied_leaf(kept.tensor.grad_fn, _KINDS)
    if leaf is None:
        return None
    return modules.parameter(data_address(leaf.untyped_storage())) or "a leaf"


def _made_in(kept: Kept, modules: Modules, copy_of: str | None, ran_in: str) -> str:
    """The owner of a copied parameter; else the module seen to make the storage; else where the node ran that made
    the tensor, or where its earliest keeper ran."""
    if copy_of is not None:
        return copy_of.rpartition(".")[0]
    seen = modules.of_storage(kept.storage)
    if seen is not None:
        return seen
    node = maker(kept.tensor.grad_fn, _KINDS)
    return ran_in if node is None else modules.of_node(sequence_number(node))
