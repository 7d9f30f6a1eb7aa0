"""The reference cases: bytes after the forward and after each call, and nodes of each call, equal the recorded truth.

The steps are made here anew, from the case modules and their README alone.
"""

from __future__ import annotations

import gc
import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from retainprof.capture.ledger import Ledger, walk, walk_pinned
from retainprof.capture.ledger_sums import by_module, by_node, remaining
from retainprof.capture.ledger_visits import Visit, retain_needed, visit
from retainprof.capture.modules import ModuleMap

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
TRUTH = CASES / "truth"
pytestmark = pytest.mark.skipif(not TRUTH.is_dir(), reason=f"no reference cases at {CASES.name}/ beside the checkout")
SLOW = {"o14_compiled"}


def plans() -> list[Any]:
    found = []
    for path in sorted(TRUTH.glob("*.json")) if TRUTH.is_dir() else ():
        recorded = json.loads(path.read_text())
        for plan, truth in recorded["plans"].items():
            name = recorded["case"]
            marks = [pytest.mark.slow] if name in SLOW else []
            found.append(pytest.param(name, plan, truth, id=f"{name}-{plan}", marks=marks))
    return found


@dataclass
class Point:
    """What the ledger says at one moment."""

    held: Ledger
    pinned: Ledger


@dataclass
class Played:
    """One step, walked after the forward and after each call."""

    points: list[Point] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)


class Stepper:
    """Makes the calls of one plan."""

    def __init__(self, name: str, plan: str) -> None:
        module = importlib.import_module(name)
        changed = {} if plan == "main" else module.VARIANTS[plan]
        make_model, make_batch, self.plan = (
            changed.get(key, getattr(module, key)) for key in ("make_model", "make_batch", "PLAN")
        )
        self.functions = {f.__name__: f for f in module.losses}
        self.model: nn.Module = make_model()
        self.inputs, self.targets = make_batch()
        self.losses: dict[str, Tensor] = {}
        self.returned: list[Tensor] = []

    def play(self) -> Played:
        played = Played()
        wanted = {call["loss"] for call in self.plan}
        with ModuleMap(self.model) as modules:
            outputs = self.model(*self.inputs)
            self.losses = {name: f(outputs, self.targets) for name, f in self.functions.items() if name in wanted}
            del outputs
        played.points.append(self.look(modules))
        for call in self.plan:
            self.prepare(call)
            wrt: list[Tensor] | None = None
            if "wrt" in call:
                wrt = [self.model.get_parameter(name) for name in call["wrt"]]
            played.visits.append(visit([self.losses[call["loss"]]], wrt, accumulate=call.get("kind") != "grad"))
            try:
                self.call(call, wrt)
            except RuntimeError:
                played.points.append(self.look(modules))
                break
            played.points.append(self.look(modules))
        return played

    def prepare(self, call: dict[str, Any]) -> None:
        if "sgd_before" in call:
            torch.optim.SGD(self.model.parameters(), lr=call["sgd_before"]).step()
        if "zero_grad_before" in call:
            self.model.zero_grad(set_to_none=call["zero_grad_before"] == "none")

    def call(self, call: dict[str, Any], wrt: list[Tensor] | None) -> None:
        flags = {"retain_graph": call.get("retain", False), "create_graph": call.get("create_graph", False)}
        loss = self.losses[call["loss"]]
        if wrt is None:
            torch.autograd.backward(loss, **flags)
        else:
            self.returned += torch.autograd.grad(loss, wrt, **flags)

    def look(self, modules: ModuleMap) -> Point:
        leaves = [*self.model.parameters(), *self.inputs]
        gradients = [leaf.grad for leaf in leaves if leaf.grad is not None] + self.returned
        targets = list(self.targets.values()) if isinstance(self.targets, dict) else self.targets
        targets = targets if isinstance(targets, (list, tuple)) else [targets]
        kept = [*leaves, *self.model.buffers(), *gradients, *(t for t in targets if isinstance(t, Tensor))]
        pinned = walk_pinned(gradients, owned=kept, modules=modules)
        return Point(walk(list(self.losses.values()), owned=kept, modules=modules, beside=pinned), pinned)


@pytest.fixture(scope="module", autouse=True)
def _cases() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sys.path.insert(0, str(CASES))
    yield
    sys.path.remove(str(CASES))
    torch.set_num_threads(threads)


def play(name: str, plan: str) -> Played:
    if name in SLOW and shutil.which("g++") is None:
        pytest.skip("inductor needs a C++ compiler")
    gc.collect()
    return Stepper(name, plan).play()


@pytest.mark.parametrize(("name", "plan", "truth"), plans())
def test_case(name: str, plan: str, truth: dict[str, Any]) -> None:
    played = play(name, plan)
    start = played.points[0].held
    assert start.total_bytes == truth["forward"]["retained_bytes"]
    found = [{"bytes": held.bytes, "kept_by": sorted(set(held.kept_by))} for held in start.storages]
    by_size = sorted(found, key=lambda one: (-int(str(one["bytes"])), one["kept_by"]))
    assert by_size == truth["forward"]["storages"]

    calls = truth["calls"]
    assert [point.held.total_bytes for point in played.points[1:]] == [c["retained_bytes_after"] for c in calls]
    assert [point.pinned.total_bytes for point in played.points[1:]] == [c["pinned_by_grads_bytes"] for c in calls]
    for call, seen in zip(calls, played.visits, strict=True):
        if call["error"] is None:
            assert len(seen.evaluated) == call["nodes"]


@pytest.mark.parametrize(("name", "plan", "truth"), plans())
def test_sums_equal_totals(name: str, plan: str, truth: dict[str, Any]) -> None:
    for point in play(name, plan).points:
        for ledger in (point.held, point.pinned):
            assert sum(one.bytes for one in by_node(ledger)) == ledger.total_bytes
            assert sum(one.bytes for one in by_module(ledger)) == ledger.total_bytes


# what each call of a plan would leave if the calls kept by "r" retained, from the ledger of the *main* plan alone,
# against the truth of the variant that really does so: (case, plan walked, plan whose truth must come out)
SIMULATED = [
    ("o06_sac_shared_encoder", "main", "actor_frees"),
    ("o07_jacobian_rows", "main", "last_frees"),
    ("o08_pinn", "main", "as_needed"),
    ("o09_frozen_trunk", "main", "not_retained"),
    ("o15_seed_benchmark", "kept", "main"),
]


@pytest.mark.parametrize(("name", "walked", "wanted"), SIMULATED)
def test_remaining_foretells_other_flags(name: str, walked: str, wanted: str) -> None:
    """The bytes of a plan with other flags follow from one walk after the first call of this plan, and the visits."""
    played = play(name, walked)
    truth = json.loads((TRUTH / f"{name[1:3]}.json").read_text())["plans"][wanted]["calls"]
    let_go: set[int] = set()
    after_first = played.points[1].held
    for call, seen in zip(truth, played.visits, strict=True):
        if not call["retain_graph"]:
            let_go |= seen.keeping
        assert sum(held.bytes for held in remaining(after_first, let_go)) == call["retained_bytes_after"]


NEEDED = [
    ("o01_two_heads", "main", (True, None)),
    ("o02_kept_graph", "main", (True, False)),
    ("o05_gan_no_detach", "main", (True, None)),
    ("o05_gan_no_detach", "detached_retained", (False, None)),
    ("o06_sac_shared_encoder", "main", (True, False, None)),
    ("o07_jacobian_rows", "main", (True,) * 23 + (False,)),
    ("o08_pinn", "main", (True, False, False, None)),
    ("o09_frozen_trunk", "main", (False, None)),
    ("o10_frozen_head", "main", (True, None)),
]


@pytest.mark.parametrize(("name", "plan", "wanted"), NEEDED)
def test_which_retain_was_needed(name: str, plan: str, wanted: tuple[bool | None, ...]) -> None:
    """As the cases' README argues for each of them."""
    visits = play(name, plan).visits
    module = importlib.import_module(name)
    calls = module.PLAN if plan == "main" else module.VARIANTS[plan]["PLAN"]
    assert retain_needed(visits, [call.get("retain", False) for call in calls]) == wanted
