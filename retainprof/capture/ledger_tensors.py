"""From any tensor to the dense tensors whose storages hold its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from retainprof.capture.torch_private import data_address

__all__ = ["PLAIN", "dense"]

PLAIN: Final = (Tensor, nn.Parameter)
_COMPRESSED_ROWS: Final = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED_COLUMNS: Final = (torch.sparse_csc, torch.sparse_bsc)


def _sparse_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Indices and values; views of what the tensor holds, nothing is copied."""
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in _COMPRESSED_ROWS:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in _COMPRESSED_COLUMNS:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


def _inner_tensors(tensor: Tensor) -> tuple[Tensor, ...]:
    """Tensors inside a wrapper subclass: those it names itself, else those among its attributes."""
    flatten: Callable[[], tuple[list[str], object]] | None = getattr(tensor, "__tensor_flatten__", None)
    found = vars(tensor).values() if flatten is None else [getattr(tensor, name) for name in flatten()[0]]
    return tuple(inner for inner in found if isinstance(inner, Tensor))


def _has_bytes(tensor: Tensor) -> bool:
    """Whether the tensor has a storage of its own; opaque layouts and wrappers have none. A plain meta tensor has one,
    though nothing is in it."""
    try:
        return data_address(tensor) > 0 or type(tensor) in PLAIN
    except RuntimeError:
        return False


def dense(tensor: Tensor) -> Sequence[Tensor]:
    """Dense tensors that hold the bytes of ``tensor``: itself, a sparse one's parts, a wrapper's inner ones.

    A tensor with an opaque layout (oneDNN) gives none: its bytes cannot be named.
    """
    if type(tensor) in PLAIN and tensor.layout is torch.strided:
        return (tensor,)
    return tuple(_search(tensor))


def _search(tensor: Tensor) -> Iterator[Tensor]:
    todo = [tensor]
    while todo:
        tensor = todo.pop()
        inner = () if type(tensor) in PLAIN else _inner_tensors(tensor)
        if inner:
            todo.extend(inner)
        elif tensor.layout is not torch.strided:
            todo.extend(_sparse_parts(tensor))
        elif _has_bytes(tensor):
            yield tensor
