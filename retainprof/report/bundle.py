"""The front end's ES modules as one file, and escaping for what is put inside a page.

A page opened from disk may not import modules, so the report carries them in one script. TensorBoard's frame may, but one
file arrives at once where imports of imports arrive one after another. The modules keep to plain forms
(``import {a, b} from "./x.js";`` on one line, ``export`` before ``function`` or ``const``), which are all this knows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = ["STATIC", "embed", "module", "script"]

STATIC: Final = Path(__file__).resolve().parent.parent / "tb" / "static"
_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "\./([\w/.]+)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?function (\w+)|const (\w+))", re.MULTILINE)


def script(entry: str, folder: Path = STATIC) -> str:
    """The module ``entry`` and all that it imports, each once and after what it needs itself.

    Raises:
        ValueError: modules import each other in a circle, or one has an import or export of another form.
    """
    parts: list[str] = []
    _add(entry, folder, parts, {}, ())
    return "\n".join(parts)


def module(entry: str, folder: Path = STATIC) -> str:
    """Like :func:`script`, as one ES module that exports what ``entry`` exports.

    Raises:
        ValueError: as :func:`script`.
    """
    parts: list[str] = []
    last = _add(entry, folder, parts, {}, ())
    exported = [first or second for first, second in _EXPORT.findall((folder / entry).read_text(encoding="utf-8"))]
    return "\n".join([*parts, f"export const {{{', '.join(exported)}}} = {last};"])


def _add(name: str, folder: Path, parts: list[str], done: dict[str, str], path: tuple[str, ...]) -> str:
    """Append module ``name`` unless it is there already; returns the name of the object that holds its exports."""
    if name in path:
        raise ValueError(f"modules import each other: {' -> '.join([*path, name])}")
    if name in done:
        return done[name]
    source = (folder / name).read_text(encoding="utf-8")
    body = _IMPORT.sub(
        lambda found: f"const {{{found[1]}}} = {_add(found[2], folder, parts, done, (*path, name))};", source
    )
    exported = [first or second for first, second in _EXPORT.findall(body)]
    body = _EXPORT.sub("", body)
    if re.search(r"^(import|export)\b", body, re.MULTILINE):
        raise ValueError(f"{name} imports or exports in a form that cannot be bundled")
    done[name] = f"module_{len(done)}"
    parts.append(f"// {name}\nconst {done[name]} = (() => {{\n{body}\nreturn {{{', '.join(exported)}}};\n}})();")
    return done[name]


def embed(value: Any) -> str:
    """``value`` as JSON that cannot end or open a tag inside a ``<script>`` element."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
