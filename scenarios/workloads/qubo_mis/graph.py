"""The problem of the QUBO workload: a graph as nodes and sorted edges, and the cost of a binary vector.

The cost is x^T Q x with -1 on the diagonal of Q and 4 for each ordered pair that is an edge (NeuroBench,
eq. 22 and 23). A reply states a solution as the hexadecimal digits of its packed bits; see ``to_hex``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError
from rig.plugins import imported
from rig.solving.model import ROWS, Qubo, from_hex, from_payload as qubo_of

Vector = NDArray[np.uint8]
NODE_COST = -1
"""The cost of a node in the set: the diagonal of Q."""
PAIR_COST = 4
"""The entry of Q for two nodes joined by an edge; x^T Q x adds it twice, once for each order of the nodes."""
CONFLICT_COST = 2 * PAIR_COST
"""The cost of one edge inside the set."""
MAX_NODES = 2**31 - 1
MAX_EDGES = 2**31 - 1
"""The largest number of edges, because a payload stores it as int32."""

_HEAD = 2
_GRAPHS_ALONE = (
    "Give this solver a graph: --workload qubo-mis, or an edge list. Any QUBO is solved by a sampler of dimod, such as "
    "dimod:dwave.samplers.TabuSampler, and by rig.solver"
)
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """An undirected graph. ``edges`` is int32 of shape (m, 2), with u < v in each row and sorted, distinct rows."""

    nodes: int
    edges: NDArray[np.int32]

    def neighbours(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return ``start`` (n + 1,), ``indices`` (2m,): ``indices[start[u]:start[u + 1]]`` are the neighbours of u."""
        u, v = self.edges[:, 0], self.edges[:, 1]
        start = np.zeros(self.nodes + 1, np.int64)
        np.cumsum(np.bincount(u, minlength=self.nodes) + np.bincount(v, minlength=self.nodes), out=start[1:])
        pairs = np.concatenate([v, u]).astype(np.int64) << 32
        pairs |= np.concatenate([u, v])
        pairs.sort()  # faster than sorting rows and columns by index
        return start, (pairs & 0xFFFFFFFF).astype(np.int32)

    def cost(self, x: Any) -> int:
        """Return x^T Q x for a 0/1 vector of shape (nodes,); its set of nodes may have edges inside."""
        return self._judged(np.asarray(x, bool))[0]

    def judge(self, solution: str) -> tuple[int, int]:
        """Return the cost and the conflicts of a solution in the form of ``to_hex``; see ``rig.types.Problem``.

        Raises ``DataError`` for a text that is not a solution of this graph.
        """
        return self._judged(from_hex(solution, self.nodes).astype(bool))

    def to_bqm(self) -> Any:
        """Return a ``dimod.BinaryQuadraticModel`` of bits 0 to n - 1, whose energy is the cost.

        Raises ``MissingExtraError`` when dimod is not installed.
        """
        dimod = imported("dimod", "a binary quadratic model", "qubo", field="extra")
        linear = np.full(self.nodes, NODE_COST, np.float64)
        weights = np.full(len(self.edges), CONFLICT_COST, np.float64)
        u, v = np.ascontiguousarray(self.edges.T)
        return dimod.BinaryQuadraticModel.from_numpy_vectors(linear, (u, v, weights), 0.0, dimod.BINARY)

    def to_payload(self) -> NDArray[np.int32]:
        """Return the payload of a ``Sample``: nodes, edge count, then the edges row by row; int32, shape (2 + 2m,)."""
        return np.concatenate([np.array([self.nodes, len(self.edges)], np.int32), self.edges.ravel()])

    def _judged(self, chosen: NDArray[np.bool_]) -> tuple[int, int]:
        conflicts = int(np.count_nonzero(chosen.take(self.edges).all(axis=1)))
        return CONFLICT_COST * conflicts + NODE_COST * int(np.count_nonzero(chosen)), conflicts


def from_payload(payload: NDArray[Any]) -> Graph:
    """Return the graph of a payload from ``Graph.to_payload``; an int32 payload is not copied.

    A QUBO payload is also accepted if its weights are those of the independent-set problem of a graph. Raises
    ``DataError`` for any other payload.
    """
    flat = np.asarray(payload)
    if flat.dtype == ROWS:
        return _of_rows(qubo_of(flat))
    if not (flat.ndim == 1 and flat.dtype.kind == "i" and len(flat) >= _HEAD and len(flat) == _HEAD + 2 * int(flat[1])):
        what = f"a payload of shape {flat.shape} and type {flat.dtype} is not a graph"
        raise DataError(what, field="payload", value=str(flat.shape), remedy=_GRAPHS_ALONE)
    nodes, edges = int(flat[0]), flat[_HEAD:].reshape(-1, 2)
    if not (1 <= nodes <= MAX_NODES and len(edges) <= MAX_EDGES and _in_order(edges, nodes)):
        what = f"the payload's edges are not those of a graph of {nodes} nodes"
        remedy = "Edges have u < v, rows sorted, none repeated, all below the number of nodes"
        raise DataError(what, field="payload", value=nodes, remedy=remedy)
    return Graph(nodes, edges.astype(np.int32, copy=False))


def _of_rows(problem: Qubo) -> Graph:
    """Return the graph of a QUBO with the costs of independent sets. Raises ``DataError`` for other costs."""
    rows, n = problem.payload, problem.nodes
    alone = rows["u"] == rows["v"]
    apart = np.sort(rows[~alone], order=["u", "v"])
    edges = np.column_stack([apart["u"], apart["v"]]).astype(np.int32)
    nodes = np.sort(rows[1:][alone[1:]]["u"])
    costs = rows["weight"][0] == 0 and np.array_equal(nodes, np.arange(n)) and np.all(apart["weight"] == CONFLICT_COST)
    if not (costs and np.all(rows["weight"][1:][alone[1:]] == NODE_COST) and _in_order(edges, n)):
        what = "the problem is not the maximum independent set of a graph"
        raise DataError(what, field="payload", value=n, remedy=_GRAPHS_ALONE)
    return Graph(n, edges)


def to_hex(x: Any) -> str:
    """Return the hexadecimal digits of ``numpy.packbits(x)``: node 0 is the highest bit of the first byte."""
    return np.packbits(np.asarray(x, bool)).tobytes().hex()


def _in_order(edges: NDArray[Any], nodes: int) -> bool:
    """Return whether the rows are sorted, distinct edges of ``nodes`` nodes. The check is in pieces to save memory."""
    for at in range(0, len(edges), _CHUNK):
        part = edges[max(at - 1, 0) : at + _CHUNK].astype(np.int64, copy=False)
        u, v = part[:, 0], part[:, 1]
        if u.min() < 0 or v.max() >= nodes or np.any(u >= v) or np.any(np.diff(u * nodes + v) <= 0):
            return False
    return True
