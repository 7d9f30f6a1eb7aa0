"""The records of a ledger: numbers and words, no tensor and no node."""

from __future__ import annotations

from typing import Final, Literal, Protocol

import torch

from retainprof.records import Record

__all__ = ["NEVER", "Held", "Kind", "Ledger", "Modules"]

Kind = Literal["loss", "output", "leaf_grad", "saved", "closure", "ctx"]
NEVER: Final = 0  # in ``Held.keepers``: something that no call lets go of


class Modules(Protocol):
    """Answers which module made things; ``modules.ModuleMap`` is one."""

    def of_node(self, sequence: int) -> str:
        """Path of the module in whose forward the node with this sequence number was made; "" if in none."""

    def of_storage(self, storage: torch.UntypedStorage) -> str | None:
        """Path of the module whose forward made the storage; None if that was not seen."""

    def parameter(self, address: int) -> str | None:
        """Name of the parameter at this address."""


class Held(Record, frozen=True, kw_only=True, gc=False):
    """One storage that the graph holds, counted once and whole.

    ``kept_by`` are the kinds of node that keep it, in the order of the forward ("loss" or "output" before them): the
    first is the one that made the tensor, where that one keeps it. ``module`` is the path of the module whose forward
    made the storage ("" if made in none; the owner for a copy of a parameter), ``node_module`` where ``kept_by[0]``
    ran, ``modules`` these and those of all keepers. ``keepers`` are ids of nodes; the storage goes when the last of
    them has let go, which ``NEVER`` does only with the losses themselves. ``tensor_bytes`` is the size of the tensor
    behind ``kept_by[0]``: less than ``bytes`` where a view or a scalar pins a larger storage. ``copy_of`` names the
    parameter that a low-precision or transposed copy was made from.
    """

    key: int
    bytes: int
    kept_by: tuple[str, ...]
    keepers: tuple[int, ...]
    module: str = ""
    node_module: str = ""
    modules: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    kind: Kind = "saved"
    tensor_bytes: int = 0
    copy_of: str | None = None


class Ledger(Record, frozen=True, kw_only=True):
    """What a walk found, largest first.

    ``nodes`` counts the nodes visited. ``unreadable`` are kinds of node that may keep tensors which Python cannot see.
    """

    storages: tuple[Held, ...]
    nodes: int = 0
    unreadable: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Bytes that dropping what was walked from would release."""
        return sum(held.bytes for held in self.storages)
