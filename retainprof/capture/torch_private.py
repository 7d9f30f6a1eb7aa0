"""Every private torch name that reading a graph needs; no other module of the package spells one for that purpose.

Each has the version it was seen in and the public page that explains it (``NAMES``). ``missing()`` says which are gone,
and ``tests/unit/test_ledger_private.py`` fails with that list when torch changes one.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = [
    "LEAF_SEQUENCE",
    "NAMES",
    "SHALLOW",
    "PrivateName",
    "SavedTensor",
    "compiled_call",
    "cushion",
    "data_address",
    "is_compiled",
    "missing",
    "next_cushion",
    "next_sequence_number",
    "packed",
    "raw_slots",
    "sequence_number",
    "set_compiled_call",
    "storage_identity",
    "storage_reference",
    "undisturbed",
]

_PULL: Final = "https://github.com/pytorch/pytorch/pull/"
_RAW: Final = "_raw_saved_"  # never ``_saved_*``: reading one of those runs the unpack hooks
SHALLOW: Final = 1_000  # nodes; a graph that has no more cannot be too deep for the stack
LEAF_SEQUENCE: Final = 2**64 - 1  # what AccumulateGrad answers: leaves have no place in the order of the forward

SavedTensor: Final[Any] = torch._C._autograd.SavedTensor
Getter: TypeAlias = Callable[[Any], Any]
Node: TypeAlias = Any  # a node's attributes differ by operator and are unknown to type checkers


@dataclass(frozen=True)
class PrivateName:
    """A name that torch does not promise: where it was seen, what for, and the page that explains it."""

    name: str
    seen_in: str
    purpose: str
    url: str


NAMES: Final = (
    PrivateName("Node._raw_saved_*", "2.13.0", "what a built-in operator saved, packed as it is", _PULL + "60565"),
    PrivateName("Function._raw_saved_tensors", "2.13.0", "the same of a custom Function", _PULL + "60551"),
    PrivateName(
        "SavedTensor.data", "2.13.0", "the tensor, or what a pack hook made of it; no unpacking", _PULL + "60975"
    ),
    PrivateName("SavedTensor.unpack_hook", "2.13.0", "a function whose closure may hold tensors", _PULL + "134754"),
    PrivateName("Node._sequence_nr", "2.13.0", "place of a node in its thread's forward", _PULL + "52180"),
    PrivateName("torch._C._autograd._get_sequence_nr", "2.13.0", "number the next node will get", _PULL + "103129"),
    PrivateName("Node.metadata", "2.13.0", "a dict that a node owns", _PULL + "7677"),
    PrivateName(
        "torch._C.DisableTorchFunctionSubclass", "2.13.0", "no subclass code runs while reading", _PULL + "89221"
    ),
    PrivateName("AccumulateGrad.variable", "2.13.0", "the leaf that a node accumulates into", _PULL + "107063"),
    PrivateName("torch._dynamo.OptimizedModule", "2.13.0", "what torch.compile makes of a module", _PULL + "88629"),
    PrivateName("UntypedStorage._cdata", "2.13.0", "identity of a storage", _PULL + "109039"),
    PrivateName("StorageWeakRef", "2.13.0", "recognise a storage later without keeping it", _PULL + "9148"),
    PrivateName("Module._compiled_call_impl", "2.13.0", "the compiled call of Module.compile", _PULL + "97565"),
)


def raw_slots(node_type: type) -> tuple[Getter, ...]:
    """What reads the packed saved tensors of one kind of node, in the type's own order.

    Each answers one ``SavedTensor``, several, or nothing (None or empty) where there are none any more.
    """
    names = [name for name in dir(node_type) if name.startswith(_RAW)]
    own_getter = _of_function if issubclass(node_type, torch.autograd.function.FunctionCtx) else attrgetter
    return tuple(own_getter(name) for name in names)


def _of_function(name: str) -> Getter:
    """A custom Function raises once its tensors are gone, where other nodes answer None."""

    def get(node: Node) -> Any:
        try:
            return getattr(node, name)
        except RuntimeError:
            return ()

    return get


packed: Final[Callable[[Any], tuple[Any, Any]]] = attrgetter("data", "unpack_hook")
"""Of a ``SavedTensor``: the tensor, or what a pack hook made of it, and the unpack hook or None. Nothing is unpacked."""

sequence_number: Final[Callable[[Node], int]] = methodcaller("_sequence_nr")
"""Place of the node in the forward of the thread that made it; ``LEAF_SEQUENCE`` for AccumulateGrad."""


def next_sequence_number() -> int:
    """The number that the next node made in this thread will get; taking it changes nothing."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number


def data_address(tensor: Tensor) -> int:
    """Address of the bytes of a dense tensor's storage; where it has none (meta, fake), minus that of the storage itself.

    ``const_data_ptr`` leaves a copy-on-write tensor uncopied, which ``data_ptr`` of tensor and storage do not.
    Raises RuntimeError for a tensor without a storage (sparse, opaque layouts).
    """
    address: int = tensor.const_data_ptr()  # type: ignore[attr-defined]
    if not address:
        return -storage_identity(tensor.untyped_storage())
    offset = tensor.storage_offset()
    return address - int(offset) * tensor.itemsize if offset else address


def storage_identity(storage: torch.UntypedStorage) -> int:
    """What tells a storage from all others that are alive or referred to by ``storage_reference``."""
    return int(storage._cdata)


def storage_reference(storage: torch.UntypedStorage) -> StorageWeakRef:
    """A weak reference: the bytes go when their last owner goes, only the identity is not given away again."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def cushion(node: Node, following: tuple[Any, ...]) -> None:
    """Let a deep graph be freed without overflowing the C stack, though its nodes have been seen from Python.

    torch frees a chain of nodes in a loop, but not those that Python has an object for: these free each other by
    recursion (since https://github.com/pytorch/pytorch/pull/181782), and some 30,000 overflow the stack. Python's own
    containers do not: a deep pile of them is taken down step by step. So a node now and then gets its ``following``
    nodes, which it owns anyway, in such a pile into its ``metadata``. Nothing lives longer for it.
    """
    pile = following
    for _ in range(32):
        pile = (pile,)
    node.metadata["retainprof"] = pile


def next_cushion(count: int) -> int:
    """After how many nodes the next one needs a ``cushion``, ``count`` having been seen: 16 later on average, in
    uneven steps, so that no regular graph has them all on its side branches."""
    return count + 1 + (count * 0x9E3779B1 >> 20) % 31


def compiled_call(module: nn.Module) -> Callable[..., Any] | None:
    """What ``Module.compile`` put in place of the module's call; None for a module that it was not called on."""
    found: Callable[..., Any] | None = getattr(module, "_compiled_call_impl", None)
    return found


def is_compiled(module: nn.Module) -> bool:
    """Whether ``torch.compile`` wrapped it. The compiler, which takes seconds to import, is not imported to find out:
    where nobody has, nothing is compiled."""
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)


def set_compiled_call(module: nn.Module, call: Callable[..., Any] | None) -> None:
    """Replace the compiled call, e.g. by one that notes when it begins and ends."""
    module._compiled_call_impl = call


@contextmanager
def undisturbed() -> Iterator[None]:
    """Read tensors and nodes without running code of tensor subclasses, gradient mode or the garbage collector."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            yield
    finally:
        if collecting:
            gc.enable()


def missing() -> list[PrivateName]:
    """Names of ``NAMES`` that this torch does not have."""
    leaf = torch.ones(1, requires_grad=True)
    node: Node = leaf.exp().grad_fn
    saved = getattr(node, _RAW + "result", None)
    here = {
        "Node._raw_saved_*": saved is not None,
        "Function._raw_saved_tensors": bool(raw_slots(torch.autograd.Function)),
        "SavedTensor.data": isinstance(getattr(saved, "data", None), Tensor),
        "SavedTensor.unpack_hook": hasattr(saved, "unpack_hook"),
        "Node._sequence_nr": hasattr(node, "_sequence_nr"),
        "torch._C._autograd._get_sequence_nr": hasattr(torch._C._autograd, "_get_sequence_nr"),
        "Node.metadata": isinstance(getattr(node, "metadata", None), dict),
        "torch._C.DisableTorchFunctionSubclass": hasattr(torch._C, "DisableTorchFunctionSubclass"),
        "AccumulateGrad.variable": getattr(node.next_functions[0][0], "variable", None) is leaf,
        "torch._dynamo.OptimizedModule": importlib.util.find_spec("torch._dynamo") is not None,
        "UntypedStorage._cdata": hasattr(leaf.untyped_storage(), "_cdata"),
        "StorageWeakRef": hasattr(StorageWeakRef, "expired"),
        "Module._compiled_call_impl": hasattr(nn.Module, "_compiled_call_impl"),
    }
    return [name for name in NAMES if not here[name.name]]
