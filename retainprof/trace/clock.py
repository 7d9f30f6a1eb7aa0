"""Microseconds as they stand in a trace, to whole nanoseconds, without losing one."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT_US", "MISSING_NS", "from_doubles", "from_texts"]

EXACT_US: Final = float(1 << 43)  # above, a double of microseconds is no longer good to half a nanosecond
MISSING_NS: Final = int(np.iinfo(np.int64).min)
_LIMIT_US: Final = 9.2e15
_COMMA, _POINT, _ZERO = ord(","), ord("."), ord("0")

Ns = NDArray[np.int64]


def from_doubles(us: NDArray[np.float64]) -> Ns:
    """Whole ns; ``MISSING_NS`` where there is no finite time."""
    fine = np.abs(us) < _LIMIT_US  # False for nan and inf
    whole = np.floor(np.where(fine, us, 0.0))
    ns = whole.astype(np.int64) * 1000 + np.rint((np.where(fine, us, 0.0) - whole) * 1000).astype(np.int64)
    return np.where(fine, ns, MISSING_NS)


def from_texts(texts: Sequence[bytes | memoryview]) -> Ns:
    """Whole ns from decimal texts, exact; halves of a ns go to the even one."""
    found = _alike(b",".join(texts) + b",", len(texts))
    return np.array([_exactly(bytes(text)) for text in texts], np.int64) if found is None else found


def _alike(joined: bytes, rows: int) -> Ns | None:
    """Texts of one length with exactly three decimals, or None: what a profiler writes in one go."""
    width = len(joined) // max(rows, 1)
    if not 5 < width < 22 or len(joined) != rows * width:
        return None
    table = np.frombuffer(joined, np.uint8).reshape(rows, width)
    if not (table[:, -1] == _COMMA).all() or not (table[:, -5] == _POINT).all():
        return None
    digits = table - _ZERO  # wraps round below 0
    value = np.zeros(rows, np.int64)
    for column in (*range(width - 5), *range(width - 4, width - 1)):
        digit = digits[:, column]
        if digit.max() > 9:
            return None
        value *= 10
        value += digit
    return None if (value < 0).any() else value  # 19 digits can be too many


def _exactly(text: bytes) -> int:
    try:
        us = Decimal(text.decode().strip('"'))
    except (InvalidOperation, UnicodeDecodeError):
        return MISSING_NS
    return round(us * 1000) if us.is_finite() and abs(us) < _LIMIT_US else MISSING_NS
