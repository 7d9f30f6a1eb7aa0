"""Runs scenario files as the command line asks: run folders, progress, reports, exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from retainprof import store
from retainprof.capture.cold import Worker
from retainprof.errors import RetainprofError, UsageError

if TYPE_CHECKING:
    from retainprof.capture.session import Session
    from retainprof.records import Result, Status
    from retainprof.scenario import Scenario

__all__ = ["RunOptions", "run_files", "run_scenario"]

DONE, STRATEGY_FAILED, INTERRUPTED = 0, 3, 130
PIPED_WIDTH = 120  # columns of a report that goes to a file or another program


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks for; ``json`` is a file name, or ``-`` for standard output alone."""

    scenarios: tuple[Path, ...]
    out: Path = Path("runs")
    overrides: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    allow_import: tuple[str, ...] = ()
    keep_traces: bool = True
    json: str | None = None
    full: bool = False
    quiet: bool = False


def run_files(options: RunOptions) -> int:
    """Load every scenario first (all their faults show before anything runs), then run them one by one.

    Returns the worst exit code: 0, 3 where a strategy failed, 130 where the user interrupted.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler writes its starts and stops to standard error
    if options.json == "-" and len(options.scenarios) > 1:
        raise UsageError("--json - prints one result, but there are several scenarios", hint="give --json a file name")
    if options.json not in (None, "-"):
        store.check_writable(Path(options.json or ""))
    worst = DONE
    with Worker() as worker:  # it imports torch while this process reads the scenarios and imports what needs no torch
        from retainprof.scenario import load

        for name in ("retainprof.report.terminal", "retainprof.report.progress", "retainprof.trace"):
            importlib.import_module(name)
        scenarios = [_chosen(load(path, options.overrides), options.strategies) for path in options.scenarios]
        for n, scenario in enumerate(scenarios):
            result = run_scenario(scenario, options, worker if n == 0 else None)
            worst = max(worst, _exit_code(result))
            if worst == INTERRUPTED:
                break
    return worst


def _chosen(scenario: Scenario, names: tuple[str, ...]) -> Scenario:
    """The scenario with only the strategies that ``--strategy`` names."""
    if not names:
        return scenario
    there = {strategy.title: strategy for strategy in scenario.strategies}
    unknown = [name for name in names if name not in there]
    if unknown:
        raise UsageError(f"{scenario.name} has no strategy {unknown[0]!r}", hint=f"it has {', '.join(there)}")
    return scenario.model_copy(update={"strategies": tuple(there[name] for name in dict.fromkeys(names))})


def _exit_code(result: Result) -> int:
    if result.status == "partial" and result.message.startswith("interrupted"):
        return INTERRUPTED
    return STRATEGY_FAILED if result.status != "ok" else DONE


def run_scenario(scenario: Scenario, options: RunOptions, worker: Worker | None = None) -> Result:
    """Measure one scenario and write its run folder; returns what ``result.json`` holds. ``worker`` is one begun before.

    Raises:
        RetainprofError: nothing could be measured. What had been measured before is in the folder, marked partial.
    """
    from retainprof.capture.session import Session
    from retainprof.report.progress import Progress
    from retainprof.scenario import Imports

    folder = store.create(options.out, scenario.name)
    with Progress(title=scenario.name, quiet=options.quiet) as progress:
        session = Session(
            scenario,
            Imports.allowing(scenario, options.allow_import),
            progress,
            folder.trace_path if options.keep_traces else None,
            worker,
        )
        run = _Run(session, folder, options)
        run.measure()
    run.report()
    return run.result


class _Run:
    """A session and the folder it is written to."""

    def __init__(self, session: Session, folder: store.RunFolder, options: RunOptions) -> None:
        self._session, self._folder, self._options = session, folder, options
        self.result = self._assemble("partial", "not finished")

    def measure(self) -> None:
        """All passes; an interrupt or a fault leaves a partial result behind."""
        try:
            self._session.run(lambda: self._write("partial", "not finished"))
        except KeyboardInterrupt:
            self._write("partial", f"interrupted in the {self._session.measured.running or 'last'} pass")
        except RetainprofError as e:
            if self._session.measured.phases:
                self._write("partial", f"stopped in the {self._session.measured.running} pass: {e}")
            else:
                self._folder.discard()
            raise
        else:
            self._write("failed" if self._session.has_errors else "ok", "")

    def _assemble(self, status: Status, message: str) -> Result:
        from retainprof.analysis import complete
        from retainprof.capture.assemble import assemble

        result = assemble(self._session.scenario, self._session.measured, status, message, self._folder.relative)
        return complete(result)

    def _write(self, status: Status, message: str) -> None:
        self.result = self._assemble(status, message)
        self._folder.write_result(self.result)

    def report(self) -> None:
        """Every output of the run: files in the folder, then the terminal or ``--json``."""
        from retainprof.report import write_reports

        write_reports(self.result, self._folder)
        options = self._options
        if options.json == "-":
            sys.stdout.write(store.encode(self.result).decode())
            return
        if options.json is not None:
            store.write_atomic(Path(options.json), store.encode(self.result))
        if not options.quiet:
            self._print()

    def _print(self) -> None:
        from rich.console import Console

        from retainprof.analysis.answers import answers
        from retainprof.report import terminal

        terminal.render(
            self.result,
            answers(self.result),
            Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH),
            full=self._options.full,
            folder=str(self._folder.root),
        )
