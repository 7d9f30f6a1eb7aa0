"""``retainprof list``: what a scenario may name, one line each."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    commands.add_parser("list", help="models, batches, losses and strategies that a scenario may name")


def run(options: argparse.Namespace) -> int:  # noqa: ARG001
    """Print the registries."""
    from retainprof.scenario import BATCHES, LOSSES, MODELS
    from retainprof.strategies import REGISTRY

    for title, registry in (("models", MODELS), ("batches", BATCHES), ("losses", LOSSES), ("strategies", REGISTRY)):
        print(f"{title}:")
        for kind in registry:
            print(f"  {kind:24s} {registry[kind].summary}")
    return 0
