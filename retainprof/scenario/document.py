"""A YAML file as plain data, and the place in the file of every key and value. Nothing here knows what a scenario is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from retainprof.errors import Fault, ScenarioError

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Document", "KeyPath", "Place", "fault_at"]

KeyPath = tuple[str | int, ...]

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 40
MAX_NODES: Final = 20_000  # after aliases are followed


@dataclass(frozen=True)
class Place:
    """Where a key or value stands, counted from 1; ``raw`` is a plain scalar as written, ``override`` a --set text."""

    line: int = 0
    column: int = 0
    raw: str = ""
    override: str = ""


@dataclass
class Document:
    """Plain data with the place of every key and value by its path, and the faults that reading found."""

    path: str
    text: str = ""
    data: Any = None
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def raw(self, path: KeyPath) -> str:
        """A plain scalar as written; nothing for all else."""
        place = self.values.get(path)
        return place.raw if place else ""

    def error(self, *faults: Fault) -> ScenarioError:
        """All faults so far and these, in the order of the file; what could not be read is not judged as well."""
        unread = {(fault.line, fault.column) for fault in self.faults if fault.line}
        found = [*self.faults, *(fault for fault in faults if (fault.line, fault.column) not in unread)]
        found.sort(key=lambda fault: (fault.line == 0, fault.line, fault.column))
        return ScenarioError(self.path, tuple(dict.fromkeys(found)), self.text)


def fault_at(mark: Any, message: str, hint: str = "") -> Fault:
    """A fault at a mark of PyYAML, which counts from 0."""
    return Fault(message, mark.line + 1, mark.column + 1, hint=hint)
