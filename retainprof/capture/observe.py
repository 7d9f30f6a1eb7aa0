"""What may watch a step: an observer is told of every forward, loss and call, and may end the step early."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Observer", "Observers", "StopStep"]


class StopStep(BaseException):
    """Raised by an observer to end a step at a chosen point; no error, and nothing catches it but the step."""


class Observer:
    """Base class: sees everything, does nothing. ``segment`` counts forward parts of a step from 0."""

    def step_begin(self) -> None:
        """State is restored; the step starts."""

    def forward_begin(self, segment: int) -> None:
        """A forward, or the addition of the losses, starts."""

    def loss_begin(self, name: str) -> None:
        """A loss is about to be computed, inside a forward."""

    def loss_end(self, name: str) -> None:
        """The loss has been computed."""

    def forward_end(self, segment: int) -> None:
        """The outputs have been dropped; only losses keep the graph."""

    def call_begin(self, index: int) -> None:
        """The engine is about to be entered; this is the last thing before it."""

    def call_end(self, index: int) -> None:
        """The engine has returned; this is the first thing after it. Not called where the call raised."""

    def call_failed(self, index: int) -> None:
        """The call raised; no later call will be made."""

    def step_end(self) -> None:
        """The step is over, complete or not; losses and gradients are still there."""


class Observers(Observer):
    """Several observers, told in order at the beginning of things and in reverse order at their end."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._inwards = tuple(observers)
        self._outwards = tuple(reversed(observers))

    def step_begin(self) -> None:
        for observer in self._inwards:
            observer.step_begin()

    def forward_begin(self, segment: int) -> None:
        for observer in self._inwards:
            observer.forward_begin(segment)

    def loss_begin(self, name: str) -> None:
        for observer in self._inwards:
            observer.loss_begin(name)

    def loss_end(self, name: str) -> None:
        for observer in self._outwards:
            observer.loss_end(name)

    def forward_end(self, segment: int) -> None:
        for observer in self._outwards:
            observer.forward_end(segment)

    def call_begin(self, index: int) -> None:
        for observer in self._inwards:
            observer.call_begin(index)

    def call_end(self, index: int) -> None:
        for observer in self._outwards:
            observer.call_end(index)

    def call_failed(self, index: int) -> None:
        for observer in self._outwards:
            observer.call_failed(index)

    def step_end(self) -> None:
        for observer in self._outwards:
            observer.step_end()
