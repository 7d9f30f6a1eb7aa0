"""Own runs: what the evidence pass says of each call is what ``analyze`` says of the trace that it wrote, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from retainprof import store
from retainprof.analysis.runs.as_result import TraceLane, as_result
from retainprof.records import CallResult, Result, StrategyResult
from retainprof.trace import analyze, read
from retainprof.trace.engine import engine_calls
from retainprof.trace.facts import Facts
from retainprof.trace.ranges import Ranges
from retainprof.trace.select import labelled
from retainprof.trace.trace import Trace

STRATEGIES = (
    "[retain, {name: leak, kind: retain, retain_last: true}, summed, joint, separate, grad, batched, two_stage, "
    "two_stage_per_loss, edge, {name: graph, kind: retain, create_graph: true}, "
    "{name: again, kind: retain, checkpoint: trunk}]"
)
EQUAL = {
    *("index", "label", "profiled_wall_ns", "nodes", "ops", "kernels", "copies_and_sets", "accumulate", "fan_in_adds"),
    *("forward_ops_in_backward", "allocated_bytes", "freed_bytes", "net_bytes", "peak_bytes", "kernel_rows"),
}
# the trace follows what the first forward made; these make what their graph holds also later, or keep it in a closure
RETAINED = {"retained_bytes_before", "retained_bytes_after"}
ONE_FORWARD = ("retain", "leak", "summed", "joint", "grad")
# the trunk's call is given its gradient, and its graph is older than the heads': nothing stands between the two calls
JOINED = ("two_stage", "two_stage_per_loss")
NOT_TOLD = {  # by a trace: plans, unprofiled times, the ledger's and the gradients' fields, FLOPs, identity of nodes
    *("losses", "kind", "retain_graph", "create_graph", "what", "weights", "zero_grad_before", "sgd_before"),
    *(
        "wall_ns",
        "cpu_ns",
        "device_ns",
        "cold_wall_ns",
        "cold_minor_faults",
        "flops",
        "head_flops",
        "returned_grad_bytes",
    ),
    *("residue_bytes", "pinned_by_grads_bytes", "pinned_residue_bytes", "unexplained_bytes", "grad_bytes_after"),
    *("params_with_grad_after", "inputs_with_grad_after", "grad_sum_after", "grad_abs_sum_after", "retain_needed"),
    *("needless_retain_bytes", "nodes_shared_with_earlier", "params_written", "in_trace_ns"),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A run of every kind of strategy, three profiled steps each."""
    from cli_fixtures import TINY

    from retainprof.cli import main

    folder = tmp_path_factory.mktemp("own")
    text = (
        TINY.replace("[retain, summed]", STRATEGIES)
        .replace("{steps: 1}", "{steps: 3}")
        .replace("rounds: 3", "rounds: 2")
    )
    (folder / "all.yaml").write_text(text)
    assert main([str(folder / "all.yaml"), "--out", str(folder / "runs"), "--quiet"]) == 0
    (root,) = (folder / "runs").iterdir()
    return root, store.read(root)


def _pairs(measured: tuple[Path, Result]) -> Iterator[tuple[StrategyResult, StrategyResult, Trace]]:
    """Each strategy as the run says it, as its trace says it, and the trace."""
    root, result = measured
    assert len(result.strategies) == 12
    for strategy in result.strategies:
        trace = read(root / strategy.traces[0])
        lane = TraceLane(strategy.name, analyze(trace), strategy.traces[0], "")
        (told,) = as_result("own", [lane]).strategies
        yield strategy, told, trace


def test_every_field_of_a_call_is_compared_or_named() -> None:
    assert set(CallResult.__struct_fields__) == EQUAL | RETAINED | NOT_TOLD


def test_fields_of_the_calls(measured: tuple[Path, Result]) -> None:
    for strategy, told, _ in _pairs(measured):
        assert len(told.calls) == len(strategy.calls) > 0
        for mine, theirs in zip(strategy.calls, told.calls, strict=True):
            names = EQUAL | (RETAINED if strategy.name in ONE_FORWARD else set())
            if mine.create_graph:  # a run says nothing there: a node's own operators are recorded as well
                assert mine.forward_ops_in_backward is None
                names = names - {"forward_ops_in_backward"}
            different = {name for name in names if getattr(mine, name) != getattr(theirs, name)}
            assert not different, (strategy.name, mine.index)
            assert mine.nodes is not None
            assert mine.net_bytes is not None


def test_kernel_differences(measured: tuple[Path, Result]) -> None:
    several = 0
    for strategy, told, _ in _pairs(measured):
        for mine, theirs in zip(strategy.first_vs_later, told.first_vs_later, strict=True):
            assert mine.call == theirs.call
            assert set(mine.kernels) == set(theirs.kernels)
            several += 1
    assert several >= 10


def test_bytes_after_the_forward(measured: tuple[Path, Result]) -> None:
    for strategy, told, _ in _pairs(measured):
        if strategy.name in ONE_FORWARD:
            assert strategy.retained.after_forward_bytes == told.retained.after_forward_bytes


def _evaluations(trace: Trace) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of the evaluations in each call: of those that the engine's events show, and of those that labels mark."""
    facts = Facts(trace)
    found: list[list[list[int]]] = []
    for marks in (engine_calls(facts), trace.marks.take(labelled(trace))):
        which, rows = Ranges(marks.start, marks.end).inside(trace.operators).expand(facts.engine)
        found.append([rows[which == call].tolist() for call in range(len(marks))])
    return found[0], found[1]


def test_labels_and_the_engine_find_the_same_calls(measured: tuple[Path, Result]) -> None:
    """As many calls, each with the very same evaluations of nodes; three steps of each strategy."""
    for strategy, _, trace in _pairs(measured):
        if strategy.name not in JOINED:
            found, marked = _evaluations(trace)
            assert len(marked) == 3 * len(strategy.calls), strategy.name
            assert found == marked, strategy.name


def test_calls_that_only_labels_tell_apart(measured: tuple[Path, Result]) -> None:
    """The trunk's call directly after a head's: one call of the engine to a reader of its events, and none is lost."""
    for strategy, _, trace in _pairs(measured):
        if strategy.name in JOINED:
            found, marked = _evaluations(trace)
            assert [*chain(*found)] == [*chain(*marked)]
            assert len(found) == 3 * (len(strategy.calls) - 1)
            assert found[:2] == [marked[0], marked[1] + marked[2]]


def test_shared_nodes_without_accumulate_grad(
    scenario: Callable[..., Path], run: Callable[..., tuple[int, Result | None]], tmp_path: Path
) -> None:
    """A trace tells shared nodes by their sequence number. The trunk's two parameters' nodes have none."""
    code, result = run(scenario(("[retain, summed]", "[retain]")), "--quiet")
    assert code == 0
    assert result is not None
    (strategy,) = result.strategies
    (trace,) = (tmp_path / "runs").glob("*/traces/retain/*.gz")
    shared = [call.nodes_shared_with_earlier for call in analyze(read(trace)).calls]
    assert strategy.calls[1].nodes_shared_with_earlier == shared[1] + 2
