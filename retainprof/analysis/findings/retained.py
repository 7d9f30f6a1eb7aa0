"""Rules on what stays in memory after the calls, and which flag keeps it."""

from __future__ import annotations

from collections.abc import Iterator

from retainprof.analysis.findings.base import Rule, last_call, line, made_calls, names_of, register, summed_in
from retainprof.records import CallResult, Finding, HeldByNode, Result, StrategyResult
from retainprof.units import show_bytes

__all__ = ["NeedlessRetain", "RetainedAfterLast", "UnreleasedBranch"]

WORTH_A_WARNING = 0.1  # of what the graph held after the forward


def _needless(strategy: StrategyResult) -> list[CallResult]:
    """Calls that retained although no later call visits a node that they kept; the last one by its place.

    A call that creates a graph keeps its own for a purpose that the calls do not show.
    """
    last = last_call(strategy)
    return [
        call
        for call in made_calls(strategy)
        if call.retain_graph and not call.create_graph and (call.retain_needed is False or call is last)
    ]


def _saved_by(call: CallResult, strategy: StrategyResult) -> int | None:
    """Bytes that would not stay after the last call, had this call alone not retained."""
    if call.needless_retain_bytes is not None:
        return call.needless_retain_bytes
    cost = strategy.retained.cost
    if cost is None or cost.after_last_without_bytes is None or _needless(strategy) != [call]:
        return None
    return cost.after_last_with_bytes - cost.after_last_without_bytes


def _unavoidable(strategy: StrategyResult) -> int | None:
    """Bytes that stay after the last call even when every call retains only what a later one needs."""
    last, cost = last_call(strategy), strategy.retained.cost
    if cost is not None and cost.after_last_without_bytes is not None:
        return cost.after_last_without_bytes
    if last is None or last.retained_bytes_after is None:
        return None
    needless = _needless(strategy)
    if not needless:
        return last.retained_bytes_after
    saved = _saved_by(needless[0], strategy) if len(needless) == 1 else None
    return None if saved is None else last.retained_bytes_after - saved


@register
class RetainedAfterLast(Rule):
    """The last call retains a graph that nobody will use again."""

    name = "retained_after_last"
    looks_for = "retain_graph=True on the last call of a step"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html"
    severity = "warning"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        call = last_call(strategy)
        if call is None or call not in _needless(strategy) or not call.retained_bytes_after:
            return
        saved = _saved_by(call, strategy)
        if saved == 0:
            return
        after = call.retained_bytes_after
        rest = "" if saved is None else f"; without the flag {show_bytes(after - saved)} would stay"
        yield self.finding(
            strategy,
            call.index,
            f"the last call ({names_of(call)}) retains the graph: {show_bytes(after)} stay{rest}",
            f"{line(call, retain=True)} → {line(call, retain=False)}",
            evidence={"retained_after_bytes": after, "released_without_flag_bytes": saved},
            saves_bytes=saved,
        )


@register
class NeedlessRetain(Rule):
    """A call before the last retains what no later call needs."""

    name = "needless_retain"
    looks_for = "retain_graph=True on a call after which nothing that it kept is visited again"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html"
    severity = "warning"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        last = last_call(strategy)
        for call in _needless(strategy):
            saved = _saved_by(call, strategy)
            if call is last or saved == 0:
                continue
            held = (
                "" if saved is None else f"; without the flag {show_bytes(saved)} less would stay after the last call"
            )
            yield self.finding(
                strategy,
                call.index,
                f"call {call.index} ({names_of(call)}) retains its graph, but no later call visits a node of it{held}",
                f"{line(call, retain=True)} → {line(call, retain=False)}",
                evidence={"retained_after_bytes": call.retained_bytes_after, "released_without_flag_bytes": saved},
                saves_bytes=saved,
            )


@register
class UnreleasedBranch(Rule):
    """What no call releases, whatever the flags: branches that only a retaining call went through."""

    name = "unreleased_branch"
    looks_for = "buffers that no call of the step releases, however the flags are set"
    url = "https://docs.pytorch.org/docs/stable/notes/autograd.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        stays, last = _unavoidable(strategy), last_call(strategy)
        own = sum(held.bytes for held in strategy.retained.storages if held.kind == "loss")
        if stays is None or last is None or not strategy.retained.storages or stays <= own:
            return
        if not _kept_for_later(strategy, last):  # what stays is then held by the program: losses, a cut's tensors
            return
        branch, whole = stays - own, strategy.retained.after_forward_bytes or 0
        holders = _holders(strategy)
        summed = summed_in(result)
        other = last_call(summed) if summed is not None and summed is not strategy else None
        yield self.finding(
            strategy,
            None,
            f"{show_bytes(stays)} stay after the last call and no flag avoids it: {_why(strategy, last)}"
            f"{_where(holders)}{_instead(other)}",
            "drop the losses before the next large allocation (del loss, or leave their scope), or make one backward of "
            "the summed losses",
            evidence={
                "stays_bytes": stays,
                "branch_bytes": branch,
                "losses_own_bytes": own,
                "holders": [{"node": h.node, "module": h.module, "bytes": h.bytes} for h in holders],
                "summed_stays_bytes": None if other is None else other.retained_bytes_after,
            },
            severity="warning" if branch >= WORTH_A_WARNING * whole else "info",
            saves_bytes=branch,
        )


def _kept_for_later(strategy: StrategyResult, last: CallResult) -> list[int]:
    """Calls before the last that retain."""
    return [call.index for call in made_calls(strategy) if call.retain_graph and call is not last]


def _why(strategy: StrategyResult, last: CallResult) -> str:
    retaining = _kept_for_later(strategy, last)
    which = f"call {retaining[0]}" if len(retaining) == 1 else "calls that retain"
    return f"only {which} went through it, and had to retain for a later call"


def _holders(strategy: StrategyResult) -> list[HeldByNode]:
    held = [h for h in strategy.retained.by_node if h.freed_in_call is None and h.node != "loss"]
    return sorted(held, key=lambda h: -h.bytes)[:3]


def _where(holders: list[HeldByNode]) -> str:
    if not holders:
        return ""
    first = holders[0]
    module = f" in {first.module}" if first.module else ""
    return f"; the largest holder is {first.node}{module}, {show_bytes(first.bytes)}"


def _instead(other: CallResult | None) -> str:
    if other is None or other.retained_bytes_after is None:
        return ""
    return f"; one summed backward leaves {show_bytes(other.retained_bytes_after)}"
