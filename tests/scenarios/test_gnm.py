"""The generator of graphs: networkx's edges without networkx, and its refusals; a graph for solvers."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import example, given, strategies as st
from numpy.typing import NDArray

from rig.analysis.solving.gap_to_target import THRESHOLDS, gap
from rig.errors import DataError, UsageError
from rig.solving.model import from_hex
from scenarios.workloads.qubo_mis import random_graphs as gnm
from scenarios.workloads.qubo_mis.graph import Graph, from_payload, to_hex
from scenarios.workloads.qubo_mis.random_graphs import edge_count, gnm_edges
from tests.support.mis_graphs import graphs
from tests.support.raised import raised, raising

densities = st.floats(0.001, 1.0) | st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.999, 1.0])
seeds = st.integers(0, 2**63 - 1) | st.integers(0, 10)


def by_networkx(nodes: int, density: float, seed: int) -> NDArray[np.int32]:
    networkx = pytest.importorskip("networkx")
    graph = networkx.gnm_random_graph(nodes, int(0.5 * density * nodes**2), seed)
    return np.array(sorted(sorted(edge) for edge in graph.edges), np.int32).reshape(-1, 2)


# ---- the same edges -------------------------------------------------------------------------


@given(st.integers(2, 70), densities, seeds)
@example(2, 1.0, 0)
@example(2, 0.5, 0)
@example(64, 0.97, 3)
def test_edges_match_networkx(nodes: int, density: float, seed: int) -> None:
    edges = gnm_edges(nodes, density, seed).edges
    assert edges.dtype == np.int32 and len(edges) == min(edge_count(nodes, density), nodes * (nodes - 1) // 2)
    assert np.array_equal(edges, by_networkx(nodes, density, seed))


@pytest.mark.parametrize(
    ("nodes", "density", "seed"), [(255, 0.25, 0), (256, 0.05, 1), (1000, 0.01, 3), (300, 0.996, 0), (400, 1.0, 5)]
)
def test_edges_of_larger_graphs_match(nodes: int, density: float, seed: int) -> None:
    assert np.array_equal(gnm_edges(nodes, density, seed).edges, by_networkx(nodes, density, seed))


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_edges_do_not_depend_on_chunk_size(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    whole = gnm_edges(40, 0.6, 11).edges
    monkeypatch.setattr(gnm, "_CHUNK", chunk)
    assert np.array_equal(gnm_edges(40, 0.6, 11).edges, whole)


def test_networkx_is_not_needed() -> None:
    code = (
        "import sys; sys.modules['networkx'] = sys.modules['scipy'] = sys.modules['numba'] = None;"
        "from scenarios.workloads.qubo_mis.random_graphs import gnm_edges; print(len(gnm_edges(50, 0.1, 0).edges))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "125\n"


# ---- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "density", "seed", "field"), [
    (0, 0.1, 0, "nodes"), (1, 0.1, 0, "nodes"), (-5, 0.1, 0, "nodes"), (2**31, 1e-9, 0, "nodes"),
    (10, 0.0, 0, "density"), (10, -0.1, 0, "density"), (10, 1.01, 0, "density"), (10, float("nan"), 0, "density"),
    (10, float("inf"), 0, "density"), (10, 0.1, -1, "seed"), (10, 0.1, 2**63, "seed"),
])  # fmt: skip
def test_invalid_graphs_are_refused(nodes: Any, density: Any, seed: Any, field: str) -> None:
    error = raised(UsageError, gnm_edges, nodes, density, seed)
    assert error.field == field
    assert error.value is {"nodes": nodes, "density": density, "seed": seed}[field]
    assert error.remedy


def left_free(patch: pytest.MonkeyPatch, count: int) -> None:
    patch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=count))


@pytest.mark.parametrize("nodes", [100_000, 1_000_000, 2**31 - 1])
def test_graphs_too_large_for_memory_are_refused(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    left_free(monkeypatch, 10_000_000)
    error = raised(UsageError, gnm_edges, nodes, 0.01, 0, says="more than")
    assert (error.field, error.value) == ("nodes", nodes)
    most = int(error.remedy.split()[3])
    assert gnm_edges(most, 0.01, 0).nodes == most  # the remedy works
    raised(UsageError, gnm_edges, most + 100, 0.01, 0)


def test_too_many_edges_for_a_payload_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    left_free(monkeypatch, 2**60)
    raised(UsageError, gnm_edges, 1_000_000, 0.01, 0, says="payload can hold")


def test_a_memory_error_while_drawing_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gnm, "_drawn", raising(MemoryError()))
    raised(UsageError, gnm_edges, 50, 0.1, 0, says="memory holds")


# ---- a graph for solvers: its cost, its neighbours, its payload and its solutions as text ------


@st.composite
def graphs_and_sets(draw: st.DrawFn) -> tuple[Graph, NDArray[np.uint8]]:
    """Draw any graph, and any set of its nodes."""
    graph = draw(graphs(12))
    return graph, np.array(draw(st.lists(st.integers(0, 1), min_size=graph.nodes, max_size=graph.nodes)), np.uint8)


def q_of(graph: Graph) -> NDArray[np.int64]:
    """Return Q of the benchmark: -1 for each node, 4 for each ordered pair of nodes that share an edge."""
    q = -np.eye(graph.nodes, dtype=np.int64)
    u, v = graph.edges.T
    q[u, v] = q[v, u] = 4
    return q


# ---- cost -----------------------------------------------------------------------------------


@given(graphs_and_sets())
def test_a_solution_is_judged_by_cost_and_conflicts(drawn: tuple[Graph, NDArray[np.uint8]]) -> None:
    graph, x = drawn
    q, wide = q_of(graph), x.astype(np.int64)
    assert graph.judge(to_hex(x)) == (graph.cost(x), wide @ (q == 4) @ wide // 2)
    assert graph.cost(x) == wide @ q @ wide


# ---- neighbours -----------------------------------------------------------------------------


@given(graphs(12))
def test_neighbours_are_the_rows_of_q(graph: Graph) -> None:
    start, indices = graph.neighbours()
    rows = [indices[start[u] : start[u + 1]].tolist() for u in range(graph.nodes)]
    assert rows == [np.flatnonzero(row == 4).tolist() for row in q_of(graph)]
    assert (start.dtype, indices.dtype, start.shape) == (np.int64, np.int32, (graph.nodes + 1,))


# ---- payload --------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [
    [], [3], [3, 1], [3, -1], [3, 1, 0, 1, 2], [0, 0], [-3, 0], [3, 1, 1, 0], [3, 1, 1, 1], [3, 1, 0, 3],
    [3, 1, -1, 1], [3, 2, 1, 2, 0, 1], [3, 2, 0, 1, 0, 1], [[3, 0]], [3.0, 0.0],
    [3, 1, 0, 2**32 + 1],
])  # fmt: skip
def test_a_bad_payload_is_refused(payload: list[Any]) -> None:
    assert raised(DataError, from_payload, np.array(payload)).field == "payload"


# ---- solutions as text ----------------------------------------------------------------------


def test_the_first_node_is_the_highest_bit() -> None:
    assert to_hex([1, 0, 0, 0, 0, 0, 0, 0, 0, 1]) == "8040"


@pytest.mark.parametrize("text", ["", "8", "80", "804000", "zz40", "8041", None, 8040])
def test_a_malformed_solution_text_is_refused(text: Any) -> None:
    assert raised(DataError, from_hex, text, 10).field == "solution"


# ---- gap ------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.sampled_from(THRESHOLDS))
def test_a_gap_at_a_threshold_is_within(tens: int, limit: float) -> None:
    target = -100 * tens
    assert gap(target + round(limit * 100) * tens, target) <= limit
    assert gap(target + round(limit * 100) * tens + 1, target) > limit


@given(st.integers(-1000, 1000), st.integers(-1000, 1000).filter(bool))
def test_a_worse_cost_has_a_positive_gap(cost: int, target: int) -> None:
    assert gap(cost, target) == (cost - target) / abs(target)


@pytest.mark.parametrize(("cost", "target", "field"), [
    (-5, 0, "target"), (-5, float("nan"), "target"), (float("inf"), -5, "cost"), (float("nan"), -5, "cost"),
])  # fmt: skip
def test_an_undefined_gap_is_refused(cost: float, target: float, field: str) -> None:
    assert raised(UsageError, gap, cost, target).field == field
