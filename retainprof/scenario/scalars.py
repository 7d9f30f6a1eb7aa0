"""Which plain scalars are numbers, booleans or nothing: YAML 1.1 less its traps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

__all__ = ["CONVERT", "TAG", "Loader"]

TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = (
    ("bool", r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)", "yYnNtTfFoO"),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+", "-+0123456789"),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN)", "-+."),
    ("merge", r"(?:<<)", "<"),
    ("null", r"(?:~|null|Null|NULL|)", "~nN\0"),
)


class Loader(yaml.SafeLoader):
    """YAML 1.1 less its traps: ``1e-3`` is a number, ``010``, ``1:30`` and dates are text."""


Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in _SCALARS:
    _chars = ["" if c == "\0" else c for c in _first]
    Loader.add_implicit_resolver(TAG + _name, re.compile(f"^{_pattern}$"), _chars)


def _bool(text: str) -> bool:
    return {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}[text.lower()]


def _float(text: str) -> float:
    text = text.replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _int(text: str) -> int:
    text = text.replace("_", "").lower()
    return int(text, 16) if "0x" in text else int(text)


CONVERT: Final[Mapping[str, Callable[[str], Any]]] = {
    "str": str,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "null": lambda _: None,
    "merge": str,
}
