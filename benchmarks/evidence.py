"""What the evidence pass adds to plain torch.profiler with the same flags, and what the ledger adds to a step.

    python benchmarks/evidence.py [--rounds 40]

Profiled steps of both kinds in turn, in one process: a plain loop of forward and backwards under ``torch.profiler``, and
the recorder's, with its labels and its trace file; both export their trace. CPU time, of one thread.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

import torch
from harness import workload
from torch.profiler import ProfilerActivity, profile, schedule

from retainprof.analysis.stats import paired_ratio
from retainprof.capture import bytes as books
from retainprof.capture import evidence
from retainprof.capture.labelled import LabelObserver, Recorder
from retainprof.capture.ledger import Ledger
from retainprof.capture.ledger_visits import Visit
from retainprof.capture.step import StepRunner
from retainprof.capture.workload import State, Workload
from retainprof.collector import collected
from retainprof.strategies import Retain

STEPS = 10
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def plain(work: Workload, folder: Path) -> int:
    """CPU nanoseconds of the profiled steps, without labels; the export is not counted. Memory is let go in the same order."""
    spent = 0
    with profile(
        activities=[ProfilerActivity.CPU],
        profile_memory=True,
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
        acc_events=False,
    ) as profiler:
        for n in range(1 + STEPS):
            start = time.process_time_ns()
            outputs = work.model(*work.inputs)
            losses = [fn(outputs, None) for fn in work.losses.values()]
            del outputs
            for i, loss in enumerate(losses):
                loss.backward(retain_graph=i == 0)  # type: ignore[no-untyped-call]
            del loss, losses
            for leaf in work.leaves:
                leaf.grad = None
            spent += (time.process_time_ns() - start) if n else 0
            if n < STEPS:
                profiler.step()
    profiler.export_chrome_trace(str(folder / "plain.json"))
    return spent


def ours(runner: StepRunner, recorder: Recorder, folder: Path) -> int:
    """The same through the evidence pass's recorder and labels."""
    observer, spent = LabelObserver(tuple(spec.losses[0] for spec in runner.specs)), 0

    def step(number: int) -> None:
        nonlocal spent
        start = time.process_time_ns()
        runner.run(observer)
        runner.drop()
        runner.clear()
        spent += (time.process_time_ns() - start) if number else 0

    recorder.record(STEPS, step, folder / "ours.json")
    return spent


class NoModules:
    """Stands for the hooks that tell which module made what."""

    def __init__(self, model: object) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def nothing(*_: object, **__: object) -> Ledger:
    """Stands for a walk."""
    return Ledger(storages=())


def with_ledger(runner: StepRunner, rounds: int) -> tuple[list[int], list[int]]:
    """CPU nanoseconds of whole evidence passes, with the ledger and without its walks and hooks, in turn."""
    plan = evidence.EvidencePlan(steps=3, record_shapes=True, with_stack=False)
    parts = vars(books)
    ledger = {name: parts[name] for name in ("walk", "walk_pinned", "ModuleMap", "visit")}
    empty = Visit(evaluated=frozenset(), keeping=frozenset())
    without = {"walk": nothing, "walk_pinned": nothing, "ModuleMap": NoModules, "visit": lambda *_, **__: empty}
    found: dict[bool, list[int]] = {True: [], False: []}
    for n in range(rounds + 2):
        for walked in random.sample([True, False], 2):
            parts.update(ledger if walked else without)
            start = time.process_time_ns()
            evidence.gather(runner, plan, evidence.Evidence())
            if n >= 2:
                found[walked].append(time.process_time_ns() - start)
    parts.update(ledger)
    return found[True], found[False]


def show(what: str, mine: list[int], theirs: list[int], promised: float) -> None:
    """One line: the ratio with its interval, and what is promised."""
    ratio = paired_ratio(mine, theirs)
    assert ratio is not None
    low, high = ratio.ci95
    print(f"{what}: {ratio.median:.4f}, 95% {low:.4f} to {high:.4f}, promised <= {promised:.2f}")


def main() -> None:
    """Print both ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    recorder = Recorder(torch.device("cpu"), record_shapes=True, with_stack=False)
    with tempfile.TemporaryDirectory() as name, collected():
        for width, batch in ((256, 64), (512, 128)):
            work = workload(width, batch)
            runner = StepRunner(Retain(), work, State(work, "set_to_none", parameters_change=False))
            mine: list[int] = []
            theirs: list[int] = []
            for n in range(rounds + 2):
                for own in random.sample([True, False], 2):
                    spent = ours(runner, recorder, Path(name)) if own else plain(work, Path(name))
                    if n >= 2:
                        (mine if own else theirs).append(spent)
            middle = sorted(theirs)[rounds // 2] / STEPS / 1e6
            print(f"steps of {middle:.2f} ms under plain torch.profiler (median of {rounds} sessions of {STEPS} steps)")
            show("  evidence pass / plain", mine, theirs, 1.05)
            show("  evidence pass with / without the ledger", *with_ledger(runner, rounds), 1.10)


if __name__ == "__main__":
    main()
