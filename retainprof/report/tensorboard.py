"""Event files for TensorBoard's standard dashboards: one TensorBoard run a strategy, so that a chart shows them together.

Scalars have the call's index as their step. The whole report is a text, the strategies are hparams sessions, and a custom
layout puts the calls' times of all strategies into one chart. Where matplotlib is installed, the two main charts are images.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from retainprof.records import CallResult, Result, StrategyResult
from retainprof.report import images
from retainprof.store import RunFolder

__all__ = ["write"]

CALL_CHARTS = ("call/wall_ms", "call/cpu_ms", "call/cold_wall_ms", "call/retained_after_bytes")
NS_PER_MS = 1e6


def write(result: Result, folder: RunFolder, report: str) -> None:
    """Write the event files of a run; ``report`` is its Markdown."""
    for strategy in result.strategies:
        with _writer(folder.events / folder.slug(strategy.name)) as writer:
            for tag, value, step in _scalars(strategy):
                writer.add_scalar(tag, value, step)
            _hparams(writer, result, strategy)
    with _writer(folder.events / "report") as writer:
        writer.add_text("report", report)
        writer.add_custom_scalars({"retainprof": {tag: ["Multiline", [tag]] for tag in CALL_CHARTS}})
        _images(writer, result)


def _writer(path: Path) -> SummaryWriter:
    for old in path.glob("events.out.tfevents.*"):
        old.unlink()
    return SummaryWriter(str(path))


def _images(writer: SummaryWriter, result: Result) -> None:
    """The calls' times, and the strategies' time against peak memory; nothing without the extra ``images``."""
    if not images.available():
        return
    for tag, figure in (("calls", images.calls_chart(result)), ("strategies", images.strategies_chart(result))):
        if figure is not None:
            width, height = (round(inches * figure.dpi) for inches in figure.get_size_inches())
            image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=images.png(figure))
            summary = Summary(value=[Summary.Value(tag=tag, image=image)])
            writer._get_file_writer().add_summary(summary)  # type: ignore[no-untyped-call]


def _scalars(strategy: StrategyResult) -> Iterator[tuple[str, float, int]]:
    """(tag, value, call index) of what was measured."""
    for call in strategy.calls:
        for tag, value in _of_call(call).items():
            if value is not None:
                yield tag, float(value), call.index
    for tag, value in _of_step(strategy).items():
        if value is not None:
            yield tag, float(value), 0


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_PER_MS


def _of_call(call: CallResult) -> dict[str, float | None]:
    did = call.accumulate
    return {
        "call/wall_ms": _ms(call.wall_ns.median),
        "call/cpu_ms": _ms(call.cpu_ns.median),
        "call/cold_wall_ms": _ms(call.cold_wall_ns.median),
        "call/retained_after_bytes": call.retained_bytes_after,
        "call/peak_bytes": call.peak_bytes,
        "call/kernels": call.kernels,
        "call/gradients_added": None if did is None else did.added + did.sparse_added,
        "call/gradients_stolen": None if did is None else did.stolen,
        "call/flops": call.flops,
    }


def _of_step(strategy: StrategyResult) -> dict[str, float | None]:
    step = strategy.step
    last = strategy.calls[-1] if strategy.calls else None
    return {
        "step/wall_ms": _ms(step.wall_ns.median),
        "step/cpu_ms": _ms(step.cpu_ns.median),
        "step/peak_bytes": step.peak_bytes,
        "step/flops": step.flops,
        "step/retained_after_last_bytes": None if last is None else last.retained_bytes_after,
    }


def _hparams(writer: SummaryWriter, result: Result, strategy: StrategyResult) -> None:
    """The strategy as a session of the hparams dashboard; its metrics are the ``step/`` scalars."""
    options = {f"option.{key}": str(value) for key, value in strategy.options.items()}
    chosen = {
        "scenario": str(result.scenario.get("name", "")),
        "strategy": strategy.name,
        "kind": strategy.kind,
        **options,
    }
    metrics = {tag: value for tag, value in _of_step(strategy).items() if value is not None}
    for summary in hparams(chosen, metrics):  # type: ignore[no-untyped-call]
        writer._get_file_writer().add_summary(summary)  # type: ignore[no-untyped-call]
