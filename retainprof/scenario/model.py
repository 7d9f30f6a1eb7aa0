"""``Scenario``: what a scenario file says, checked and frozen. Nothing here imports torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from retainprof.scenario import functional_losses, networks, pattern_models, special_losses
from retainprof.scenario.batches import BATCHES, BatchPart, FactoryBatch
from retainprof.scenario.losses import LOSSES, FactoryLoss, LossPart
from retainprof.scenario.models import MODELS, FactoryModel, ModelPart
from retainprof.scenario.part import FACTORY, FactoryPart, Part, names_of
from retainprof.strategies import REGISTRY, Strategy

__all__ = ["Measure", "Profile", "Scenario", "tag_of"]

REGISTERED: Final = (
    networks,
    pattern_models,
    functional_losses,
    special_losses,
)  # importing them registers what they define

_UNITS: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_TIME: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|min|m|h)")
TIME_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*(ms|s|min|m|h)$"},
    ]
}


def _seconds(value: Any) -> Any:
    """``60s``, ``2min`` or a number of seconds, as seconds."""
    if not isinstance(value, str):
        return value
    found = _TIME.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"{value!r} is no time; write seconds, or a time such as 30s or 2min")
    return float(found[1]) * _UNITS[found[2]]


def tag_of(names: Mapping[str, type[BaseModel]], value: Any) -> str | None:
    """Which class a section is for: ``<kind>`` or ``<factory>``; None where it says neither."""
    if isinstance(value, FactoryPart):
        return f"<{FACTORY}>"
    if isinstance(value, BaseModel):
        return f"<{names_of(type(value))[0]}>"
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping):
        return None
    kind = value.get("kind")
    if kind is None:
        return f"<{FACTORY}>" if FACTORY in value else None
    proper = names_of(names[kind])[0] if isinstance(kind, str) and kind in names else kind
    return f"<{proper}>"


def _discriminator(names: Mapping[str, type[BaseModel]]) -> Discriminator:
    def tag(value: Any) -> str | None:
        return tag_of(names, value)

    return Discriminator(tag)


def _one_of(names: Mapping[str, type[BaseModel]], *factory: type[FactoryPart]) -> Any:
    """The union of a registry's classes, told apart by ``kind``."""
    kinds = [Annotated[names[name], Tag(f"<{name}>")] for name in names]
    made = [Annotated[cls, Tag(f"<{FACTORY}>")] for cls in factory]
    members = (*kinds, *made)
    union = Union[members] if len(members) > 1 else Union[(*members, Annotated[Part, Tag("<>")])]  # noqa: UP007
    return Annotated[union, _discriminator(names)]


def _spelled_out(value: Any) -> Any:
    """A strategy that is only its kind, as a mapping."""
    return {"kind": value} if isinstance(value, str) else value


if TYPE_CHECKING:
    AnyModel = ModelPart
    AnyBatch = BatchPart
    AnyLoss = LossPart
    AnyStrategy = Strategy
else:
    AnyModel = _one_of(MODELS, FactoryModel)
    AnyBatch = _one_of(BATCHES, FactoryBatch)
    AnyLoss = _one_of(LOSSES, FactoryLoss)
    AnyStrategy = Annotated[_one_of(REGISTRY), BeforeValidator(_spelled_out)]

Count = Annotated[int, Field(ge=0, le=1_000_000)]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps(:0)?|(cuda|xpu)(:[0-9]+)?)$")]
Seconds = Annotated[
    float, BeforeValidator(_seconds), Field(gt=0, le=1e7, allow_inf_nan=False), WithJsonSchema(TIME_SCHEMA)
]


class Measure(Part):
    """How to measure."""

    rounds: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=1, le=1_000_000)],
        Field(description="auto: until the intervals are narrow or the budget is spent"),
    ] = "auto"
    warmup: Annotated[Count, Field(description="rounds at least before measuring starts")] = 3
    cold: Annotated[Count, Field(description="fresh processes whose first step is measured; 0 leaves it out")] = 5
    budget: Annotated[Seconds, Field(description="time for the timing pass: seconds, 30s, 2min")] = 60.0
    zero_grad: Annotated[
        Literal["set_to_none", "zero", "keep"], Field(description="what the first call of a step meets in .grad")
    ] = "set_to_none"


class Profile(Part):
    """How to profile."""

    steps: Annotated[int, Field(ge=1, le=1000, description="steps under the profiler")] = 3
    record_shapes: bool = True
    with_stack: bool = False


class Scenario(Part):
    """A model, a batch, losses, strategies to get their gradients, and how to measure them."""

    schema_: Annotated[Literal[1], Field(alias="schema", description="version of the format")]
    name: Annotated[str, Field(min_length=1, max_length=200, description="of the run folder")]
    description: Annotated[str, Field(description="the question that the scenario answers")] = ""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    device: Annotated[Device, Field(description="auto, cpu, cuda[:n], mps, xpu")] = "auto"
    threads: Annotated[int | None, Field(ge=1, le=4096, description="torch threads; torch's choice if left out")] = None
    model: AnyModel
    shared: Annotated[
        str | None, Field(min_length=1, description="submodule whose output the two-stage strategies cut at")
    ] = None
    batch: AnyBatch
    losses: Annotated[dict[Annotated[str, Field(min_length=1)], AnyLoss], Field(min_length=1)]
    strategies: Annotated[tuple[AnyStrategy, ...], Field(min_length=1)]
    measure: Measure = Measure()
    profile: Profile = Profile()
    source: Annotated[Path | None, Field(exclude=True)] = None

    @property
    def folder(self) -> Path | None:
        """Where the file lies; factories are looked up there too."""
        return None if self.source is None else self.source.resolve().parent

    @property
    def factories(self) -> tuple[FactoryPart, ...]:
        """The parts that the user's own functions make."""
        parts: tuple[BaseModel, ...] = (self.model, self.batch, *self.losses.values())
        return tuple(part for part in parts if isinstance(part, FactoryPart))
