"""``retainprof env``: what the numbers would depend on here."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    p = commands.add_parser("env", help="versions, devices, threads and settings that the numbers depend on")
    p.add_argument("--json", action="store_true", help="as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the environment."""
    import msgspec
    import torch

    from retainprof._version import __version__
    from retainprof.capture.device import available, resolve
    from retainprof.capture.environment import environment

    found = environment(resolve("auto"), torch.get_default_dtype())
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return 0
    rows = {"retainprof": __version__, "devices": ", ".join(available()), **msgspec.to_builtins(found)}
    rows["env"] = " ".join(f"{k}={v}" for k, v in found.env.items())
    for name, value in rows.items():
        if value not in (None, ""):
            print(f"{name:18s} {value}")
    return 0
