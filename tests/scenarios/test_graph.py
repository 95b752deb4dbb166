"""A graph for solvers: its cost, its neighbours, its payload and its solutions as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rig.analysis.solving.gap import THRESHOLDS, gap
from rig.errors import DataError, UsageError
from rig.solving.model import from_hex
from scenarios.workloads.qubo_mis.graph import Graph, from_payload, to_hex
from tests.support.mis_graphs import graphs
from tests.support.raised import raised


@st.composite
def graphs_and_sets(draw: st.DrawFn) -> tuple[Graph, NDArray[np.uint8]]:
    """Any graph, and any set of its nodes."""
    graph = draw(graphs(12))
    return graph, np.array(draw(st.lists(st.integers(0, 1), min_size=graph.nodes, max_size=graph.nodes)), np.uint8)


def q_of(graph: Graph) -> NDArray[np.int64]:
    """Q of the benchmark: -1 for each node, 4 for each ordered pair of nodes that share an edge."""
    q = -np.eye(graph.nodes, dtype=np.int64)
    u, v = graph.edges.T
    q[u, v] = q[v, u] = 4
    return q


# ---- cost -----------------------------------------------------------------------------------


@given(graphs_and_sets())
def test_a_solution_is_judged_by_x_q_x_and_by_the_edges_within_it(drawn: tuple[Graph, NDArray[np.uint8]]) -> None:
    graph, x = drawn
    q, wide = q_of(graph), x.astype(np.int64)
    assert (graph.cost(x), graph.conflicts(x)) == (wide @ q @ wide, wide @ (q == 4) @ wide // 2)
    assert graph.judge(to_hex(x)) == (graph.cost(x), graph.conflicts(x))


# ---- neighbours -----------------------------------------------------------------------------


@given(graphs(12))
def test_neighbours_are_the_rows_of_q(graph: Graph) -> None:
    start, indices = graph.neighbours()
    rows = [indices[start[u] : start[u + 1]].tolist() for u in range(graph.nodes)]
    assert rows == [np.flatnonzero(row == 4).tolist() for row in q_of(graph)]
    assert (start.dtype, indices.dtype, start.shape) == (np.int64, np.int32, (graph.nodes + 1,))


# ---- payload --------------------------------------------------------------------------------


@given(graphs(12))
def test_a_payload_comes_back_as_the_graph(graph: Graph) -> None:
    payload = graph.to_payload()
    back = from_payload(payload)
    assert (payload.dtype, payload.shape) == (np.int32, (2 + 2 * len(graph.edges),))
    assert back.nodes == graph.nodes
    assert np.array_equal(back.edges, graph.edges)


@pytest.mark.parametrize(
    "payload",
    [
        [], [3], [3, 1], [3, -1], [3, 1, 0, 1, 2], [0, 0], [-3, 0], [3, 1, 1, 0], [3, 1, 1, 1], [3, 1, 0, 3],
        [3, 1, -1, 1], [3, 2, 1, 2, 0, 1], [3, 2, 0, 1, 0, 1], [[3, 0]], [3.0, 0.0],
        [3, 1, 0, 2**32 + 1],
    ],
)  # fmt: skip
def test_what_is_no_payload_is_refused(payload: list[Any]) -> None:
    assert raised(DataError, from_payload, np.array(payload)).field == "payload"


# ---- solutions as text ----------------------------------------------------------------------


@given(st.lists(st.integers(0, 1), min_size=1, max_size=40))
def test_a_solution_comes_back_from_its_digits(x: list[int]) -> None:
    assert from_hex(to_hex(x), len(x)).tolist() == x


def test_node_0_is_the_highest_bit_of_the_first_byte() -> None:
    assert to_hex([1, 0, 0, 0, 0, 0, 0, 0, 0, 1]) == "8040"


@pytest.mark.parametrize("text", ["", "8", "80", "804000", "zz40", "8041", None, 8040])
def test_text_that_is_no_solution_of_ten_nodes_is_refused(text: Any) -> None:
    assert raised(DataError, from_hex, text, 10).field == "solution"


# ---- gap ------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.sampled_from(THRESHOLDS))
def test_a_gap_of_exactly_a_threshold_is_within_it(tens: int, limit: float) -> None:
    target = -100 * tens
    assert gap(target + round(limit * 100) * tens, target) <= limit
    assert gap(target + round(limit * 100) * tens + 1, target) > limit


@given(st.integers(-1000, 1000), st.integers(-1000, 1000).filter(bool))
def test_a_gap_is_positive_when_worse_and_negative_when_better(cost: int, target: int) -> None:
    assert gap(cost, target) == (cost - target) / abs(target)


@pytest.mark.parametrize(
    ("cost", "target", "field"),
    [(-5, 0, "target"), (-5, float("nan"), "target"), (float("inf"), -5, "cost"), (float("nan"), -5, "cost")],
)
def test_a_gap_that_is_not_defined_is_refused(cost: float, target: float, field: str) -> None:
    assert raised(UsageError, gap, cost, target).field == field
