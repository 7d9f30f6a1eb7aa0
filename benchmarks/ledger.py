"""Time of the ledger per node of the graph, and how it grows with the graph.

    python benchmarks/ledger.py            # table; exit status 1 if a promise is broken

Promised: at most 5 µs a node, and a growth exponent of at most 1.05 from 1,000 to 100,000 nodes. The promises are for
``layers``, a deep network of linear layers (five nodes each: linear, transposed weight, tanh, two leaves). ``every node
saves``, a chain of tanh, is the worst case: each node has a storage of its own to describe.

Every size gets as many graphs as make 100,000 nodes in all, and each graph is walked once, right after all were made: so
all sizes find the processor's caches equally cold, and what grows is the ledger's own work. The collector of garbage is
off, as in the evidence pass. CPU time; the best of several rounds, since others may use the machine: ``bare`` is a loop
that only follows ``next_functions``, about 0.4 µs where the machine is free, and tells how slow it is now.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from retainprof.capture.ledger import walk
from retainprof.capture.ledger_visits import visit

SIZES = (1_000, 10_000, 100_000)
TOTAL = 100_000
ROUNDS = 4
MOST_US = 5.0
MOST_EXPONENT = 1.05
Graph = tuple[Tensor, list[Tensor]]  # a root, and what lives without its graph


def layers(nodes: int) -> Graph:
    """Linear layers and tanh: a fifth of the nodes keep a storage of their own."""
    hidden, owned = torch.randn(4, 8), list[Tensor]()
    for _ in range(nodes // 5):
        weight, bias = torch.randn(8, 8, requires_grad=True), torch.randn(8, requires_grad=True)
        owned += [weight, bias]
        hidden = F.linear(hidden, weight, bias).tanh()
    return hidden, owned


def every_node_saves(nodes: int) -> Graph:
    """A chain of tanh."""
    start = hidden = torch.randn(8, requires_grad=True)
    for _ in range(nodes):
        hidden = hidden.tanh()
    return hidden, [start]


@dataclass(frozen=True)
class Row:
    """Best CPU nanoseconds a node of one size."""

    nodes: int
    walk_ns: float
    visit_ns: float
    bare_ns: float


def bare(graph: Graph) -> int:
    """Go through the graph and read nothing; the least that any walk in Python costs."""
    seen, todo = set(), [graph[0].grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [child for child, _ in node.next_functions]
    return len(seen)


def cpu_ns(look: Callable[[Graph], object], graphs: Sequence[Graph]) -> int:
    start = time.process_time_ns()
    for graph in graphs:
        look(graph)
    return time.process_time_ns() - start


def measure(make: Callable[[int], Graph], nodes: int) -> Row:
    walks, visits, bares = [], [], []
    for _ in range(ROUNDS):
        graphs = [make(nodes) for _ in range(TOTAL // nodes)]
        walks.append(cpu_ns(lambda graph: walk([graph[0]], owned=graph[1]), graphs))
        visits.append(cpu_ns(lambda graph: visit([graph[0]]), graphs))
        bares.append(cpu_ns(bare, graphs))
    count = nodes * (TOTAL // nodes)
    return Row(nodes, min(walks) / count, min(visits) / count, min(bares) / count)


def exponent(rows: Sequence[Row]) -> float:
    """Slope of log time against log nodes, by least squares: 1 is linear."""
    xs = [math.log(row.nodes) for row in rows]
    ys = [math.log(row.nodes * row.walk_ns) for row in rows]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def main() -> int:
    """Print the tables; 1 if ``layers`` breaks a promise."""
    torch.set_num_threads(1)
    gc.disable()
    broken = False
    for name, make in (("layers", layers), ("every node saves", every_node_saves)):
        make(1000)
        rows = [measure(make, nodes) for nodes in SIZES]
        print(f"{name}\n{'nodes':>9} {'ledger µs/node':>15} {'visit µs/node':>15} {'bare µs/node':>15}")
        for row in rows:
            print(f"{row.nodes:>9,} {row.walk_ns / 1e3:>15.2f} {row.visit_ns / 1e3:>15.2f} {row.bare_ns / 1e3:>15.2f}")
        most, slope = max(row.walk_ns for row in rows) / 1e3, exponent(rows)
        print(f"  at most {most:.2f} µs a node; growth exponent {slope:.3f}\n")
        if make is layers:
            broken = most > MOST_US or slope > MOST_EXPONENT
    print(f"promised for layers: {MOST_US} µs and {MOST_EXPONENT}: {'BROKEN' if broken else 'kept'}")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
