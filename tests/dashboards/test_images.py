"""The two charts of the Images dashboard: their numbers are the result's, and they are readable PNG files."""

from __future__ import annotations

from pathlib import Path

import pytest

from retainprof.records import CallResult, Environment, Result, Samples, StepResult, StrategyResult
from retainprof.report import images
from retainprof.store import RunFolder

pytest.importorskip("matplotlib", reason="needs the extra images")


def samples(median_ms: float, low_ms: float, high_ms: float) -> Samples:
    return Samples(samples=(1,), median=median_ms * 1e6, ci95=(low_ms * 1e6, high_ms * 1e6))


def strategy(name: str, *calls: Samples, step: Samples, peak_bytes: int | None) -> StrategyResult:
    made = tuple(
        CallResult(
            index=i, losses=("a",), kind="backward", retain_graph=False, create_graph=False, label="", wall_ns=time
        )
        for i, time in enumerate(calls)
    )
    return StrategyResult(name=name, kind="retain", calls=made, step=StepResult(wall_ns=step, peak_bytes=peak_bytes))


def result(*strategies: StrategyResult) -> Result:
    where = Environment(
        python="3", torch="2", device="cpu", device_name="", threads=2, interop_threads=1, platform="", cpu="", cpus=2
    )
    return Result(retainprof="0", scenario={"name": "x"}, environment=where, status="ok", strategies=strategies)


def two() -> Result:
    return result(
        strategy("re$tain", samples(2, 1.5, 2.25), samples(3, 2.5, 4), step=samples(6, 5, 8), peak_bytes=3 << 20),
        strategy("_summed", samples(4, 3, 5), step=samples(4.5, 4, 5), peak_bytes=2 << 20),
    )


def test_calls() -> None:
    figure = images.calls_chart(two())
    assert figure is not None
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [2, 3, 4]  # type: ignore[attr-defined]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [r"re\$tain, call 0", r"re\$tain, call 1", "_summed, call 0"]
    (_, _, (spans,)) = axes.containers[0]
    assert [(s[0][0], s[1][0]) for s in spans.get_segments()] == [(1.5, 2.25), (2.5, 4), (3, 5)]
    assert axes.get_xlabel().startswith("Wall time")


def test_strategies() -> None:
    figure = images.strategies_chart(two())
    assert figure is not None
    (axes,) = figure.axes
    drawn = {box.get_label(): box[0].get_xydata().tolist() for box in axes.containers}
    assert drawn == {r"re\$tain": [[6, 3]], " _summed": [[4.5, 2]]}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == [r"re\$tain", " _summed"]  # an underscore first would hide it


@pytest.mark.filterwarnings("error")
def test_any_name_can_be_drawn() -> None:
    names = ["$x^", "\u635f\u5931", "\n", "\x00", "<b>", "_" * 500]
    many = result(*(strategy(name, samples(1, 1, 1), step=samples(1, 1, 1), peak_bytes=1) for name in names))
    for figure in (images.calls_chart(many), images.strategies_chart(many)):
        assert figure is not None
        assert images.png(figure)


def test_nothing_measured_draws_nothing() -> None:
    empty = result(strategy("a", Samples(), step=Samples(), peak_bytes=5))
    assert images.calls_chart(empty) is None
    assert images.strategies_chart(empty) is None


def test_in_the_event_files(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from retainprof.report import tensorboard

    tensorboard.write(two(), RunFolder(tmp_path), "text")
    (folder,) = [path for path in tmp_path.rglob("report") if path.is_dir()]
    found = EventAccumulator(str(folder)).Reload()
    assert found.Tags()["images"] == ["calls", "strategies"]
    for tag in ("calls", "strategies"):
        (image,) = found.Images(tag)
        assert image.encoded_image_string[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = (int.from_bytes(image.encoded_image_string[at : at + 4], "big") for at in (16, 20))
        assert (image.width, image.height) == (width, height)


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from retainprof.report import tensorboard

    monkeypatch.setattr(images, "available", lambda: False)
    tensorboard.write(two(), RunFolder(tmp_path), "text")
    (folder,) = [path for path in tmp_path.rglob("report") if path.is_dir()]
    assert EventAccumulator(str(folder)).Reload().Tags()["images"] == []
