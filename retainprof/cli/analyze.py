"""``retainprof analyze TRACE...``: what any PyTorch trace says about its backward calls."""

from __future__ import annotations

import argparse
import re
from pathlib import Path


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression from an option's text; argparse reports what is none."""
    try:
        return re.compile(text)
    except re.error as e:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {e}") from e


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    p = commands.add_parser("analyze", help="explain the backward calls in any PyTorch trace, also one from a GPU")
    p.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help=".json or .json.gz files, or folders of them")
    p.add_argument(
        "--label",
        type=pattern,
        metavar="REGEX",
        help="annotations that are backward calls (default: ours, those with 'backward', else the engine's events)",
    )
    p.add_argument("--json", metavar="FILE", help="write everything as JSON; - prints it alone on standard output")
    p.add_argument("--csv", type=Path, metavar="FOLDER", help="write the tables of calls, kernels and ranks there")
    p.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="write a run folder there (result.json, reports, event files, the traces) for tensorboard --logdir FOLDER",
    )
    p.add_argument("--full", action="store_true", help="every row, and kernels by their full names")
    p.add_argument("--quiet", action="store_true", help="no progress and no report, errors only")


def run(options: argparse.Namespace) -> int:
    """Read, analyze and report every trace."""
    from retainprof.trace_app import AnalyzeOptions, analyze_files

    return analyze_files(
        AnalyzeOptions(
            traces=tuple(options.traces),
            label=options.label,
            json=options.json,
            csv=options.csv,
            out=options.out,
            full=options.full,
            quiet=options.quiet,
        )
    )
