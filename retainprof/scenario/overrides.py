"""``--set losses.cls.weight=2``: any key of a scenario, given on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from retainprof.errors import Fault, ScenarioError
from retainprof.scenario.document import Document, KeyPath, Place
from retainprof.scenario.names import hint, keys_at
from retainprof.scenario.reading import parse_value

__all__ = ["apply"]

EXAMPLE: Final = "for example --set losses.cls.weight=2 or --set strategies.1.retain_last=true"


def apply(document: Document, overrides: Sequence[str]) -> None:
    """Change the document's data; faults are added to it, each naming the text it comes from."""
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            _add(document, text, "expected KEY=VALUE", EXAMPLE)
            continue
        try:
            parsed = parse_value(value)
        except ScenarioError as e:
            _add(document, text, f"the value is no YAML: {e.faults[0].message}")
            continue
        _set(document, text, key.strip().split("."), parsed)


def _add(document: Document, text: str, message: str, fix: str = "") -> None:
    document.faults.append(Fault(f"--set {text}: {message}", hint=fix))


def _set(document: Document, text: str, parts: Sequence[str], value: Any) -> None:
    here: Any = document.data
    path: KeyPath = ()
    for part in parts[:-1]:
        key = _key(document, text, here, path, part, make=not path)
        if key is None:
            return
        here, path = here[key], (*path, key)
        if path[0] == "strategies" and len(path) == 2 and isinstance(here, str):
            here = document.data["strategies"][key] = {"kind": here}
    last = _key(document, text, here, path, parts[-1], make=True, leaf=True)
    if last is None:
        return
    here[last] = value
    _forget(document, (*path, last))
    document.keys[(*path, last)] = document.values[(*path, last)] = Place(raw=text.partition("=")[2], override=text)


def _forget(document: Document, path: KeyPath) -> None:
    """Places of what the override replaced."""
    for places in (document.keys, document.values):
        for old in [known for known in places if known[: len(path)] == path]:
            del places[old]


def _key(
    document: Document, text: str, here: Any, path: KeyPath, part: str, *, make: bool, leaf: bool = False
) -> str | int | None:
    """The key or index that one part of the text names; None (and a fault) where there is none."""
    where = ".".join(map(str, path)) or "the scenario"
    if isinstance(here, dict):
        if part not in here and not make:
            _add(document, text, f"{where} has no {part!r}", hint(part, here, "there"))
            return None
        if part not in here and not leaf:
            if part not in keys_at(()):
                _add(document, text, f"a scenario has no {part!r}", hint(part, keys_at(()), "there"))
                return None
            here[part] = {}
        return part
    if isinstance(here, list):
        titles = [_title(item) for item in here]
        if part.isdecimal() and int(part) < len(here):
            return int(part)
        if part in titles:
            return titles.index(part)
        fix = hint(part, [title for title in titles if title], "there")
        _add(document, text, f"{where} has no entry {part!r}; the first of {len(here)} is 0", fix)
        return None
    _add(document, text, f"{where} is no mapping or list")
    return None


def _title(item: Any) -> str:
    """How a list's entry can be called: its name, its kind, or the text itself."""
    if isinstance(item, dict):
        return str(item.get("name") or item.get("kind") or "")
    return item if isinstance(item, str) else ""
