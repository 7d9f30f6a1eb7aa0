"""A strategy's trace for the tab: the file itself, and its events in and around one call, thinned for drawing."""

from __future__ import annotations

import gzip
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from retainprof import labels
from retainprof.errors import TraceError
from retainprof.records import StrategyResult

__all__ = ["EVENTS", "events", "trace_file"]

EVENTS: Final = 6000
MAX_BYTES: Final = 512 << 20
MAX_DEPTH: Final = 40
NS_PER_US: Final = 1000.0


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: Any = None
    tid: Any = None


class _File(msgspec.Struct, rename="camel"):
    trace_events: list[_Event] = []


def trace_file(folder: Path, strategy: StrategyResult) -> Path:
    """Where a strategy's first trace lies.

    Raises:
        TraceError: it has none, the file is gone, or the result names one outside the run folder.
    """
    if not strategy.traces:
        raise TraceError(f"{strategy.name} has no trace", hint="run without --no-trace")
    named = strategy.traces[0]
    path, root = (folder / PurePosixPath(named)).resolve(), folder.resolve()
    if not path.is_relative_to(root) or not path.name.endswith((".json", ".json.gz")):
        raise TraceError(f"{named} is no trace file of this run")
    if not path.is_file():
        raise TraceError(f"{named} is not there any more")
    return path


def events(path: Path, call: int, strategy: StrategyResult | None = None) -> dict[str, Any]:
    """Events of one call, and the tenth of its length before and after: times in ns from the call's start.

    ``{names, lanes, calls, span_ns, rows: [[name, lane, depth, start_ns, duration_ns]], left}``: at most ``EVENTS``
    rows, the longest; ``left`` counts the others. The call's label is looked for in the trace's last step; a trace without
    labels of ours has its calls where ``strategy`` says. The event that spans the whole recording is left out.

    Raises:
        TraceError: the file is no trace, is too large, or has no such call.
    """
    found = [e for e in _read(path) if e.ph == "X" and e.dur >= 0 and e.cat != "Trace"]
    calls = _labelled(found) or _told(strategy)
    mine = [times for index, times in calls if index == call]
    if not mine:
        raise TraceError(f"the trace has no call {call}")
    start, length = max(mine)
    low, high = start - length / 10, start + length * 1.1
    inside = [e for e in found if e.ts < high and e.ts + e.dur > low and not (e.ts < low and e.ts + e.dur > high)]
    kept = sorted(sorted(inside, key=lambda e: -e.dur)[:EVENTS], key=lambda e: (e.ts, -e.dur))
    names: dict[str, int] = {}
    lanes: dict[str, int] = {}
    ends: dict[int, list[float]] = {}
    rows = []
    for e in kept:
        lane = lanes.setdefault(f"{'device ' if _on_device(e) else 'thread '}{e.tid}", len(lanes))
        row = [names.setdefault(e.name, len(names)), lane, _depth(ends.setdefault(lane, []), e)]
        rows.append([*row, round((e.ts - start) * NS_PER_US), round(e.dur * NS_PER_US)])
    return {
        "names": list(names),
        "lanes": list(lanes),
        "calls": sorted({index for index, _ in calls}),
        "span_ns": round(length * NS_PER_US),
        "rows": rows,
        "left": len(inside) - len(kept),
    }


def _labelled(found: list[_Event]) -> list[tuple[int, tuple[float, float]]]:
    """(index, (start, length)) of the calls that our labels mark, in us."""
    seen = [(labels.parse(e.name), e) for e in found if "gpu" not in e.cat]
    return [
        (label.index, (e.ts, e.dur)) for label, e in seen if label and label.phase == "call" and label.index is not None
    ]


def _told(strategy: StrategyResult | None) -> list[tuple[int, tuple[float, float]]]:
    """The same of the calls that an analysis of the trace found."""
    calls = () if strategy is None else strategy.calls
    return [
        (call.index, (call.in_trace_ns[0] / NS_PER_US, (call.in_trace_ns[1] - call.in_trace_ns[0]) / NS_PER_US))
        for call in calls
        if call.in_trace_ns is not None
    ]


def _on_device(event: _Event) -> bool:
    return event.cat.lower() in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")


def _depth(open_ends: list[float], event: _Event) -> int:
    """How deep an event lies below those of its lane that have not ended."""
    while open_ends and open_ends[-1] <= event.ts:
        open_ends.pop()
    open_ends.append(event.ts + event.dur)
    return min(len(open_ends) - 1, MAX_DEPTH)


def _read(path: Path) -> list[_Event]:
    try:
        with path.open("rb") as file:
            stream = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise TraceError(f"{path.name} is larger than {MAX_BYTES} bytes unpacked", hint="download it instead")
        return msgspec.json.decode(data, type=_File).trace_events
    except (OSError, EOFError, msgspec.MsgspecError, ValueError) as e:
        raise TraceError(f"{path.name} is no readable trace: {e}") from e
