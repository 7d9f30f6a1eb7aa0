"""One scenario from start to end: probe, cold pass, timing pass, evidence pass, gradients. What is measured is never lost.

The session keeps everything in one place while it runs (:class:`Measured`); whatever ends it early, an assembled result of
what is there can be written.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from retainprof.capture.build import build_runners, build_workload
from retainprof.capture.cold import ColdRequest, ColdStep, Worker, measure_cold
from retainprof.capture.device import resolve
from retainprof.capture.environment import environment
from retainprof.capture.evidence import Evidence, EvidencePlan, gather
from retainprof.capture.gradients import FinalGradients, compare, final_gradients, reference_runner
from retainprof.capture.probe import probe
from retainprof.capture.step import StepRunner
from retainprof.capture.timing import Clock, Measurement, TimingPlan
from retainprof.collector import collected
from retainprof.errors import CaptureError
from retainprof.records import Environment, Gradients

if TYPE_CHECKING:
    from retainprof.scenario import Imports, Scenario

__all__ = ["Measured", "Session", "Watch"]

PHASES = ("cold", "timing", "evidence", "gradients")


class Watch(Protocol):
    """Who is told how far a session is; ``share`` goes from 0 to 1 within a phase."""

    def phase(self, name: str, what: str) -> None: ...
    def tick(self, share: float, what: str) -> None: ...


@dataclass
class Measured:
    """Everything measured so far, by the strategy's place in the scenario."""

    environment: Environment
    runners: list[StepRunner] = field(default_factory=list)
    cold: list[ColdStep] = field(default_factory=list)
    timing: Measurement | None = None
    evidence: list[Evidence] = field(default_factory=list)
    gradients: list[Gradients | None] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    phase_seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    running: str = "probe"


def _preload() -> None:
    """Import what later passes need and what takes seconds, while the cold worker gets ready.

    The FLOP counter brings torch's compiler with it.
    """
    for name in ("torch._dynamo", "torch.utils.tensorboard", "retainprof.report.html", "retainprof.report.terminal"):
        importlib.import_module(name)


class Session:
    """Measures one scenario.

    ``trace_path(strategy name, rank, time in ns)`` says where traces go; None keeps none. ``cold_worker`` is one begun
    before, for the first cold process.
    """

    def __init__(
        self,
        scenario: Scenario,
        imports: Imports,
        watch: Watch,
        trace_path: Callable[[str, int, int], Path] | None,
        cold_worker: Worker | None = None,
    ) -> None:
        self.scenario, self.imports, self.watch = scenario, imports, watch
        self._cold_worker = cold_worker
        self._trace_path = trace_path
        self.device = resolve(scenario.device)
        if scenario.threads is not None:
            torch.set_num_threads(scenario.threads)
        self.measured = Measured(environment(self.device, torch.get_default_dtype()))

    @property
    def clock(self) -> Clock:
        """Process CPU time is the steadier clock where one thread does all the work; else wall time decides."""
        return "cpu" if self.device.type == "cpu" and torch.get_num_threads() == 1 else "wall"

    @property
    def has_errors(self) -> bool:
        """Whether a step of any strategy raised."""
        timing = self.measured.timing
        timed = [] if timing is None else [timer.times.error for timer in timing.timers]
        return any(error is not None for error in (*timed, *(one.error for one in self.measured.evidence)))

    def run(self, done: Callable[[], None]) -> None:
        """All passes in order; ``done()`` after each but the last.

        Raises:
            RetainprofError: the scenario's parts cannot be built or run, or measuring failed.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True")
            self._prepare()
            with collected():
                for name, work in zip(PHASES, (self._cold, self._time, self._explain, self._compare), strict=True):
                    with self._phase(name):
                        work()
                    if name != PHASES[-1]:
                        done()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.measured.running = name
        started = time.monotonic()
        try:
            yield
        finally:
            self.measured.phase_seconds[name] = time.monotonic() - started
        self.measured.phases.append(name)
        self.measured.running = ""

    def _prepare(self) -> None:
        measured, scenario = self.measured, self.scenario
        workload = build_workload(scenario, self.imports, self.device)
        dtypes = [leaf.dtype for leaf in workload.leaves]
        if dtypes:
            measured.environment = environment(self.device, dtypes[0])
        measured.warnings += probe(workload)
        measured.runners = build_runners(scenario, self.imports, workload)
        measured.evidence = [Evidence() for _ in measured.runners]
        measured.gradients = [None for _ in measured.runners]
        if scenario.measure.zero_grad == "keep":
            self._give_gradients_to_keep()

    def _give_gradients_to_keep(self) -> None:
        for runner in self.measured.runners:
            reference = final_gradients(reference_runner(runner)).written
            names = runner.workload.named_leaves
            runner.state.keep([reference.get(name) for name in names])

    def _cold(self) -> None:
        scenario = self.scenario
        self.watch.phase("cold", f"first steps of {scenario.measure.cold} fresh processes for each strategy")
        if not scenario.measure.cold:
            if self._cold_worker is not None:
                self._cold_worker.stop()
            return
        request = ColdRequest(
            scenario=scenario,
            imports=self.imports,
            device=str(self.device),
            threads=torch.get_num_threads(),
            strategies=tuple(range(len(scenario.strategies))),
            repeats=scenario.measure.cold,
            start="fork" if self.device.type == "cpu" else "spawn",
        )
        try:
            for step in measure_cold(request, self._cold_tick, _preload, self._cold_worker):
                self.measured.cold.append(step)
        except CaptureError as e:
            self.measured.warnings.append(f"cold pass: {e}; {e.hint}")

    def _cold_tick(self, done: int, of: int) -> None:
        self.watch.tick(done / of, f"process {done} of {of}")

    def _time(self) -> None:
        measure = self.scenario.measure
        plan = TimingPlan(
            rounds=None if measure.rounds == "auto" else measure.rounds,
            warmup=measure.warmup,
            budget_s=measure.budget,
            clock=self.clock,
            baseline=self.baseline,
        )
        names = [runner.strategy.title for runner in self.measured.runners]
        self.watch.phase("timing", f"{len(names)} strategies in turn, profiler off")
        timing = self.measured.timing = Measurement(self.measured.runners, plan, self.scenario.seed)
        timing.run(lambda rounds, share: self.watch.tick(share, f"round {rounds}"))

    @property
    def baseline(self) -> int:
        """The strategy that others are compared with: the first ``summed``, else the first."""
        kinds = [strategy.kind for strategy in self.scenario.strategies]
        return kinds.index("summed") if "summed" in kinds else 0

    def _explain(self) -> None:
        self.watch.phase("evidence", "profiler on: kernels, memory events, the ledger of saved tensors")
        measured, profile = self.measured, self.scenario.profile
        for i, (runner, evidence) in enumerate(zip(measured.runners, measured.evidence, strict=True)):
            name = runner.strategy.title
            self.watch.tick(i / len(measured.runners), name)
            gather(
                runner,
                EvidencePlan(
                    steps=profile.steps,
                    record_shapes=profile.record_shapes,
                    with_stack=profile.with_stack,
                    rank=measured.environment.rank,
                    world_size=measured.environment.world_size,
                    trace_path=self._path_of(name),
                ),
                evidence,
            )

    def _path_of(self, name: str) -> Callable[[int], Path] | None:
        make, rank = self._trace_path, self.measured.environment.rank
        return None if make is None else lambda time_ns: make(name, rank, time_ns)

    def _compare(self) -> None:
        self.watch.phase("gradients", "each strategy's gradients against the summed backward's")
        references: dict[tuple[str, ...], FinalGradients] = {}
        measured = self.measured
        for i, runner in enumerate(measured.runners):
            self.watch.tick(i / len(measured.runners), runner.strategy.title)
            if runner.used not in references:
                references[runner.used] = final_gradients(reference_runner(runner))
            mine = final_gradients(runner)
            measured.gradients[i] = compare(runner, mine, references[runner.used], self._reference_name(runner))

    def _reference_name(self, runner: StepRunner) -> str:
        everything = runner.used == tuple(self.scenario.losses)
        return "summed" if everything else f"summed ({', '.join(runner.used)})"
