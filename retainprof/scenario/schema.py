"""The JSON Schema of the format, for editors and other tools."""

from __future__ import annotations

from typing import Any, Final

from retainprof.scenario.model import Scenario
from retainprof.scenario.names import HIDDEN
from retainprof.strategies import REGISTRY, SpelledCall

__all__ = ["schema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema of version 1, as plain data (draft 2020-12)."""
    made = Scenario.model_json_schema(by_alias=True)
    for hidden in HIDDEN:
        made["properties"].pop(hidden)
    for definition in made["$defs"].values():
        if "kind" in definition.get("properties", {}):
            definition["required"] = sorted({"kind", *definition.get("required", ())})
    _allow_bare_strategies(made)
    _allow_one_name(made["$defs"][SpelledCall.__name__]["properties"])
    made["required"] = [name for name in made["required"] if name != "name"]
    return {"$schema": DIALECT, **made, "title": "retainprof scenario"}


def _allow_bare_strategies(made: dict[str, Any]) -> None:
    """A strategy may be its kind alone."""
    strategies = made["properties"]["strategies"]
    strategies["items"] = {"anyOf": [{"enum": list(REGISTRY), "type": "string"}, strategies["items"]]}


def _allow_one_name(properties: dict[str, Any]) -> None:
    """Lists of names in a spelled-out call may be one name alone."""
    for name in ("backward", "grad", "wrt", "inputs"):
        listed = {"items": {"type": "string"}, "type": "array"}
        described = {"description": properties[name]["description"]}
        properties[name] = {"anyOf": [{"type": "string"}, listed], **described}
