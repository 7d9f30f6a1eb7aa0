"""One forward before anything long is run: does the model run, and is every loss a scalar tensor with a gradient?"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from retainprof.capture.workload import Workload
from retainprof.errors import WorkloadError

__all__ = ["probe", "their_frames"]

_OURS = str(Path(__file__).resolve().parents[1])


def their_frames(e: BaseException) -> str:
    """The traceback of ``e`` from the first frame on that is not retainprof's own."""
    frames = traceback.extract_tb(e.__traceback__)
    start = next((i for i, frame in enumerate(frames) if not frame.filename.startswith(_OURS)), len(frames))
    return "".join([*traceback.format_list(frames[start:]), *traceback.format_exception_only(e)]).rstrip()


def _outputs(workload: Workload) -> Any:
    try:
        return workload.model(*workload.inputs)
    except Exception as e:
        raise WorkloadError(f"the model's forward raised {type(e).__name__}: {e}", hint=their_frames(e)) from e


def _loss(workload: Workload, name: str, outputs: Any) -> Tensor:
    try:
        value: object = workload.losses[name](outputs, workload.targets)
    except Exception as e:
        raise WorkloadError(f"loss {name!r} raised {type(e).__name__}: {e}", hint=their_frames(e)) from e
    if not isinstance(value, Tensor):
        raise WorkloadError(
            f"loss {name!r} returned {type(value).__name__}, expected a scalar tensor",
            hint="return the tensor itself, without .item() or float()",
        )
    if value.numel() != 1:
        raise WorkloadError(
            f"loss {name!r} has shape {tuple(value.shape)}, expected a scalar",
            hint="reduce it: .mean() or .sum()",
        )
    if not value.requires_grad:
        raise WorkloadError(
            f"loss {name!r} does not require a gradient",
            hint="nothing it depends on is trainable, or it was computed under no_grad or from detached tensors",
        )
    return value


def probe(workload: Workload) -> tuple[str, ...]:
    """Run the forward once; random numbers are put back. Returns warnings (a loss that is not finite).

    Raises:
        WorkloadError: the forward or a loss raised, or a loss cannot be sent back.
    """
    rng = torch.get_rng_state()
    outputs = _outputs(workload)
    warnings = []
    for name in workload.losses:
        value = _loss(workload, name, outputs)
        if not bool(torch.isfinite(value.detach()).all()):
            warnings.append(f"loss {name!r} is {value.item()}: times are still right, gradients are marked")
    torch.set_rng_state(rng)
    return tuple(warnings)
