"""Rows of the report's tables as text, shared by the terminal and Markdown. Picks and formats; computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from retainprof.records import (
    CallResult,
    FirstVsLater,
    Gradients,
    HeldByNode,
    KernelDiff,
    Ratio,
    Result,
    StrategyComparison,
    StrategyResult,
)
from retainprof.units import MISSING, flops, ratio, show_bytes, show_count, show_interval_ns, show_ns

__all__ = [
    "CALLS",
    "FLAGS",
    "HOLDERS",
    "KERNELS",
    "STRATEGIES",
    "Column",
    "call_rows",
    "distortion",
    "holder_rows",
    "kernel_rows",
    "resident",
    "strategy_rows",
    "visible",
]

VERDICTS: Final = {"slower": "slower", "faster": "faster", "same": "same", "cannot_tell": "cannot tell"}
STATUS: Final = {"only_first": "only call 0", "only_later": "only later", "changed": "changed", "same": "same"}


FLAGS: Final = "r: retain_graph, c: create_graph, g: autograd.grad, z: .grad cleared before, s: SGD step before"


@dataclass(frozen=True)
class Column:
    """A column: its head, whether it is a number (set to the right), and whether only a wide page has room for it."""

    head: str
    number: bool = True
    wide: bool = False


STRATEGIES: Final = (
    Column("strategy", number=False),
    Column("step wall"),
    Column("95% interval", wide=True),
    Column("CPU"),
    Column("vs base"),
    Column("95% interval"),
    Column("verdict", number=False),
    Column("peak"),
    Column("left"),
    Column("FLOPs"),
    Column("fwd"),
    Column("gradients", number=False),
)
CALLS: Final = (
    Column("strategy", number=False),
    Column("call"),
    Column("of", number=False),
    Column("flags", number=False),
    Column("wall"),
    Column("95% interval", wide=True),
    Column("cold"),
    Column("/ call 0"),
    Column("95% interval"),
    Column("verdict", number=False),
    Column("nodes"),
    Column("kernels"),
    Column("s/c/a"),
    Column("held after"),
)
KERNELS: Final = (
    Column("call", number=False),
    Column("kernel", number=False),
    Column("shapes", number=False),
    Column("call 0"),
    Column("later"),
    Column("profiled call 0"),
    Column("later"),
    Column("status", number=False),
)
HOLDERS: Final = (
    Column("held by", number=False),
    Column("module", number=False),
    Column("bytes"),
    Column("storages"),
    Column("let go in", number=False),
)


def visible(text: str) -> str:
    """Text of others made safe to show on one line: control characters as ``\\x1b``, everything else as it is."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _interval(found: Ratio | None) -> str:
    return MISSING if found is None else f"{ratio(found.ci95[0])[:-1]} to {ratio(found.ci95[1])[:-1]}"


def _chosen(cpu: Ratio | None, wall: Ratio | None, result: Result) -> Ratio | None:
    clock = result.timing.clock if result.timing else "wall"
    return cpu if clock == "cpu" and cpu is not None else wall


def strategy_rows(result: Result) -> list[tuple[str, ...]]:
    """One row a strategy; the ratio is on the deciding clock, paired within rounds."""
    compared = {found.contender: found for found in result.comparisons}
    return [_strategy_row(strategy, compared.get(strategy.name), result) for strategy in result.strategies]


def _strategy_row(strategy: StrategyResult, found: StrategyComparison | None, result: Result) -> tuple[str, ...]:
    step = strategy.step
    chosen = None if found is None else _chosen(found.cpu, found.wall, result)
    is_base = any(c.baseline == strategy.name for c in result.comparisons)
    last = strategy.calls[-1] if strategy.calls else None
    verdict = (
        "failed"
        if strategy.status == "failed"
        else "base"
        if is_base
        else VERDICTS[found.verdict]
        if found
        else MISSING
    )
    return (
        visible(strategy.name),
        show_ns(step.wall_ns.median),
        show_interval_ns(step.wall_ns.ci95),
        show_ns(step.cpu_ns.median),
        "1" if is_base else ratio(None if chosen is None else chosen.median),
        "" if is_base else _interval(chosen),
        verdict,
        show_bytes(step.peak_bytes),
        show_bytes(None if last is None else last.retained_bytes_after),
        flops(step.flops),
        show_count(step.forwards),
        _gradients(strategy.gradients),
    )


def _gradients(found: Gradients | None) -> str:
    if found is None:
        return MISSING
    if found.returned_relation is not None:
        return f"{found.returned_relation} (returned)"
    return found.relation.replace("_", " ")


def call_rows(strategy: StrategyResult, result: Result, limit: int | None = None) -> Iterator[tuple[str, ...]]:
    """One row a call; with a ``limit`` the first ones, a row that counts those left out, and the last one."""
    later = {found.call: found for found in strategy.first_vs_later}
    calls = strategy.calls
    cut = limit is not None and len(calls) > limit
    for i, call in enumerate(calls):
        if cut and limit is not None and limit - 2 < i < len(calls) - 1:
            if i == limit - 1:
                yield ("", "…", f"{len(calls) - limit} more", *[""] * (len(CALLS) - 3))
            continue
        yield _call_row(strategy.name if i == 0 else "", call, later.get(call.index), result)


def _flags(call: CallResult) -> str:
    letters = {
        "g": call.kind == "grad",
        "r": call.retain_graph,
        "c": call.create_graph,
        "z": call.zero_grad_before is not None,
        "s": call.sgd_before is not None,
    }
    return "".join(letter for letter, is_set in letters.items() if is_set)


def _call_row(name: str, call: CallResult, found: FirstVsLater | None, result: Result) -> tuple[str, ...]:
    chosen = None if found is None else _chosen(found.ratio_cpu, found.ratio_wall, result)
    did = call.accumulate
    added = None if did is None else did.added + did.sparse_added
    return (
        visible(name),
        str(call.index),
        visible(_of(call)),
        _flags(call),
        show_ns(call.wall_ns.median),
        show_interval_ns(call.wall_ns.ci95),
        show_ns(call.cold_wall_ns.median),
        "" if call.index == 0 else ratio(None if chosen is None else chosen.median),
        "" if call.index == 0 else _interval(chosen),
        "" if call.index == 0 or found is None else VERDICTS[found.verdict],
        show_count(call.nodes),
        show_count(call.kernels),
        MISSING if did is None else f"{did.stolen}/{did.copied}/{added}",
        show_bytes(call.retained_bytes_after),
    )


def _of(call: CallResult) -> str:
    losses = "+".join(call.losses) if len(call.losses) <= 2 else f"{len(call.losses)} losses"
    if call.what in ("", "sum", "batched"):
        return losses
    return f"{call.what} {losses}" if call.what == "head" or len(call.losses) == 1 else call.what


def kernel_rows(found: FirstVsLater, limit: int | None = None) -> list[tuple[str, ...]]:
    """Kernels that differ between call 0 and a later call, leaves only unless there is no limit."""
    different: Sequence[KernelDiff] = [k for k in found.kernels if k.status != "same" and (k.leaf or limit is None)]
    return [
        (
            f"{found.call}",
            visible(kernel.name),
            visible(kernel.shapes),
            show_count(kernel.first_count),
            show_count(kernel.later_count),
            show_ns(kernel.first_self_ns),
            show_ns(kernel.later_self_ns),
            STATUS[kernel.status],
        )
        for kernel in different[:limit]
    ]


def holder_rows(held: Sequence[HeldByNode], limit: int | None = None) -> list[tuple[str, ...]]:
    """The largest holders of retained bytes."""
    return [
        (
            visible(row.node),
            visible(row.module) or "(outside every module)",
            show_bytes(row.bytes),
            show_count(row.storages),
            "no call" if row.freed_in_call is None else f"call {row.freed_in_call}",
        )
        for row in held[:limit]
    ]


def resident(strategy: StrategyResult) -> str:
    """RSS beside the tensors' bytes, in one or two sentences; on an accelerator its allocator's numbers."""
    device, rss = strategy.step.device_memory, strategy.step.rss
    if device is not None:
        return (
            f"The device's allocator: {show_bytes(device.allocated_bytes)} allocated and {show_bytes(device.reserved_bytes)} "
            f"reserved after the last call, at most {show_bytes(device.peak_allocated_bytes)} and "
            f"{show_bytes(device.peak_reserved_bytes)}."
        )
    if rss is None:
        return ""
    return (
        f"Dropping the losses after the last call let {show_bytes(-rss.drop_allocated_change_bytes)} of tensors go and moved "
        f"the process's RSS by {show_bytes(rss.drop_change_bytes)}. {rss.note}"
    ).rstrip()


def distortion(result: Result) -> str:
    """Profiled against unprofiled time, the two extremes over all calls."""
    pairs = [
        (call.profiled_wall_ns / call.wall_ns.median, strategy.name, call.index)
        for strategy in result.strategies
        for call in strategy.calls
        if call.profiled_wall_ns is not None and call.wall_ns.median
    ]
    if not pairs:
        return ""
    low, high = min(pairs), max(pairs)
    return (
        f"Profiled, calls took {ratio(low[0])} ({visible(low[1])} call {low[2]}) to {ratio(high[0])} "
        f"({visible(high[1])} call {high[2]}) of these times; none above is a profiled one."
    )
