"""From YAML nodes to plain data and places; aliases are followed and merge keys resolved, within limits."""

from __future__ import annotations

from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from retainprof.scenario.document import MAX_DEPTH, MAX_NODES, Document, KeyPath, Place, fault_at
from retainprof.scenario.scalars import CONVERT, TAG

__all__ = ["Walk"]


class Walk:
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
            raise self.document.error(fault_at(node.start_mark, problem))

    def _content(self, node: Node, path: KeyPath) -> Any:
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, MappingNode):
            return {**self._merged(node, path), **self._own(node, path)}
        return self._scalar(node)

    def _own(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == TAG + "merge":
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
            if key_node.tag != TAG + "merge":
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
        text, kind = str(node.value), node.tag.removeprefix(TAG)
        if any("\ud800" <= c <= "\udfff" for c in text):
            self._add(node, "half of a surrogate pair is no character")
            return text.encode("utf-8", "replace").decode()
        try:
            return CONVERT[kind](text)
        except KeyError:
            self._add(node, f"tag {node.tag} is not known here")
        except ValueError:
            self._add(node, f"{text[:40]!r} is not of the type {kind}")
        return text

    def _add(self, node: Node, message: str, hint: str = "") -> None:
        self.document.faults.append(fault_at(node.start_mark, message, hint))
