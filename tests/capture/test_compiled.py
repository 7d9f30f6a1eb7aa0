"""Compiled models: the first backward decides what later ones may do, so strategies must not meet each other's graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from retainprof import store
from retainprof.cli import main

SCENARIO = """\
schema: 1
name: compiled
device: cpu
threads: 1
model: {{kind: multitask_mlp, inputs: 8, trunk: [16], heads: {{cls: 4, reg: 1}}}}
shared: trunk
batch: {{kind: random, size: 32}}
losses:
  cls: {{kind: cross_entropy, output: cls}}
  reg: {{kind: mse, output: reg}}
strategies: [{strategies}]
measure: {{rounds: 2, warmup: 1, cold: 0, budget: 60s}}
profile: {{steps: 1}}
"""


@pytest.mark.slow
def test_order_of_compiled_strategies_does_not_matter(tmp_path: Path) -> None:
    """Summed first: its backward frees, and its graph would refuse to be retained. Retain has a graph of its own."""
    strategies = "{name: s, kind: summed, compile: true}, {name: r, kind: retain, compile: true}, summed"
    path = tmp_path / "compiled.yaml"
    path.write_text(SCENARIO.format(strategies=strategies))
    assert main([str(path), "--out", str(tmp_path / "runs"), "--quiet"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    summed, retain, plain = store.read(folder).strategies
    assert {s.status for s in (summed, retain, plain)} == {"ok"}
    assert retain.gradients is not None
    assert retain.gradients.relation in ("bitwise", "close")
    # one compiled node does all of the model's backward; the plain one has a node for each operator
    assert retain.calls[0].nodes is not None
    assert plain.calls[0].nodes is not None
    assert retain.calls[0].nodes < plain.calls[0].nodes
    assert summed.step.flops is None  # the counter does not see into compiled code
    assert plain.step.flops is not None
