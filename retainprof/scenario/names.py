"""Which names would have been right: the keys of a section, and the nearest to a misspelt one."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from retainprof.scenario.model import Scenario
from retainprof.scenario.part import FACTORY, FactoryPart, names_of

__all__ = ["hint", "keys_at", "nearest", "printable"]

MANY: Final = 12
HIDDEN: Final = ("source",)


def printable(name: str) -> str:
    """The name itself, or its escapes where it would move the cursor or colour the terminal."""
    return name if name.isprintable() else repr(name)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like ``name``, None where none is alike."""
    lower = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.lower(), lower, 1, 0.6)
    return lower[found[0]] if found else None


def hint(name: str, candidates: Iterable[str], what: str) -> str:
    """``did you mean ...?``, or the candidates where none is alike."""
    there = tuple(dict.fromkeys(candidates))
    close = nearest(name, there)
    if close is not None:
        return f"did you mean {printable(close)}?"
    shown = ", ".join(map(printable, there[:MANY])) + (", ..." if len(there) > MANY else "")
    return f"{what}: {shown}" if there else ""


def keys_at(location: Iterable[str | int]) -> tuple[str, ...]:
    """The keys of the section at the location of a pydantic error, tags of unions included."""
    types_there: list[Any] = [Scenario]
    for element in location:
        types_there = [following for kind in types_there for following in _step(kind, element)]
    models = [cls for kind in types_there for cls in _members(kind) if _is_model(cls)]
    names = [field.alias or name for cls in models for name, field in cls.model_fields.items()]
    return tuple(dict.fromkeys(name for name in names if name not in HIDDEN))


def _is_model(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, BaseModel)


def _members(kind: Any) -> Iterator[Any]:
    """The types of a union, without their annotations."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _members(get_args(kind)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(kind):
            yield from _members(member)
    else:
        yield kind


def _step(kind: Any, element: str | int) -> Iterator[Any]:
    for member in _members(kind):
        if _is_model(member):
            if _named(member, element):
                yield member
            yield from (f.annotation for name, f in member.model_fields.items() if (f.alias or name) == element)
        elif get_origin(member) is dict:
            yield get_args(member)[1]
        elif get_origin(member) is tuple and isinstance(element, int):
            yield get_args(member)[0]


def _named(cls: type[BaseModel], element: str | int) -> bool:
    """Whether a location's element is the tag of the class in a union."""
    if element == f"<{FACTORY}>":
        return issubclass(cls, FactoryPart)
    return element == cls.__name__ or ("kind" in cls.model_fields and element == f"<{names_of(cls)[0]}>")
