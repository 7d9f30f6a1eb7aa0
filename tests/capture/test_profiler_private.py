"""Private torch names of the profiler: where torch changes one, this says which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from retainprof.capture.labelled import Recorder
from retainprof.capture.profiler_private import enter_annotation, leave_annotation, profiler_is_active
from retainprof.errors import CaptureError


def test_active_profilers_are_seen_and_refused(tmp_path: Path) -> None:
    assert not profiler_is_active()
    recorder = Recorder(torch.device("cpu"), record_shapes=False, with_stack=False)
    with profile(activities=[ProfilerActivity.CPU]):
        assert profiler_is_active()
        with pytest.raises(CaptureError, match="another profiler is active"):
            recorder.record(1, lambda _: None, tmp_path / "t.json")
    with torch.autograd.profiler.profile(use_cpu=True):
        assert profiler_is_active()
    assert not profiler_is_active()


def test_annotations_are_those_of_record_function(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with record_function("public"):
            torch.ones(1)
        entered = enter_annotation("ours")
        torch.ones(1)
        leave_annotation(entered)
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    public, ours = ([e for e in events if e.get("name") == name] for name in ("public", "ours"))
    assert [e["cat"] for e in public] == [e["cat"] for e in ours] == ["user_annotation"]
