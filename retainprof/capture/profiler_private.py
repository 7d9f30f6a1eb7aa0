"""The private torch names that profiling needs, as ``torch_private`` has those that reading a graph needs.

``torch._C._autograd._profiler_enabled`` (seen in 2.13.0; https://github.com/pytorch/pytorch/pull/62012): whether a
profiler is recording in this process.

``torch._C._autograd._record_function_with_args_enter`` and ``_exit`` (seen in 2.13.0;
https://github.com/pytorch/pytorch/pull/44420): a user annotation, the same as ``record_function`` makes, which goes through
the dispatcher and takes three times as long (about 140 against 50 µs with cold caches), inside the step that is explained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

__all__ = ["enter_annotation", "leave_annotation", "profiler_is_active"]


def profiler_is_active() -> bool:
    """Whether ``torch.profiler`` or ``torch.autograd.profiler`` is recording; two nested ones spoil each other."""
    return bool(torch._C._autograd._profiler_enabled())


enter_annotation: Final[Callable[[str], Any]] = torch._C._autograd._record_function_with_args_enter
"""Begin a user annotation of this name; what is returned ends it."""

leave_annotation: Final[Callable[[Any], None]] = torch._C._autograd._record_function_with_args_exit
"""End the user annotation."""
