"""The run folder: names, atomic writes, reading results back."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pytest

from retainprof import store
from retainprof.errors import StoreError
from retainprof.records import Environment, Result

WHEN = datetime(2026, 12, 1, 8, 30, 5, tzinfo=timezone.utc)


def result() -> Result:
    """The smallest one."""
    here = Environment(
        python="3.11",
        torch="2.13",
        device="cpu",
        device_name="",
        threads=1,
        interop_threads=1,
        platform="",
        cpu="",
        cpus=2,
    )
    return Result(retainprof="0", scenario={"name": "x"}, environment=here, status="ok", strategies=())


def test_names_and_collisions(tmp_path: Path) -> None:
    names = [store.create(tmp_path / "deep" / "runs", "my scenario/é", WHEN).root.name for _ in range(2)]
    assert names == ["my_scenario_-20261201-083005", "my_scenario_-20261201-083005-2"]


def test_result_comes_back_equal(tmp_path: Path) -> None:
    folder = store.create(tmp_path, "x", WHEN)
    folder.write_result(result())
    assert store.read(folder.root) == result()
    assert store.read(folder.result) == result()
    assert [path.name for path in folder.root.iterdir()] == ["result.json"]


def test_strategies_get_folders_of_their_own(tmp_path: Path) -> None:
    folder = store.create(tmp_path, "x", WHEN)
    paths = [folder.trace_path(name, 0, 17) for name in ("a b", "a/b", "..", "a b")]
    assert [path.parent.name for path in paths] == ["a_b", "a_b-2", "strategy", "a_b"]
    assert paths[0].name.endswith("_0.17.pt.trace.json.gz")
    assert folder.relative(paths[0]).startswith("traces/a_b/")


def test_unwritable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)  # permissions do not bind a superuser, who may run these tests
    with pytest.raises(StoreError, match=r"cannot make a run folder in .*: Permission denied"):
        store.create(tmp_path, "x", WHEN)


def test_disk_that_is_nearly_full_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StoreError, match="only 1000 bytes free"):
        store.create(tmp_path, "x", WHEN)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError, match="cannot make a run folder"):
        store.create(tmp_path / "runs", "x", WHEN)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    store.write_atomic(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        store.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no retainprof result"),
        ("[]", "no retainprof result"),
        ('{"schema": 1}', "no retainprof result"),
        ('{"schema": 99}', "format version 99"),
    ],
)
def test_what_is_no_result(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(StoreError, match=message):
        store.read(tmp_path)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot read"):
        store.read(tmp_path)


def test_keys_that_came_later_are_passed_over() -> None:
    text = store.encode(result()).replace(b'"schema": 1,', b'"schema": 1, "later": [1],')
    assert store.decode(text, "x") == result()
