"""Forward operators that run inside a backward: checkpoints that compute their part of the forward again.

An operator that autograd records carries a new sequence number. Inside an evaluation of the engine, grad mode is off
unless the call makes a graph (``create_graph``), so there such operators are a recomputation:

* in a re-entrant checkpoint (``CheckpointFunctionBackward``, or a node of one's own that enters the engine again),
* in the first node whose saved tensor is unpacked, before the node's own operators, with the other kind.

Under ``create_graph`` the nodes' own operators are recorded as well: the last operator of the node then has a number,
too. There, of a checkpoint of the second kind only operators that save a tensor are told from them.
"""

from __future__ import annotations

import numpy as np

from retainprof.trace.columns import Column
from retainprof.trace.facts import Facts

__all__ = ["forward_again"]


def forward_again(facts: Facts) -> Column:
    """Mask of the outermost recomputed operators: as the forward's code calls them, not what they call in turn."""
    operators, parent = facts.trace.operators, facts.nest.parent
    recorded: Column = facts.aten & (operators.sequence >= 0) & (operators.forward_thread == 0) & ~facts.in_engine
    evaluation = facts.outwards(parent, facts.engine)
    recorded &= evaluation >= 0
    if not recorded.any():
        return recorded
    rows = np.flatnonzero(recorded)
    outermost = rows[~recorded[np.maximum(facts.outwards(parent[rows], recorded | facts.engine), 0)]]
    told = (
        ~_makes_graph(facts, recorded, evaluation)[evaluation[outermost]]
        | facts.containing(lambda name: name == "aten::detach")[outermost]
    )
    found = np.zeros(len(operators), bool)
    found[outermost[told]] = True
    return found


def _makes_graph(facts: Facts, recorded: Column, evaluation: Column) -> Column:
    """Mask of the evaluations whose node's own operators are recorded: the last one is, and the engine isn't entered."""
    rows = np.flatnonzero(facts.aten & (evaluation >= 0) & ~facts.in_engine)
    last = np.full(len(evaluation), -1)
    outer = facts.outwards(facts.aten_parent[rows], facts.aten | facts.engine) < 0
    last[evaluation[rows[outer]]] = rows[outer]
    entered = np.zeros(len(evaluation), bool)
    around = evaluation[facts.engine]
    entered[around[around >= 0]] = True
    makes: Column = (last >= 0) & recorded[last] & ~entered
    return makes
