"""The bytes of a trace file in blocks, decompressed on the way; a file that breaks off gives what is there."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

from retainprof.errors import TraceError

try:  # optional; decompresses three to eight times as fast
    fast_zlib: Any = import_module("isal.isal_zlib")
except ImportError:
    fast_zlib = zlib

__all__ = ["BLOCK_BYTES", "Blocks"]

BLOCK_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 4096
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_BROKEN: tuple[type[Exception], ...] = (zlib.error, fast_zlib.error, EOFError)
Progress = Callable[[int], None]


class Blocks:
    """Iterable of blocks of about ``BLOCK_BYTES``; after that ``broken`` tells what stopped it early, if anything did.

    ``progress`` is called with the number of bytes read from the file so far. Raises TraceError where the file can't be
    opened or read.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self._path, self._progress = path, progress
        self.broken = ""

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                compressed = file.read(2) == _GZIP_MAGIC
                file.seek(0)
                yield from self._inflate(file) if compressed else self._plain(file)
        except OSError as e:
            raise TraceError(f"{self._path}: cannot be read: {e.strerror or e}") from e

    def _plain(self, file: IO[bytes]) -> Iterator[bytes]:
        while block := file.read(BLOCK_BYTES):
            self._tell(file)
            yield block

    def _tell(self, file: IO[bytes]) -> None:
        if self._progress is not None:
            self._progress(file.tell())

    def _inflate(self, file: IO[bytes]) -> Iterator[bytes]:
        """What a piece of the file unpacks to is held until it makes a block: damage costs no more than its own piece."""
        held: list[bytes] = []
        size = 0
        for data in self._unpacked(file):
            held.append(data)
            size += len(data)
            if size >= BLOCK_BYTES:
                self._tell(file)
                yield b"".join(held)
                held, size = [], 0
        self._tell(file)
        if held:
            yield b"".join(held)

    def _unpacked(self, file: IO[bytes]) -> Iterator[bytes]:
        unpack, data = _member(), b""
        try:
            while True:
                if unpack.eof:  # a file may hold several members, one after the other
                    data = unpack.unused_data or file.read(_PIECE_BYTES)
                    if not data.startswith(_GZIP_MAGIC[:1]):
                        return
                    unpack = _member()
                elif not data:
                    data = file.read(_PIECE_BYTES)
                    if not data:
                        self.broken = "the compressed file breaks off"
                        return
                yield unpack.decompress(data, BLOCK_BYTES)
                data = unpack.unconsumed_tail
        except _BROKEN as e:
            self.broken = f"the compressed file is damaged ({e})"


def _member() -> Any:
    return fast_zlib.decompressobj(_GZIP_WINDOW)
