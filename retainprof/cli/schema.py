"""``retainprof schema``: the JSON Schema of scenarios, for editors."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    commands.add_parser("schema", help="print the JSON Schema of scenario files")


def run(options: argparse.Namespace) -> int:  # noqa: ARG001
    """Print the schema."""
    import json

    from retainprof.scenario import schema

    print(json.dumps(schema(), indent=1, ensure_ascii=False))
    return 0
