"""Small results written by hand, and those of the reference cases, for the tests of the analysis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from retainprof.analysis.stats import summarise
from retainprof.records import (
    Accumulate,
    CallError,
    CallResult,
    Environment,
    HeldByNode,
    HeldStorage,
    Result,
    Retained,
    Samples,
    StepResult,
    StrategyResult,
    Timing,
)

ROUNDS = 40


def steady(ns: int) -> Samples:
    """The same time in every round."""
    return summarise([ns] * ROUNDS)


def wobbly(ns: int) -> Samples:
    """Times of which every other is half as long again."""
    return summarise([ns, ns * 3 // 2] * (ROUNDS // 2))


def call(index: int, loss: str = "a", **fields: Any) -> CallResult:
    """A backward call that does not retain, unless ``fields`` say otherwise."""
    given: dict[str, Any] = {
        "kind": "backward",
        "retain_graph": False,
        "create_graph": False,
        "label": f"call[{index}]",
    }
    return CallResult(index=index, losses=(loss,), **{**given, **fields})


def strategy(*calls: CallResult, name: str = "retain", kind: str = "retain", **fields: Any) -> StrategyResult:
    """A strategy with these calls."""
    return StrategyResult(name=name, kind=kind, calls=calls, **fields)


def failed(*calls: CallResult, at: int, message: str, operator: str | None = None) -> StrategyResult:
    """A strategy whose call ``at`` raised a RuntimeError."""
    error = CallError(call=at, loss=calls[at].losses[0], type="RuntimeError", message=message, operator=operator)
    return strategy(*calls, status="failed", error=error)


def step(ns: int = 1_000_000, **fields: Any) -> StepResult:
    """A step that takes the same time in every round."""
    return StepResult(wall_ns=steady(ns), cpu_ns=steady(ns), **fields)


def result(*strategies: StrategyResult, scenario: dict[str, Any] | None = None) -> Result:
    """A run on one thread of a CPU, so that CPU time decides."""
    return Result(
        retainprof="0",
        scenario=scenario or {},
        environment=Environment(
            python="3",
            torch="2",
            device="cpu",
            device_name="",
            threads=1,
            interop_threads=1,
            platform="",
            cpu="",
            cpus=1,
        ),
        status="ok",
        strategies=strategies,
        timing=Timing(rounds=ROUNDS, warmup_rounds=3, seconds=1.0, stopped_by="budget", threads=1, clock="cpu"),
    )


def reference(shared: Path, case: int, plan: str, **needless: int | None) -> StrategyResult:
    """A reference case as a strategy; ``call0=None`` says that call 0 had to retain, ``call1=512`` what its flag keeps.

    The truth files do not say which retain was needed; the cases' README and its variants do.
    """
    truth = json.loads((shared / "cases" / "truth" / f"{case:02}.json").read_text())["plans"][plan]
    calls = tuple(_truth_call(entry, needless) for entry in truth["calls"])
    error = next((CallError(call=c["index"], loss=c["loss"], **c["error"]) for c in truth["calls"] if c["error"]), None)
    storages = truth["forward"]["storages"]
    held = Retained(
        after_forward_bytes=truth["forward"]["retained_bytes"],
        storages=tuple(
            HeldStorage(
                bytes=s["bytes"], kept_by=tuple(s["kept_by"]), kind="loss" if s["kept_by"] == ["loss"] else "saved"
            )
            for s in storages
        ),
        by_node=tuple(HeldByNode(node=s["kept_by"][0], module="", bytes=s["bytes"], storages=1) for s in storages),
    )
    return strategy(*calls, status="failed" if error else "ok", error=error, retained=held)


def _truth_call(entry: dict[str, Any], needless: dict[str, int | None]) -> CallResult:
    key = f"call{entry['index']}"
    kept = needless.get(key)
    fields = (
        "kind",
        "retain_graph",
        "create_graph",
        "nodes",
        "fan_in_adds",
        "retained_bytes_before",
        "retained_bytes_after",
        "pinned_by_grads_bytes",
    )
    return call(
        entry["index"],
        entry["loss"],
        accumulate=Accumulate(**entry["accumulate"]),
        retain_needed=kept is None if key in needless else None,
        needless_retain_bytes=kept,
        **{name: entry[name] for name in fields},
    )
