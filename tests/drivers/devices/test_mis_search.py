"""The local search returns a maximal independent set, and its seed determines its walk."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from scenarios.workloads.qubo_mis.graph import Graph, Vector, to_hex
from tests.support.mis_graphs import graphs, random_graph

pytest.importorskip("numba", reason="extra qubo is not installed")

from drivers.devices.cpu.mis import search


def is_maximal(graph: Graph, x: Vector) -> bool:
    start, indices = graph.neighbours()
    return all(x[v] or x[indices[start[v] : start[v + 1]]].any() for v in range(graph.nodes))


@settings(max_examples=60)
@given(graphs(), st.integers(0, 2**31 - 1))
def test_every_found_set_is_independent_maximal_and_larger(graph: Graph, seed: int) -> None:
    costs = [0]
    for found in search.improvements(search.load(graph), seed, moves=500):
        assert graph.judge(to_hex(found.solution)) == (found.cost, 0)
        assert is_maximal(graph, found.solution)
        assert found.cost < costs[-1]
        costs.append(found.cost)
    assert len(costs) > 1


@given(graphs(), st.integers(0, 1000), st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_slices_do_not_change_the_walk(graph: Graph, seed: int, slices: list[int]) -> None:
    def walked(parts: list[int]) -> tuple[int, int, bytes]:
        walk, total = search.Search(search.load(graph), seed), sum(slices)
        for part in parts:
            walk.advance(part)
        while walk.moves < total:
            walk.advance(total - walk.moves)
        return walk.moves, walk.cost, walk.solution().tobytes()

    assert walked(slices) == walked([])


def test_seeds_give_different_walks() -> None:
    loaded = search.load(random_graph(200, 0.1, 0))
    first = [next(search.improvements(loaded, seed, moves=100)).solution.tobytes() for seed in range(5)]
    assert len(set(first)) == 5


def test_a_planted_set_is_found() -> None:
    rng = np.random.default_rng(1)
    u, v = np.triu_indices(300, 1)
    kept = (rng.random(len(u)) < 0.5) & ~((u < 40) & (v < 40))
    graph = Graph(300, np.stack([u[kept], v[kept]], axis=1).astype(np.int32))
    *_, last = search.improvements(search.load(graph), 0, moves=20_000)
    assert last.cost == -40
