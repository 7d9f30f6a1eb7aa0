"""Shapes, grids and names of kernels as text."""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["grid_text", "shapes_text", "short_name"]

_ANONYMOUS: Final = re.compile(r"\(anonymous namespace\)::")
_LAMBDA: Final = re.compile(r"(?:::)?\{lambda[^}]*\}[^,<>]*|::operator\b| const\b|[&*]")
_SCOPE: Final = re.compile(r"(?:\w+::)+(?=\w)")
_TYPES: Final = ("float", "double", "half", "int", "long", "bool", "Half", "BFloat16", "__half", "__nv_bfloat16")
_TYPE: Final = "|".join((*_TYPES, "char", "short"))
_PLAIN: Final = re.compile(rf"-?\d+\w*|true|false|(?:unsigned |signed )?(?:{_TYPE})|[Aa]rray.*|.*OffsetCalculator.*")


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


def short_name(name: str, limit: int = 72) -> str:
    """A kernel's name without namespaces, arguments and plain numbers: ``elementwise_kernel<FillFunctor<float>>``.

    Names of functions inside ``{lambda...}`` chains are kept; what is longer than ``limit`` has its middle cut out.
    """
    if "::" in name[:6] and "<" not in name:  # aten::add_
        return name
    text = _ANONYMOUS.sub("", name.removeprefix("void "))
    text = _LAMBDA.sub("", _without_arguments(text))
    text = _SCOPE.sub("", text)
    parts = _template(text)
    if len(parts) > limit:
        half = (limit - 1) // 2
        parts = f"{parts[: limit - 1 - half]}…{parts[len(parts) - half :]}"
    return parts


def _without_arguments(text: str) -> str:
    """``text`` without what stands in parentheses, at any depth."""
    depth, kept = 0, []
    for char in text:
        depth += char == "("
        if not depth:
            kept.append(char)
        depth -= char == ")" and depth > 0
    return "".join(kept)


def _template(text: str) -> str:
    """A template's name with those of its arguments that are names of functions or functors."""
    head, bracket, inner = text.partition("<")
    if not bracket:
        return text.strip()
    arguments = [_template(part) for part in _split(inner.rpartition(">")[0])]
    telling = [part for part in arguments if part and not _PLAIN.fullmatch(part)]
    types = [part for part in arguments if part in _TYPES]
    shown = telling[:2] or types[:1]
    return f"{head.strip()}<{', '.join(shown)}>" if shown else head.strip()


def _split(text: str) -> list[str]:
    """The arguments of a template, split at the commas of the outermost level."""
    depth, parts = 0, [""]
    for char in text:
        depth += (char in "<[") - (char in ">]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]
