"""A graph as dimod's samplers want it: a binary quadratic model."""

from __future__ import annotations

from typing import Any

import numpy as np

from rig.plugins import imported
from scenarios.workloads.qubo_mis.graph import CONFLICT_COST, NODE_COST, Graph


def to_bqm(graph: Graph) -> Any:
    """A ``dimod.BinaryQuadraticModel`` of vartype BINARY with variables 0 to n - 1, whose energy is the cost.

    Raises ``MissingExtraError`` when dimod is not installed.
    """
    dimod = imported("dimod", "a binary quadratic model", "qubo", field="extra")
    linear = np.full(graph.nodes, NODE_COST, np.float64)
    weights = np.full(len(graph.edges), CONFLICT_COST, np.float64)
    u, v = np.ascontiguousarray(graph.edges.T)
    return dimod.BinaryQuadraticModel.from_numpy_vectors(linear, (u, v, weights), 0.0, dimod.BINARY)
