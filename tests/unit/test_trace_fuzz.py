"""Damaged traces never crash the reader: what can be used is analysed, everything else is the documented error."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from copy import deepcopy
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retainprof.errors import TraceError
from retainprof.trace import TraceReport, analyze, read

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
REAL = ("hta_mi250_minitoy", "param_dlrm_rank1")
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
OF_ITSELF_BYTES = 24 << 20  # blocks, tables of names, imports on first use
FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
ARGS = ("correlation", "External id", "Sequence number", "Fwd thread id", "Input Dims", "Bytes", "Addr", "grid")
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 3.5, 2**31, 2**53 + 1, 2**63, 2**64, -(2**70), 1e300, float("inf"), float("nan")),
    *("", "0", "inf", "-1.5", "thread 7", "\ud800", [], [1, [2]], {}, {"a": 1}, [[4, 4], [], "x"]),
)


def small() -> list[dict[str, Any]]:
    """Two calls over one graph on a device, by hand: a forward, its node twice, two kernels, memory."""
    events = [_event("user_annotation", "ProfilerStep#1", 0, 1000)]
    events.append(_event("cpu_op", "aten::relu", 10, 5, {"Sequence number": 7, "Fwd thread id": 0}))
    events.append(_memory(12, 512))
    for call, start in enumerate((100, 300)):
        numbers = {"Sequence number": 7, "Fwd thread id": 1, "Input Dims": [[4, 4]]}
        events.append(_event("user_annotation", f"## backward {call} ##", start, 100))
        name = "autograd::engine::evaluate_function: ReluBackward0"
        events.append(_event("cpu_op", name, start + 10, 50, numbers, tid=2))
        events.append(_event("cpu_op", "aten::threshold_backward", start + 20, 30, {"Input Dims": [[4, 4]]}, tid=2))
        events.append(_event("cuda_runtime", "cudaLaunchKernel", start + 25, 5, {"correlation": call + 1}, tid=2))
        grid = {"correlation": call + 1, "grid": [1, 1, 1], "block": [128, 1, 1]}
        events.append(_event("kernel", "threshold", start + 80, 40, grid, tid=9))
    return [*events, _memory(500, -512)]


def _event(category: str, name: str, ts: int, dur: int, args: object = None, tid: int = 1) -> dict[str, Any]:
    event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts + 0.25, "dur": dur}
    return event if args is None else event | {"args": args}


def _memory(ts: int, nbytes: int) -> dict[str, Any]:
    args = {"Addr": 4096, "Bytes": nbytes, "Device Type": 1, "Device Id": 0, "Total Allocated": max(nbytes, 0)}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}


def sources() -> list[bytes]:
    """Traces to damage: the one by hand, and the small real ones where they are."""
    found = [json.dumps({"schemaVersion": 1, "traceEvents": small(), "traceName": "x"}).encode()]
    paths = [TRACES / f"{name}.json.gz" for name in REAL]
    return found + [gzip.decompress(path.read_bytes()) for path in paths if path.exists()]


SOURCES = sources()


def examined(path: Path, text: bytes) -> TraceReport | None:
    """The report of a text as a trace, or None where it is refused. Checks that memory stays in proportion."""
    path.write_bytes(text)
    tracemalloc.start()
    try:
        return analyze(read(path))
    except TraceError:
        return None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < OF_ITSELF_BYTES + 40 * len(text)


def test_undamaged(tmp_path: Path) -> None:
    found = examined(tmp_path / "t.json", SOURCES[0])
    assert found is not None
    assert [(call.kernels, call.nodes, call.nodes_shared_with_earlier) for call in found.calls] == [
        (1, 1, 0),
        (1, 1, 1),
    ]
    assert [call.retained_bytes_after for call in found.calls] == [512, 512]
    assert found.notes == ()


@pytest.mark.parametrize("left_out", range(1, 5))
def test_kinds_left_out(tmp_path: Path, left_out: int) -> None:
    """Whole categories missing, in every combination."""
    for gone in combinations(sorted({event["cat"] for event in small()}), left_out):
        events = [event for event in small() if event["cat"] not in gone]
        found = examined(tmp_path / "t.json", json.dumps({"traceEvents": events}).encode())
        assert found is not None
        assert len(found.calls) == (0 if {"user_annotation", "cpu_op"} <= {*gone} else 2)


@QUICK
@given(data=st.data())
def test_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes replaced, cut out, doubled or broken off, anywhere; compressed or not."""
    text = bytearray(data.draw(st.sampled_from(SOURCES)))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, max(0, len(text) - 1)))
        length = data.draw(st.integers(0, 300))
        kind = data.draw(st.sampled_from(("replace", "cut", "double", "end")))
        piece = bytes(text[at : at + length])
        put = {"replace": data.draw(st.binary(max_size=8)), "cut": b"", "double": piece * 2, "end": b""}[kind]
        text[at : None if kind == "end" else at + length] = put
    packed = data.draw(st.booleans())
    examined(tmp_path / "t.json", gzip.compress(bytes(text), 1) if packed else bytes(text))


@QUICK
@given(data=st.data())
def test_broken_compression(tmp_path: Path, data: st.DataObject) -> None:
    packed = bytearray(gzip.compress(data.draw(st.sampled_from(SOURCES)), 6))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    text = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    (tmp_path / "t.json.gz").write_bytes(text)
    try:
        analyze(read(tmp_path / "t.json.gz"))
    except TraceError:
        return


@QUICK
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 60), shuffled=st.booleans(), which=st.sampled_from((0, 1)))
def test_odd_fields(tmp_path: Path, seed: int, changes: int, shuffled: bool, which: int) -> None:
    """Fields missing or of any type and size, events in any order: as many events are counted as there are."""
    source = SOURCES[min(which, len(SOURCES) - 1)]
    chance = random.Random(seed)
    events = json.loads(source)["traceEvents"]
    for _ in range(changes):
        _spoil(chance.choice(events), chance)
    if shuffled:
        chance.shuffle(events)
    found = examined(tmp_path / "t.json", json.dumps({"traceEvents": events}).encode())
    assert found is not None
    assert found.file.events == len(events)
    json.loads(json.dumps([call.label for call in found.calls]))


def _spoil(event: dict[str, Any], chance: random.Random) -> None:
    inner = event.get("args")
    into, names = (inner, ARGS) if isinstance(inner, dict) and chance.random() < 0.5 else (event, FIELDS)
    name = chance.choice(names)
    if chance.random() < 0.3:
        into.pop(name, None)
    else:
        into[name] = deepcopy(chance.choice(ODD))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "no trace", '{"traceEvents": []}', '{"traceEvents": [', '{"traceEvents": {"a": 1}}', "\0" * 99],
)
def test_no_trace(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match=r"t\.json: is (no trace|a trace without events)"):
        read(_written(tmp_path, text))


def _written(folder: Path, text: str) -> Path:
    path = folder / "t.json"
    path.write_text(text)
    return path


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read(tmp_path / "none.json")


@pytest.mark.parametrize("piece", ["{", '{"ph":', "[", '{"ph":"X" ', '{"ph":"X"},x', '"', '{"ph":"X","args":{"a":['])
def test_repeated_openings_do_not_hang(tmp_path: Path, piece: str) -> None:
    """Two megabytes each: work that grows faster than the text would not end."""
    text = '{"traceEvents":[' + piece * ((2 << 20) // len(piece))
    examined(tmp_path / "t.json", text.encode())
