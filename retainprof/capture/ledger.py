"""The ledger of saved tensors: which storages a graph holds, in bytes, and who keeps them.

Design note, where the invariants live:

1. Nothing is unpacked. Only ``_raw_saved_*`` is read, and of a packed tensor only ``SavedTensor.data``: the tensor
   itself, or what a pack hook made of it. Both are None once a call has freed them.
2. Nothing is kept. The walk refers to nodes and tensors while it runs; its result has numbers and words only.
3. Nothing is changed: no gradient, version counter, hook or mode. Collections of garbage wait until the walk is over, so
   that the program's own garbage isn't freed in the middle of a measurement.
4. A storage counts once, and whole, whichever views of it are kept; owned storages do not count.
5. The walk is iterative and visits each node once: its time is linear in the number of nodes, its depth does not matter.

What cannot be reached from Python is in no ledger: closures of tensor hooks, ``saved_data`` of C++ functions, and the
function inside ``CopySlices`` (an in-place change of a view). ``Ledger.unreadable`` names the suspects that were passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from retainprof.capture.ledger_describe import describe
from retainprof.capture.ledger_records import NEVER, Held, Kind, Ledger, Modules
from retainprof.capture.ledger_walk import GRADIENT, LOSS, OUTPUT, Walker
from retainprof.capture.torch_private import undisturbed

__all__ = ["NEVER", "Held", "Kind", "Ledger", "Modules", "walk", "walk_pinned"]


def walk(
    roots: Sequence[Tensor],
    *,
    outputs: Sequence[Tensor] = (),
    owned: Sequence[Tensor] = (),
    modules: Modules | None = None,
    beside: Ledger | None = None,
) -> Ledger:
    """What the graphs of ``roots`` (losses) and ``outputs`` (what else of the forward the program still holds) keep.

    ``owned`` are tensors that live without the graph: parameters, buffers, inputs, targets, gradients. The ``.grad`` of
    an owned leaf is owned as well; that of a leaf made inside the forward belongs to the graph. What is in ``beside``
    (from :func:`walk_pinned`) stays when the roots go, so it is left out. ``modules`` names the modules. The result
    refers to no tensor and no node.
    """
    left_out = () if beside is None else [held.key for held in beside.storages]
    with undisturbed():
        return _ledger(((outputs, OUTPUT), (roots, LOSS)), owned, left_out, modules)


def walk_pinned(gradients: Sequence[Tensor], *, owned: Sequence[Tensor] = (), modules: Modules | None = None) -> Ledger:
    """What the graphs of ``gradients`` keep beyond the gradients themselves: made by ``create_graph``, let go when the
    gradients are cleared. ``owned`` as in :func:`walk`."""
    if all(gradient.grad_fn is None for gradient in gradients):
        return Ledger(storages=())
    with undisturbed():
        return _ledger(((gradients, GRADIENT),), (*owned, *gradients), (), modules)


def _ledger(
    starts: Iterable[tuple[Sequence[Tensor], int]],
    owned: Sequence[Tensor],
    beside: Iterable[int],
    modules: Modules | None,
) -> Ledger:
    """Walk from ``starts`` (tensors and their rank); all that the walk referred to is dropped on return."""
    walker = Walker(owned, beside)
    for tensors, rank in starts:
        walker.collect(tensors, rank)
    return Ledger(
        storages=describe(walker.found, modules),
        nodes=len(walker.seen),
        unreadable=tuple(sorted(walker.unreadable)),
    )
