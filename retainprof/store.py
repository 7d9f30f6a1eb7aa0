"""The run folder: its name, what lies where in it, atomic writes, and reading results back, old ones included.

runs/NAME-YYYYMMDD-HHMMSS/
    result.json     everything, format version 1
    report.md       the same for people
    report.html     the same to look at, offline
    traces/STRATEGY/HOST_RANK.TIME.pt.trace.json.gz
    tb/STRATEGY/    event files of the standard TensorBoard dashboards
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from retainprof import labels
from retainprof.errors import StoreError
from retainprof.records import SCHEMA, Result

__all__ = ["RunFolder", "check_writable", "create", "decode", "encode", "read", "write_atomic"]

NEEDED_BYTES = 8 << 20


def write_atomic(path: Path, data: bytes) -> None:
    """Write to a temporary name beside ``path``, then rename: a reader sees the old file or the new one.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
    """
    handle, temporary = None, ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except OSError as e:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {e.strerror or e}") from e


def check_writable(path: Path) -> None:
    """Write nothing to ``path``, but find out whether it could be.

    Raises:
        StoreError: its folder is not there or cannot be written, or it is a folder itself.
    """
    if path.is_dir():
        raise StoreError(f"cannot write {path}: it is a folder")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as e:
        raise StoreError(f"cannot write {path}: {e.strerror or e}") from e


class RunFolder:
    """One run's folder. ``root`` exists and could be written when the run began."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._slugs: dict[str, str] = {}

    @property
    def result(self) -> Path:
        """``result.json``."""
        return self.root / "result.json"

    @property
    def events(self) -> Path:
        """Root of the TensorBoard event files."""
        return self.root / "tb"

    def slug(self, strategy: str) -> str:
        """A folder name for a strategy: safe, and unlike those of the others."""
        if strategy not in self._slugs:
            base = labels.slug(strategy).strip(".") or "strategy"
            taken = set(self._slugs.values())
            numbered = (f"{base}-{n}" for n in range(2, len(taken) + 3))
            self._slugs[strategy] = base if base not in taken else next(s for s in numbered if s not in taken)
        return self._slugs[strategy]

    def trace_path(self, strategy: str, rank: int, time_ns: int) -> Path:
        """Where the trace of a strategy goes; its folder is made and holds nothing else."""
        folder = self.root / "traces" / self.slug(strategy)
        folder.mkdir(parents=True, exist_ok=True)
        host = labels.slug(socket.gethostname()).replace(".", "-") or "host"
        return folder / f"{host}_{rank}.{time_ns}.pt.trace.json.gz"

    def relative(self, path: Path) -> str:
        """``path`` relative to the run folder, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    def discard(self) -> None:
        """Take the folder away again: nothing was measured."""
        shutil.rmtree(self.root, ignore_errors=True)

    def write_result(self, result: Result) -> None:
        """Replace ``result.json``."""
        write_atomic(self.result, encode(result))


def create(out: Path, name: str, now: datetime | None = None) -> RunFolder:
    """Make ``out/NAME-YYYYMMDD-HHMMSS`` (with ``-2`` and so on if taken) and check that it can be written.

    Raises:
        StoreError: it cannot be made, cannot be written, or its disk has less than 8 MiB free.
    """
    when = (now or datetime.now(timezone.utc)).strftime("%Y%m%d-%H%M%S")
    base = labels.slug(name).strip(".") or "run"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for n in range(1, 1000):
            root = out / (f"{base}-{when}" if n == 1 else f"{base}-{when}-{n}")
            try:
                root.mkdir()
                break
            except FileExistsError:
                continue
        else:
            raise StoreError(f"{out} already has a thousand runs of {base}-{when}")
    except OSError as e:
        raise StoreError(
            f"cannot make a run folder in {out}: {e.strerror or e}", hint="choose another with --out"
        ) from e
    probe = root / ".probe"
    write_atomic(probe, b"x" * 4096)
    probe.unlink()
    free = shutil.disk_usage(root).free
    if free < NEEDED_BYTES:
        root.rmdir()
        raise StoreError(f"{out} has only {free} bytes free; a run needs at least {NEEDED_BYTES}", hint="use --out")
    return RunFolder(root)


def encode(result: Result) -> bytes:
    """``result.json``'s text: indented, keys in the order of the format, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def decode(data: bytes, where: str) -> Result:
    """A result from its text.

    Raises:
        StoreError: it is no result, or of a later format version.
    """
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema
    except msgspec.MsgspecError as e:
        raise StoreError(f"{where} is no retainprof result: {e}") from e
    if version > SCHEMA:
        raise StoreError(
            f"{where} has format version {version}; this retainprof reads up to {SCHEMA}", hint="install a newer one"
        )
    try:
        return msgspec.json.decode(data, type=Result)
    except msgspec.MsgspecError as e:
        raise StoreError(f"{where} is no retainprof result: {e}") from e


class _Versioned(msgspec.Struct):
    schema: int


def read(run: Path) -> Result:
    """The result of a run folder, or of a ``result.json`` itself.

    Raises:
        StoreError: there is none, it cannot be read, or it is no result.
    """
    path = run / "result.json" if run.is_dir() else run
    try:
        data = path.read_bytes()
    except OSError as e:
        raise StoreError(f"cannot read {path}: {e.strerror or e}", hint="name a run folder or its result.json") from e
    return decode(data, str(path))
