"""Labels of ``record_function`` ranges: written by a capture, found again in any trace.

A label is ``retainprof::PHASE`` or ``retainprof::PHASE[INDEX]``, optionally followed by a space and a slug. Only ASCII
letters, digits and ``._-+`` are in a slug: torch writes a quote unescaped (the trace is then no JSON), turns other
characters into an event named ``unknown``, and merges equal labels; hence the index. The full names of the losses are in
the result file, by call index.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

__all__ = ["PREFIX", "Label", "Phase", "make", "parse", "slug"]

PREFIX: Final = "retainprof::"
Phase = Literal["step", "forward", "loss", "call", "drop", "clear"]
_LABEL: Final = re.compile(r"retainprof::(step|forward|loss|call|drop|clear)(?:\[(\d+)\])?(?: ([A-Za-z0-9._+-]*))?")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclass(frozen=True)
class Label:
    """A parsed label; ``index`` is the call's number in its step, or None where the phase has none."""

    phase: Phase
    index: int | None
    slug: str


def slug(name: str, limit: int = 60) -> str:
    """``name`` with every unsafe run of characters as one ``_``, at most ``limit`` characters long."""
    return _UNSAFE.sub("_", name)[:limit]


@lru_cache(maxsize=4096)
def make(phase: Phase, index: int | None = None, name: str = "") -> str:
    """The label of a phase, e.g. ``retainprof::call[0] cls``."""
    number = "" if index is None else f"[{index}]"
    tail = f" {slug(name)}" if name else ""
    return f"{PREFIX}{phase}{number}{tail}"


def parse(text: str) -> Label | None:
    """The label that ``text`` is, or None if it is none of ours."""
    found = _LABEL.fullmatch(text)
    if found is None:
        return None
    phase, number, name = found.groups()
    return Label(phase, None if number is None else int(number), name or "")  # type: ignore[arg-type]
