"""Small traces, event by event, and ``retainprof analyze`` called as a function."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retainprof.cli import analyze

ENGINE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"


def event(cat: str, name: str, start: int, end: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


def call(at: int, label: str, inside: str) -> list[dict[str, Any]]:
    """One call of one node that needs no forward, which steals or adds a gradient of three numbers; "" for no label."""
    return [
        *([event("user_annotation", label, at, at + 90)] if label else []),
        event("cpu_op", "aten::ones_like", at + 1, at + 9),
        event("cpu_op", ENGINE + ACCUMULATE, at + 10, at + 60),
        event("cpu_op", ACCUMULATE, at + 12, at + 50),
        event("cpu_op", inside, at + 20, at + 40, **{"Input Dims": [[3], [3]]}),
    ]


def trace(folder: Path, name: str = "host_0.1.pt.trace.json", rank: int | None = 0, labelled: bool = True) -> Path:
    """Two steps of two calls: the first steals, the second adds."""
    labels = ("## backward a ##", "## backward b ##") if labelled else ("", "")
    events = []
    for step in range(2):
        start = 1000 * step
        events += [event("user_annotation", f"ProfilerStep#{step}", start, start + 900)]
        events += call(start + 100, labels[0], "aten::detach")
        events += call(start + 300, labels[1], "aten::add_")
    path = folder / name
    told = {} if rank is None else {"distributedInfo": {"rank": rank}}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**told, "traceEvents": events}))
    return path


def run(*words: object) -> int:
    """``retainprof analyze WORDS``."""
    parser = argparse.ArgumentParser()
    analyze.add(parser.add_subparsers())
    return analyze.run(parser.parse_args(["analyze", *map(str, words)]))


def rows(path: Path) -> Sequence[dict[str, str]]:
    """Lines of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
