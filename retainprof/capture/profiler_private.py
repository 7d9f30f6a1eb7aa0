"""The private torch names that profiling needs, as ``torch_private`` has those that reading a graph needs.

``torch._C._autograd._profiler_enabled`` (seen in 2.13.0; https://github.com/pytorch/pytorch/pull/62012): whether a
profiler is recording in this process.
"""

from __future__ import annotations

import torch

__all__ = ["profiler_is_active"]


def profiler_is_active() -> bool:
    """Whether ``torch.profiler`` or ``torch.autograd.profiler`` is recording; two nested ones spoil each other."""
    return bool(torch._C._autograd._profiler_enabled())
