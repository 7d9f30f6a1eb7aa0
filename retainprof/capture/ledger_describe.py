"""From the storages of a walk to records: who made them, who keeps them, how large a tensor they back."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from retainprof.capture.ledger_records import Held, Modules
from retainprof.capture.ledger_walk import RANKS, Kept
from retainprof.capture.torch_private import LEAF_SEQUENCE, data_address

__all__ = ["describe"]


class _Names:
    """Texts of dtypes and devices, each made once."""

    def __init__(self) -> None:
        self._known: dict[torch.dtype | torch.device, str] = {}

    def of(self, value: torch.dtype | torch.device) -> str:
        text = self._known.get(value)
        if text is None:
            text = self._known[value] = str(value).removeprefix("torch.")
        return text


def describe(found: dict[int, Kept], modules: Modules | None) -> tuple[Held, ...]:
    """The records of ``found`` (by address), largest first."""
    names = _Names()
    held = [_record(key, kept, names, modules) for key, kept in found.items()]
    held.sort(key=lambda one: -one.bytes)
    return tuple(held)


def _record(key: int, kept: Kept, names: _Names, modules: Modules | None) -> Held:
    tensor, keepers = kept.tensor, kept.keepers
    if len(keepers) > 1:
        keepers.sort()
    copied = _copied(kept, modules)
    node_module = module = ""
    passed: tuple[str, ...] = ()
    if modules is not None:
        paths = [modules.of_node(sequence) for sequence, _, _ in keepers if 0 <= sequence < LEAF_SEQUENCE]
        node_module = paths[0] if paths else ""
        module = _maker(kept, modules, copied, node_module)
        passed = _unique((module, *paths))
    return Held(
        key=key,
        bytes=kept.nbytes,
        kept_by=(keepers[0][1],) if len(keepers) == 1 else _unique(name for _, name, _ in keepers),
        keepers=tuple(ident for _, _, ident in keepers),
        module=module,
        node_module=node_module,
        modules=passed,
        shape=tuple(tensor.shape),
        dtype=names.of(tensor.dtype),
        device=names.of(tensor.device),
        kind=RANKS[kept.rank],
        tensor_bytes=tensor.numel() * tensor.itemsize,
        copy_of=copied,
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _copied(kept: Kept, modules: Modules | None) -> str | None:
    """Name of the parameter that the storage is a copy of; "a parameter" where it has no name."""
    if kept.copy_of is None:
        return None
    address = data_address(kept.copy_of.untyped_storage())
    return (modules and modules.parameter(address)) or "a parameter"


def _maker(kept: Kept, modules: Modules, copied: str | None, node_module: str) -> str:
    """The owner of a copied parameter, else the module that was seen to make the storage, else the earliest keeper's."""
    if copied is not None and kept.copy_of is not None:
        owner, dot, _ = copied.rpartition(".")
        return owner if dot else ""
    made_in = modules.of_storage(kept.storage)
    return node_module if made_in is None else made_in
