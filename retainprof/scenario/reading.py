"""Reads a file, or the value of a ``--set`` text, into a :class:`Document`; refuses what is no single, sound YAML document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node

from retainprof.errors import Fault
from retainprof.scenario.document import MAX_BYTES, MAX_DEPTH, MAX_NODES, Document, fault_at
from retainprof.scenario.scalars import Loader
from retainprof.scenario.walk import Walk

__all__ = ["parse_value", "read"]


def read(path: Path) -> Document:
    """The only document of a file.

    Raises:
        ScenarioError: it is no readable UTF-8 file, no YAML, empty, several documents, or too large or deep.
    """
    document = Document(str(path))
    document.text = _text(path, document)
    node = _compose(document)
    if node is None:
        raise document.error(Fault("the file is empty", hint="`retainprof schema` prints the format"))
    if not isinstance(node, MappingNode):
        raise document.error(fault_at(node.start_mark, "a scenario is a mapping: `key: value` lines"))
    Walk(document).fill(node)
    return document


def parse_value(text: str) -> Any:
    """The value of ``KEY=VALUE``, as YAML would read it.

    Raises:
        ScenarioError: it is no YAML.
    """
    document = Document("--set", text)
    node = _compose(document)
    if node is not None:
        Walk(document).fill(node)
    if document.faults:
        raise document.error()
    return document.data


def _text(path: Path, document: Document) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as e:
        reason = "this is a folder" if path.is_dir() else (e.strerror or str(e)).lower()
        raise document.error(Fault(f"cannot be read: {reason}", hint=_beside(path))) from None
    except ValueError as e:
        raise document.error(Fault(f"cannot be read: {e}")) from None
    if len(raw) > MAX_BYTES:
        raise document.error(Fault(f"larger than {MAX_BYTES:,} bytes, so hardly a scenario"))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw.count(b"\n", 0, e.start) + 1
        raise document.error(Fault(f"not UTF-8: byte {raw[e.start]:#04x} in line {line}")) from None


def _beside(path: Path) -> str:
    """Scenarios in the folder that was named, or whose names are like the missing one."""
    folder = path if path.is_dir() else path.parent
    try:
        names = sorted(str(p) for p in folder.glob("*.yaml"))[:8]
    except OSError:
        return ""
    return f"scenarios there: {', '.join(names)}" if names else ""


def _compose(document: Document) -> Node | None:
    """The root node. Size and depth are checked on the flat event stream first, since composing recurses."""
    try:
        _check_events(document)
        return yaml.compose(document.text, Loader=Loader)
    except yaml.reader.ReaderError as e:
        before = document.text[: e.position]
        line, column = before.count("\n") + 1, e.position - (before.rfind("\n") + 1) + 1
        code = e.character if isinstance(e.character, int) else ord(e.character)
        raise document.error(Fault(f"character U+{code:04X} is not allowed in YAML", line, column)) from None
    except yaml.MarkedYAMLError as e:
        raise document.error(_syntax(e)) from None
    except ValueError as e:  # an escape that names no character
        raise document.error(Fault(f"not YAML: {e}")) from None


def _syntax(e: yaml.MarkedYAMLError) -> Fault:
    problem = e.problem or str(e)
    mark = e.problem_mark or e.context_mark
    if "'\\t'" in problem:
        problem, hint = "a tab where YAML wants spaces", "indent with spaces"
    else:
        hint = f"{e.context}" if e.context else ""
    return Fault(problem, hint=hint) if mark is None else fault_at(mark, problem, hint)


def _check_events(document: Document) -> None:
    depth = documents = 0
    for count, event in enumerate(yaml.parse(document.text, Loader=Loader)):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise document.error(fault_at(event.start_mark, "a second document; a scenario file holds one"))
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        if depth > MAX_DEPTH:
            raise document.error(fault_at(event.start_mark, f"nested more than {MAX_DEPTH} deep"))
        if count > MAX_NODES:
            raise document.error(fault_at(event.start_mark, f"more than {MAX_NODES:,} values"))
