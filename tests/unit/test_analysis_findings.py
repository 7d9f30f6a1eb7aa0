"""Every rule where it must fire and where it must not; the registry; the order of findings."""

from __future__ import annotations

from typing import Any

import pytest
from analysis_builders import call, failed, result, steady, step, strategy, wobbly

from retainprof.analysis import complete
from retainprof.analysis.findings import MODULES, RULES, Rule, find, register
from retainprof.analysis.findings.base import line, names_of
from retainprof.analysis.stats import summarise
from retainprof.records import (
    Accumulate,
    Finding,
    Gradients,
    HeldByNode,
    HeldStorage,
    KernelRow,
    Result,
    RetainCost,
    Retained,
    StepResult,
    StrategyResult,
)

RETAINS: dict[str, Any] = {"retain_graph": True}
STOLE, ADDED = Accumulate(stolen=6), Accumulate(added=6)
INPLACE = "one of the variables needed for gradient computation has been modified by an inplace operation: [256, 256]"
DONATED = "This backward function was compiled with non-empty donated buffers which requires retain_graph=False"
TWICE = "Trying to backward through the graph a second time"


def _gradients(relation: str, **fields: Any) -> StrategyResult:
    return strategy(call(0), gradients=Gradients(reference="summed", relation=relation, **fields))  # type: ignore[arg-type]


def _cold(index: int, *cold: int) -> StrategyResult:
    calls = [call(i, wall_ns=steady(1000), cold_wall_ns=summarise(cold if i == index else (1000,) * 3)) for i in (0, 1)]
    return strategy(*calls)


def _held(*calls: Any, branch: int = 4096, own: int = 8, cost: RetainCost | None = None) -> StrategyResult:
    """A graph that holds one branch, and losses that hold their own values."""
    storages = (
        HeldStorage(bytes=branch, kept_by=("TanhBackward0",)),
        HeldStorage(bytes=own, kept_by=("loss",), kind="loss"),
    )
    by_node = (HeldByNode(node="TanhBackward0", module="heads.cls", bytes=branch, storages=1),)
    return strategy(
        *calls, retained=Retained(after_forward_bytes=branch + own, storages=storages, by_node=by_node, cost=cost)
    )


def _one_storage(**fields: Any) -> StrategyResult:
    held = HeldStorage(**{"kept_by": ("loss",), "dtype": "torch.float32", **fields})
    return strategy(call(0), retained=Retained(after_forward_bytes=held.bytes, storages=(held,)))


def _two(nodes: int, shared: int | None, forwards: int = 1) -> StrategyResult:
    return strategy(
        call(0, nodes=nodes), call(1, "b", nodes=nodes, nodes_shared_with_earlier=shared), step=step(forwards=forwards)
    )


SUMMED = strategy(call(0, nodes=12), name="summed", kind="summed", step=step(forwards=1))
OWNED = {"losses": {"a": {"owns": ["disc"]}, "b": {}}}


def _writes(*names: str) -> StrategyResult:
    return strategy(call(0, params_written=names))


def _batched(batched_ns: int, loop_ns: int) -> Result:
    loop = strategy(call(0), name="grad", kind="grad", step=step(loop_ns, peak_bytes=100))
    return result(strategy(call(0), name="batched", kind="batched", step=step(batched_ns, peak_bytes=300)), loop)


def _later(samples: Any) -> Result:
    first = call(0, cpu_ns=steady(1000), wall_ns=steady(1000))
    return result(strategy(first, call(1, cpu_ns=samples, wall_ns=samples)))


# rule: (a run in which it must fire, and how often; runs in which it must not)
CASES: dict[str, tuple[Result, list[Result]]] = {
    "later_calls_add": (
        result(strategy(call(0, accumulate=STOLE), call(1, accumulate=ADDED), call(2, accumulate=ADDED))),
        [
            result(strategy(call(0, accumulate=STOLE), call(1, accumulate=STOLE, zero_grad_before="set_to_none"))),
            result(strategy(call(0, accumulate=ADDED), call(1, accumulate=ADDED))),  # all meet gradients
            result(strategy(call(0, accumulate=STOLE), call(1, accumulate=STOLE, fan_in_adds=9))),
            result(strategy(call(0, accumulate=STOLE, what="head"), call(1, accumulate=ADDED, what="head"))),
        ],
    ),
    "adds_to_zeros": (
        result(strategy(call(0, accumulate=STOLE), call(1, accumulate=ADDED, zero_grad_before="zero"))),
        [
            result(strategy(call(0, accumulate=STOLE), call(1, accumulate=ADDED))),
            result(strategy(call(0, accumulate=STOLE)), scenario={"measure": {"zero_grad": "zero"}}),
        ],
    ),
    "foreign_gradients": (
        result(_writes("disc.0.weight", "gen.0.weight"), scenario=OWNED),
        [
            result(_writes("disc.0.weight"), scenario=OWNED),
            result(_writes("gen.0.weight")),  # nobody said who owns what
            result(strategy(call(0, "b", params_written=("gen.0.weight",))), scenario=OWNED),
        ],
    ),
    "first_call_cold": (
        result(_cold(0, 5000, 6000, 7000)),
        [result(_cold(0, 900, 6000, 7000)), result(_cold(0, 5000)), result(_cold(1, 5000, 6000, 7000))],
    ),
    "second_call_cold": (result(_cold(1, 5000, 6000, 7000)), [result(_cold(0, 5000, 6000, 7000))]),
    "retained_after_last": (
        result(_held(call(0, **RETAINS, retained_bytes_after=4104, retain_needed=False, needless_retain_bytes=4096))),
        [
            result(_held(call(0, retained_bytes_after=4104))),
            result(_held(call(0, **RETAINS, retained_bytes_after=8, retain_needed=False, needless_retain_bytes=0))),
        ],
    ),
    "needless_retain": (
        result(_held(call(0, **RETAINS, retain_needed=False, needless_retain_bytes=512), call(1))),
        [
            result(_held(call(0, **RETAINS, retain_needed=True), call(1))),
            result(_held(call(0, **RETAINS), call(1))),  # not known
            result(_held(call(0), call(1, **RETAINS, retain_needed=False, needless_retain_bytes=512))),  # the last
        ],
    ),
    "unreleased_branch": (
        result(
            _held(call(0, **RETAINS, retain_needed=True, retained_bytes_after=9), call(1, retained_bytes_after=4104))
        ),
        [
            result(_held(call(0, retained_bytes_after=8))),  # the losses themselves
            result(
                _held(call(0, **RETAINS, retained_bytes_after=4104, retain_needed=False, needless_retain_bytes=4096))
            ),
            result(strategy(call(0, retained_bytes_after=4104))),  # no evidence of what is held
        ],
    ),
    "forward_repeated": (result(_two(12, None, forwards=2), SUMMED), [result(_two(12, None), SUMMED)]),
    "trunk_revisited": (
        result(_two(12, 8)),
        [result(_two(12, 0)), result(_two(12, None)), result(_two(12, 4, forwards=2))],
    ),
    "recomputation": (
        result(strategy(call(0, forward_ops_in_backward=10), call(1, forward_ops_in_backward=10))),
        [result(strategy(call(0, forward_ops_in_backward=10), call(1, forward_ops_in_backward=0)))],
    ),
    "graph_grows": (
        result(strategy(*(call(i, retained_bytes_after=100, pinned_by_grads_bytes=100 * i) for i in range(3)))),
        [
            result(strategy(*(call(i, retained_bytes_after=100) for i in range(3)))),
            result(strategy(*(call(i, retained_bytes_after=100 * i) for i in range(2)))),
        ],
    ),
    "batched_no_gain": (_batched(1000, 1000), [_batched(800, 1000), result(_gradients("bitwise"))]),
    "scalar_loss_pins": (
        result(_one_storage(bytes=102_400, kind="loss", losses=("content",))),
        [
            result(_one_storage(bytes=512, kind="loss")),
            result(_one_storage(bytes=102_400, kind="loss", shape=(25_600,))),
            result(_one_storage(bytes=102_400, kind="saved", kept_by=("MulBackward0",))),
        ],
    ),
    "low_precision_copies": (
        result(_one_storage(bytes=512, kind="saved", dtype="bfloat16", copy_of="trunk.0.weight")),
        [
            result(_one_storage(bytes=512, kind="saved", dtype="bfloat16")),
            result(_one_storage(bytes=512, kind="saved", copy_of="trunk.0.weight")),
        ],
    ),
    "gradients_differ_by_rounding": (
        result(_gradients("close", max_rel_difference=5e-7)),
        [result(_gradients("bitwise")), result(_gradients("different", max_rel_difference=0.5))],
    ),
    "gradients_differ_in_meaning": (
        result(_gradients("different", max_rel_difference=0.5)),
        [
            result(_gradients("close", max_rel_difference=5e-7)),
            result(_gradients("not_comparable", reason="returned", returned_relation="close")),
            result(_gradients("partial", reason="a call raised")),
        ],
    ),
    "gradients_not_finite": (
        result(_gradients("different", not_finite=("trunk.0.weight",))),
        [result(_gradients("different"))],
    ),
    "noise_too_large": (
        complete(_later(wobbly(1000))),
        [complete(_later(steady(1000))), complete(_later(steady(1700)))],
    ),
    "inplace_change": (
        result(failed(call(0, **RETAINS), call(1, sgd_before=0.1), at=1, message=INPLACE)),
        [result(failed(call(0), call(1), at=1, message=TWICE))],
    ),
    "donated_buffers": (
        result(failed(call(0, **RETAINS), call(1), at=0, message=DONATED)),
        [result(failed(call(0), call(1), at=1, message=TWICE))],
    ),
    "graph_freed_early": (
        result(failed(call(0), call(1), at=1, message=TWICE)),
        [result(failed(call(0, **RETAINS), call(1), at=1, message=TWICE))],
    ),
    "fails_though_retained": (
        result(failed(call(0, **RETAINS), call(1), at=1, message="no attribute 'saved'", operator="MineBackward")),
        [
            result(failed(call(0), call(1), at=1, message="no attribute 'saved'")),
            result(failed(call(0, **RETAINS), call(1), at=1, message=INPLACE)),
            result(failed(call(0, **RETAINS), call(1), at=0, message="bad shape")),
        ],
    ),
    "create_graph_cycle": (
        result(strategy(call(0, create_graph=True, pinned_by_grads_bytes=133_124, retained_bytes_after=1028))),
        [
            result(strategy(call(0, pinned_by_grads_bytes=0))),
            result(strategy(call(0, kind="grad", create_graph=True, pinned_by_grads_bytes=512))),
        ],
    ),
}


def _of(rule: str, run: Result) -> list[Finding]:
    return [found for found in find(run) if found.rule == rule]


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() == RULES.keys()
    assert len(MODULES) == len(set(MODULES))


@pytest.mark.parametrize("rule", CASES)
def test_fires(rule: str) -> None:
    (found, *more) = _of(rule, CASES[rule][0])
    assert not more
    assert found.text
    assert found.advice
    assert found.evidence
    assert found.url.startswith("https://")
    assert found.strategy == CASES[rule][0].strategies[0].name


@pytest.mark.parametrize(("rule", "run"), [(rule, run) for rule, (_, runs) in CASES.items() for run in runs])
def test_does_not_fire(rule: str, run: Result) -> None:
    assert _of(rule, run) == []


@pytest.mark.parametrize("run", [run for fires, others in CASES.values() for run in (fires, *others)])
def test_no_rule_stumbles_over_what_was_not_measured(run: Result) -> None:
    assert complete(complete(run)) == complete(run)


def test_a_rule_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'later_calls_add' is registered twice"):

        @register
        class Again(Rule):
            name = "later_calls_add"

    with pytest.raises(TypeError):
        Rule()  # type: ignore[abstract]


def test_savings() -> None:
    saved = {rule: (_of(rule, run)[0].saves_bytes, _of(rule, run)[0].saves_ns) for rule, (run, _) in CASES.items()}
    assert saved["retained_after_last"] == (4096, None)
    assert saved["needless_retain"] == (512, None)
    assert saved["unreleased_branch"] == (4096, None)
    assert saved["scalar_loss_pins"] == (102_396, None)
    assert saved["graph_grows"] == (200, None)
    assert saved["batched_no_gain"] == (200, None)
    assert saved["create_graph_cycle"] == (133_124, None)
    assert saved["gradients_differ_by_rounding"] == (None, None)


def test_time_saved_is_the_step_beyond_the_summed_one() -> None:
    """Ratio 1.5 of 2 ms: 1 ms; nothing where it is not known to be slower."""
    calls = call(0, accumulate=STOLE, nodes=5), call(1, accumulate=ADDED, nodes=5, nodes_shared_with_earlier=4)
    summed = strategy(call(0), name="summed", kind="summed", step=step(2_000_000))
    slower = complete(result(strategy(*calls, step=step(3_000_000)), summed))
    assert [f.saves_ns for f in slower.findings if f.rule == "trunk_revisited"] == [1_000_000]
    equal = complete(result(strategy(*calls, step=step(2_000_000)), summed))
    assert [f.saves_ns for f in equal.findings if f.rule == "trunk_revisited"] == [None]


def test_price_of_additions_where_nothing_else_differs() -> None:
    """1.0, 1.7 and 1.8 ms with the same kernels but for the additions: 1.5 ms; with another kernel nobody knows."""
    rows = (
        KernelRow(name="aten::mm", count=5),
        KernelRow(name="aten::add_", count=6),
        KernelRow(name="aten::mul", count=1),
    )

    def run(*kernels: KernelRow) -> Result:
        times = [1_000_000, 1_700_000, 1_800_000]
        calls = [
            call(
                i,
                cpu_ns=steady(ns),
                wall_ns=steady(ns),
                accumulate=ADDED if i else STOLE,
                kernel_rows=kernels if i else rows[:1],
            )
            for i, ns in enumerate(times)
        ]
        return complete(result(strategy(*calls)))

    assert [f.saves_ns for f in _of("later_calls_add", run(*rows[:2]))] == [1_500_000]
    assert [f.saves_ns for f in _of("later_calls_add", run(*rows))] == [None]


def test_many_unclear_calls_are_one_finding() -> None:
    later = [call(i, cpu_ns=wobbly(1000)) for i in (1, 2, 3)]
    (found,) = _of("noise_too_large", complete(result(strategy(call(0, cpu_ns=steady(1000)), *later))))
    assert "and 2 other calls" in found.text
    assert found.evidence["rounds"] == 40


def test_order_is_errors_then_shares_saved() -> None:
    """1 KiB of a peak of 2 KiB (half) comes before 100 ns of a step of 1,000 ns (a tenth); an error before both."""
    bad = failed(call(0), call(1), at=1, message=TWICE)
    held = _held(
        call(0, **RETAINS, retained_bytes_after=1032, retain_needed=False, needless_retain_bytes=1024), branch=1024
    )
    memory = strategy(*held.calls, name="memory", retained=held.retained, step=step(1000, peak_bytes=2048))
    slow = strategy(call(0, nodes=9), call(1, nodes=9, nodes_shared_with_earlier=9), name="slow", step=step(1100))
    summed = strategy(call(0), name="summed", kind="summed", step=step(1000, peak_bytes=2048))
    close = strategy(
        call(0), name="close", gradients=Gradients(reference="summed", relation="close", max_rel_difference=1e-7)
    )
    found = complete(result(close, slow, memory, bad, summed)).findings
    assert [(f.rule, f.strategy) for f in found if f.rule != "noise_too_large"] == [
        ("graph_freed_early", "retain"),
        ("retained_after_last", "memory"),
        ("trunk_revisited", "slow"),
        ("gradients_differ_by_rounding", "close"),
    ]


def test_shares_are_of_the_time_that_decides() -> None:
    """100 ns of CPU time saved are a tenth of a step of 1,000 ns of CPU time, whatever its wall time: behind a fifth."""
    waits = StepResult(wall_ns=steady(220), cpu_ns=steady(1100), forwards=1)
    works = StepResult(wall_ns=steady(5000), cpu_ns=steady(1200), forwards=1)
    summed = strategy(call(0), name="summed", kind="summed", step=step(1000, forwards=1))
    calls = call(0, nodes=9), call(1, nodes=9, nodes_shared_with_earlier=9)
    run = result(strategy(*calls, name="waits", step=waits), strategy(*calls, name="works", step=works), summed)
    assert [f.strategy for f in complete(run).findings if f.rule == "trunk_revisited"] == ["works", "waits"]


def test_saving_of_one_needless_call_can_come_from_the_cost() -> None:
    cost = RetainCost(peak_with_bytes=9, peak_without_bytes=9, after_last_with_bytes=700, after_last_without_bytes=100)
    run = result(_held(call(0, **RETAINS, retained_bytes_after=700), cost=cost))
    (found,) = _of("retained_after_last", run)
    assert found.saves_bytes == 600
    assert "100 B would stay" in found.text


def test_lines_of_a_program() -> None:
    assert line(call(0, "cls"), retain=True) == "cls.backward(retain_graph=True)"
    assert line(call(0, "cls"), retain=False) == "cls.backward()"
    assert line(call(0, "cls", kind="grad"), retain=True) == "torch.autograd.grad(cls, ..., retain_graph=True)"
    assert names_of(call(0, "cls", what="head")) == "cls (head)"
