"""Splits the text of a trace into events, a few megabytes at a time, so that it never stands in memory as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from retainprof.errors import TraceError
from retainprof.trace.clock import EXACT_US
from retainprof.trace.event import Batch, TextInstant, TextSpan, decode, loosely, without_bare_words

__all__ = ["EventStream"]

_HEAD_LIMIT: Final = 64 << 20
_TAIL_LIMIT: Final = 4 << 20
_ARRAY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_FIRST_KEY: Final = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*")')
_FRACTION: Final = re.compile(rb'"ts"\s*:\s*"?(-?\d+\.\d+)')
_BOUNDARY: Final = re.compile(r'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts)"\s*:)')
_SEPARATORS: Final = re.compile(r"[\s,]*")
_LOOSE: Final = json.JSONDecoder(strict=False, parse_float=str)  # times stay text
_SPACE: Final = b" \t\r\n"
_TRIES: Final = 64
_WINDOW: Final = 1 << 15
_UNREADABLE: Final = object()


class EventStream:
    """Iterable of batches of events, in the order of the file.

    ``head`` and ``tail`` are what stands around the events, once that has been read; ``notes`` says in words what could
    not be used. ``as_text`` leaves times as text from the start; else that is decided by the first ones. Raises
    TraceError where no events are to be found.
    """

    def __init__(self, blocks: Iterable[bytes], name: str, as_text: bool = False) -> None:
        self._blocks, self._name = blocks, name
        self._rest = b""
        self._marker = b'"ph"'
        self._as_text = as_text
        self._ended = False
        self._unreadable = 0
        self.head: dict[str, Any] = {}
        self.tail: dict[str, Any] = {}
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[Batch]:
        source = iter(self._blocks)
        self._open(source)
        for block in source:
            if self._ended:
                break
            self._rest += block
            yield from self._whole_events()
        if not self._ended:
            yield from self._whole_events()
        if not self._ended:
            yield from self._last_events()
        self._close(source)

    # --- around the events ----------------------------------------------------------------------------------------------

    def _open(self, source: Iterator[bytes]) -> None:
        """Read up to the first event."""
        text = b""
        for block in source:
            text += block
            start = text[:4096].lstrip(b"\xef\xbb\xbf" + _SPACE)[:1]
            found = _ARRAY.search(text) if start == b"{" else None
            if start == b"[":
                return self._begin(b"", text[text.index(b"[") + 1 :])
            if found is not None:
                return self._begin(text[: found.start()], text[found.end() :])
            if start not in (b"{", b"") or len(text) > _HEAD_LIMIT:
                break
        raise TraceError(
            f"{self._name}: is no trace: it has no traceEvents", hint="give a file that torch.profiler wrote"
        )

    def _begin(self, head: bytes, events: bytes) -> None:
        self.head = _mapping(head.lstrip(b"\xef\xbb\xbf").rstrip(_SPACE + b",") + b"}") if head else {}
        self._rest = events
        self._as_text = self._as_text or _needs_text(events[: 1 << 16])

    def _close(self, source: Iterator[bytes]) -> None:
        if self._unreadable:
            self.notes.append(f"{self._unreadable} events could not be read and are left out")
        if not self._ended:
            self.notes.append("the file breaks off inside its events; what stands before is used")
            return
        for block in source:
            if len(self._rest) > _TAIL_LIMIT:
                return
            self._rest += block
        self.tail = _mapping(b"{" + self._rest.lstrip(_SPACE + b","))

    # --- events ---------------------------------------------------------------------------------------------------------

    def _whole_events(self) -> Iterator[Batch]:
        """Decode up to the last place in the buffer where an event begins."""
        cut = self._last_boundary()
        if cut < 0:
            if len(self._rest) > _HEAD_LIMIT:
                raise TraceError(f"{self._name}: an event of more than {_HEAD_LIMIT >> 20} MiB: this is no trace")
            return
        piece, self._rest = self._rest[:cut], self._rest[cut + 1 :]
        yield from self._decode(piece)

    def _last_boundary(self) -> int:
        """Where the comma between the last two events of the buffer is; -1: not found."""
        text, at = self._rest, len(self._rest)
        first = _FIRST_KEY.match(text)
        if first is not None:
            self._marker = first.group(1)
        for _ in range(_TRIES):
            at = text.rfind(self._marker, 0, at)
            if at < 0:
                return -1
            before = text[max(0, at - 256) : at].rstrip(_SPACE)
            outer = before[:-1].rstrip(_SPACE)
            if before.endswith(b"{") and outer.endswith(b","):
                return max(0, at - 256) + len(outer) - 1
        return -1

    def _decode(self, piece: bytes) -> Iterator[Batch]:
        array = b"[%b]" % piece
        try:
            yield decode(array, self._as_text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield self._one_by_one(piece)

    def _last_events(self) -> Iterator[Batch]:
        if self._rest.strip(_SPACE):
            yield self._one_by_one(self._rest, last=True)

    def _one_by_one(self, piece: bytes, last: bool = False) -> Batch:
        """The events of a piece that can't be decoded as a whole: odd types, damage, or the end of the array."""
        words = without_bare_words(piece.decode("utf-8", "replace"))
        found: list[TextSpan | TextInstant | None] = []
        at = _skip(words, 0)
        while at < len(words):
            if words[at] == "]":
                after = words[at + 1 :].encode("utf-8", "replace")
                self._ended, self._rest = True, after + (b"" if last else self._rest)
                break
            value, end = _value(words, at)
            broken_off = last and value is _UNREADABLE and end == len(words)
            self._unreadable += not (isinstance(value, dict) or broken_off)
            if isinstance(value, dict):
                found.append(loosely(value))
            at = _skip(words, end)
        spans = [event for event in found if isinstance(event, TextSpan)]
        return Batch(spans, [event for event in found if isinstance(event, TextInstant)], len(found))


def _needs_text(events: bytes) -> bool:
    """Whether the first times have a fraction that a double of microseconds would lose."""
    found = _FRACTION.search(events)
    return found is not None and abs(float(found.group(1))) >= EXACT_US


def _value(words: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at a place, and where to go on; ``_UNREADABLE`` where there is none.

    Decoded from a short copy first: an error counts lines, so with the rest of the text at hand each one would cost as much
    as reading it all.
    """
    try:
        value, length = _LOOSE.raw_decode(words[at : at + _WINDOW])
        return value, at + length
    except (ValueError, RecursionError):
        boundary = _BOUNDARY.search(words, at + 1)
    if boundary is None or boundary.start() - at > _WINDOW // 2:  # it may be longer than the copy
        try:
            value, length = _LOOSE.raw_decode(words[at:])
        except (ValueError, RecursionError):
            pass
        else:
            return value, at + length
    return _UNREADABLE, len(words) if boundary is None else boundary.end()


def _skip(words: str, at: int) -> int:
    """The first place from ``at`` on that is neither space nor comma."""
    found = _SEPARATORS.match(words, at)
    return at if found is None else found.end()


def _mapping(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
