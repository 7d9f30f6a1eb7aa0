"""Scenarios small enough to run in a test, and the command line called as a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from retainprof import store
from retainprof.cli import main
from retainprof.records import Result

TINY = """\
schema: 1
name: tiny
description: two heads, small
seed: 0
device: cpu
threads: 1
model: {kind: multitask_mlp, inputs: 8, trunk: [16], heads: {cls: 4, reg: 1}}
shared: trunk
batch: {kind: random, size: 32}
losses:
  cls: {kind: cross_entropy, output: cls}
  reg: {kind: mse, output: reg}
strategies: [retain, summed]
measure: {rounds: 3, warmup: 1, cold: 0, budget: 20s}
profile: {steps: 1}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., Path]:
    """Write the tiny scenario, with texts replaced: ``scenario(("[retain, summed]", "[grad]"))``."""

    def write(*changes: tuple[str, str], name: str = "tiny.yaml") -> Path:
        text = TINY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[int, Result | None]]:
    """Call the command line; the exit code and the newest result below ``runs``."""

    def call(*words: object) -> tuple[int, Result | None]:
        out = tmp_path / "runs"
        code = main([*map(str, words), "--out", str(out)])
        folders = sorted(out.glob("*/result.json"), key=lambda path: path.stat().st_mtime_ns)
        return code, store.read(folders[-1]) if folders else None

    return call
