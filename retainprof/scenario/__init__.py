"""Scenarios: YAML to a checked, frozen description, and from there to models, batches and losses.

Nothing here imports torch; ``retainprof.scenario.build`` does.
"""

from retainprof.scenario.batches import BATCHES
from retainprof.scenario.imports import Imports
from retainprof.scenario.loader import load
from retainprof.scenario.losses import LOSSES
from retainprof.scenario.model import Measure, Profile, Scenario
from retainprof.scenario.models import MODELS
from retainprof.scenario.schema import schema

__all__ = ["BATCHES", "LOSSES", "MODELS", "Imports", "Measure", "Profile", "Scenario", "load", "schema"]
