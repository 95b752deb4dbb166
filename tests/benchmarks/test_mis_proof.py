"""Proofs agree with a search of all sets, and with another solver."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.mis_proof.reduce import reduced, undone
from drivers.devices.cpu.mis import targets_command
from rig.errors import DataError
from scenarios.workloads.qubo_mis.graph import Graph, to_hex
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from scenarios.workloads.qubo_mis.targets import fault_of
from tests.support.mis_graphs import best_of, graphs, random_graph

pytest.importorskip("numba", reason="extra qubo is not installed")

from benchmarks.mis_proof import exact


@given(graphs(most_nodes=9), st.booleans())
def test_a_proven_set_is_the_best_of_all_subsets(graph: Graph, reduce_first: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_REDUCE_BELOW", 1e9 if reduce_first else -1.0)
        solution, closed = exact.maximum_independent_set(graph)
    assert closed
    assert graph.judge(to_hex(solution)) == (best_of(graph)[0], 0)


@given(graphs(most_nodes=70))
def test_reductions_do_not_change_the_answer(graph: Graph) -> None:
    costs = []
    for below in (1e9, -1.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exact, "_REDUCE_BELOW", below)
            solution, closed = exact.maximum_independent_set(graph)
        assert closed
        costs.append(graph.cost(solution))
    assert costs[0] == costs[1]


@given(graphs())
def test_undoing_reductions_gives_an_independent_set(graph: Graph) -> None:
    kernel, chosen = reduced(graph), set[int]()
    for v, near in kernel.adjacency.items():
        if not near & chosen:
            chosen.add(v)
    x = np.zeros(graph.nodes, np.uint8)
    x[sorted(undone(kernel, chosen))] = 1
    assert graph.judge(to_hex(x))[1] == 0
    assert x.sum() == len(chosen) + len(kernel.decided)


def test_a_tree_needs_no_search() -> None:
    rng = np.random.default_rng(0)
    edges = np.array(sorted((int(rng.integers(0, v)), v) for v in range(1, 500)), np.int32)
    assert not reduced(Graph(500, edges)).adjacency


def test_a_contradicted_proof_is_refused() -> None:
    graph = gnm_edges(30, 0.1, 7)
    row = targets_command.compute(graph, 0.1, 7, seconds=0.02)
    found = exact.proven(row, graph, seconds=10.0)
    assert found.proven == exact.PROOF
    assert fault_of(found, graph) is None
    with pytest.raises(DataError, match="is marked as proven optimal"):
        exact.proven(replace(found, cost=found.cost - 1), graph, seconds=10.0)


def test_a_search_without_time_gives_a_set() -> None:
    graph = random_graph(300, 0.1, 0)
    solution, closed = exact.maximum_independent_set(graph, seconds=0.0)
    assert not closed
    assert graph.judge(to_hex(solution))[1] == 0
    assert solution.any()


@pytest.mark.parametrize(("nodes", "density"), [(60, 0.05), (60, 0.2), (80, 0.5)])
def test_another_solver_proves_the_same(nodes: int, density: float) -> None:
    pytest.importorskip("ortools", reason="extra peers is not installed")
    from ortools.sat.python import cp_model

    graph = random_graph(nodes, density, 0)
    model = cp_model.CpModel()
    chosen = [model.new_bool_var(f"x{v}") for v in range(graph.nodes)]
    for u, v in graph.edges.tolist():
        model.add_bool_or(chosen[u].negated(), chosen[v].negated())
    model.maximize(sum(chosen))
    solver = cp_model.CpSolver()
    assert solver.solve(model) == cp_model.OPTIMAL

    solution, closed = exact.maximum_independent_set(graph)
    assert closed
    assert graph.cost(solution) == graph.cost([solver.value(x) for x in chosen])
