"""Reading: exact times, odd fields, damage; each expected value is in the trace that the test writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retainprof.errors import TraceError
from retainprof.trace import analyze, blocks, read
from retainprof.trace.clock import MISSING_NS, from_doubles, from_texts
from retainprof.trace.names import Threads

NODE = "autograd::engine::evaluate_function: "


def op(name: str, ts: object = 10, dur: object = 5, tid: object = 1, **args: object) -> dict[str, Any]:
    """An operator."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def written(folder: Path, events: list[dict[str, Any]], **meta: object) -> Path:
    """A trace file."""
    path = folder / "t.json"
    path.write_text(json.dumps({**meta, "traceEvents": events}))
    return path


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 4_203_669_604_595, 4_458_676_522_690, 8_796_093_022_206, 5_250_231_810_734])
def test_doubles_keep_every_nanosecond(base: int) -> None:
    ns = base * 1000 + np.arange(1000)
    us = np.array([float(f"{n // 1000}.{n % 1000:03d}") for n in ns.tolist()])
    assert np.array_equal(from_doubles(us), ns)


def test_whole_microseconds_since_1970() -> None:
    assert from_doubles(np.array([1669783687464181.0])).tolist() == [1669783687464181000]


def test_what_is_no_time() -> None:
    assert from_doubles(np.array([np.nan, np.inf, -np.inf, 1e300])).tolist() == [MISSING_NS] * 4


def test_texts_keep_every_nanosecond() -> None:
    texts = [b"1712195495519689.047", b"1712195495519837.659"]
    assert from_texts(texts).tolist() == [1712195495519689047, 1712195495519837659]
    assert from_texts([*texts, b"5", b"7.5", b"x", b'"1.25"']).tolist() == [
        *(1712195495519689047, 1712195495519837659, 5000, 7500, MISSING_NS, 1250)
    ]
    assert from_texts([b"9999999999999999.999"] * 2).tolist() == [MISSING_NS] * 2


def test_a_clock_too_fine_for_doubles(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    events = ('{"ph":"X","cat":"cpu_op","name":"a","ts":1712195495519689.047,"dur":0.003}',)
    path.write_text('{"traceEvents":[' + ",".join(events) + "]}")
    trace = read(path)
    assert (trace.operators.start.tolist(), trace.operators.end.tolist()) == (
        [1712195495519689047],
        [1712195495519689050],
    )


def test_such_a_clock_seen_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first times are whole; the file is read again once one is not."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4096)
    whole = ",".join('{"ph":"X","cat":"cpu_op","name":"a","ts":1712195495519689,"dur":1}' for _ in range(3000))
    path = tmp_path / "t.json"
    path.write_text(
        f'{{"traceEvents":[{whole},{{"ph":"X","cat":"cpu_op","name":"b","ts":1712195495519690.001,"dur":1}}]}}'
    )
    trace = read(path)
    assert len(trace.operators) == 3001
    assert trace.operators.start[-1] == 1712195495519690001


# --- odd traces -------------------------------------------------------------------------------------------------------


def test_fields_of_any_type(tmp_path: Path) -> None:
    events: list[Any] = [
        op("aten::a"),
        op("aten::b", ts="20", dur=None),
        op("aten::c", tid=["x"]),
        {**op("aten::d"), "args": [1]},
        {**op("aten::e"), "name": None},
        op("aten::f", **{"Sequence number": "9", "Input Dims": {"a": 1}}),
        {**op("aten::g"), "ph": "B"},
        "no event",
        None,
        {"ph": "X", "cat": "cpu_op", "name": "aten::no_time", "dur": 3},
        {"ph": "X", "cat": "a category of 2031", "name": "z", "ts": 1, "dur": 3},
    ]
    trace = read(written(tmp_path, events))
    names = sorted(trace.names[name] for name in trace.operators.name)
    assert names == ["", *(f"aten::{letter}" for letter in "abcdf")]
    assert trace.notes == (
        "2 events could not be read and are left out",
        "1 events have no time and are left out",
    )
    assert trace.operators.sequence[[trace.names[n] == "aten::f" for n in trace.operators.name]].tolist() == [9]


def test_an_event_that_is_no_span(tmp_path: Path) -> None:
    """Begin, end and instant events of an operator's category have no duration and are no operators."""
    begin = {key: value for key, value in op("aten::b").items() if key != "dur"} | {"ph": "B"}
    assert len(read(written(tmp_path, [op("aten::a"), begin])).operators) == 1


def test_words_that_are_no_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    text = json.dumps({"traceEvents": [op("aten::a", dur=111), op("aten::b", dur=222), op("aten::c")]})
    path.write_text(text.replace("111", "inf").replace("222", "-nan"))
    trace = read(path)
    assert (trace.operators.end - trace.operators.start).tolist() == [5000, 0, 0]
    assert trace.notes == ()


def test_a_label_with_a_quote_loses_only_its_event(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"traceEvents": [op("aten::a"), op("QUOTE"), op("aten::c")]}).replace("QUOTE", 'a "b" c')
    )
    trace = read(path)
    assert sorted(trace.names[name] for name in trace.operators.name) == ["aten::a", "aten::c"]
    assert trace.notes == ("1 events could not be read and are left out",)


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(json.dumps({"traceEvents": [op("aten::a"), op("XX")]}).encode().replace(b"XX", b"\xff\xfe\n"))
    assert len(read(path).operators) == 2


@pytest.mark.parametrize("events_first", [True, False])
def test_what_stands_around_the_events(tmp_path: Path, events_first: bool) -> None:
    rank: dict[str, Any] = {"distributedInfo": {"rank": 3, "world_size": 8}}
    events: dict[str, Any] = {"traceEvents": [op("aten::a")]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(events | rank if events_first else rank | events))
    trace = read(path)
    assert (trace.rank, len(trace.operators), trace.notes) == (3, 1, ())


def test_a_bare_array_and_a_mark_in_front(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"\xef\xbb\xbf " + json.dumps([op("aten::a"), op("aten::b")]).encode())
    assert len(read(path).operators) == 2


@pytest.mark.parametrize(
    "text", ["", "{}", "[1", '{"a": [1, 2]}', "<html>", '{"traceEvents": 3}', "\x00\x01", "{" * 100_000]
)
def test_what_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TraceError):
        read(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path)
    with pytest.raises(TraceError, match="without events"):
        read(written(tmp_path, []))


def test_a_thread_id_as_text_is_the_same_thread() -> None:
    threads = Threads()
    assert threads[7, "25738"] == threads["7", 25738] == threads[7, 25738] == 0
    assert threads[7, "stream 7"] == 1
    assert threads.idents == [(7, 25738), (7, "stream 7")]


# --- pieces and damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64, 100, 1000, 5000])
def test_the_size_of_blocks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    events = [op(f"aten::{i}", ts=i, **{"Input Dims": [[i, 2], []]}) for i in range(100)]
    nested = {"ph": "i", "name": '{"ph": [', "ts": 1, "args": {"list": [{"ph": "a"}, {"ph": "b"}]}}
    monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
    trace = read(written(tmp_path, [*events, nested, op("aten::last", ts=1000)]))
    assert trace.events == 102
    assert [trace.names[name] for name in trace.operators.name] == [*(f"aten::{i}" for i in range(100)), "aten::last"]
    assert trace.dims[trace.operators.dims[99]] == b"[[99, 2], []]"
    assert trace.notes == ()


@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
@pytest.mark.parametrize("compressed", [True, False])
def test_a_file_that_breaks_off(tmp_path: Path, share: float, compressed: bool) -> None:
    text = json.dumps({"traceEvents": [op(f"aten::{i}", ts=i) for i in range(3000)]}).encode()
    data = gzip.compress(text) if compressed else text
    path = tmp_path / "t.json"
    path.write_bytes(data[: int(len(data) * share)])
    trace = read(path)
    assert 0 < len(trace.operators) < 3000
    assert trace.operators.start.tolist() == [1000 * i for i in range(len(trace.operators))]
    assert any("breaks off" in note for note in trace.notes)


def test_several_compressed_members(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [op("aten::a"), op("aten::b")]}).encode()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(text[:40]) + gzip.compress(text[40:]))
    assert len(read(path).operators) == 2


def test_a_compressed_file_that_is_damaged(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(json.dumps({"traceEvents": [op(f"aten::{i * i}") for i in range(9000)]}).encode()))
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "t.json.gz"
    path.write_bytes(data)
    trace = read(path)
    assert trace.notes
    assert len(trace.operators) < 9000 or any("damaged" in note for note in trace.notes)


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, [op("aten::a")])
    told: list[int] = []
    read(path, told.append)
    assert told[-1] == path.stat().st_size


def test_a_trace_without_calls_says_so(tmp_path: Path) -> None:
    report = analyze(read(written(tmp_path, [op("aten::a")])))
    assert report.calls == ()
    assert report.notes == ("no backward call was found",)
