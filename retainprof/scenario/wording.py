"""What pydantic expected and what it got, in words that a scenario's author knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from retainprof.scenario.document import KeyPath
from retainprof.scenario.names import hint

__all__ = ["Problem", "advice", "expected", "got", "only_near", "short"]

PATTERNS: Final = {
    "auto|cpu": "a device: auto, cpu, cuda, cuda:0, mps or xpu",
    ":[^": "package.module:function",
    "[^.": "a name without dots and spaces",
}
TYPES: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_too_short": "text that is not empty",
}
LIMITS: Final = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
    "string_too_long": ("text of at most as many characters as", "max_length"),
}
NUMBER: Final = re.compile(r"\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*")


@dataclass(frozen=True)
class Problem:
    """One error of pydantic, its location translated to a path of keys in the file."""

    kind: str
    path: KeyPath
    location: tuple[str | int, ...]
    context: Mapping[str, Any]
    value: Any


def expected(problem: Problem) -> str:
    if problem.kind in TYPES:
        return TYPES[problem.kind]
    if problem.kind == "too_short":
        return f"{problem.context['min_length']} or more entries"
    if problem.kind in LIMITS:
        words, key = LIMITS[problem.kind]
        return f"{words} {problem.context[key]}"
    if problem.kind == "literal_error":
        return str(problem.context["expected"]).replace("'", "")
    if problem.kind == "string_pattern_mismatch":
        pattern = str(problem.context["pattern"])
        return next((text for part, text in PATTERNS.items() if part in pattern), f"text like {pattern}")
    return "something else"


def got(value: Any, raw: str) -> str:
    if isinstance(value, bool):
        bare = raw and raw.lower() not in ("true", "false")
        return f"{raw}, which YAML reads as {str(value).lower()}" if bare else str(value).lower()
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"text {short(value)}"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return raw or str(value)


def short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


def advice(first: Problem, group: Sequence[Problem], raw: str) -> str:
    kinds = {problem.kind for problem in group}
    if isinstance(first.value, bool) and "string_type" in kinds:
        return f'write it in quotes: "{raw}"'
    if isinstance(first.value, (int, float)) and "string_type" in kinds:
        return f'write it in quotes: "{raw or first.value}"'
    if isinstance(first.value, str):
        if NUMBER.fullmatch(first.value) and kinds & {"int_type", "float_type"}:
            return "write the number without quotes"
        if kinds & {"literal_error", "string_pattern_mismatch"}:
            names = re.findall(r"\w+", " ".join(expected(problem) for problem in group))
            return only_near(first.value, names)
    return ""


def only_near(value: str, names: Iterable[str]) -> str:
    found = hint(value, names, "")
    return found if found.startswith("did you mean") else ""
