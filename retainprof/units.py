"""The only place where nanoseconds, bytes, counts and ratios become text."""

from __future__ import annotations

import math

__all__ = ["flops", "percent", "ratio", "show_bytes", "show_count", "show_interval_ns", "show_ns"]

_NS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_FLOPS = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1.0, "FLOP"))
MISSING = "–"


def _three(value: float) -> str:
    """Three significant digits without an exponent: 1.23, 12.3, 123, 1,234."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-9))
    return f"{value:,.{places}f}"


def show_ns(ns: float | None) -> str:
    """``1234567`` as ``1.23 ms``; three significant digits."""
    if ns is None:
        return MISSING
    for size, unit in _NS:
        if abs(ns) >= size:
            return f"{_three(ns / size)} {unit}"
    return f"{_three(ns)} ns"


def show_interval_ns(interval: tuple[float, float] | None) -> str:
    """``(1.2e6, 1.3e6)`` as ``1.20 to 1.30 ms``, both ends in the larger one's unit."""
    if interval is None:
        return MISSING
    low, high = interval
    size, unit = next(((s, u) for s, u in _NS if abs(high) >= s), _NS[-1])
    return f"{_three(low / size)} to {_three(high / size)} {unit}"


def show_bytes(nbytes: int | None) -> str:
    """``136712`` as ``133.5 KiB``; below 1 KiB the exact number."""
    if nbytes is None:
        return MISSING
    for size, unit in _BYTES:
        if abs(nbytes) >= size:
            return f"{nbytes / size:,.1f} {unit}"
    return f"{nbytes} B"


def show_count(count: int | None) -> str:
    """``1234567`` as ``1,234,567``."""
    return MISSING if count is None else f"{count:,}"


def flops(count: int | None) -> str:
    """``1240000000`` as ``1.24 GFLOP``."""
    if count is None:
        return MISSING
    for size, unit in _FLOPS:
        if abs(count) >= size:
            return f"{_three(count / size)} {unit}"
    return "0 FLOP"


def ratio(value: float | None) -> str:
    """``1.713`` as ``1.71x``; close to one, three decimals: ``1.004x``."""
    if value is None:
        return MISSING
    return f"{value:.3f}x" if 0.95 < value < 1.05 else f"{_three(value)}x"


def percent(value: float) -> str:
    """A ratio as a signed change: ``1.12`` as ``+12%``, ``0.998`` as ``-0.2%``."""
    change = (value - 1) * 100
    return f"{change:+.1f}%" if abs(change) < 10 else f"{change:+.0f}%"
