"""Which aten operators count as kernels on a CPU, by name; for traces of any program, so nothing is asked of torch.

A trace has operators inside operators. Views, aliases and allocations compute nothing. Of the rest, an operator is a kernel
where it does the work itself: no other computing operator ran inside it. ``addmm`` is one although it copies its bias by
``copy_`` first, and ``mm`` although it clones an input; ``clone``, which is nothing but a ``copy_``, is not.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BOOKKEEPING", "FILLERS", "is_kernel"]

BOOKKEEPING: Final = frozenset(
    f"aten::{name}"
    for name in (
        *(
            "alias",
            "as_strided",
            "broadcast_to",
            "chunk",
            "detach",
            "detach_",
            "diagonal",
            "expand",
            "expand_as",
            "flatten",
        ),
        *(
            "lift_fresh",
            "mT",
            "movedim",
            "narrow",
            "numpy_T",
            "permute",
            "ravel",
            "real",
            "imag",
            "reshape",
            "reshape_as",
        ),
        *(
            "resolve_conj",
            "resolve_neg",
            "result_type",
            "select",
            "set_",
            "slice",
            "split",
            "split_with_sizes",
            "squeeze",
        ),
        *(
            "squeeze_",
            "swapaxes",
            "t",
            "t_",
            "tensor_split",
            "transpose",
            "transpose_",
            "unbind",
            "unflatten",
            "unfold",
        ),
        *(
            "unsafe_chunk",
            "unsafe_split",
            "unsqueeze",
            "unsqueeze_",
            "view",
            "view_as",
            "view_as_complex",
            "view_as_real",
        ),
        *("_conj", "_neg_view", "_reshape_alias", "_unsafe_view", "conj", "contiguous", "to", "type_as"),
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"),
        *("_nnz", "_indices", "_values", "_coalesced_", "is_coalesced", "dense_dim", "sparse_dim"),
        *("is_floating_point", "is_complex", "is_same_size", "stride", "size", "item", "requires_grad_"),
    )
)
_ONLY_FILL: Final = frozenset(
    f"aten::{name}"
    for name in (
        *("clone", "_to_copy", "full", "full_like", "new_full", "new_ones", "new_zeros", "ones", "ones_like"),
        *("scalar_tensor", "zero_", "zeros", "zeros_like"),
    )
)
# what a kernel may have run first to prepare its inputs or its result
FILLERS: Final = _ONLY_FILL | {"aten::copy_", "aten::fill_"}


def is_kernel(name: str, *, fills_inside: bool, computes_inside: bool) -> bool:
    """Whether an aten operator is a kernel.

    ``fills_inside``: an operator of ``FILLERS`` ran inside it; ``computes_inside``: another one did that is not bookkeeping.
    """
    if name in BOOKKEEPING or computes_inside:
        return False
    return not (fills_inside and name in _ONLY_FILL)
