"""Several ranks of one job: side by side in ``analyze``, matched by ``compare``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from trace_builders import ACCUMULATE, ENGINE, event, rows, run, trace

from retainprof.cli import compare
from retainprof.errors import ConditionFailed, UsageError


def compared(*words: object) -> int:
    """``retainprof compare WORDS``."""
    parser = argparse.ArgumentParser()
    compare.add(parser.add_subparsers())
    return compare.run(parser.parse_args(["compare", *map(str, words)]))


def rank_trace(folder: Path, rank: int, device_us: int, kernels: int, name: str = "", states: bool = True) -> Path:
    """Eight steps of one call of 100 us with one node of 80 us, which launches kernels of so many us one after the other."""
    events: list[dict[str, Any]] = []
    for step in range(8):
        at = 10_000 * step
        events += [
            event("user_annotation", f"ProfilerStep#{step}", at, at + 9000),
            event("user_annotation", "## backward ##", at + 100, at + 200),
            event("cpu_op", ENGINE + ACCUMULATE, at + 110, at + 190),
        ]
        for n in range(kernels):
            linked = {"correlation": 100 * step + n + 1}
            events.append(event("cuda_runtime", "cudaLaunchKernel", at + 120 + n, at + 121 + n, **linked))
            start = at + 300 + device_us * n
            kernel = event("kernel", "gemm", start, start + device_us, **linked)
            events.append({**kernel, "pid": 0, "tid": 7})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or f"host_{rank}.1.pt.trace.json")
    told = {"distributedInfo": {"rank": rank}} if states else {}
    path.write_text(json.dumps({**told, "traceEvents": events}))
    return path


def test_side_by_side_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 0: 2 kernels of 50 us; rank 1: 3 of 40 us; rank 2 as rank 0."""
    job = tmp_path / "job"
    for rank, device_us, kernels in ((0, 50, 2), (1, 40, 3), (2, 50, 2)):
        rank_trace(job, rank, device_us, kernels)
    assert run(job, "--json", "-", "--csv", tmp_path / "tables") == 0
    (call,) = json.loads(capsys.readouterr().out)["ranks"]
    names = (
        "rank",
        "steps",
        "profiled_wall_ns",
        "device_busy_ns",
        "device_sum_ns",
        "engine_ns",
        "kernels",
        "net_bytes",
    )
    assert [[one[name] for name in names] for one in call["ranks"]] == [
        [0, 8, 100_000, 100_000, 100_000, 80_000, 2, None],
        [1, 8, 100_000, 120_000, 120_000, 80_000, 3, None],
        [2, 8, 100_000, 100_000, 100_000, 80_000, 2, None],
    ]
    spreads = {one.pop("field"): one for one in call["spreads"]}
    ends = {"lowest_rank": 0, "highest_rank": 1}
    assert spreads["kernels"] == {"lowest": 2, "highest": 3, "difference": 1, "ratio": 1.5, **ends}
    assert spreads["device_busy_ns"] == {
        "lowest": 100_000,
        "highest": 120_000,
        "difference": 20_000,
        "ratio": 1.2,
        **ends,
    }
    assert "net_bytes" not in spreads
    table = {line["field"]: line for line in rows(tmp_path / "tables" / "ranks.csv")}
    assert [table["kernels"][f"rank_{rank}"] for rank in range(3)] == ["2", "3", "2"]
    assert (table["device_busy_ns"]["ratio"], table["net_bytes"]["rank_0"]) == ("1.2", "")


def test_table_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(10):
        rank_trace(tmp_path / "job", rank, 50 + rank, 2)
    run(tmp_path / "job")
    text = capsys.readouterr().out
    assert "Ranks side by side" in text
    assert "… 2 more" in text
    (spread,) = [line.split() for line in text.splitlines() if " spread " in line]
    assert spread[:4] == ["0", "spread", "1.000x", "1.18x"]  # 118 / 100 us
    run(tmp_path / "job", "--full")
    assert "… 2 more" not in capsys.readouterr().out


def test_a_call_that_one_rank_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace(tmp_path / "job", "a.json", rank=0)  # two calls a step
    rank_trace(tmp_path / "job", 1, 50, 2)
    run(tmp_path / "job", "--json", "-")
    first, second = json.loads(capsys.readouterr().out)["ranks"]
    assert [one["steps"] for one in first["ranks"]] == [2, 8]
    assert [(one["steps"], one["kernels"]) for one in second["ranks"]] == [(2, 2), (0, None)]  # ones_like and add_
    assert second["spreads"] == []


@pytest.mark.parametrize("names", [("host_0.json", "host_1.json"), ("rank-0.Apr_03.json", "rank-1.Apr_03.json")])
def test_ranks_by_the_names_of_files(
    names: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, name in enumerate(names):
        rank_trace(tmp_path / "job", rank, 50, 2, name, states=False)
    run(tmp_path / "job", "--json", "-")
    (call,) = json.loads(capsys.readouterr().out)["ranks"]
    assert [(one["rank"], one["trace"]) for one in call["ranks"]] == [(0, names[0]), (1, names[1])]


def test_no_table_for_traces_of_the_same_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank_trace(tmp_path / "job" / "a", 0, 50, 2)
    rank_trace(tmp_path / "job" / "b", 0, 50, 2)
    run(tmp_path / "job", "--json", "-", "--csv", tmp_path / "tables")
    assert json.loads(capsys.readouterr().out)["ranks"] == []
    assert not (tmp_path / "tables" / "ranks.csv").exists()


# --- compare ------------------------------------------------------------------------------------------------------------


def test_folders_are_matched_by_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files differ and are in another order; rank 1 launches two kernels more in the contender."""
    rank_trace(tmp_path / "base", 0, 50, 2, "x.json")
    rank_trace(tmp_path / "base", 1, 50, 2, "y.json")
    rank_trace(tmp_path / "new", 0, 50, 2, "z.json")
    rank_trace(tmp_path / "new", 1, 50, 4, "a.json")
    with pytest.raises(ConditionFailed, match="kernels added: rank 1 call 0: 2"):
        compared(tmp_path / "base", tmp_path / "new", "--json", "-", "--fail-on", "kernels added")
    found = json.loads(capsys.readouterr().out)
    assert [
        (one["strategy"], one["calls"][0]["base_kernels"], one["calls"][0]["contender_kernels"])
        for one in found["strategies"]
    ] == [("rank 0", 2, 2), ("rank 1", 2, 4)]
    assert {one["calls"][0]["ratio"]["median"] for one in found["strategies"]} == {1.0}


def test_different_ranks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        rank_trace(tmp_path / "base", rank, 50, 2)
    for rank in (0, 1, 2):
        rank_trace(tmp_path / "new", rank, 50, 2)
    with pytest.raises(UsageError, match="base and new cannot be compared: ranks: 0, 1 against 0, 1, 2"):
        compared(tmp_path / "base", tmp_path / "new")
    assert compared(tmp_path / "base", tmp_path / "new", "--anyway") == 0
    said = capsys.readouterr().out
    assert "warning: ranks: 0, 1 against 0, 1, 2" in said
    assert "rank 2: only in new" in said
    (tmp_path / "one").mkdir()
    rank_trace(tmp_path / "one", 0, 50, 2)
    with pytest.raises(UsageError, match="ranks: 0 against 0, 1"):
        compared(tmp_path / "one", tmp_path / "base")


def test_folders_of_strategies_are_matched_by_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("base", "new"):
        for strategy in ("retain", "summed"):
            rank_trace(tmp_path / side / strategy, 0, 50, 2, f"{side}.json")
    assert compared(tmp_path / "base", tmp_path / "new", "--json", "-") == 0
    assert [one["strategy"] for one in json.loads(capsys.readouterr().out)["strategies"]] == ["retain", "summed"]


def test_a_folder_of_one_trace_is_that_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace_file = rank_trace(tmp_path / "base", 0, 50, 2)
    assert compared(tmp_path / "base", trace_file, "--json", "-") == 0
    assert [one["strategy"] for one in json.loads(capsys.readouterr().out)["strategies"]] == ["trace"]


def test_folders_that_analyze_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are compared as the traces in them: with samples of every step."""
    for side, kernels in (("base", 2), ("new", 3)):
        run(rank_trace(tmp_path / side, 0, 50, kernels), "--out", tmp_path / "out" / side, "--quiet")
    base, new = (next((tmp_path / "out" / side).iterdir()) for side in ("base", "new"))
    assert compared(base, new, "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    (call,) = found["strategies"][0]["calls"]
    assert (found["profiled"], call["base_kernels"], call["contender_kernels"]) == (True, 2, 3)
    assert call["ratio"]["pairs"] == 8


def test_labels_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = trace(tmp_path, "a.json"), trace(tmp_path, "b.json")
    assert compared(one, other, "--label", "backward b", "--json", "-") == 0
    assert len(json.loads(capsys.readouterr().out)["strategies"][0]["calls"]) == 1


def test_traces_without_a_counterpart(tmp_path: Path) -> None:
    for side, names in (("base", "ab"), ("new", "cd")):
        for name in names:
            rank_trace(tmp_path / side / name, 0, 50, 2)
    with pytest.raises(UsageError, match="nothing to compare: traces a, b against c, d"):
        compared(tmp_path / "base", tmp_path / "new")


def test_a_step_has_no_time_in_a_trace(tmp_path: Path) -> None:
    one = rank_trace(tmp_path, 0, 50, 2)
    with pytest.raises(UsageError, match="tells step") as raised:
        compared(one, one, "--fail-on", "step slower 5%")
    assert raised.value.hint == "a trace tells no time of a whole step: 'call slower 5%'"


def test_device_names_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [rank_trace(tmp_path, 0, 50, 2, f"{device}.json") for device in ("V100", "A100")]
    for path in paths:
        told = json.loads(path.read_text())
        path.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": path.stem}], **told}))
    assert compared(*paths) == 0
    assert "warning: device name: V100 against A100" in capsys.readouterr().out
