"""What no single section can know: names that one part of a scenario uses and another has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from retainprof.errors import Fault
from retainprof.scenario.batches import BatchPart, Random
from retainprof.scenario.document import Document, KeyPath
from retainprof.scenario.faults import make_fault, show
from retainprof.scenario.losses import LossPart, RegisteredLoss
from retainprof.scenario.models import FactoryModel, ModelPart, RegisteredModel
from retainprof.scenario.names import hint
from retainprof.strategies import Calls, Retain, Strategy

__all__ = ["Parts", "check"]


@dataclass
class Parts:
    """The sections that are right by themselves; ``loss_names`` counts broken losses too."""

    model: ModelPart | None = None
    batch: BatchPart | None = None
    shared: str | None = None
    losses: dict[str, LossPart] = field(default_factory=dict)
    loss_names: tuple[str, ...] = ()
    strategies: dict[int, Strategy] = field(default_factory=dict)


def check(document: Document, parts: Parts) -> list[Fault]:
    """All faults of names between sections."""
    checker = _Checker(document, parts)
    return [*checker.model(), *checker.losses(), *checker.batch(), *checker.strategies()]


class _Checker:
    def __init__(self, document: Document, parts: Parts) -> None:
        self.document, self.parts = document, parts
        self.known = parts.model if isinstance(parts.model, RegisteredModel) else None

    def _fault(self, path: KeyPath, message: str, fix: str = "") -> Fault:
        return make_fault(self.document, path, f"{show(path)}: {message}", fix)

    # --- model ---

    def model(self) -> Iterator[Fault]:
        if self.known is None:
            return
        yield from self._prefixes(("model", "frozen"), self.known.frozen)
        per_step, heads = getattr(self.known, "per_step", ()), getattr(self.known, "heads", {})
        for i, name in enumerate(per_step):
            if name not in heads:
                yield self._fault(("model", "per_step", i), f"no head {name!r}", hint(name, heads, "heads"))
        if self.parts.shared is not None:
            yield from self._submodule(("shared",), self.parts.shared)

    def _entry(self, path: KeyPath, i: int) -> KeyPath:
        """The path of a list's entry; where one name stands for a list of one, its own."""
        return (*path, i) if (*path, i) in self.document.values else path

    def _submodule(self, path: KeyPath, name: str) -> Iterator[Fault]:
        if self.known is not None and not _within(name, self.known.submodules()):
            yield self._fault(
                path, f"the model has no submodule {name!r}", hint(name, self.known.submodules(), "it has")
            )

    def _prefixes(self, path: KeyPath, names: Iterable[str]) -> Iterator[Fault]:
        for i, name in enumerate(names):
            yield from self._submodule(self._entry(path, i), name)

    # --- losses ---

    def losses(self) -> Iterator[Fault]:
        for name, loss in self.parts.losses.items():
            path: KeyPath = ("losses", name)
            yield from self._prefixes((*path, "owns"), loss.owns or ())
            if self.known is not None and isinstance(loss, RegisteredLoss):
                yield from self._outputs(path, loss, self.known.outputs())

    def _outputs(self, path: KeyPath, loss: RegisteredLoss, outputs: Mapping[str, object]) -> Iterator[Fault]:
        for used in loss.outputs_used():
            key = next((k for k in ("output", "reference") if getattr(loss, k, None) == used), "kind")
            if used is None and len(outputs) > 1:
                yield self._fault(path, "say which output it looks at", f"output: {' | '.join(outputs)}")
            elif used is not None and used not in outputs:
                yield self._fault((*path, key), f"the model has no output {used!r}", hint(used, outputs, "outputs"))

    # --- batch ---

    def batch(self) -> Iterator[Fault]:
        batch = self.parts.batch
        if not isinstance(batch, Random):
            return
        if isinstance(self.parts.model, FactoryModel):
            fix = "give the batch a factory that returns (inputs, targets)"
            yield self._fault(("batch",), "a random batch needs a registered model, whose inputs are known", fix)
        if self.known is not None and batch.requires_grad and any(x.tokens for x in self.known.inputs_needed()):
            yield self._fault(("batch", "requires_grad"), "the model's inputs are tokens, which have no gradient")

    # --- strategies ---

    def strategies(self) -> Iterator[Fault]:
        first: dict[str, int] = {}
        for i, strategy in self.parts.strategies.items():
            path: KeyPath = ("strategies", i)
            if strategy.title in first:
                where = (*path, "name") if strategy.name else path
                fix = "give it a name of its own: {name: ..., kind: ...}"
                yield self._fault(where, f"a second strategy named {strategy.title!r}", fix)
            first.setdefault(strategy.title, i)
            yield from self._strategy(path, strategy)

    def _strategy(self, path: KeyPath, strategy: Strategy) -> Iterator[Fault]:
        if strategy.needs_shared and self.parts.shared is None:
            fix = "say where to cut, for example shared: trunk"
            yield self._fault(path, f"{strategy.kind} needs the scenario's shared submodule", fix)
        if strategy.checkpoint is not None:
            yield from self._submodule((*path, "checkpoint"), strategy.checkpoint)
        if isinstance(strategy, Retain):
            yield from self._loss_names((*path, "order"), strategy.order or ())
        if isinstance(strategy, Calls):
            yield from self._calls((*path, "calls"), strategy)

    def _calls(self, path: KeyPath, strategy: Calls) -> Iterator[Fault]:
        for i, call in enumerate(strategy.spelled):
            here = (*path, i)
            yield from self._loss_names((*here, "backward"), call.backward or ())
            yield from self._loss_names((*here, "grad"), call.grad or ())
            for key, names in (("wrt", call.wrt), ("inputs", call.inputs)):
                parameters = [name for name in names if not name.startswith("input[")]
                yield from self._prefixes((*here, key), parameters)

    def _loss_names(self, path: KeyPath, names: tuple[str, ...]) -> Iterator[Fault]:
        for i, name in enumerate(names):
            here = self._entry(path, i)
            if name not in self.parts.loss_names:
                yield self._fault(here, f"no loss {name!r}", hint(name, self.parts.loss_names, "losses"))
            elif name in names[:i]:
                yield self._fault(here, f"loss {name!r} is there twice")


def _within(name: str, submodules: Iterable[str]) -> bool:
    """Whether a name is a submodule, one inside it, or one around it."""
    return any(name == known or name.startswith(known + ".") or known.startswith(name + ".") for known in submodules)
