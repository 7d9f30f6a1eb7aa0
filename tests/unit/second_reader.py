"""A second reader of traces, for tests only: one pass for each label of ours. Shares no code with ``retainprof.trace``.

It builds an object for every event and nests them by a stack; slow, short and easy to check.
"""

from __future__ import annotations

import gzip
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from retainprof import labels
from retainprof.operators import BOOKKEEPING, FILLERS, is_kernel
from retainprof.records import Accumulate, KernelRow, RangePass

__all__ = ["OwnTrace", "passes", "read"]

EVALUATE: Final = "autograd::engine::evaluate_function: "
ACCUMULATE: Final = "torch::autograd::AccumulateGrad"
SPARSE_PARTS: Final = ("aten::_nnz", "aten::_values", "aten::_indices")  # what adding a sparse gradient asks for


class _Args(msgspec.Struct):
    dims: Any = msgspec.field(default=None, name="Input Dims")
    nbytes: int = msgspec.field(default=0, name="Bytes")
    sequence: int | None = msgspec.field(default=None, name="Sequence number")
    forward_thread: int = msgspec.field(default=0, name="Fwd thread id")


class _Event(msgspec.Struct):
    ph: str
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    tid: Any = None
    args: _Args = msgspec.field(default_factory=_Args)


class _File(msgspec.Struct, rename="camel"):
    trace_events: list[_Event]


@dataclass
class Span:
    """An operator or annotation; times in ns; ``parent`` is the innermost event around it on its thread."""

    name: str
    start: int
    end: int
    tid: Any
    dims: Any
    makes_node: bool = False  # an operator in whose time a node was made: it ran with gradients on
    parent: Span | None = None
    fills_inside: bool = False
    computes_inside: bool = False
    child_ns: int = 0
    bytes: int = 0


@dataclass
class OwnTrace:
    """Spans by start, memory events by time: (ns, bytes)."""

    spans: list[Span] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)
    annotations: list[Span] = field(default_factory=list)


def read(path: Path) -> OwnTrace:
    """The spans and memory events of a trace file."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    events = msgspec.json.decode(data, type=_File).trace_events
    trace = OwnTrace()
    for e in events:
        start = round(e.ts * 1000)
        if e.name == "[memory]":
            trace.memory.append((start, e.args.nbytes))
        elif e.ph == "X" and e.cat in ("cpu_op", "user_annotation"):
            makes_node = e.args.sequence is not None and e.args.forward_thread == 0 and e.name.startswith("aten::")
            span = Span(e.name, start, start + round(e.dur * 1000), e.tid, e.args.dims, makes_node)
            (trace.spans if e.cat == "cpu_op" else trace.annotations).append(span)
    trace.memory.sort(key=lambda event: event[0])
    _nest(trace.spans)
    _charge(trace)
    return trace


def _nest(spans: list[Span]) -> None:
    """Give every span its parent; spans of one thread nest."""
    spans.sort(key=lambda span: (span.start, -span.end))
    open_spans: dict[Any, list[Span]] = defaultdict(list)
    for span in spans:
        around = open_spans[span.tid]
        while around and around[-1].end <= span.start and span.start != span.end:
            around.pop()
        while around and around[-1].end < span.end:
            around.pop()
        if around:
            span.parent = around[-1]
        around.append(span)
        owner = _operator(span.parent)
        if owner is not None and span.name.startswith("aten::"):
            owner.child_ns += span.end - span.start
            _tell(owner, span.name)


def _tell(owner: Span | None, name: str) -> None:
    """Tell every operator around one of this name that it ran inside."""
    if name in BOOKKEEPING:
        return
    while owner is not None:
        if name in FILLERS:
            owner.fills_inside = True
        else:
            owner.computes_inside = True
        owner = _operator(owner.parent)


def _is_kernel(span: Span) -> bool:
    return is_kernel(span.name, fills_inside=span.fills_inside, computes_inside=span.computes_inside)


def _operator(span: Span | None) -> Span | None:
    """The innermost aten operator that is or encloses ``span``."""
    while span is not None and not span.name.startswith("aten::"):
        span = span.parent
    return span


def _charge(trace: OwnTrace) -> None:
    """Put allocations down to the innermost aten operator in which they happen."""
    operators = [span for span in trace.spans if span.name.startswith("aten::")]
    starts = [span.start for span in operators]
    for at, nbytes in trace.memory:
        i = bisect_right(starts, at) - 1
        found = operators[i] if i >= 0 else None
        while found is not None and found.end < at:
            found = _operator(found.parent)
        if found is not None and nbytes > 0:
            found.bytes += nbytes


def passes(trace: OwnTrace) -> tuple[RangePass, ...]:
    """What lies in the range of each of our labels, in order of time; steps are counted by the first forward's label."""
    found, step = [], -1
    ours = [span for span in trace.annotations if labels.parse(span.name) is not None]
    starts = [span.start for span in trace.spans]
    for label in sorted(ours, key=lambda span: (span.start, -span.end)):
        seen = labels.parse(label.name)
        if seen is not None and seen.phase == "forward" and seen.index == 0:
            step += 1
        inside = trace.spans[bisect_left(starts, label.start) : bisect_right(starts, label.end)]
        found.append(_pass(label, max(step, 0), inside, trace.memory))
    return tuple(found)


def _pass(label: Span, step: int, inside: Sequence[Span], memory: Sequence[tuple[int, int]]) -> RangePass:
    nodes = [span.name.removeprefix(EVALUATE) for span in inside if span.name.startswith(EVALUATE)]
    operators = [span for span in inside if span.name.startswith("aten::")]
    first, last = bisect_left(memory, (label.start,)), bisect_right(memory, (label.end + 1,))
    changes = [nbytes for _, nbytes in memory[first:last]]
    return RangePass(
        label=label.name,
        step=step,
        start_ns=label.start,
        duration_ns=label.end - label.start,
        nodes=len(nodes),
        ops=len(operators),
        kernels=sum(1 for span in operators if _is_kernel(span)),
        accumulate=_accumulate(inside),
        forward_ops_in_backward=sum(1 for span in operators if _is_recomputed(span)),
        fan_in_adds=sum(1 for span in inside if _is_add(span) and _around(span).startswith(EVALUATE)),
        allocated_bytes=sum(change for change in changes if change > 0),
        freed_bytes=-sum(change for change in changes if change < 0),
        net_bytes=sum(changes),
        peak_bytes=_peak(changes),
        last_node=nodes[-1] if nodes else None,
        kernel_rows=_rows(operators),
    )


def _around(span: Span) -> str:
    return "" if span.parent is None else span.parent.name


def _is_add(span: Span) -> bool:
    return span.name in ("aten::add", "aten::add_")


def _accumulate(inside: Iterable[Span]) -> Accumulate:
    inside = list(inside)
    into = Counter(span.name for span in inside if _around(span) == ACCUMULATE)
    sparse = len({id(add) for span in inside if span.name in SPARSE_PARTS and (add := _accumulating_add(span))})
    return Accumulate(
        stolen=into["aten::detach"] + into["aten::_sparse_coo_tensor_unsafe"],
        copied=into["aten::copy_"] + into["aten::clone"],
        added=into["aten::add"] + into["aten::add_"] - sparse,
        sparse_added=sparse,
    )


def _accumulating_add(span: Span) -> Span | None:
    """The addition into ``.grad`` inside which ``span`` ran, if it did."""
    around: Span | None = span
    while around is not None:
        if _is_add(around) and _around(around) == ACCUMULATE:
            return around
        around = around.parent
    return None


def _is_recomputed(span: Span) -> bool:
    """Whether an operator ran as a forward does, making a node, inside an evaluation of another; the outermost one."""
    if not span.makes_node:
        return False
    around = span.parent
    while around is not None and not around.name.startswith(EVALUATE):
        if around.makes_node:
            return False
        around = around.parent
    return around is not None


def _peak(changes: Iterable[int]) -> int:
    level = peak = 0
    for change in changes:
        level += change
        peak = max(peak, level)
    return peak


def _rows(operators: Iterable[Span]) -> tuple[KernelRow, ...]:
    groups: dict[tuple[str, str, bool], list[Span]] = defaultdict(list)
    for span in operators:
        groups[span.name, _shapes(span.dims), _is_kernel(span)].append(span)
    return tuple(
        KernelRow(
            name=name,
            shapes=shapes,
            count=len(spans),
            self_ns=sum(span.end - span.start - span.child_ns for span in spans),
            bytes=sum(span.bytes for span in spans),
            leaf=leaf,
        )
        for (name, shapes, leaf), spans in groups.items()
    )


def _shapes(dims: Any) -> str:
    """``[[128, 64], [], [256]]`` as ``128x64, 256``: shapes of the tensor inputs."""
    shapes = ["x".join(map(str, d)) for d in dims or () if d and all(isinstance(n, int) for n in d)]
    return ", ".join(shapes)
