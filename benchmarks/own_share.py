"""The tool's own share of a run: all wall time that is neither importing torch nor running the model's steps.

    python benchmarks/own_share.py [SCENARIO]

Steps are timed from outside (every ``StepRunner.run``, profiled or not, and the first steps that cold processes report).
Two imports of torch are taken off: this process's own and that of the cold pass's worker. What is left is parsing, building
models, forking, profiler start and stop, exporting and reading traces, walking graphs, statistics, reports.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "multitask.yaml"


def import_seconds() -> float:
    """Median time of ``import torch`` in a fresh process, less that of an empty one."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return sorted(once("import torch") for _ in range(5))[2] - sorted(once("pass") for _ in range(5))[2]


def main() -> None:
    """Run the scenario and print where its time went; promised is at most 2 s of our own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("scenario", nargs="?", type=Path, default=SCENARIO)
    scenario = parser.parse_args().scenario
    importing = import_seconds()

    start = time.perf_counter()
    import torch  # noqa: F401

    here = time.perf_counter() - start
    from retainprof.capture import session
    from retainprof.capture.step import StepRunner
    from retainprof.cli import main as command

    spent = {"steps": 0.0, "first steps of cold processes": 0.0}
    plain_run: Any = StepRunner.run
    plain_cold: Any = vars(session)["measure_cold"]

    def run(self: Any, observer: Any) -> Any:
        begin = time.perf_counter()
        try:
            return plain_run(self, observer)
        finally:
            spent["steps"] += time.perf_counter() - begin

    def cold(request: Any, tick: Any, meanwhile: Any) -> Any:
        for step in plain_cold(request, tick, meanwhile):
            spent["first steps of cold processes"] += step.step_wall_ns / 1e9
            yield step

    patched: Any = StepRunner
    patched.run = run
    vars(session)["measure_cold"] = cold
    with tempfile.TemporaryDirectory() as out:
        command([str(scenario), "--out", out])
    total = time.perf_counter() - start
    own = total - here - importing - sum(spent.values())
    print(f"\n{'whole command':34s} {total:7.2f} s")
    print(f"{'importing torch, twice':34s} {here + importing:7.2f} s")
    for name, seconds in spent.items():
        print(f"{name:34s} {seconds:7.2f} s")
    print(f"{'our own share':34s} {own:7.2f} s   promised <= 2 s")


if __name__ == "__main__":
    main()
