"""``retainprof SCENARIO...``: the main job."""

from __future__ import annotations

import argparse
from pathlib import Path


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    p = commands.add_parser("run", help="time, profile, explain and compare the strategies of scenarios (the default)")
    p.add_argument("scenarios", nargs="+", type=Path, metavar="SCENARIO", help="YAML files")
    p.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go (default: runs)")
    p.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda[:n], mps, xpu; overrides the scenario's")
    p.add_argument("--strategy", action="append", metavar="NAME", help="run only this one (repeatable)")
    p.add_argument("--rounds", type=_positive, metavar="N", help="exactly N rounds, whatever the intervals")
    p.add_argument("--budget", metavar="TIME", help="time for the timing pass, e.g. 30s or 2min")
    p.add_argument("--threads", type=_positive, metavar="N", help="torch threads (default: torch's own choice)")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override any key of the scenario")
    p.add_argument("--no-trace", action="store_true", help="profile, but keep no trace files")
    p.add_argument("--json", metavar="FILE", help="write the result here too; - prints it alone on standard output")
    p.add_argument(
        "--allow-import", action="append", default=[], metavar="PACKAGE", help="let factories import PACKAGE"
    )
    p.add_argument("--full", action="store_true", help="the whole report, not one screen of it")
    p.add_argument("--quiet", action="store_true", help="no progress and no report, errors only")


def run(options: argparse.Namespace) -> int:
    """Run every scenario; the worst exit code wins."""
    from retainprof.app import RunOptions, run_files

    return run_files(
        RunOptions(
            scenarios=tuple(options.scenarios),
            out=options.out,
            overrides=tuple(_overrides(options)),
            strategies=tuple(options.strategy or ()),
            allow_import=tuple(options.allow_import),
            keep_traces=not options.no_trace,
            json=options.json,
            full=options.full,
            quiet=options.quiet,
        )
    )


def _overrides(options: argparse.Namespace) -> list[str]:
    """The options that stand for keys of the scenario, as ``--set`` texts, and the ``--set`` texts themselves."""
    named = {
        "device": options.device,
        "measure.rounds": options.rounds,
        "measure.budget": options.budget,
        "threads": options.threads,
    }
    return [*options.set, *(f"{key}={value}" for key, value in named.items() if value is not None)]
