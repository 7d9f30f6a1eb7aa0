"""Is a forked child as cold as a process of its own? First steps of both, in turn, call by call.

    python benchmarks/cold.py [--samples 12]

The cold pass forks its samples on the CPU, since that saves an import of torch for each. The table shows times and page
faults of both kinds of process.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

from retainprof.capture.cold import ColdRequest, ColdStep, measure_cold
from retainprof.scenario import Imports, load

PROCESSES = 3  # as in a scenario
SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "multitask.yaml"


def measure(start: str) -> Iterator[ColdStep]:
    """``PROCESSES`` first steps of the strategy ``retain``."""
    scenario = load(SCENARIO)
    retain = next(i for i, strategy in enumerate(scenario.strategies) if strategy.kind == "retain")
    request = ColdRequest(
        scenario=scenario,
        imports=Imports.allowing(scenario, ()),
        device="cpu",
        threads=1,
        strategies=(retain,),
        repeats=PROCESSES,
        start="fork" if start == "fork" else "spawn",
    )
    yield from measure_cold(request, lambda done, of: None)  # noqa: ARG005


def main() -> None:
    """Print medians of both and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--samples", type=int, default=12)
    count = -(-parser.parse_args().samples // PROCESSES)
    found: dict[str, list[ColdStep]] = {"spawn": [], "fork": []}
    for _ in range(count):
        for start, steps in found.items():
            steps += measure(start)
    rows = {
        "forward µs": lambda step: step.forward_wall_ns / 1000,
        "call 0 µs": lambda step: step.call_wall_ns[0] / 1000,
        "call 1 µs": lambda step: step.call_wall_ns[1] / 1000,
        "call 0 page faults": lambda step: step.call_minor_faults[0],
        "call 1 page faults": lambda step: step.call_minor_faults[1],
    }
    print(f"{'':20s} {'new process':>12s} {'forked':>12s} {'ratio':>7s}   range of new processes")
    for name, value in rows.items():
        new, forked = (sorted(map(value, found[start])) for start in ("spawn", "fork"))
        middle = statistics.median(forked) / statistics.median(new)
        print(
            f"{name:20s} {statistics.median(new):12.1f} {statistics.median(forked):12.1f} {middle:7.2f}"
            f"   {new[0]:.1f} to {new[-1]:.1f}"
        )


if __name__ == "__main__":
    main()
