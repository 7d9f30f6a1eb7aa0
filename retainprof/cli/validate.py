"""``retainprof validate SCENARIO...``: check scenarios without running them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retainprof.scenario import Scenario


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    p = commands.add_parser("validate", help="check scenarios without running them or importing torch")
    p.add_argument("scenarios", nargs="+", type=Path, metavar="SCENARIO", help="YAML files")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override any key before checking")


def run(options: argparse.Namespace) -> int:
    """Print one line for each good scenario and every fault of the others; 2 if there was one."""
    return max(_checked(path, options.set) for path in options.scenarios)


def _checked(path: Path, overrides: list[str]) -> int:
    from retainprof.errors import ScenarioError
    from retainprof.scenario import load

    try:
        print(_summary(path, load(path, overrides)))
    except ScenarioError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    return 0


def _summary(path: Path, scenario: Scenario) -> str:
    losses, strategies = len(scenario.losses), len(scenario.strategies)
    text = f"{path}: ok: {_many(losses, 'loss', 'losses')}, {_many(strategies, 'strategy', 'strategies')}"
    packages = sorted({part.factory.partition(":")[0].partition(".")[0] for part in scenario.factories})
    return text + "".join(f"\n    runs code of {name}: needs --allow-import {name}" for name in packages)


def _many(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
