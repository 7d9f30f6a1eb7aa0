"""Calls and kernels of traces as CSV. Picks and formats; computes nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Final

from retainprof.trace.report import TraceReport

__all__ = ["call_csv", "kernel_csv"]

_CALL_FIELDS: Final = (
    *("step", "index", "label", "thread", "start_ns", "profiled_wall_ns", "nodes", "ops", "kernels", "copies_and_sets"),
    *("fan_in_adds", "forward_ops_in_backward", "allocated_bytes", "freed_bytes", "net_bytes", "peak_bytes"),
    *("retained_bytes_before", "retained_bytes_after", "nodes_shared_with_earlier", "graph", "last_node"),
)
_DEVICE_FIELDS: Final = ("sum_ns", "busy_ns", "span_ns", "idle_ns", "ends_after_range_ns", "launches")
_DID: Final = ("stolen", "copied", "added", "sparse_added")


def call_csv(report: TraceReport) -> str:
    """One line a call; numbers as they are, empty where nothing was measured."""
    heads = (
        "trace",
        "rank",
        *_CALL_FIELDS,
        *(f"accumulate_{n}" for n in _DID),
        *(f"device_{n}" for n in _DEVICE_FIELDS),
    )
    return _csv(heads, _call_lines(report))


def _call_lines(report: TraceReport) -> Iterator[Sequence[object]]:
    for call in report.calls:
        device = [None if call.device is None else getattr(call.device, name) for name in _DEVICE_FIELDS]
        did = [getattr(call.accumulate, name) for name in _DID]
        yield (report.trace, report.rank, *(getattr(call, name) for name in _CALL_FIELDS), *did, *device)


def kernel_csv(report: TraceReport) -> str:
    """One line for each kernel of each call index: medians over the steps."""
    heads = ("trace", "rank", "call", "name", "shapes", "count", "self_ns", "bytes", "leaf", "device")
    lines = (
        (report.trace, report.rank, call.index, *(getattr(row, name) for name in heads[3:]))
        for call in report.by_call
        for row in call.kernel_rows
    )
    return _csv(heads, lines)


def _csv(heads: Sequence[str], lines: Iterator[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(["" if value is None else value for value in line] for line in lines)
    return text.getvalue()
