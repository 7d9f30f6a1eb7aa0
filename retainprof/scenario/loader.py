"""``load``: a file and ``--set`` texts to a checked :class:`Scenario`, or all their faults at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from retainprof.errors import Fault
from retainprof.scenario import overrides as set_texts
from retainprof.scenario.checks import Parts, check
from retainprof.scenario.document import Document, KeyPath
from retainprof.scenario.faults import faults_of, make_fault
from retainprof.scenario.model import AnyBatch, AnyLoss, AnyModel, AnyStrategy, Scenario
from retainprof.scenario.names import HIDDEN, hint, keys_at
from retainprof.scenario.reading import read
from retainprof.strategies import Strategy

__all__ = ["load"]

SECTIONS: Final = ("model", "batch", "losses", "strategies")


def load(path: Path | str, overrides: Sequence[str] = ()) -> Scenario:
    """Read, override and check a scenario. Imports no torch and none of the user's code.

    Raises:
        ScenarioError: with every fault of the file and of the overrides, each with its line and column.
    """
    document = read(Path(path))
    set_texts.apply(document, overrides)
    parts = Parts()
    faults = [*_hidden_keys(document), *_sections(document, parts)]
    scenario = _whole(document, parts, faults)
    faults += check(document, parts)
    if scenario is None or faults or document.faults:
        raise document.error(*faults)
    return scenario.model_copy(update={"source": Path(path)})


def _hidden_keys(document: Document) -> Iterator[Fault]:
    for name in HIDDEN:
        if name in document.data:
            fix = hint(name, keys_at(()), "keys there")
            yield make_fault(document, (name,), f"unknown key {name!r} in a scenario", fix, at_key=True)


@cache
def _adapter(section: str) -> TypeAdapter[Any]:
    kinds: dict[str, Any] = {"model": AnyModel, "batch": AnyBatch, "losses": AnyLoss, "strategies": AnyStrategy}
    return TypeAdapter(kinds[section])


def _sections(document: Document, parts: Parts) -> Iterator[Fault]:
    """Check the sections that have kinds, entry by entry, so that one fault hides no other."""
    data = document.data
    shared = data.get("shared")
    parts.shared = shared if isinstance(shared, str) and shared else None
    for section in ("model", "batch"):
        if section in data:
            made, faults = _entry(document, section, (section,), data[section])
            setattr(parts, section, made)
            yield from faults
    losses, strategies = data.get("losses"), data.get("strategies")
    if isinstance(losses, dict):
        parts.loss_names = tuple(losses)
        for name, value in losses.items():
            made, faults = _entry(document, "losses", ("losses", name), value)
            yield from faults
            if made is not None:
                parts.losses[name] = made
    if isinstance(strategies, list):
        for i, value in enumerate(strategies):
            made, faults = _entry(document, "strategies", ("strategies", i), value)
            yield from faults
            if isinstance(made, Strategy):
                parts.strategies[i] = made


def _entry(document: Document, section: str, path: KeyPath, value: Any) -> tuple[Any, list[Fault]]:
    try:
        return _adapter(section).validate_python(_frozen(value), strict=True), []
    except ValidationError as e:
        return None, faults_of(document, e.errors(), path)


def _frozen(value: Any) -> Any:
    """Lists as tuples: in strict mode, which takes no text for a number, pydantic wants the exact type."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return value


def _whole(document: Document, parts: Parts, faults: list[Fault]) -> Scenario | None:
    """The scenario of the sections that were made; adds the faults of all that is plain."""
    data = {key: _frozen(value) for key, value in document.data.items() if key not in HIDDEN}
    made: Mapping[str, Any] = {
        "model": parts.model,
        "batch": parts.batch,
        "losses": parts.losses if isinstance(data.get("losses"), dict) else None,
        "strategies": tuple(parts.strategies.values()) if isinstance(data.get("strategies"), tuple) else None,
    }
    data |= {name: value for name, value in made.items() if name in data and value is not None}
    if "name" not in data:
        data["name"] = Path(document.path).stem
    try:
        return Scenario.model_validate(data, strict=True)
    except ValidationError as e:
        faults += faults_of(document, [line for line in e.errors() if not _told_already(line["loc"], data)])
        return None


def _told_already(location: tuple[str | int, ...], data: Mapping[str, Any]) -> bool:
    """Whether the error lies inside a section whose entries were checked one by one."""
    section = location[0]
    if section not in SECTIONS or section not in data:
        return False
    return section in ("model", "batch") or len(location) > 1
