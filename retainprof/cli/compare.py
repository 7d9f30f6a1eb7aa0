"""``retainprof compare BASE CONTENDER``: two runs, traces or folders of them; a condition makes it fail, for use in CI."""

from __future__ import annotations

import argparse
from pathlib import Path

from retainprof.cli.analyze import pattern


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    p = commands.add_parser("compare", help="compare two runs, traces or folders of traces, and fail on a condition")
    p.add_argument(
        "base",
        type=Path,
        metavar="BASE",
        help="a run folder, its result.json, a trace, or a folder of them (by rank)",
    )
    p.add_argument("contender", type=Path, metavar="CONTENDER", help="another of the same kind")
    p.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="CONDITION",
        help="exit code 1 if so: 'later/first > 1.2', 'step slower 5%%', 'retained_after_last > 0', 'kernels added' "
        "(repeatable; a ratio counts only with its whole interval)",
    )
    p.add_argument(
        "--label",
        type=pattern,
        metavar="REGEX",
        help="annotations that are backward calls of traces (default: as analyze finds them)",
    )
    p.add_argument("--json", metavar="FILE", help="write the comparison as JSON; - prints it alone")
    p.add_argument("--markdown", metavar="FILE", help="write it as Markdown, for a pull request; - prints it alone")
    p.add_argument("--anyway", action="store_true", help="compare although device, dtype or ranks differ")
    p.add_argument("--full", action="store_true", help="every kernel that differs, by its full name")
    p.add_argument("--quiet", action="store_true", help="no progress and no report, errors and failed conditions only")


def run(options: argparse.Namespace) -> int:
    """Compare the two."""
    from retainprof.compare_app import CompareOptions, compare_paths

    return compare_paths(
        CompareOptions(
            base=options.base,
            contender=options.contender,
            fail_on=tuple(options.fail_on),
            json=options.json,
            markdown=options.markdown,
            anyway=options.anyway,
            full=options.full,
            label=options.label,
            quiet=options.quiet,
        )
    )
