"""Which nodes a call would visit, against the engine's own events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from retainprof.capture.ledger import walk
from retainprof.capture.ledger_visits import leaves_of, nodes_of, retain_needed, visit

EVALUATE = "autograd::engine::evaluate_function: "


@dataclass
class Graph:
    """Two losses on one trunk; ``middle`` is not a leaf."""

    model: nn.ModuleDict
    middle: Tensor
    losses: list[Tensor]

    @property
    def trunk(self) -> list[Tensor]:
        return list(self.model["trunk"].parameters())


def graph() -> Graph:
    model = nn.ModuleDict({"trunk": nn.Linear(4, 6), "a": nn.Linear(6, 2), "b": nn.Linear(6, 3)})
    middle = model["trunk"](torch.randn(5, 4)).tanh()
    return Graph(model, middle, [model["a"](middle).exp().sum(), model["b"](middle).square().sum()])


def evaluated(call: Callable[[], object]) -> int:
    """Nodes that the engine says it evaluated."""
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        call()
    return sum(e.name().startswith(EVALUATE) for e in prof.profiler.kineto_results.events())


def test_backward_visits_everything_behind_the_loss() -> None:
    g = graph()
    for loss in g.losses:
        seen = visit([loss])
        assert len(seen.evaluated) == len(nodes_of([loss]))
        assert len(seen.evaluated) == evaluated(partial(torch.autograd.backward, loss, retain_graph=True))


def inputs_of(g: Graph, which: str) -> list[Tensor]:
    found: dict[str, list[Tensor]] = {
        "trunk": g.trunk,
        "one": g.trunk[1:],
        "head": list(g.model["a"].parameters()),
        "middle": [g.middle],
        "middle and trunk": [g.middle, *g.trunk],
    }
    return found[which]


@pytest.mark.parametrize("which", ["trunk", "one", "head", "middle", "middle and trunk"])
def test_calls_with_inputs_visit_the_paths_to_them(which: str) -> None:
    for accumulate in (False, True):
        g = graph()
        loss, inputs = g.losses[0], inputs_of(g, which)
        seen = visit([loss], inputs, accumulate=accumulate)
        if accumulate:
            count = evaluated(partial(torch.autograd.backward, loss, inputs=inputs, retain_graph=True))
        else:
            count = evaluated(partial(torch.autograd.grad, loss, inputs, retain_graph=True))
        assert len(seen.evaluated) == count


@pytest.mark.parametrize("which", ["trunk", "head", "middle", "middle and trunk"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_keeping_is_what_a_call_lets_go_of(which: str, accumulate: bool) -> None:
    """Ids of the ledger's keepers that are gone after a call that does not retain."""
    g = graph()
    loss, inputs = g.losses[0], inputs_of(g, which)
    owned = list(g.model.parameters())
    seen = visit([loss], inputs, accumulate=accumulate)
    before = {ident for held in walk([loss], owned=owned).storages for ident in held.keepers}
    if accumulate:
        torch.autograd.backward(loss, inputs=inputs)
    else:
        torch.autograd.grad(loss, inputs)
    after = {ident for held in walk([loss], owned=owned).storages for ident in held.keepers}
    assert before - after == seen.keeping & before
    assert visit([loss], inputs, accumulate=accumulate).keeping == frozenset()


def test_ids_stay_the_same() -> None:
    g = graph()
    first, again = visit(g.losses), visit(g.losses)
    assert first == again
    assert len(first.evaluated) == len(nodes_of(g.losses))
    a, b = (visit([loss]) for loss in g.losses)
    assert a.evaluated | b.evaluated == first.evaluated
    # shared: tanh, the trunk's linear, its transposed weight, weight and bias (the batch needs no gradient)
    assert len(a.evaluated & b.evaluated) == 5


def test_a_second_visit_fails_only_where_something_was_saved() -> None:
    """Sums and additions save nothing: a graph of these can be gone through again without retaining."""
    weight = torch.ones(3, requires_grad=True)
    shared = weight + 1
    losses = [shared.sum(), (shared + 2).sum()]
    visits = [visit([loss]) for loss in losses]
    assert visits[0].evaluated & visits[1].evaluated
    assert retain_needed(visits, [True, False]) == (False, None)
    for loss in losses:
        loss.backward()  # type: ignore[no-untyped-call]

    shared = weight.exp()
    losses = [shared.sum(), (shared + 2).sum()]
    assert retain_needed([visit([loss]) for loss in losses], [True, False]) == (True, None)
    losses[0].backward()  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="a second time"):
        losses[1].backward()  # type: ignore[no-untyped-call]


def test_leaves_before_and_behind_a_cut() -> None:
    g = graph()
    names = {id(p): name for name, p in g.model.named_parameters()}

    def found(stop_at: list[Tensor]) -> set[str]:
        return {names[id(leaf)] for leaf in leaves_of(g.losses, stop_at)}

    heads = {"a.weight", "a.bias", "b.weight", "b.bias"}
    assert found([g.middle]) == heads
    assert found([]) == heads | {"trunk.weight", "trunk.bias"}
    assert len(leaves_of([g.middle])) == 2


def test_a_loss_without_a_graph_visits_nothing() -> None:
    seen = visit([torch.ones(())])
    assert (seen.evaluated, seen.keeping) == (frozenset(), frozenset())
