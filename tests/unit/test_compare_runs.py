"""Two runs side by side: ratios, what is significant, what is refused, conditions and exit codes."""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from analysis_builders import call, result, steady, step, strategy

from retainprof import store
from retainprof.analysis.complete import complete
from retainprof.analysis.runs import RunComparison, check, compare, of_result, parse
from retainprof.analysis.runs.compare import independent_ratio
from retainprof.analysis.stats import summarise
from retainprof.cli import compare as command
from retainprof.errors import ConditionFailed, UsageError
from retainprof.records import KernelRow, Result, Samples, StepResult

MM = KernelRow(name="aten::mm", shapes="2x3, 3x4", count=2, self_ns=100)
ADD = KernelRow(name="aten::add_", shapes="4, 4", count=1, self_ns=10)


def run_of(call0_ns: int = 1000, call1_ns: int = 1500, held: int = 0, **fields: Any) -> Result:
    """Two calls; the second runs an addition more."""
    calls = (
        call(0, cpu_ns=steady(call0_ns), wall_ns=steady(call0_ns), kernels=2, kernel_rows=(MM,)),
        call(
            1,
            cpu_ns=steady(call1_ns),
            wall_ns=steady(call1_ns),
            kernels=3,
            retained_bytes_after=held,
            kernel_rows=(MM, ADD),
        ),
    )
    return complete(result(strategy(*calls, step=step(call0_ns + call1_ns, peak_bytes=512)), **fields))


def compared(base: Result, contender: Result, **options: bool) -> RunComparison:
    return compare(of_result(base, "base", "cpu"), of_result(contender, "contender", "cpu"), "cpu", **options)


def test_the_same_run_is_the_same() -> None:
    found = compared(run_of(), run_of())
    assert found.warnings == found.only_base == found.only_contender == ()
    (only,) = found.strategies
    assert (only.verdict, only.ratio and only.ratio.median) == ("same", 1.0)
    assert [(c.verdict, [k.status for k in c.kernels]) for c in only.calls] == [
        ("same", ["same"]),
        ("same", ["same", "same"]),
    ]


def test_ratios_are_contender_over_base() -> None:
    (only,) = compared(run_of(1000, 1500), run_of(2000, 1500)).strategies
    assert only.ratio is not None
    assert only.ratio.median == pytest.approx(3500 / 2500)
    assert only.ratio.ci95 == pytest.approx((1.4, 1.4))
    assert [c.verdict for c in only.calls] == ["slower", "same"]
    assert (only.base_ns, only.contender_ns) == (2500, 3500)


def test_joined_intervals() -> None:
    """By hand: medians 100 and 200; with 40 samples of a few values the medians' intervals are known from their ranks."""
    base, contender = [100] * 40, [200] * 20 + [210] * 20
    found = independent_ratio(contender, base)
    assert found is not None
    assert found.median == pytest.approx(math.sqrt(200 * 210) / 100)  # the middle of two logarithms
    assert found.ci95 == pytest.approx((2.0, 2.1))
    assert found.pairs == 40
    assert independent_ratio([], base) is None


def test_intervals_cover() -> None:
    """Of 300 pairs of series with a known ratio of medians at least 92% have it in their interval."""
    chance, hits = random.Random(7), 0
    for _ in range(300):
        base, contender = ([round(1e6 * m * chance.lognormvariate(0, 0.1)) for _ in range(30)] for m in (1.0, 1.3))
        found = independent_ratio(contender, base)
        assert found is not None
        hits += found.ci95[0] <= 1.3 <= found.ci95[1]
    assert 276 <= hits <= 300


def test_kernels_are_matched_by_name_and_shapes() -> None:
    base = complete(result(strategy(call(0, kernel_rows=(MM,)))))
    contender = complete(result(strategy(call(0, kernel_rows=(msgspec.structs.replace(MM, count=3), ADD)))))
    (only,) = compared(base, contender).strategies
    (first,) = only.calls
    assert {(k.name, k.status, k.first_count, k.later_count) for k in first.kernels} == {
        ("aten::mm", "changed", 2, 3),
        ("aten::add_", "only_later", 0, 1),
    }


def test_strategies_of_one_side_only() -> None:
    base = complete(result(strategy(call(0), name="retain"), strategy(call(0), name="old")))
    contender = complete(result(strategy(call(0), call(1), name="retain"), strategy(call(0), name="new")))
    found = compared(base, contender)
    assert (found.only_base, found.only_contender) == (("old",), ("new",))
    assert found.warnings == ("retain: 1 calls against 2; the rest is not compared",)


def _with(field: str, value: object) -> Result:
    base = run_of()
    return msgspec.structs.replace(base, environment=msgspec.structs.replace(base.environment, **{field: value}))


@pytest.mark.parametrize(("field", "value"), [("device", "cuda"), ("dtype", "bfloat16")])
def test_refused(field: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be compared: {field}: "):
        compared(run_of(), _with(field, value))
    assert len(compared(run_of(), _with(field, value), anyway=True).warnings) == 1


@pytest.mark.parametrize(("field", "value"), [("torch", "3"), ("threads", 2), ("cpu", "another")])
def test_warned(field: str, value: object) -> None:
    (warning,) = compared(run_of(), _with(field, value)).warnings
    assert warning.startswith(f"{field}: ")


def test_other_programs_are_warned_of() -> None:
    found = compared(run_of(scenario={"model": {"kind": "a"}}), run_of(scenario={"model": {"kind": "b"}}))
    assert found.warnings == ("the scenarios differ in model, batch or losses",)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("later/first > 1.19", True),  # the contender's own: 1500 / 1250
        ("later/first > 1.21", False),
        ("later/first < 1.3", True),
        ("step slower 5%", True),  # 2750 / 2500 = 1.1
        ("step slower 10.1 %", False),
        ("step faster 5%", False),
        ("call > 1.24", True),  # 1250 / 1000
        ("retained_after_last > 0", True),
        ("retained_after_last > 4096", False),
        ("peak_bytes > 511", True),
        ("kernels >= 3", True),
        ("kernels > 3", False),
        ("kernels added", False),
        ("kernels removed", False),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    found = compared(run_of(1000, 1500), run_of(1250, 1500, held=4096))
    assert check(parse(text), found).holds is holds


def test_added_kernels() -> None:
    base, contender = (complete(result(strategy(call(0, kernel_rows=rows)))) for rows in ((MM,), (MM, ADD)))
    checked = check(parse("kernels added"), compared(base, contender))
    assert (checked.holds, checked.reason) == (True, "retain call 0: 1")
    assert check(parse("kernels removed"), compared(contender, base)).holds
    assert not check(parse("kernels added"), compared(contender, base)).holds


def _slow(*samples: int) -> RunComparison:
    """A step of 1 ms in 40 rounds against one of these samples."""
    base = complete(result(strategy(call(0), step=step(1_000_000))))
    contender = complete(result(strategy(call(0), step=StepResult(cpu_ns=summarise(samples), wall_ns=Samples()))))
    return compared(base, contender)


@pytest.mark.parametrize(
    ("samples", "holds"), [((2_000_000,) * 5, False), ((2_000_000,) * 8, True), ((900_000, 2_000_000) * 10, False)]
)
def test_noise_makes_nothing_fail(samples: tuple[int, ...], holds: bool) -> None:
    """Too few samples decide nothing, nor does an interval that reaches over the limit."""
    checked = check(parse("step slower 5%"), _slow(*samples))
    assert checked.holds is holds
    assert ("fewer than 8 samples" in checked.reason) is (len(samples) < 8)


@pytest.mark.parametrize("text", ["", "slower", "step slower", "later > 1.2", "kernels added 3", "step > fast"])
def test_no_condition(text: str) -> None:
    with pytest.raises(UsageError, match="is no condition"):
        parse(text)


def test_untold_metric() -> None:
    empty = complete(result(strategy(call(0))))
    with pytest.raises(UsageError, match="neither base nor contender tells step"):
        check(parse("step slower 5%"), compared(empty, empty))


# --- the command --------------------------------------------------------------------------------------------------------


def _command(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return command.run(parser.parse_args(["compare", *map(str, words)]))


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two run folders; in the second, call 0 takes twice as long."""
    folders = tmp_path / "one", tmp_path / "two"
    for folder, found in zip(folders, (run_of(), run_of(2000, 1500)), strict=True):
        folder.mkdir()
        (folder / "result.json").write_bytes(store.encode(found))
    return folders


def test_command(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert _command(*runs, "--fail-on", "step faster 5%") == 0
    said = capsys.readouterr().out
    assert "contender two against base one" in said
    assert "1.40x" in said
    assert "step faster 5%: does not hold" in said


def test_condition_fails_the_command(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConditionFailed, match=r"step slower 5%: retain: 1\.400") as raised:
        _command(*runs, "--fail-on", "step slower 5%", "--fail-on", "kernels added")
    assert raised.value.exit_code == 1
    assert "step slower 5%: holds" in capsys.readouterr().out


def test_outputs(runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _command(*runs, "--json", "-", "--markdown", tmp_path / "c.md") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["strategies"][0]["calls"][0]["ratio"]["median"] == pytest.approx(2.0)
    written = (tmp_path / "c.md").read_text()
    assert written.startswith("## two against one\n")
    assert "| retain | step | 2.50 µs | 3.50 µs | 1.40x |" in written


def test_run_against_trace_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    with pytest.raises(UsageError, match="one is a run, the other a trace"):
        _command(runs[0], trace)


def test_results_by_any_name(runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``run --json FILE`` writes a result wherever it is told to."""
    named = (runs[1] / "result.json").rename(tmp_path / "two.json")
    assert _command(runs[0], named, "--quiet", "--fail-on", "step faster 5%") == 0
    assert capsys.readouterr().out == ""


def test_a_folder_of_runs_is_none(runs: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="holds runs: one, two") as raised:
        _command(runs[0].parent, runs[1])
    assert raised.value.hint == "name one of them"


def _trace(path: Path, call_us: int, operators: int) -> Path:
    """Ten steps with a labelled call of so many additions."""
    events = []
    for n in range(10):
        spans = [("user_annotation", f"ProfilerStep#{n}", 0, 900), ("user_annotation", "## backward ##", 100, call_us)]
        spans += [("cpu_op", "autograd::engine::evaluate_function: X", 101, call_us - 2)]
        spans += [("cpu_op", "aten::add", 102 + 5 * i, 3) for i in range(operators)]
        for category, name, ts, dur in spans:
            place = {"ph": "X", "pid": 1, "tid": 1, "ts": 1000 * n + ts, "dur": dur}
            events.append({"cat": category, "name": name, **place})
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_two_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, contender = _trace(tmp_path / "a.json", 100, 2), _trace(tmp_path / "b.json", 150, 3)
    with pytest.raises(ConditionFailed, match=r"kernels added: trace call 0: 1; call slower 40%: trace call 0: 1\.500"):
        _command(base, contender, "--fail-on", "kernels added", "--fail-on", "call slower 40%")
    said = capsys.readouterr().out
    assert "2 to 3" in said
    assert "Times are profiled ones" in said
