"""Levels of one step, by hand: 4,096 bytes in the forward, 8,192 for a while in the call, 4,096 freed at its end."""

from __future__ import annotations

from pathlib import Path

import torch

from retainprof import trace
from retainprof.capture.labelled import Recorder, label
from retainprof.capture.timeline import Timeline, timeline


def test_levels_bands_and_peak(tmp_path: Path) -> None:
    def program(_: int) -> None:
        with label("forward", 0):
            kept = torch.empty(1024)
        with label("call", 0, "a"):
            passing = torch.empty(2048)
            del passing
        with label("call", 1, "b"):
            del kept

    recorder = Recorder(torch.device("cpu"), record_shapes=False, with_stack=False)
    recorder.record(2, program, tmp_path / "t.json", warmup=1)
    written = trace.read(tmp_path / "t.json")
    found = timeline(written)
    assert [point.bytes for point in found.points] == [0, 4096, 12288, 4096, 0]
    assert found.peak_bytes == 12288
    assert [band.label for band in found.bands] == [
        "retainprof::forward[0]",
        "retainprof::call[0] a",
        "retainprof::call[1] b",
    ]
    times = [point.at_ns for point in found.points]
    assert times == sorted(times)
    assert found.bands[0].start_ns == 0
    assert found.bands[1].start_ns <= times[2] <= times[3] <= found.bands[1].end_ns
    thin = timeline(written, limit=2)
    assert max(point.bytes for point in thin.points) == 12288
    assert timeline(written, on_cpu=False).peak_bytes == 0


def test_a_trace_without_a_step_of_ours(tmp_path: Path) -> None:
    recorder = Recorder(torch.device("cpu"), record_shapes=False, with_stack=False)
    recorder.record(1, lambda _: torch.empty(8), tmp_path / "t.json", warmup=0)  # type: ignore[arg-type]
    assert timeline(trace.read(tmp_path / "t.json")) == Timeline()
