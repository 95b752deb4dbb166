"""Graphs for the tests of the QUBO solvers."""

import itertools

import numpy as np
from hypothesis import strategies as st

from scenarios.workloads.qubo_mis.graph import Graph


@st.composite
def graphs(draw: st.DrawFn, most_nodes: int = 40) -> Graph:
    """Draw any simple graph, including edgeless and complete ones."""
    nodes = draw(st.integers(1, most_nodes))
    seed = draw(st.integers(0, 2**32))
    return random_graph(nodes, draw(st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.7, 1.0])), seed)


def random_graph(nodes: int, density: float, seed: int) -> Graph:
    u, v = np.triu_indices(nodes, 1)
    kept = np.random.default_rng(seed).random(len(u)) < density
    return Graph(nodes, np.stack([u[kept], v[kept]], axis=1).astype(np.int32))


def best_of(graph: Graph) -> tuple[int, list[int]]:
    """Return the optimum of a small graph, by trying every set."""
    sets = np.array(list(itertools.product((0, 1), repeat=graph.nodes)), np.uint8)
    u, v = graph.edges.T
    costs = 8 * np.sum(sets[:, u] & sets[:, v], axis=1, dtype=int) - sets.sum(axis=1, dtype=int)
    best = int(np.argmin(costs))
    return int(costs[best]), sets[best].tolist()
