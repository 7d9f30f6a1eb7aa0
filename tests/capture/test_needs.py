"""Which retain was needed, and what a needless one keeps: bytes by hand."""

from __future__ import annotations

from collections.abc import Callable

from retainprof.capture.needs import find_needs, without_needless
from retainprof.capture.step import StepRunner

MakeRunner = Callable[..., StepRunner]
BATCH, WIDTH, F32 = 32, 16, 4


def test_the_trunk_needs_the_first_flag(runner_of: MakeRunner) -> None:
    found = find_needs(runner_of("retain"))
    assert found.needed == {0: True}
    assert without_needless(runner_of("retain"), found) is None


def test_a_flag_on_the_last_call_keeps_what_that_call_would_free(runner_of: MakeRunner) -> None:
    """Call 1 (reg) frees what only it and the trunk keep. The Tanh output stays either way: the other head saves it.

    Freed: the regression head's output (kept by mse_loss's node). The input and weights are owned.
    """
    found = find_needs(runner_of("retain", retain_last=True))
    assert found.needed == {0: True, 1: False}
    assert found.bytes_kept == {1: BATCH * 1 * F32}


def test_separate_graphs_need_no_flag(runner_of: MakeRunner) -> None:
    """Each graph holds the Tanh output besides its loss: with the flags all of it stays."""
    runner = runner_of("separate", retain=True)
    found = find_needs(runner)
    assert found.needed == {0: False, 1: False}
    tanh = BATCH * WIDTH * F32
    softmax, total_weight = BATCH * 4 * F32, F32
    assert found.bytes_kept == {0: tanh + softmax + total_weight, 1: tanh + BATCH * F32}
    lean = without_needless(runner, found)
    assert lean is not None
    assert [spec.retain_graph for spec in lean.specs] == [False, False]


def test_nothing_to_find_without_flags(runner_of: MakeRunner) -> None:
    assert find_needs(runner_of("summed")).needed == {}
