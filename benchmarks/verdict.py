"""Can the verdicts be trusted? A strategy against itself, and against itself with 3% more work, over many trials.

    python benchmarks/verdict.py [--trials 200] [--budget 3]

Each trial builds a model anew and is one timing pass of the tool with three strategies: one, the same again, and the same
again that afterwards spins for 3% of the time its own step took. A verdict other than ``same`` or ``cannot_tell`` on
the second is a false alarm (promised: at most 5%); any verdict but ``slower`` on the third is a miss (at most 5%).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from statistics import median

import torch
from torch import Tensor, nn

from retainprof.analysis.stats import paired_ratio, relative_width, verdict
from retainprof.capture.step import StepRunner
from retainprof.capture.timing import Measurement, TimingPlan
from retainprof.capture.workload import State, Workload
from retainprof.records import CallSpec, Ratio
from retainprof.strategies import Step, Summed

PLANTED = 0.03
WRAPPER_NS = 2_000  # what planting itself costs, about


class Delayed(Summed):
    """One summed backward, and then idle work until 3% of its time is over."""

    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        """The step, then the spinning."""
        start = time.perf_counter_ns()
        super().run(step, calls)
        until = start + (time.perf_counter_ns() - start) * (1 + PLANTED) - WRAPPER_NS
        while time.perf_counter_ns() < until:
            pass


def workload() -> Workload:
    """A step of about half a millisecond."""

    def square(outputs: Tensor, targets: None) -> Tensor:  # noqa: ARG001
        return outputs.square().mean()

    def size(outputs: Tensor, targets: None) -> Tensor:  # noqa: ARG001
        return outputs.abs().mean()

    layers = [layer for _ in range(3) for layer in (nn.Linear(128, 128), nn.ReLU())]
    return Workload(
        model=nn.Sequential(*layers),
        inputs=(torch.randn(64, 128),),
        targets=None,
        losses={"square": square, "size": size},
        device=torch.device("cpu"),
    )


def trial(seed: int, budget_s: float) -> dict[str, tuple[Ratio | None, Ratio | None]]:
    """By clock, the ratio of the copy and of the delayed copy to the first."""
    torch.manual_seed(seed)
    work = workload()
    strategies = Summed(kind="summed"), Summed(kind="summed", name="again"), Delayed(kind="summed", name="delayed")
    runners = [StepRunner(s, work, State(work, "set_to_none", parameters_change=False)) for s in strategies]
    measurement = Measurement(runners, TimingPlan(None, 3, budget_s, "cpu", 0), seed)
    measurement.run(lambda rounds, share: None)  # noqa: ARG005
    first, again, delayed = (timer.times for timer in measurement.timers)
    return {
        "cpu": (paired_ratio(again.step_cpu, first.step_cpu), paired_ratio(delayed.step_cpu, first.step_cpu)),
        "wall": (paired_ratio(again.step_wall, first.step_wall), paired_ratio(delayed.step_wall, first.step_wall)),
    }


def row(clock: str, what: str, ratios: Sequence[Ratio | None], promise: str) -> str:
    """One line of the table: verdicts, and the middle and spread of the ratios."""
    found = [ratio for ratio in ratios if ratio is not None]
    counts = Counter(verdict(ratio) for ratio in ratios)
    told = "".join(f"{counts[name]:13d}" for name in ("slower", "faster", "same", "cannot_tell"))
    middle = sorted(ratio.median for ratio in found)
    low, high = middle[len(middle) // 40], middle[-1 - len(middle) // 40]
    rounds, width = median(r.pairs for r in found), median(relative_width(r) for r in found)
    return f"{clock:5s} {what:8s}{told}  {median(middle):.4f} ({low:.4f} to {high:.4f}) {rounds:7.0f} {width:8.2%}  {promise}"


def main() -> None:
    """Run the trials and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--budget", type=float, default=3.0, help="seconds for one trial")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    trials = [trial(seed, arguments.budget) for seed in range(arguments.trials)]
    print(f"{arguments.trials} trials of at most {arguments.budget:g} s, {time.monotonic() - started:.0f} s in all")
    print(
        "clock against  slower       faster         same  cannot_tell  ratio (95% of trials)     rounds    width  promised"
    )
    for clock in ("cpu", "wall"):
        print(row(clock, "itself", [found[clock][0] for found in trials], "slower + faster <= 5%"))
        print(row(clock, "+3%", [found[clock][1] for found in trials], "slower >= 95%"))


if __name__ == "__main__":
    main()
