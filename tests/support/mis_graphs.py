"""Graphs for the tests of the QUBO solvers."""

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


def least_cost(graph: Graph) -> int:
    """Return the least cost of an independent set; try every subset."""
    subsets = (np.arange(1 << graph.nodes)[:, None] >> np.arange(graph.nodes)) & 1
    inside = np.zeros(len(subsets), bool)
    for u, v in graph.edges:
        inside |= (subsets[:, u] & subsets[:, v]).astype(bool)
    return -int(subsets[~inside].sum(axis=1).max())
