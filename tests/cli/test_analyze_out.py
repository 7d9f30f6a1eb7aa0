"""``retainprof analyze --out``: a run folder of traces, as TensorBoard, torch-tb-profiler and our tab read it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch_tb_profiler import consts
from trace_builders import run, trace

from retainprof import store
from retainprof.analysis.answers import answers
from retainprof.errors import StoreError
from retainprof.records import Accumulate
from retainprof.report import page_data
from retainprof.tb import trace as tab_trace


def folder_of(tmp_path: Path, *traces: Path) -> Path:
    """Analyze with ``--out``; the one folder made."""
    assert run(*traces, "--out", tmp_path / "out", "--quiet") == 0
    (made,) = (tmp_path / "out").iterdir()
    return made


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) by tag."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_result_has_the_fields_of_a_run(tmp_path: Path) -> None:
    result = store.read(folder_of(tmp_path, trace(tmp_path)))
    (strategy,) = result.strategies
    assert (result.scenario["name"], strategy.name, strategy.kind) == ("host_0-1", "host_0-1", "trace")
    first, later = strategy.calls
    assert (first.label, first.losses, later.losses) == ("## backward a ##", ("backward a",), ("backward b",))
    assert (first.accumulate, later.accumulate) == (Accumulate(stolen=1), Accumulate(added=1))
    assert (first.profiled_wall_ns, later.profiled_wall_ns) == (90_000, 90_000)
    assert (first.in_trace_ns, later.in_trace_ns) == ((1_100_000, 1_190_000), (1_300_000, 1_390_000))
    assert first.wall_ns.samples == later.wall_ns.samples == ()  # nothing that was not measured without the profiler
    (changed,) = strategy.first_vs_later
    assert (changed.ratio_wall, changed.verdict) == (None, "cannot_tell")
    assert {k.name for k in changed.kernels if k.status == "only_later" and k.leaf} == {"aten::add_"}
    assert page_data.page(result, answers(result))["result"]["strategies"][0]["name"] == "host_0-1"


def test_event_files(tmp_path: Path) -> None:
    made = folder_of(tmp_path, trace(tmp_path))
    found = scalars(made / "tb" / "host_0-1")
    assert [(step, round(value, 6)) for step, value in found["call/profiled_wall_ms"]] == [(0, 0.09), (1, 0.09)]
    assert found["call/gradients_added"] == [(0, 0), (1, 1)]
    assert found["call/gradients_stolen"] == [(0, 1), (1, 0)]
    assert found["call/nodes"] == [(0, 1), (1, 1)]
    assert "call/peak_bytes" not in found  # no memory events
    report = EventAccumulator(str(made / "tb" / "report"))
    report.Reload()
    text = report.Tensors("report/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text == (made / "report.md").read_text()
    assert "| host\\_0-1 | 1 | \\#\\# backward b \\#\\# | 2 | 90.0 µs | 90.0 to 90.0 µs | – |" in text
    assert (made / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("name", "worker"), [("host_0.1.pt.trace.json", "host_3"), ("rank-3.Apr_03.json", "rank-3-Apr_03_3"), ("t", "t_3")]
)
@pytest.mark.parametrize("compressed", [False, True])
def test_name_that_torch_tb_profiler_finds(name: str, worker: str, compressed: bool, tmp_path: Path) -> None:
    source = trace(tmp_path, name, rank=3)
    if compressed:
        source.write_bytes(gzip.compress(source.read_bytes()))
    made = folder_of(tmp_path, source)
    (copy,) = [path for path in made.glob("traces/*/*") if path.is_file()]
    matched = consts.WORKER_PATTERN.match(copy.name)
    assert matched is not None
    assert matched.group(1) == worker
    assert consts.NODE_PROCESS_PATTERN.match(worker)
    assert copy.name.endswith(".json.gz" if compressed else ".json")
    assert copy.read_bytes() == source.read_bytes()
    assert not copy.is_symlink()  # the tab reads only what lies in the run folder


@pytest.mark.parametrize("labelled", [False, True])
def test_the_tab_draws_calls_without_labels_of_ours(labelled: bool, tmp_path: Path) -> None:
    made = folder_of(tmp_path, trace(tmp_path, labelled=labelled))
    (strategy,) = store.read(made).strategies
    drawn = tab_trace.events(tab_trace.trace_file(made, strategy), 1, strategy)
    assert drawn["calls"] == [0, 1]
    assert "aten::add_" in drawn["names"]
    assert "aten::detach" not in drawn["names"]
    where = drawn["names"].index("aten::add_")
    start = 20_000 if labelled else 19_000  # without a label the call begins with the filling of its root's gradient
    assert [row[3:] for row in drawn["rows"] if row[0] == where] == [[start, 20_000]]


def test_ranks_of_one_job_lie_together(tmp_path: Path) -> None:
    made = folder_of(tmp_path, *(trace(tmp_path / "job", f"host_{rank}.1.pt.trace.json", rank=rank) for rank in (1, 0)))
    assert made.name.startswith("job-")
    assert sorted(path.name.split(".")[0] for path in (made / "traces" / "ranks").iterdir()) == ["host_0", "host_1"]
    assert [strategy.name for strategy in store.read(made).strategies] == ["rank 0", "rank 1"]
    assert "## Ranks side by side" in (made / "report.md").read_text()


def test_traces_that_are_no_ranks_lie_apart(tmp_path: Path) -> None:
    made = folder_of(tmp_path, trace(tmp_path / "x", "a.json"), trace(tmp_path / "x", "b.json"))
    assert [path.name for path in sorted((made / "traces").iterdir())] == ["a", "b"]
    assert "## Ranks side by side" not in (made / "report.md").read_text()


def test_where_it_says_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace(tmp_path), "--out", tmp_path / "out") == 0
    assert f"tensorboard --logdir {tmp_path / 'out'}" in capsys.readouterr().out.replace("\n", "")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make a run folder"):
        run(trace(tmp_path), "--out", tmp_path / "file")


def test_torch_is_not_imported(tmp_path: Path) -> None:
    words = [str(trace(tmp_path)), "--out", str(tmp_path / "out"), "--quiet"]
    code = f"import sys; from retainprof.cli import main; main(['analyze', *{words!r}]); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.stdout.strip(), found.returncode) == ("False", 0)


def test_json_and_result_tell_the_same(tmp_path: Path) -> None:
    source = trace(tmp_path)
    assert run(source, "--json", tmp_path / "a.json", "--out", tmp_path / "out", "--quiet") == 0
    told = json.loads((tmp_path / "a.json").read_text())
    (made,) = (tmp_path / "out").iterdir()
    result = json.loads((made / "result.json").read_text())
    for mine, theirs in zip(told["calls"][-2:], result["strategies"][0]["calls"], strict=True):
        same = set(mine) & set(theirs) - {"nodes_shared_with_earlier"}
        assert len(same) > 15
        assert {name: mine[name] for name in same} == {name: theirs[name] for name in same}
