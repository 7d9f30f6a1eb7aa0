"""One event of a Kineto trace: only the fields that something here reads, decoded without building the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["DECODER", "NO_ARGS", "TEXT_DECODER", "Args", "Event", "TextEvent", "loosely", "without_bare_words"]

NOTHING: Final = msgspec.Raw(b"")
ABSENT: Final = -1.0
_BARE: Final = re.compile(r"(?<=[:,\[\s])-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)


class Args(msgspec.Struct, frozen=True, gc=False):
    """What stands under ``args``; numbers as doubles, which hold every id and address exactly (below 2**53)."""

    correlation: float = ABSENT
    sequence: float = msgspec.field(default=ABSENT, name="Sequence number")
    forward_thread: float = msgspec.field(default=ABSENT, name="Fwd thread id")
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    nbytes: float = msgspec.field(default=0.0, name="Bytes")
    address: float = msgspec.field(default=ABSENT, name="Addr")
    device_type: float = msgspec.field(default=ABSENT, name="Device Type")
    device_id: float = msgspec.field(default=ABSENT, name="Device Id")
    total: float = msgspec.field(default=ABSENT, name="Total Allocated")
    grid: msgspec.Raw = NOTHING
    block: msgspec.Raw = NOTHING


NO_ARGS: Final = Args()
Ident = int | str


class Event(msgspec.Struct, gc=False):
    """``ts`` and ``dur`` are microseconds; exact to the nanosecond below 2**43 of them."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Ident = 0
    tid: Ident = 0
    ts: float = math.nan
    dur: float = math.nan
    args: Args = NO_ARGS


class TextEvent(msgspec.Struct, gc=False):
    """The same with ``ts`` left as text, for clocks whose nanoseconds a double can't hold."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Ident = 0
    tid: Ident = 0
    ts: msgspec.Raw = NOTHING
    dur: float = math.nan
    args: Args = NO_ARGS


DECODER: Final = msgspec.json.Decoder(list[Event])
TEXT_DECODER: Final = msgspec.json.Decoder(list[TextEvent])
_NUMBERS: Final = {field.encode_name: field.name for field in msgspec.structs.fields(Args) if field.type is float}
_RAW: Final = {field.encode_name: field.name for field in msgspec.structs.fields(Args) if field.type is msgspec.Raw}


def without_bare_words(text: str) -> str:
    """``nan`` and ``inf``, which are no JSON but are written by some versions, as ``null``."""
    return _BARE.sub("null", text)


def loosely(found: Mapping[str, Any]) -> TextEvent:
    """An event from a mapping whose fields may be of any type; floats may be given as their text."""
    ts = found.get("ts")
    return TextEvent(
        ph=_text(found.get("ph")),
        cat=_text(found.get("cat")),
        name=_text(found.get("name")),
        pid=_ident(found.get("pid")),
        tid=_ident(found.get("tid")),
        ts=msgspec.Raw(_text(ts).encode()) if isinstance(ts, str) else _raw(ts),
        dur=_number(found.get("dur"), math.nan),
        args=_args(found.get("args")),
    )


def _args(found: Any) -> Args:
    if not isinstance(found, Mapping):
        return NO_ARGS
    given: dict[str, Any] = {name: _number(found[key], ABSENT) for key, name in _NUMBERS.items() if key in found}
    given |= {name: _raw(found[key]) for key, name in _RAW.items() if key in found}
    return Args(**given)


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
