"""Every figure of the shared truths, for every public trace."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retainprof.trace import read
from retainprof.trace.facts import Facts
from retainprof.trace.figures import FileFigures, RangeFigures, file_figures, range_figures
from retainprof.trace.memory import DeviceBytes
from retainprof.trace.select import kinds, user_marks
from retainprof.trace.trace import Trace

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
FILES = sorted(path.name.removesuffix(".json.gz") for path in TRACES.glob("*.json.gz"))
pytestmark = pytest.mark.skipif(not FILES, reason=f"needs the shared traces in {TRACES}")


@cache
def loaded(name: str) -> tuple[Trace, Facts, dict[str, Any]]:
    """A trace and its truth."""
    trace = read(TRACES / f"{name}.json.gz")
    return trace, Facts(trace), json.loads((TRACES / "truth" / f"{name}.json").read_text())


@pytest.mark.parametrize("name", FILES)
def test_file(name: str) -> None:
    trace, facts, truth = loaded(name)
    found = file_figures(facts)
    assert _file(found) == {key: truth[key] for key in _file(found)}
    assert set(_file(found)) | {"file", "kernel_names", "ranges"} == set(truth)
    kernels = {trace.names[number] for number in trace.device.name[trace.device.kind == 0]}
    assert sorted(kernels) == sorted(truth["kernel_names"])
    assert trace.notes == ()


def _file(found: FileFigures) -> dict[str, Any]:
    events = {"kernel": found.kernels, "memcpy": found.memcpys, "memset": found.memsets}
    return {
        "events": found.events,
        "gpu_events": {kind: count for kind, count in events.items() if count},
        "orphans": found.orphans,
        "orphans_by_kind": found.orphans_by_kind,
        "orphan_time_us": found.orphan_time_ns / 1000,
        "device_events_sharing_a_launch": found.device_events_sharing_a_launch,
        "kernel_time_us": found.kernel_time_ns / 1000,
        "memory_events": found.memory_events,
        "frees_of_unknown_birth": found.frees_of_unknown_birth,
        "alive_at_end": found.alive_at_end,
        "memory_order_breaks": found.memory_order_breaks,
        "ops": found.ops,
        "node_ops": found.node_ops,
        "engine_events": found.engine_events,
        "engine_threads": found.engine_threads,
        "accumulate_grad": found.accumulate_grad,
    }


@pytest.mark.parametrize("name", FILES)
def test_orphans_were_launched_before_the_window(name: str) -> None:
    """README of the traces: every orphan that has a correlation has a smaller one than any launch of its file."""
    trace, facts, _ = loaded(name)
    orphans = (facts.launch_of < 0) & (trace.device.correlation > 0)
    assert file_figures(facts).orphans_launched_before == int(orphans.sum())


@pytest.mark.parametrize("name", FILES)
def test_ranges(name: str) -> None:
    trace, facts, truth = loaded(name)
    marks = user_marks(trace)
    found_kinds = kinds(facts, marks)
    kept = [i for i, kind in enumerate(found_kinds) if kind != "other"] or list(range(len(marks)))
    figures = range_figures(facts, marks.take(np.array(kept, np.int64)))
    found = [_range(one, found_kinds[i]) for i, one in zip(kept, figures, strict=True)]
    for one, expected in zip(_ordered(found), _ordered(truth["ranges"]), strict=True):
        top, by_name = expected.pop("top_kernels"), expected.pop("kernels_by_name")
        assert one.pop("by_name") == {truth["kernel_names"][i]: (count, ns) for i, count, ns in by_name}
        assert one.pop("top") == [ns for _, ns in top]
        assert one == expected | {"tid": str(expected["tid"])}  # a number, in 2021 a text


def _ordered(ranges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(ranges, key=lambda r: (r["start_us"], -r["dur_us"], r["name"], str(r["tid"])))


def _range(one: RangeFigures, kind: str) -> dict[str, Any]:
    """A range in the units and names of the truth."""
    after = one.ends_after_range_ns
    return {
        "name": one.name,
        "kind": kind,
        "tid": one.thread,
        "start_us": one.start_ns / 1000,
        "dur_us": one.duration_ns / 1000,
        "kernels": one.kernels,
        "memcpys": one.memcpys,
        "memsets": one.memsets,
        "copies_and_sets": one.copies_and_sets,
        "off_thread": one.off_thread,
        "off_thread_outside_engine": one.off_thread_outside_engine,
        "kernels_off_thread": one.kernels_off_thread,
        "kernel_time_us": one.kernel_time_ns / 1000,
        "device_time_us": one.device_time_ns / 1000,
        "device_busy_us": one.device_busy_ns / 1000,
        "device_span_us": one.device_span_ns / 1000,
        "kernel_span_us": one.kernel_span_ns / 1000,
        "ends_after_range_us": None if after is None else after / 1000,
        "engine_events": one.engine_events,
        "engine_events_cut": one.engine_events_cut,
        "engine_events_off_thread": one.engine_events_off_thread,
        "accumulate_grad": one.accumulate_grad,
        "accumulate_grad_inside": one.accumulate_grad_inside,
        "node_ops": one.node_ops,
        "ops": one.ops,
        "memory_events": one.memory_events,
        "allocated_freed_by_device_type": _by_type(one.memory),
        "memory": {device.device: _device(device) for device in one.memory},
        "top": [kernel.ns / 1000 for kernel in one.kernels_by_name[:5]],
        "by_name": {kernel.name: (kernel.count, kernel.ns) for kernel in one.kernels_by_name},
    }


def _by_type(memory: tuple[DeviceBytes, ...]) -> dict[str, list[int]]:
    total: dict[str, list[int]] = {}
    for device in memory:
        sums = total.setdefault(device.device.partition(":")[0], [0, 0])
        sums[0] += device.allocated_bytes
        sums[1] -= device.freed_bytes
    return total


def _device(device: DeviceBytes) -> dict[str, Any]:
    return {name: getattr(device, name) for name in device.__struct_fields__ if name != "device"}
