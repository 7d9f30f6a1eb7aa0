"""Events of a Kineto trace: only those, and of them only the fields, that something here reads.

The phase (``ph``) is the first field that a profiler writes, so it tells the decoder at once which fields to build. Half of
the events of a trace from a GPU are arrows, of which nothing is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

__all__ = ["Batch", "Instant", "Span", "TextInstant", "TextSpan", "decode", "loosely", "without_bare_words"]

NOTHING: Final = msgspec.Raw(b"")
ABSENT: Final = -1.0
_BARE: Final = re.compile(r"(?<=[:,\[\s])-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_OTHER_PHASES: Final = "BEICbnestfPNODMVvRcaASTpF(),"


class SpanArgs(msgspec.Struct, frozen=True, gc=False):
    """Under ``args`` of a span; numbers as doubles, which hold every id exactly (below 2**53)."""

    correlation: float = ABSENT
    sequence: float = msgspec.field(default=ABSENT, name="Sequence number")
    forward_thread: float = msgspec.field(default=ABSENT, name="Fwd thread id")
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    grid: msgspec.Raw = NOTHING
    block: msgspec.Raw = NOTHING


class MemoryArgs(msgspec.Struct, frozen=True, gc=False):
    """Under ``args`` of a memory event."""

    nbytes: float = msgspec.field(default=0.0, name="Bytes")
    address: float = msgspec.field(default=ABSENT, name="Addr")
    device_type: float = msgspec.field(default=ABSENT, name="Device Type")
    device_id: float = msgspec.field(default=ABSENT, name="Device Id")
    total: float = msgspec.field(default=ABSENT, name="Total Allocated")


NO_SPAN_ARGS: Final = SpanArgs()
NO_MEMORY_ARGS: Final = MemoryArgs()
Ident = int | str


class Span(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """``ts`` and ``dur`` are microseconds; exact to the nanosecond below 2**43 of them."""

    cat: str = ""
    name: str = ""
    pid: Ident = 0
    tid: Ident = 0
    ts: float = math.nan
    dur: float = math.nan
    args: SpanArgs = NO_SPAN_ARGS


class TextSpan(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """The same with ``ts`` left as text, for clocks whose nanoseconds a double can't hold."""

    cat: str = ""
    name: str = ""
    pid: Ident = 0
    tid: Ident = 0
    ts: msgspec.Raw = NOTHING
    dur: float = math.nan
    args: SpanArgs = NO_SPAN_ARGS


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An event without length, such as ``[memory]``."""

    name: str = ""
    pid: Ident = 0
    tid: Ident = 0
    ts: float = math.nan
    args: MemoryArgs = NO_MEMORY_ARGS


class TextInstant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """The same with ``ts`` left as text."""

    name: str = ""
    pid: Ident = 0
    tid: Ident = 0
    ts: msgspec.Raw = NOTHING
    args: MemoryArgs = NO_MEMORY_ARGS


@dataclass(frozen=True)
class Batch:
    """Events of one piece of a file; ``count`` is of all of them, also of those that are not kept."""

    spans: Sequence[Span] | Sequence[TextSpan]
    instants: Sequence[Instant] | Sequence[TextInstant]
    count: int


def _decoder(*kept: type[msgspec.Struct]) -> msgspec.json.Decoder[list[Any]]:
    """A decoder of lists of the kept events, and of others as objects without fields."""
    union: Any = kept[0]
    others = [msgspec.defstruct("Other", [], tag_field="ph", tag=phase, gc=False) for phase in _OTHER_PHASES]
    for kind in (*kept[1:], *others):
        union = union | kind
    return msgspec.json.Decoder(list[union])


_DECODER: Final = _decoder(Span, Instant)
_TEXT_DECODER: Final = _decoder(TextSpan, TextInstant)


def decode(array: bytes, as_text: bool) -> Batch:
    """The events of a JSON array. Raises msgspec.DecodeError where one is not as a profiler writes it."""
    if as_text:
        found = _TEXT_DECODER.decode(array)
        return Batch(
            [e for e in found if type(e) is TextSpan], [e for e in found if type(e) is TextInstant], len(found)
        )
    found = _DECODER.decode(array)
    return Batch([e for e in found if type(e) is Span], [e for e in found if type(e) is Instant], len(found))


def without_bare_words(text: str) -> str:
    """``nan`` and ``inf``, which are no JSON but are written by some versions, as ``null``."""
    return _BARE.sub("null", text)


def loosely(found: Mapping[str, Any]) -> TextSpan | TextInstant | None:
    """An event from a mapping whose fields may be of any type; floats may be given as their text. None: not kept."""
    ts, phase = found.get("ts"), found.get("ph")
    time = msgspec.Raw(_text(ts).encode()) if isinstance(ts, str) else _raw(ts)
    name, pid, tid = _text(found.get("name")), _ident(found.get("pid")), _ident(found.get("tid"))
    if phase == "X":
        args = SpanArgs(**_args(found.get("args"), SpanArgs))
        dur = _number(found.get("dur"), math.nan)
        return TextSpan(cat=_text(found.get("cat")), name=name, pid=pid, tid=tid, ts=time, dur=dur, args=args)
    if phase == "i":
        memory = MemoryArgs(**_args(found.get("args"), MemoryArgs))
        return TextInstant(name=name, pid=pid, tid=tid, ts=time, args=memory)
    return None


def _args(found: Any, kind: type[msgspec.Struct]) -> dict[str, Any]:
    if not isinstance(found, Mapping):
        return {}
    fields = [field for field in msgspec.structs.fields(kind) if field.encode_name in found]
    return {
        field.name: _raw(found[field.encode_name])
        if field.type is msgspec.Raw
        else _number(found[field.encode_name], ABSENT)
        for field in fields
    }


def _text(value: Any) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _ident(value: Any) -> Ident:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return _text(str(value))
    return _text(value) if isinstance(value, str) else value


def _number(value: Any, default: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if math.isfinite(number) else default


def _raw(value: Any) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return NOTHING
