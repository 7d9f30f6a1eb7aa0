"""What a strategy is: named options, the calls it makes, and the code that makes them. Nothing here imports torch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from retainprof.records import CallSpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["REGISTRY", "Step", "Strategy", "register"]


class Step(Protocol):
    """One step of one strategy, as the strategy sees it.

    The step times or observes every call; the strategy only says what is called. Tensors that keep the graph alive
    (losses, cut tensors) belong to the step: a strategy must not store them on itself.
    """

    def forward(self, only: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Run the model once and compute the losses ``only`` (all the strategy uses); the outputs are dropped."""

    def forward_cut(self) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
        """Forward with the shared module's output detached: its tensors, the detached leaves, and the losses."""

    def forward_shared(self) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Forward, keeping the shared module's output tensors (not detached), and the losses."""

    def call(
        self,
        spec: CallSpec,
        roots: Sequence[Tensor],
        *,
        grad_tensors: Sequence[Tensor | None] | None = None,
        inputs: Sequence[Tensor] | None = None,
        is_grads_batched: bool = False,
    ) -> tuple[Tensor | None, ...]:
        """Make one call; for kind ``grad`` the gradients, kept by the step, else ()."""

    def total(self, losses: dict[str, Tensor]) -> Tensor:
        """The sum of the losses, part of the forward; it is kept with them."""

    def parameters(self) -> list[Tensor]:
        """All trainable parameters (and inputs that require a gradient), in the model's order."""

    def wanted(self, spec: CallSpec) -> list[Tensor] | None:
        """The parameters that ``spec.wrt`` or ``spec.inputs`` name; None where a backward call names none."""

    def prepare(self, spec: CallSpec) -> None:
        """Clear gradients or make an SGD step, where ``spec`` says so; outside the call's times."""

    def head_parameters(self, loss: str) -> list[Tensor]:
        """Trainable leaves that ``loss`` reaches without passing through the shared output."""

    def shared_parameters(self) -> list[Tensor]:
        """Trainable leaves behind the shared output."""

    def add_to_grad(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Put gradients that ``autograd.grad`` returned into ``.grad``, outside the engine."""

    def basis(self, count: int, roots: Sequence[Tensor]) -> list[Tensor]:
        """Grad outputs that pick each root in turn, batched: ``count`` by root shape."""

    def stacked(self, sets: Sequence[Sequence[Tensor | None]]) -> list[Tensor | None]:
        """Tensor by tensor, the sets stacked along a new first dimension; None where all are None."""

    def summed(self, sets: Sequence[Sequence[Tensor | None]]) -> list[Tensor | None]:
        """Tensor by tensor, the sum over the sets; None where all are None."""

    def weights(self, roots: Sequence[Tensor], factors: Sequence[float]) -> list[Tensor]:
        """Grad outputs that weight each scalar root."""


class Strategy(BaseModel):
    """One way to get the gradients of several losses.

    Subclasses are frozen pydantic models: their fields are the options that a scenario may set. ``summary`` is one line
    for ``retainprof list``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    summary: ClassVar[str] = ""
    needs_shared: ClassVar[bool] = False  # uses the scenario's ``shared`` submodule
    needs_several: ClassVar[bool] = False
    returns_gradients: ClassVar[bool] = False  # leaves ``.grad`` alone

    kind: str
    name: Annotated[str, Field(description="name in tables and folders; the kind where left out")] = ""
    create_graph: Annotated[bool, Field(description="build a graph of every call, for higher derivatives")] = False
    checkpoint: Annotated[
        str | None,
        Field(description="submodule whose activations are recomputed in every call (torch.utils.checkpoint)"),
    ] = None
    offload: Annotated[
        bool, Field(description="saved tensors are copied away (save_on_cpu) and back in every call")
    ] = False
    autocast: Annotated[
        Literal["bfloat16", "float16"] | None, Field(description="run the forward under torch.autocast")
    ] = None
    compile: Annotated[bool, Field(description="torch.compile the model, for this strategy alone")] = False

    @property
    def title(self) -> str:
        """The name, or the kind where none was given."""
        return self.name or self.kind

    @property
    def changes_parameters(self) -> bool:
        """Whether the step itself changes parameters."""
        return False

    @abstractmethod
    def calls(self, losses: tuple[str, ...]) -> tuple[CallSpec, ...]:
        """The calls of one step, numbered from 0."""

    @abstractmethod
    def run(self, step: Step, calls: tuple[CallSpec, ...]) -> None:
        """One step: forward passes and exactly ``calls``, through ``step``."""

    def used_losses(self, losses: tuple[str, ...]) -> tuple[str, ...]:
        """The losses whose gradients the strategy computes, in the scenario's order."""
        return losses

    def options(self) -> dict[str, Any]:
        """Options that differ from their defaults, for the result file."""
        return self.model_dump(exclude={"name", "kind"}, exclude_defaults=True, mode="json")


REGISTRY: dict[str, type[Strategy]] = {}
S = TypeVar("S", bound=type[Strategy])


def register(kind: str) -> Callable[[S], S]:
    """Class decorator: make a strategy known by ``kind``; a second one of that name is refused."""

    def add(cls: S) -> S:
        if kind in REGISTRY:
            raise ValueError(
                f"strategy {kind!r} is registered twice: {REGISTRY[kind].__qualname__} and {cls.__qualname__}"
            )
        REGISTRY[kind] = cls
        return cls

    return add
