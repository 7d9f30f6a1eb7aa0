"""The tool's own share of a run: all wall time in which neither torch is imported nor a step of the model runs.

    python benchmarks/own_share.py [SCENARIO] [--images]

The command runs as a user's would, from the start of its interpreter to its exit; it and its cold worker note when they
import torch's modules (also those that torch asks for later, such as its compiler for the FLOP counter) and when they run a
step or let go of its graph (``StepRunner.run`` and ``rest``, profiled or not, in every cold process too). What no such moment
covers is the tool's own: its imports, parsing, building models, forking, profiler start and stop, exporting and reading
traces, walking graphs, statistics, reports. matplotlib, an extra that nothing needs, is left out unless ``--images`` is given.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "multitask.yaml"
LOG = "OWN_SHARE_LOG"
WORKER = "retainprof.capture.cold_worker"
Spans = list[tuple[float, float]]


class Notes:
    """Appends when something began and ended to the log, the outermost only; in every process that this one forks too."""

    def __init__(self, *, at_once: bool) -> None:
        self._log = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND)
        self._busy = False
        self._at_once = at_once
        self._lines: list[str] = []
        atexit.register(self._write)

    def _write(self) -> None:
        os.write(self._log, "".join(self._lines).encode())
        self._lines.clear()

    def during(self, what: str, work: Any, *args: Any, **kwargs: Any) -> Any:
        """What ``work`` returns."""
        if self._busy:
            return work(*args, **kwargs)
        self._busy = True
        begin = time.monotonic()
        try:
            return work(*args, **kwargs)
        finally:
            self._busy = False
            self._lines.append(f"{what} {begin} {time.monotonic()}\n")
            if self._at_once:
                self._write()


def note_imports(notes: Notes) -> None:
    """Note imports of torch; once its steps can be run, note them as well."""
    plain = builtins.__import__

    def import_(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "torch" or name.startswith("torch."):
            return notes.during("import", plain, name, *args, **kwargs)
        found = plain(name, *args, **kwargs)
        step = sys.modules.get("retainprof.capture.step")
        if step is not None and hasattr(step, "StepRunner") and not hasattr(step, "noted"):
            note_steps(step, notes)
        return found

    builtins.__import__ = import_


def note_steps(module: Any, notes: Notes) -> None:
    module.noted = True
    for name in ("run", "rest"):
        setattr(module.StepRunner, name, _noted(getattr(module.StepRunner, name), notes))


def _noted(plain: Any, notes: Notes) -> Any:
    return lambda *args: notes.during("step", plain, *args)


def inside(words: list[str]) -> None:
    """What the two noted processes run: the cold worker, or the command with ``words``."""
    note_imports(Notes(at_once=not words))
    if not words:
        runpy.run_module(WORKER, run_name="__main__")
        return
    from retainprof.capture.cold import Worker
    from retainprof.cli import entry

    Worker.module = "own_share"
    if os.environ.get("OWN_SHARE_IMAGES") != "1":
        sys.modules["matplotlib"] = None  # type: ignore[assignment]
    sys.argv[1:] = words
    entry()


def united(spans: Spans) -> float:
    """Seconds that at least one of the spans covers."""
    total, reached = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def main() -> None:
    """Run the scenario and print where its time went; promised is at most 2 s of our own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("scenario", nargs="?", type=Path, default=SCENARIO)
    parser.add_argument("--images", action="store_true", help="with the charts as PNG, where matplotlib is installed")
    options = parser.parse_args()
    here = str(Path(__file__).resolve().parent)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH", "")])])
        env = {**os.environ, LOG: str(log), "PYTHONPATH": path, "OWN_SHARE_IMAGES": str(int(options.images))}
        start = time.monotonic()
        command = [sys.executable, "-m", "own_share", str(options.scenario), "--out", str(Path(folder) / "runs")]
        subprocess.run(command, env=env, check=True)
        total = time.monotonic() - start
        spans: dict[str, Spans] = {"import": [], "step": []}
        for line in log.read_text().splitlines():
            what, begin, end = line.split()
            spans[what].append((float(begin), float(end)))
    own = total - united(spans["import"] + spans["step"])
    print(f"\n{'whole command':34s} {total:7.2f} s")
    print(f"{'importing torch':34s} {united(spans['import']):7.2f} s")
    print(f"{'steps, cold and profiled ones too':34s} {united(spans['step']):7.2f} s")
    print(f"{'our own share':34s} {own:7.2f} s   promised <= 2 s")


if __name__ == "__main__":
    if LOG in os.environ:
        inside(sys.argv[1:])
    else:
        main()
