"""A YAML file as plain data, and the place in the file of every key and value. Nothing here knows what a scenario is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from retainprof.errors import Fault, ScenarioError

__all__ = ["Document", "KeyPath", "Place", "parse_value", "read"]

KeyPath = tuple[str | int, ...]

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 40
MAX_NODES: Final = 20_000  # after aliases are followed

_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = (
    ("bool", r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)", "yYnNtTfFoO"),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+", "-+0123456789"),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN)", "-+."),
    ("merge", r"(?:<<)", "<"),
    ("null", r"(?:~|null|Null|NULL|)", "~nN\0"),
)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 less its traps: ``1e-3`` is a number, ``010``, ``1:30`` and dates are text."""


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in _SCALARS:
    _chars = ["" if c == "\0" else c for c in _first]
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"^{_pattern}$"), _chars)


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

    def error(self, *faults: Fault) -> ScenarioError:
        """All faults so far and these, in the order of the file; what could not be read is not judged as well."""
        unread = {(fault.line, fault.column) for fault in self.faults if fault.line}
        found = [*self.faults, *(fault for fault in faults if (fault.line, fault.column) not in unread)]
        found.sort(key=lambda fault: (fault.line == 0, fault.line, fault.column))
        return ScenarioError(self.path, tuple(dict.fromkeys(found)), self.text)


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
        raise document.error(_fault(node.start_mark, "a scenario is a mapping: `key: value` lines"))
    _Walk(document).fill(node)
    return document


def parse_value(text: str) -> Any:
    """The value of ``KEY=VALUE``, as YAML would read it.

    Raises:
        ScenarioError: it is no YAML.
    """
    document = Document("--set", text)
    node = _compose(document)
    if node is not None:
        _Walk(document).fill(node)
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


def _fault(mark: Any, message: str, hint: str = "") -> Fault:
    return Fault(message, mark.line + 1, mark.column + 1, hint=hint)


def _compose(document: Document) -> Node | None:
    """The root node. Size and depth are checked on the flat event stream first, since composing recurses."""
    try:
        _check_events(document)
        return yaml.compose(document.text, Loader=_Loader)
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
    return Fault(problem, hint=hint) if mark is None else _fault(mark, problem, hint)


def _check_events(document: Document) -> None:
    depth = documents = 0
    for count, event in enumerate(yaml.parse(document.text, Loader=_Loader)):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise document.error(_fault(event.start_mark, "a second document; a scenario file holds one"))
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        if depth > MAX_DEPTH:
            raise document.error(_fault(event.start_mark, f"nested more than {MAX_DEPTH} deep"))
        if count > MAX_NODES:
            raise document.error(_fault(event.start_mark, f"more than {MAX_NODES:,} values"))


class _Walk:
    """Fills a document from its nodes; aliases are followed, and counted each time."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0
        self.open: set[int] = set()

    def fill(self, root: Node) -> None:
        self.document.data = self.value(root, ())

    def value(self, node: Node, path: KeyPath) -> Any:
        self._check(node, path)
        raw = node.value if isinstance(node, ScalarNode) and node.style is None else ""
        self.document.values[path] = Place(node.start_mark.line + 1, node.start_mark.column + 1, raw)
        self.open.add(id(node))
        try:
            return self._content(node, path)
        finally:
            self.open.discard(id(node))

    def _check(self, node: Node, path: KeyPath) -> None:
        self.count += 1
        problem = ""
        if self.count > MAX_NODES:
            problem = f"more than {MAX_NODES:,} values once aliases are followed"
        elif len(path) > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} deep once aliases are followed"
        elif id(node) in self.open:
            problem = "this anchor contains an alias to itself"
        if problem:
            raise self.document.error(_fault(node.start_mark, problem))

    def _content(self, node: Node, path: KeyPath) -> Any:
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, MappingNode):
            return {**self._merged(node, path), **self._own(node, path)}
        return self._scalar(node)

    def _own(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                continue
            key = self._key(key_node)
            if key in own:
                first = self.document.keys[(*path, key)].line
                self._add(key_node, f"key {key!r} is there twice", f"the first is in line {first}")
                continue
            mark = key_node.start_mark
            self.document.keys[(*path, key)] = Place(mark.line + 1, mark.column + 1)
            own[key] = self.value(value_node, (*path, key))
        return own

    def _merged(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        """What ``<<:`` keys bring in; earlier ones win, and the mapping's own keys win over all."""
        found: dict[str, Any] = {}
        place = self.document.values[path]
        for key_node, value_node in node.value:
            if key_node.tag != _TAG + "merge":
                continue
            for item in value_node.value if isinstance(value_node, SequenceNode) else [value_node]:
                if isinstance(item, MappingNode):
                    found = {**self.value(item, path), **found}
                else:
                    self._add(item, "<<: takes a mapping or a list of mappings")
        self.document.values[path] = place
        return found

    def _key(self, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            self._add(node, "a key is text")
            return ""
        value = self._scalar(node)
        if isinstance(value, str):
            return value
        what = "YAML reads this bare word as true or false" if isinstance(value, bool) else "a key is text"
        self._add(node, f"key {node.value}: {what}", f'write it in quotes: "{node.value}"')
        return str(node.value)

    def _scalar(self, node: Node) -> Any:
        text, kind = str(node.value), node.tag.removeprefix(_TAG)
        if any("\ud800" <= c <= "\udfff" for c in text):
            self._add(node, "half of a surrogate pair is no character")
            return text.encode("utf-8", "replace").decode()
        try:
            return _CONVERT[kind](text)
        except KeyError:
            self._add(node, f"tag {node.tag} is not known here")
        except ValueError:
            self._add(node, f"{text[:40]!r} is not of the type {kind}")
        return text

    def _add(self, node: Node, message: str, hint: str = "") -> None:
        self.document.faults.append(_fault(node.start_mark, message, hint))


def _bool(text: str) -> bool:
    return {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}[text.lower()]


def _float(text: str) -> float:
    text = text.replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _int(text: str) -> int:
    text = text.replace("_", "").lower()
    return int(text, 16) if "0x" in text else int(text)


_CONVERT: Final[Mapping[str, Callable[[str], Any]]] = {
    "str": str,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "null": lambda _: None,
    "merge": str,
}
