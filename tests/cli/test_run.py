"""The main command: what it writes, what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from retainprof import store
from retainprof.cli import main
from retainprof.records import Result

Run = Callable[..., tuple[int, Result | None]]
Write = Callable[..., Path]
FACTORIES = """
import torch
from torch import nn


def model():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def batch():
    return (torch.randn(5, 4),), torch.randn(5, 3)


def good(outputs, targets):
    return (outputs - targets).square().mean()


def vector(outputs, targets):
    return outputs - targets


def number(outputs, targets):
    return float(outputs.sum())


def constant(outputs, targets):
    return torch.zeros(())


def nan(outputs, targets):
    return (outputs * float("nan")).sum()


def raising(outputs, targets):
    raise ValueError("loss says no")


def raising_model():
    raise OSError("no weights here")


def interrupting(outputs, targets):
    raise KeyboardInterrupt


def not_a_model():
    return [1, 2]


class Raises(nn.Module):
    def forward(self, x):
        raise RuntimeError("forward says no")


class Exploding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ZeroDivisionError("backward says no")


def exploding(outputs, targets):
    return Exploding.apply(outputs).sum()
"""
FACTORY_SCENARIO = """\
schema: 1
name: own
device: cpu
threads: 1
model: {{factory: "mine:{model}"}}
batch: {{factory: "mine:batch"}}
losses:
  good: {{factory: "mine:good"}}
  other: {{factory: "mine:{loss}"}}
strategies: [retain, summed]
measure: {{rounds: 3, warmup: 1, cold: {cold}, budget: 20s}}
profile: {{steps: 1}}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A scenario with factories of the user's own in its folder."""

    def write(model: str = "model", loss: str = "good", cold: int = 0) -> Path:
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        (tmp_path / "mine.py").write_text(FACTORIES)
        path = tmp_path / "own.yaml"
        path.write_text(FACTORY_SCENARIO.format(model=model, loss=loss, cold=cold))
        return path

    return write


def test_everything_is_written(scenario: Write, run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, result = run(scenario())
    assert (code, result is not None) == (0, True)
    assert result is not None
    assert result.status == "ok"
    assert result.phases == ("cold", "timing", "evidence", "gradients")
    (folder,) = (tmp_path / "runs").iterdir()
    for strategy in result.strategies:
        assert len(strategy.step.wall_ns.samples) == 3
        (trace,) = strategy.traces
        assert (folder / trace).is_file()
        assert os.listdir((folder / trace).parent) == [(folder / trace).name]
    assert (folder / "report.md").read_text().startswith("# tiny")
    assert list(folder.glob("tb/retain/events.out.tfevents.*"))
    printed = capsys.readouterr()
    for question in ("1 ", "2 ", "3 ", "4 "):
        assert any(line.startswith(question) for line in printed.out.splitlines())
    assert f"tensorboard --logdir {tmp_path / 'runs'}" in printed.out.replace("\n", "")


def test_numbers_by_hand(scenario: Write, run: Run) -> None:
    """Bytes and counts of the tiny scenario: Linear 8-16, ReLU, heads 16-4 and 16-1, batch 32, float32."""
    _, result = run(scenario())
    assert result is not None
    retain, summed = result.strategies
    relu, softmax, total_weight, output = 32 * 16 * 4, 32 * 4 * 4, 4, 32 * 4
    losses = 4 + 32 * 4  # mse_loss returns a scalar in a storage of its input's size
    held = relu + softmax + total_weight + output + losses
    assert retain.retained.after_forward_bytes == held
    assert retain.retained.residue_bytes == 0
    assert sum(row.bytes for row in retain.retained.by_node) == held
    assert sum(row.bytes for row in retain.retained.by_module) == held
    trunk, cls, reg = (8 * 16 + 16) * 4, (16 * 4 + 4) * 4, (16 + 1) * 4
    first, second = retain.calls
    assert (first.grad_bytes_after, second.grad_bytes_after) == (trunk + cls, trunk + cls + reg)
    assert first.accumulate is not None
    assert second.accumulate is not None
    assert (first.accumulate.stolen, first.accumulate.added) == (4, 0)
    assert (second.accumulate.stolen, second.accumulate.added) == (2, 2)
    assert (
        second.retained_bytes_after == held - output
    )  # only what reg alone visits goes; the trunk's ReLU stays with cls
    assert (first.retain_needed, second.retain_needed) == (True, None)
    for call in (*retain.calls, *summed.calls):
        assert (call.residue_bytes, call.unexplained_bytes, call.pinned_by_grads_bytes) == (0, 0, 0)
    added = [k for k in retain.first_vs_later[0].kernels if k.name == "aten::add_" and k.status == "only_later"]
    assert sorted(k.shapes for k in added) == ["16, 16", "16x8, 16x8"]
    assert summed.gradients is not None
    assert summed.gradients.relation == "bitwise"
    assert summed.calls[0].retained_bytes_after == 4  # the sum itself


def test_json_alone_on_standard_output(scenario: Write, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = run(scenario(), "--json", "-")
    assert code == 0
    assert msgspec.json.decode(capsys.readouterr().out.encode(), type=Result) == result


def test_json_file_no_trace_and_one_strategy(scenario: Write, run: Run, tmp_path: Path) -> None:
    code, result = run(scenario(), "--json", tmp_path / "r.json", "--no-trace", "--strategy", "summed", "--quiet")
    assert code == 0
    assert result is not None
    assert [s.name for s in result.strategies] == ["summed"]
    assert result.strategies[0].traces == ()
    assert not list((tmp_path / "runs").glob("*/traces"))
    assert store.read(tmp_path / "r.json") == result


def test_set_and_options_override(scenario: Write, run: Run) -> None:
    _, result = run(scenario(), "--rounds", 5, "--set", "losses.cls.weight=0", "--set", "seed=3", "--quiet")
    assert result is not None
    assert result.timing is not None
    assert result.timing.rounds == 5
    assert result.scenario["seed"] == 3
    assert result.scenario["losses"]["cls"]["weight"] == 0


def test_cold_pass(scenario: Write, run: Run) -> None:
    _, result = run(scenario(("cold: 0", "cold: 2")), "--quiet")
    assert result is not None
    for strategy in result.strategies:
        assert len(strategy.step.cold_wall_ns.samples) == 2
        for call in strategy.calls:
            assert len(call.cold_wall_ns.samples) == 2
            assert len(call.cold_minor_faults) == 2
            assert all(ns > 0 for ns in call.cold_wall_ns.samples)


def test_zero_grad_zero_makes_every_call_add(scenario: Write, run: Run) -> None:
    _, result = run(scenario(("budget: 20s", "budget: 20s, zero_grad: zero")), "--quiet")
    assert result is not None
    for call in result.strategies[0].calls:
        assert call.accumulate is not None
        assert (call.accumulate.stolen, call.accumulate.added) == (0, 4)


def test_unusual_names(tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Quotes, markup, control characters and other alphabets in names of scenario, strategy and loss."""
    from cli_fixtures import TINY

    text = TINY.replace("name: tiny", 'name: "t\\u00ef \\"[red]\\" \\e[31m"').replace("cls:", '"c\\"l[b]\\u0161\\x07":')
    text = text.replace('heads: {"c\\"l[b]\\u0161\\x07": 4', "heads: {cls: 4")
    text = text.replace(
        "[retain, summed]", '[{name: "a/b \\u4f60 \\"x\\"", kind: retain}, {name: "a b", kind: summed}]'
    )
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    code, result = run(path)
    assert code == 0
    assert result is not None
    assert result.strategies[0].name == 'a/b 你 "x"'
    assert result.strategies[0].calls[0].losses == ('c"l[b]š\x07',)
    printed = capsys.readouterr().out
    assert "\x1b[31m" not in printed
    assert "\x07" not in printed
    assert "\\x1b[31m" in printed


def test_unknown_strategy_option(scenario: Write, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(scenario(), "--strategy", "retian")
    assert code == 2
    assert "has no strategy 'retian'" in capsys.readouterr().err


def test_device_that_is_not_there(scenario: Write, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(scenario(), "--device", "cuda:7")
    assert code == 2
    error = capsys.readouterr().err
    assert "'cuda:7' is not available" in error
    assert "available here: auto" in error


def test_scenario_faults_come_before_anything_runs(
    scenario: Write, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = scenario(("kind: mse", "kind: msse"), name="bad.yaml")
    code, result = run(scenario(), bad)
    assert (code, result) == (2, None)
    assert "bad.yaml:12:15: error: losses.reg.kind: unknown loss 'msse'" in capsys.readouterr().err


def test_output_folder_that_cannot_be(scenario: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main([str(scenario()), "--out", str(tmp_path / "file" / "runs")]) == 2
    assert "cannot make a run folder" in capsys.readouterr().err


# --- factories -----------------------------------------------------------------------------------------------------


def test_factories_are_refused_until_allowed(own: Write, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = run(own())
    assert (code, result) == (2, None)
    assert "--allow-import mine" in capsys.readouterr().err
    code, result = run(own(), "--allow-import", "mine", "--quiet")
    assert code == 0
    assert result is not None
    assert result.strategies[0].gradients is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "vector"}, ["'other'", "shape (5, 3)", "expected a scalar", ".mean()"]),
        ({"loss": "number"}, ["'other'", "float", "expected a scalar tensor"]),
        ({"loss": "constant"}, ["'other'", "does not require a gradient"]),
        ({"loss": "raising"}, ["'other'", "ValueError", "loss says no", "mine.py"]),
        ({"loss": "missing"}, ["mine", "missing"]),
        ({"model": "raising_model"}, ["OSError", "no weights here", "mine.py"]),
        ({"model": "not_a_model"}, ["list"]),
        ({"model": "Raises"}, ["forward says no", "mine.py"]),
    ],
)
def test_faults_of_factories(
    own: Write, run: Run, capsys: pytest.CaptureFixture[str], changes: dict[str, str], words: list[str]
) -> None:
    code, result = run(own(**changes), "--allow-import", "mine")
    assert (code, result) == (2, None)
    error = capsys.readouterr().err
    for word in words:
        assert word in error
    assert "retainprof/capture" not in error


def test_nan_loss_warns_and_marks_the_gradients(own: Write, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = run(own(loss="nan"), "--allow-import", "mine")
    assert code == 0
    assert result is not None
    assert "loss 'other' is nan" in result.message
    assert result.strategies[0].gradients is not None
    assert set(result.strategies[0].gradients.not_finite) == {"weight", "bias"}
    assert "'other' is nan" in capsys.readouterr().out


def test_a_strategy_that_raises_keeps_the_rest(scenario: Write, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    calls = "[{name: twice, kind: calls, calls: [{backward: cls}, {backward: reg}]}, summed]"
    code, result = run(scenario(("[retain, summed]", calls)))
    assert code == 3
    assert result is not None
    assert result.status == "failed"
    twice, summed = result.strategies
    assert (twice.status, summed.status) == ("failed", "ok")
    assert twice.error is not None
    assert (twice.error.call, twice.error.loss, twice.error.type) == (1, "reg", "RuntimeError")
    assert twice.error.operator is not None
    assert twice.error.operator.endswith("Backward0")
    assert len(twice.calls[0].wall_ns.samples) == 3
    assert twice.calls[1].wall_ns.samples == ()
    assert twice.gradients is not None
    assert twice.gradients.relation == "partial"
    assert summed.step.wall_ns.median is not None
    printed = capsys.readouterr().out
    assert "FAILED twice: call 1 (loss reg) raised RuntimeError in" in printed


def test_a_backward_of_the_users_own_that_raises(own: Write, run: Run) -> None:
    code, result = run(own(loss="exploding"), "--allow-import", "mine", "--quiet")
    assert code == 3
    assert result is not None
    error = result.strategies[0].error
    assert error is not None
    assert (error.call, error.type, error.message) == (1, "ZeroDivisionError", "backward says no")
    assert error.operator == "ExplodingBackward"


# --- interrupts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["cold", "timing", "evidence", "gradients"])
def test_interrupt_in_any_pass(
    scenario: Write, run: Run, phase: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The passes before the interrupted one are whole, and the result says so."""
    from retainprof.capture import session

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    name = {"cold": "measure_cold", "evidence": "gather", "gradients": "final_gradients"}.get(phase)
    if name is None:
        monkeypatch.setattr("retainprof.capture.timing.Measurement.run", interrupt)
    else:
        monkeypatch.setattr(session, name, interrupt)
    code, result = run(scenario(("cold: 0", "cold: 1")))
    assert code == 130
    assert result is not None
    assert result.status == "partial"
    assert f"interrupted in the {phase} pass" in result.message
    order = ["cold", "timing", "evidence", "gradients"]
    assert list(result.phases) == order[: order.index(phase)]
    assert "PARTIAL" in capsys.readouterr().out


@pytest.mark.slow
def test_control_c_of_a_real_process(scenario: Write, tmp_path: Path) -> None:
    """SIGINT while rounds are being timed: exit 130, and whole rounds of every strategy are on disk."""
    path = scenario(("rounds: 3", "rounds: 1000000"), ("budget: 20s", "budget: 300s"))
    out = tmp_path / "runs"
    command = [sys.executable, "-m", "retainprof", str(path), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("*/result.json")) and time.monotonic() < deadline:
        time.sleep(0.1)  # written when the cold pass is over and the timing pass begins
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    printed, error = process.communicate(timeout=60)
    assert process.returncode == 130, error.decode()
    assert b"PARTIAL" in printed
    (written,) = out.glob("*/result.json")
    result = store.read(written)
    assert result.status == "partial"
    assert result.timing is not None
    assert result.timing.stopped_by == "interrupted"
    counts = {len(s.step.wall_ns.samples) for s in result.strategies}
    assert counts == {result.timing.rounds}
    assert result.timing.rounds > 0


# --- standard output -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("buffered", [True, False])
def test_standard_output_on_a_full_disk(buffered: bool) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "retainprof", "list"], stdout=full, stderr=subprocess.PIPE, env=env, check=False
        )
    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


def test_standard_output_closed_or_left() -> None:
    """A closed one is no error; a reader that leaves ends it quietly."""
    command = f"{sys.executable} -m retainprof list"
    closed = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE, check=False)
    assert (closed.returncode, closed.stderr) == (0, b"")
    left = subprocess.run(f"{command} | head -1", shell=True, capture_output=True, check=False)
    assert (left.stdout, left.stderr) == (b"models:\n", b"")


# --- starting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"], ["validate", "SCENARIO"]])
def test_light_commands_do_not_import_torch(words: list[str], scenario: Write) -> None:
    words = [str(scenario()) if word == "SCENARIO" else word for word in words]
    code = (
        "import sys\nfrom retainprof.cli import main\n"
        f"try:\n    code = main({words!r})\nexcept SystemExit as e:\n    code = e.code\n"
        "print('torch' in sys.modules, code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False 0"


def test_env(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cpus"] >= 1
    assert main(["env"]) == 0
    assert "devices" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["zero", "keep"])
def test_bytes_add_up_whatever_the_first_call_meets(scenario: Write, run: Run, mode: str) -> None:
    """Gradients that are there from the start are gradients, not bytes that a graph pins."""
    _, result = run(scenario(("budget: 20s", f"budget: 20s, zero_grad: {mode}")), "--quiet")
    assert result is not None
    gradients = ((8 * 16 + 16) + (16 * 4 + 4) + (16 + 1)) * 4
    for strategy in result.strategies:
        for call in strategy.calls:
            assert call.grad_bytes_after == gradients
            assert (call.pinned_by_grads_bytes, call.pinned_residue_bytes) == (0, 0)
            assert (call.residue_bytes, call.unexplained_bytes) == (0, 0)
        assert strategy.gradients is not None
        assert strategy.gradients.relation in ("bitwise", "close")


def test_a_misspelt_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["valdate", "x.yaml"]) == 2
    assert "did you mean validate?" in capsys.readouterr().err


def test_json_that_cannot_be_written_is_refused_first(
    scenario: Write, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = run(scenario(), "--json", tmp_path / "missing" / "r.json")
    assert (code, result) == (2, None)
    assert "cannot write" in capsys.readouterr().err
