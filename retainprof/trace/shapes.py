"""Shapes, grids and names of kernels as text."""

from __future__ import annotations

import msgspec

__all__ = ["grid_text", "shapes_text"]


def shapes_text(dims: bytes) -> str:
    """``[[128, 64], [], [256]]`` as ``128x64, 256``: shapes of the tensor inputs, in their order."""
    found = _decoded(dims)
    shapes = [_joined(shape) for shape in found if isinstance(shape, list)]
    return ", ".join(shape for shape in shapes if shape)


def _joined(shape: list[object]) -> str:
    """One shape; a list of tensors has one in brackets."""
    if shape and all(isinstance(size, list) for size in shape):
        return "[" + ", ".join(_joined(size) for size in shape if isinstance(size, list)) + "]"
    return "x".join(str(size) for size in shape if isinstance(size, int))


def grid_text(grid: bytes, block: bytes) -> str:
    """``[24, 1, 1]`` and ``[128, 1, 1]`` as ``grid 24x1x1 block 128x1x1``; "" where the trace has none."""
    texts = ["x".join(map(str, _decoded(part))) for part in (grid, block)]
    return f"grid {texts[0]} block {texts[1]}" if texts[0] else ""


def _decoded(text: bytes) -> list[object]:
    if not text:
        return []
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    return found if isinstance(found, list) else []
