"""Damaged traces never end in anything but a report or a TraceError."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retainprof.errors import TraceError
from retainprof.trace import analyze, blocks, passes, read

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
NAMES = ("hta_mi250_minitoy", "tracelens_vllm_graph", "param_dlrm_rank1", "tracelens_normalization")
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"needs the shared traces in {TRACES}")
ODD: tuple[Any, ...] = (None, -1, 0, 1e308, -1e308, 2**70, "", "x", "\ud800", [], [[]], {}, True, 1.5, 1e-9)
SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@cache
def text_of(name: str) -> bytes:
    """A real trace; of a large one the first events."""
    found = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))
    found["traceEvents"] = found["traceEvents"][:1500]
    return json.dumps(found).encode()


def survives(folder: Path, data: bytes) -> None:
    path = folder / "t.json"
    path.write_bytes(data)
    try:
        trace = read(path)
    except TraceError:
        return
    analyze(trace)
    passes(trace)


@given(st.sampled_from(NAMES), st.integers(0, 2**32), st.integers(1, 30), st.sampled_from([1 << 19, 3000]))
@SETTINGS
def test_bytes_changed(tmp_path: Path, name: str, seed: int, changes: int, block: int) -> None:
    chance, data = random.Random(seed), bytearray(text_of(name))
    for _ in range(changes):
        at = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.choice((1, 5, 300, 20_000))]
        elif kind == 2:
            data[at:at] = chance.choice((b'"', b"{", b"]", b"}", b",", b"\\", b"nan", b"\x00", b'"ph"', b"[" * 500))
        else:
            data[at:at] = data[at : at + 1000]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block)
        survives(tmp_path, bytes(data))


@given(st.sampled_from(NAMES), st.integers(0, 2**32), st.integers(1, 400))
@SETTINGS
def test_fields_changed(tmp_path: Path, name: str, seed: int, changes: int) -> None:
    chance, found = random.Random(seed), json.loads(text_of(name))
    events: list[Any] = found["traceEvents"]
    for _ in range(changes):
        event = chance.choice(events)
        if not isinstance(event, dict):
            continue
        args = event.get("args")
        target: dict[str, Any] = args if isinstance(args, dict) and args and chance.random() < 0.6 else event
        if not target:
            continue
        key = chance.choice(list(target))
        kind = chance.randrange(4)
        if kind == 0:
            target[key] = chance.choice(ODD)
        elif kind == 1:
            del target[key]
        elif kind == 2:
            other = chance.choice(events)
            target[key] = other.get(key) if isinstance(other, dict) else other
        else:
            events[chance.randrange(len(events))] = chance.choice(ODD)
    survives(tmp_path, json.dumps(found).encode())


@given(st.sampled_from(NAMES), st.integers(0, 2**32))
@SETTINGS
def test_events_shuffled_and_shifted(tmp_path: Path, name: str, seed: int) -> None:
    chance, found = random.Random(seed), json.loads(text_of(name))
    events = found["traceEvents"]
    chance.shuffle(events)
    for event in events[: len(events) // 10]:
        if isinstance(event.get("dur"), (int, float)):
            event["dur"] *= chance.choice((-1, 0, 1e3, 1e9))
            event["ts"] += chance.choice((-1e9, 1e3, 1e13, -1e13))
    survives(tmp_path, json.dumps(found).encode())


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    survives(tmp_path, data)
    survives(tmp_path, b'{"traceEvents": [' + data)
    survives(tmp_path, b"\x1f\x8b" + data)
