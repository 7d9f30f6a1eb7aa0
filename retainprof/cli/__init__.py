"""The command line. One file a command; each parses and prints, and leaves the work to the package.

Nothing heavy is imported before a command runs: ``retainprof --help`` needs no torch.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from retainprof._version import __version__
from retainprof.collector import run_and_exit
from retainprof.errors import RetainprofError, UsageError

__all__ = ["entry", "main"]

COMMANDS: Final = ("run", "analyze", "compare", "report", "validate", "schema", "list", "env")
INTERRUPTED: Final = 130

DESCRIPTION: Final = """\
What several backward calls over one autograd graph cost: kernels, bytes and honest intervals.

  retainprof scenarios/multitask.yaml     time, profile, explain and compare the strategies of a scenario
  retainprof validate my.yaml             check a scenario without running it
  retainprof list                         models, batches, losses and strategies that a scenario may name
"""

EPILOG: Final = """\
exit codes: 0 done, 1 a comparison's condition failed, 2 usage or scenario, 3 a strategy failed, 130 interrupted
"""


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"retainprof.cli.{command}")


def parser() -> argparse.ArgumentParser:
    """The whole parser, every command's options included."""
    top = argparse.ArgumentParser(
        prog="retainprof",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"retainprof {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        _module(command).add(commands)
    return top


def _with_command(argv: Sequence[str]) -> list[str]:
    """``retainprof scenario.yaml`` means ``retainprof run scenario.yaml``."""
    first = next((word for word in argv if not word.startswith("-")), None)
    top_level = not argv or argv[0] in ("-h", "--help", "--version")
    if first is not None and "." not in first and not os.path.exists(first):
        for near in difflib.get_close_matches(first, COMMANDS, n=1):
            if near != first:
                raise UsageError(f"no command {first!r}", hint=f"did you mean {near}?")
    return [*argv] if top_level or first in COMMANDS else ["run", *argv]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. Errors of this package are printed, others propagate."""
    try:
        words = _with_command(sys.argv[1:] if argv is None else argv)
        options = parser().parse_args(words or ["--help"])
        return int(_module(options.command).run(options))
    except RetainprofError as e:
        print(_told(e), file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        print("retainprof: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except OSError as e:  # standard output on a full disk; files of our own raise a RetainprofError
        print(f"retainprof: error: {e}", file=sys.stderr)
        return UsageError.exit_code


def _told(e: RetainprofError) -> str:
    text = str(e) if ": error: " in str(e) else f"retainprof: error: {e}"
    return f"{text}\n{e.hint}" if e.hint else text


def entry() -> None:
    """The console script."""
    run_and_exit(main)
