"""TensorBoard event files of analyzed traces, written without torch: one TensorBoard run a trace, as strategies have.

Scalars have the call's index as their step. Tags that a run's event files have as well mean the same; times are profiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from retainprof.records import CallResult, StrategyResult
from retainprof.trace import TraceReport

__all__ = ["write_report", "write_trace"]

CALL_CHARTS = ("call/profiled_wall_ms", "call/profiled_device_busy_ms", "call/kernels", "call/retained_after_bytes")
NS_PER_MS = 1e6


def write_trace(folder: Path, strategy: StrategyResult, report: TraceReport, at_seconds: float) -> None:
    """Scalars of one trace's calls; ``at_seconds`` (since 1970) is the events' time."""
    busy = {call.index: call.device_busy_ns for call in report.by_call}
    values = [
        Event(
            wall_time=at_seconds, step=call.index, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        )
        for call in strategy.calls
        for tag, value in _scalars(call, busy[call.index])
    ]
    _write(folder, values)


def write_report(folder: Path, markdown: str, at_seconds: float) -> None:
    """The report as text, and a layout with one chart for all traces."""
    charts = [layout_pb2.Chart(title=tag, multiline=layout_pb2.MultilineChartContent(tag=[tag])) for tag in CALL_CHARTS]
    layout = layout_pb2.Layout(category=[layout_pb2.Category(title="retainprof", chart=charts)])
    values = [
        _text("report/text_summary", "text", markdown.encode(), TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])),
        _text("custom_scalars__config__", "custom_scalars", layout.SerializeToString(), TensorShapeProto()),
    ]
    _write(folder, [Event(wall_time=at_seconds, summary=Summary(value=[value])) for value in values])


def _text(tag: str, plugin: str, data: bytes, shape: TensorShapeProto) -> Summary.Value:
    about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
    return Summary.Value(
        tag=tag, metadata=about, tensor=TensorProto(dtype="DT_STRING", string_val=[data], tensor_shape=shape)
    )


def _write(folder: Path, events: list[Event]) -> None:
    writer = EventFileWriter(str(folder))
    for event in events:
        writer.add_event(event)
    writer.close()


def _scalars(call: CallResult, device_busy_ns: float | None) -> Iterator[tuple[str, float]]:
    """(tag, value) of what the trace tells."""
    did = call.accumulate
    wall = call.profiled_wall_ns
    values: dict[str, float | None] = {
        "call/profiled_wall_ms": None if wall is None else wall / NS_PER_MS,
        "call/profiled_device_busy_ms": None if device_busy_ns is None else device_busy_ns / NS_PER_MS,
        "call/kernels": call.kernels,
        "call/copies_and_sets": call.copies_and_sets,
        "call/nodes": call.nodes,
        "call/gradients_added": None if did is None else did.added + did.sparse_added,
        "call/gradients_stolen": None if did is None else did.stolen,
        "call/net_bytes": call.net_bytes,
        "call/peak_bytes": call.peak_bytes,
        "call/retained_after_bytes": call.retained_bytes_after,
    }
    yield from ((tag, float(value)) for tag, value in values.items() if value is not None)
