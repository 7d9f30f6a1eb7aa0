"""Labels are safe and come back; units say what a person would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retainprof import labels, units


@given(st.sampled_from(["step", "forward", "loss", "call", "drop", "clear"]), st.none() | st.integers(0), st.text())
def test_every_name_makes_a_safe_label(phase: labels.Phase, index: int | None, name: str) -> None:
    text = labels.make(phase, index, name)
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set("\"'\\")
    found = labels.parse(text)
    assert found is not None
    assert (found.phase, found.index, found.slug) == (phase, index, labels.slug(name))


@pytest.mark.parametrize(
    "text", ["", "backward", "## backward ##", "retainprof::call[x]", "retainprof::other", "call[0]"]
)
def test_foreign_labels(text: str) -> None:
    assert labels.parse(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 ns"), (999, "999 ns"), (1234, "1.23 µs"), (1_234_567, "1.23 ms"), (98_765_432_100, "98.8 s")],
)
def test_ns(value: float | None, text: str) -> None:
    assert units.show_ns(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0 B"), (1023, "1023 B"), (136_712, "133.5 KiB"), (-(1 << 20), "-1.0 MiB")]
)
def test_bytes(value: int | None, text: str) -> None:
    assert units.show_bytes(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.713, "1.71x"), (1.004, "1.004x"), (12.34, "12.3x"), (None, "–")])
def test_ratio(value: float | None, text: str) -> None:
    assert units.ratio(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.12, "+12%"), (0.998, "-0.2%"), (0.5, "-50%"), (1.0, "+0.0%")])
def test_percent(value: float, text: str) -> None:
    assert units.percent(value) == text


def test_interval_in_one_unit() -> None:
    assert units.show_interval_ns((900_000, 1_100_000)) == "0.900 to 1.10 ms"
    assert units.flops(1_240_000_000) == "1.24 GFLOP"
    assert units.show_count(1234567) == "1,234,567"
