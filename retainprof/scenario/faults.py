"""From pydantic's errors to faults with their place in the file, in words that a scenario's author knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic_core import ErrorDetails

from retainprof.errors import Fault
from retainprof.scenario.batches import BATCHES
from retainprof.scenario.document import Document, KeyPath, Place
from retainprof.scenario.losses import LOSSES
from retainprof.scenario.models import MODELS
from retainprof.scenario.names import hint, keys_at, printable
from retainprof.scenario.wording import Problem, advice, expected, got, only_near, short
from retainprof.strategies import REGISTRY

__all__ = ["faults_of", "make_fault", "show"]

KINDS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "model": ("model", MODELS),
    "batch": ("batch", BATCHES),
    "losses": ("loss", LOSSES),
    "strategies": ("strategy", REGISTRY),
}


def show(path: Sequence[str | int]) -> str:
    """``('strategies', 1, 'name')`` as ``strategies[1].name``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in path)
    return text.removeprefix(".")


def make_fault(document: Document, path: KeyPath, message: str, hint: str = "", *, at_key: bool = False) -> Fault:
    """A fault at a key or value; at the nearest thing around it that is in the file where it is not itself."""
    place = _place(document, path, at_key)
    if place.override:
        return Fault(f"--set {place.override}: {message}", key=show(path), hint=hint)
    return Fault(message, place.line, place.column, show(path), hint)


def _place(document: Document, path: KeyPath, at_key: bool) -> Place:
    first, second = (document.keys, document.values) if at_key else (document.values, document.keys)
    place = first.get(path) or second.get(path)
    while place is None and path:
        path = path[:-1]
        place = document.keys.get(path) or document.values.get(path)
    return place or Place()


def faults_of(document: Document, errors: Iterable[ErrorDetails], prefix: KeyPath = ()) -> list[Fault]:
    """The faults of one section at ``prefix``; what a union's members say of one value is one fault."""
    problems = [_problem(document.data, raw, prefix) for raw in errors]
    problems = [p for p in problems if not (p.kind == "too_short" and p.value)]
    by_path: dict[tuple[KeyPath, bool], list[Problem]] = {}
    for problem in problems:
        by_path.setdefault((problem.path, problem.kind in _OWN), []).append(problem)
    deeper = {p.path[:n] for p in problems for n in range(len(p.path))}  # a union's fitting member says more
    shown = [group for (path, own), group in by_path.items() if own or path not in deeper]
    return [_fault(document, group) for group in shown]


def _problem(data: Any, raw: ErrorDetails, prefix: KeyPath) -> Problem:
    location = (*prefix, *raw["loc"])
    path: list[str | int] = []
    here = data
    for i, element in enumerate(location):
        if _has(here, element):
            here = here[element]
        elif not (raw["type"] == "missing" and i == len(location) - 1):
            continue
        path.append(element)
    return Problem(raw["type"], tuple(path), location, raw.get("ctx") or {}, raw["input"])


def _has(data: Any, element: str | int) -> bool:
    if isinstance(data, Mapping):
        return element in data
    return isinstance(data, list) and isinstance(element, int) and element < len(data)


def _fault(document: Document, group: Sequence[Problem]) -> Fault:
    first = group[0]
    own = _OWN.get(first.kind)
    if own is not None:
        return own(document, first)
    if first.location[-1] == "[key]":
        message = f"{show(first.path)}: expected {expected(first)} as a key"
        return make_fault(document, first.path, message, at_key=True)
    raw = document.raw(first.path)
    wanted = " or ".join(dict.fromkeys(expected(problem) for problem in group))
    message = f"{show(first.path)}: expected {wanted}, got {got(first.value, raw)}"
    return make_fault(document, first.path, message, advice(first, group, raw))


# --- errors that are told in their own words ----------------------------------------------------------------------------


def _unknown(document: Document, problem: Problem) -> Fault:
    name = str(problem.path[-1])
    where = show(problem.path[:-1]) or "a scenario"
    there = keys_at(problem.location[:-1])
    if {"kind", "factory"} <= {name, *_keys(document.data, problem.path[:-1])} and name in ("kind", "factory", "args"):
        return make_fault(
            document, problem.path, f"{where} has both kind and factory", "keep the one you mean", at_key=True
        )
    return make_fault(
        document, problem.path, f"unknown key {name!r} in {where}", hint(name, there, "keys there"), at_key=True
    )


def _keys(data: Any, path: KeyPath) -> tuple[str, ...]:
    for part in path:
        data = data[part]
    return tuple(data) if isinstance(data, Mapping) else ()


def _missing(document: Document, problem: Problem) -> Fault:
    where = show(problem.path[:-1])
    message = f"{where + ': ' if where else ''}key {problem.path[-1]!r} is missing"
    return make_fault(document, problem.path[:-1], message, at_key=True)


def _unknown_kind(document: Document, problem: Problem) -> Fault:
    what, names = KINDS[str(problem.location[0])]
    spelled = not isinstance(problem.value, Mapping) or "kind" not in _keys(document.data, problem.path)
    path = problem.path if spelled else (*problem.path, "kind")
    kind = problem.value if isinstance(problem.value, str) else problem.value["kind"]
    if not isinstance(kind, str):
        raw = document.raw(path)
        return make_fault(document, path, f"{show(path)}: expected a {what}'s name, got {got(kind, raw)}")
    fix = hint(kind, names, f"{what} kinds")
    return make_fault(document, path, f"{show(path)}: unknown {what} {short(kind)}", fix)


def _no_kind(document: Document, problem: Problem) -> Fault:
    section = str(problem.location[0])
    what, names = KINDS[section]
    either = "kind" if section == "strategies" else "kind or factory"
    if isinstance(problem.value, Mapping):
        message, known = f"{show(problem.path)}: needs a {either}", ", ".join(list(names)[:12])
        misspelt = next((near for key in problem.value if (near := only_near(key, either.split(" or ")))), "")
        return make_fault(document, problem.path, message, misspelt or f"{what} kinds: {known}", at_key=True)
    raw = document.raw(problem.path)
    message = f"{show(problem.path)}: expected a mapping with {either}, got {got(problem.value, raw)}"
    return make_fault(document, problem.path, message)


def _told(document: Document, problem: Problem) -> Fault:
    return make_fault(document, problem.path, f"{show(problem.path)}: {problem.context['error']}")


_OWN: Final[dict[str, Callable[[Document, Problem], Fault]]] = {
    "extra_forbidden": _unknown,
    "missing": _missing,
    "union_tag_invalid": _unknown_kind,
    "union_tag_not_found": _no_kind,
    "value_error": _told,
}
