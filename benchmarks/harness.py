"""What the timing pass adds to a call: its own numbers against a bare ``perf_counter`` loop around the same calls.

    python benchmarks/harness.py [--rounds 400]

Both take turns step by step in one process, in random order, on the same model. A ratio of 1: the harness is not seen.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from retainprof.analysis.stats import paired_ratio
from retainprof.capture.step import StepRunner
from retainprof.capture.timing import timer_for
from retainprof.capture.workload import State, Workload
from retainprof.collector import collected
from retainprof.strategies import Retain

TARGETS = {"100 µs": (32, 8, 1.05), "1 ms": (256, 64, 1.01)}  # width, batch, promised ratio


def workload(width: int, batch: int) -> Workload:
    """Three layers; two losses over one output."""
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU())]

    def loss(power: int) -> Callable[[Tensor, None], Tensor]:
        return lambda outputs, targets: outputs.pow(power).mean()  # noqa: ARG005

    return Workload(
        model=nn.Sequential(*layers),
        inputs=(torch.randn(batch, width),),
        targets=None,
        losses={"square": loss(2), "fourth": loss(4)},
        device=torch.device("cpu"),
    )


def bare(work: Workload) -> list[int]:
    """What anybody would write: a forward, then the clock around each backward."""
    for leaf in work.leaves:
        leaf.grad = None
    outputs = work.model(*work.inputs)
    losses = [fn(outputs, None) for fn in work.losses.values()]
    del outputs
    times = []
    for i, loss in enumerate(losses):
        start = time.perf_counter_ns()
        loss.backward(retain_graph=i == 0)  # type: ignore[no-untyped-call]
        times.append(time.perf_counter_ns() - start)
    return times


def measure(width: int, batch: int, rounds: int) -> tuple[list[list[int]], list[list[int]]]:
    """Wall ns of both calls by the harness and by the bare loop, round by round."""
    work = workload(width, batch)
    runner = StepRunner(Retain(), work, State(work, "set_to_none", parameters_change=False))
    timer = timer_for(runner)
    mine, plain = timer.times.call_wall, [[], []]  # type: list[list[int]], list[list[int]]
    with collected():
        for n in range(rounds + 20):
            for harness in random.sample([True, False], 2):
                if harness:
                    runner.run(timer)
                    runner.drop()
                    if n >= 20:
                        timer.keep()
                else:
                    times = bare(work)
                    if n >= 20:
                        for samples, ns in zip(plain, times, strict=True):
                            samples.append(ns)
    return mine, plain


def main() -> None:
    """Print one line for each size and call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"{'size':8s} {'call':4s} {'bare µs':>9s} {'harness / bare':>15s}  95% interval     promised")
    for name, (width, batch, promised) in TARGETS.items():
        mine, plain = measure(width, batch, rounds)
        for call in range(2):
            ratio = paired_ratio(mine[call], plain[call])
            assert ratio is not None
            low, high = ratio.ci95
            middle = sorted(plain[call])[rounds // 2] / 1000
            print(f"{name:8s} {call:4d} {middle:9.1f} {ratio.median:15.4f}  {low:.4f} to {high:.4f}  <= {promised}")


if __name__ == "__main__":
    main()
