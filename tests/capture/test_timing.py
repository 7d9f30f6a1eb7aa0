"""The timing pass: what is sampled, when it stops, and what an interrupt leaves. No times are asserted."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from retainprof.capture.step import StepRunner
from retainprof.capture.timing import Measurement, TimingPlan

MakeRunner = Callable[..., StepRunner]


def plan(**changes: object) -> TimingPlan:
    """Five rounds after two of warm-up."""
    chosen = {"rounds": 5, "warmup": 2, "budget_s": 60.0, "clock": "wall", "baseline": 0, **changes}
    return TimingPlan(**chosen)  # type: ignore[arg-type]


def nothing(rounds: int, share: float) -> None:
    """No progress."""


def test_every_round_samples_every_strategy(runner_of: MakeRunner) -> None:
    ticks: list[tuple[int, float]] = []
    measured = Measurement([runner_of("summed"), runner_of("retain")], plan(), seed=0)
    measured.run(lambda rounds, share: ticks.append((rounds, share)))
    assert (measured.rounds, measured.stopped_by) == (5, "rounds")
    assert [rounds for rounds, _ in ticks] == [1, 2, 3, 4, 5]
    for timer, calls in zip(measured.timers, (1, 2), strict=True):
        times = timer.times
        assert [len(samples) for samples in times.series()] == [5] * (4 + 2 * calls)
        for i in range(5):
            inside = times.forward_wall[i] + sum(call[i] for call in times.call_wall)
            assert 0 < inside <= times.step_wall[i]


def test_garbage_collector_is_off_within_and_as_before_after(runner_of: MakeRunner) -> None:
    seen: list[bool] = []
    Measurement([runner_of("summed")], plan(rounds=1), seed=0).run(lambda *_: seen.append(gc.isenabled()))
    assert seen == [False]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_budget_ends_it_after_at_least_three_rounds(runner_of: MakeRunner) -> None:
    measured = Measurement([runner_of("summed")], plan(rounds=None, budget_s=1e-6), seed=0)
    measured.run(nothing)
    assert (measured.rounds, measured.stopped_by) == (3, "budget")


def test_an_interrupt_leaves_whole_rounds(runner_of: MakeRunner) -> None:
    runners = [runner_of("summed"), runner_of("retain")]
    plain, steps = runners[1].run, 0

    def interrupted(observer: object) -> object:
        nonlocal steps
        steps += 1
        if steps == 8:
            raise KeyboardInterrupt
        return plain(observer)  # type: ignore[arg-type]

    runners[1].run = interrupted  # type: ignore[method-assign, assignment]
    measured = Measurement(runners, plan(rounds=50), seed=0)
    with pytest.raises(KeyboardInterrupt):
        measured.run(nothing)
    assert measured.stopped_by == "interrupted"
    assert measured.rounds == 8 - 1 - measured.warmup_rounds
    for timer in measured.timers:
        assert {len(samples) for samples in timer.times.series()} == {measured.rounds}
    assert gc.isenabled()


def test_a_failing_strategy_keeps_its_earlier_calls_and_does_not_stop_others(runner_of: MakeRunner) -> None:
    failing = runner_of("calls", calls=[{"backward": "cls"}, {"backward": "reg"}])
    measured = Measurement([failing, runner_of("summed")], plan(), seed=0)
    measured.run(nothing)
    times = measured.timers[0].times
    assert times.error is not None
    assert times.error.call == 1
    assert [len(call) for call in times.call_wall] == [5, 0]
    assert times.step_wall == []
    assert len(measured.timers[1].times.step_wall) == 5
