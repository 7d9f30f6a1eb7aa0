"""The ways to get the gradients of several losses: one small class each, one registry. Nothing here imports torch."""

from retainprof.strategies.base import REGISTRY, Step, Strategy, register
from retainprof.strategies.calls import Calls, SpelledCall
from retainprof.strategies.per_loss import Batched, Grad, Retain, Separate
from retainprof.strategies.together import Joint, Summed
from retainprof.strategies.two_stage import Edge, TwoStage, TwoStagePerLoss

__all__ = [
    "REGISTRY",
    "Batched",
    "Calls",
    "Edge",
    "Grad",
    "Joint",
    "Retain",
    "Separate",
    "SpelledCall",
    "Step",
    "Strategy",
    "Summed",
    "TwoStage",
    "TwoStagePerLoss",
    "register",
]
