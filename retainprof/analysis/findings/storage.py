"""Rules on single storages that the graph holds."""

from __future__ import annotations

from collections.abc import Iterator

from retainprof.analysis.findings.base import Rule, register
from retainprof.records import Finding, HeldStorage, Result, StrategyResult
from retainprof.units import show_bytes, show_count

__all__ = ["LowPrecisionCopies", "ScalarLossPins"]

BIG_SCALAR_BYTES = 16 << 10
LOW_PRECISION = ("bfloat16", "float16")
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


def _dtype(held: HeldStorage) -> str:
    return held.dtype.removeprefix("torch.")


@register
class ScalarLossPins(Rule):
    """A loss with one value whose storage has the size of its input."""

    name = "scalar_loss_pins"
    looks_for = "scalar losses whose storage is far larger than one value"
    url = "https://github.com/pytorch/pytorch/issues/185647"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        for held in strategy.retained.storages:
            if held.kind != "loss" or held.shape != () or held.bytes < BIG_SCALAR_BYTES:
                continue
            saved = held.bytes - ITEM_BYTES.get(_dtype(held), 0)
            name = ", ".join(held.losses) or "a loss"
            yield self.finding(
                strategy,
                None,
                f"{name} is one value in a storage of {show_bytes(held.bytes)} (mse_loss and smooth_l1_loss return such "
                "scalars): whoever keeps it, detached or not, keeps all of that",
                "keep the number, not the tensor: history.append(loss.item()), or loss.detach().clone()",
                evidence={"storage_bytes": held.bytes, "losses": list(held.losses)},
                saves_bytes=saved,
            )


@register
class LowPrecisionCopies(Rule):
    """Casts of weights that autocast made and the graph holds."""

    name = "low_precision_copies"
    looks_for = "bfloat16 or float16 copies of weights that the graph holds"
    url = "https://docs.pytorch.org/docs/stable/amp.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        copies = [h for h in strategy.retained.storages if h.copy_of and _dtype(h) in LOW_PRECISION]
        if not copies:
            return
        total = sum(held.bytes for held in copies)
        largest = max(copies, key=lambda held: held.bytes)
        yield self.finding(
            strategy,
            None,
            f"the graph holds {show_count(len(copies))} {_dtype(largest)} copies of weights, {show_bytes(total)} in all, the "
            f"largest of {largest.copy_of} ({show_bytes(largest.bytes)})",
            "they go with the graph: let the last call free it before optimizer.step(); weights kept in "
            f"{_dtype(largest)} (model.to(torch.{_dtype(largest)})) need no copies",
            evidence={"copies": len(copies), "bytes": total, "of": [held.copy_of for held in copies]},
            saves_bytes=total,
        )
