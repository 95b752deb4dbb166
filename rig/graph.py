"""A graph as a QUBO workload carries it: nodes and sorted edges, and the cost of a binary vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError, UsageError

Vector = NDArray[np.uint8]
CONFLICT_COST = 8
"""What one edge inside the set costs: 4 for each ordered pair (NeuroBench, eq. 23)."""
MAX_NODES = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """An undirected graph. ``edges`` is int32 of shape (m, 2) with u < v in each row, rows sorted, none twice."""

    nodes: int
    edges: NDArray[np.int32]

    def neighbours(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Compressed rows: ``indices[start[u]:start[u + 1]]`` are u's neighbours, ascending; (n + 1,) and (2m,)."""
        u, v = self.edges[:, 0], self.edges[:, 1]
        start = np.zeros(self.nodes + 1, np.int64)
        np.cumsum(np.bincount(u, minlength=self.nodes) + np.bincount(v, minlength=self.nodes), out=start[1:])
        rows, columns = np.concatenate([v, u]), np.concatenate([u, v])
        # the lower neighbours of a node come first and each half is sorted, so a stable sort by row is enough
        return start, columns[np.argsort(rows, kind="stable")]

    def cost(self, x: Any) -> int:
        """x^T Q x for a 0/1 vector of shape (nodes,), sets that are not independent included (eq. 22, 23).

        Raises ``UsageError`` for a vector of another length or with other values.
        """
        chosen = self.checked(x)
        inside = chosen[self.edges[:, 0]] & chosen[self.edges[:, 1]]
        return CONFLICT_COST * int(np.count_nonzero(inside)) - int(np.count_nonzero(chosen))

    def checked(self, x: Any) -> Vector:
        """``x`` as uint8 of shape (nodes,). Raises ``UsageError``."""
        vector = np.asarray(x)
        if vector.shape != (self.nodes,):
            raise UsageError(
                f"a vector of shape {vector.shape} for {self.nodes} nodes",
                field="x",
                value=vector.shape,
                remedy=f"Give one value per node, shape ({self.nodes},)",
            )
        wrong = ~((vector == 0) | (vector == 1))
        if np.any(wrong):
            at = int(np.argmax(wrong))
            raise UsageError(
                f"x[{at}] is {vector[at]!r}", field="x", value=repr(vector[at]), remedy="Give only 0 and 1"
            )
        return vector.astype(np.uint8)

    def to_payload(self) -> NDArray[np.int32]:
        """The payload of a ``Sample``: nodes, edge count, then the edges row by row; shape (2 + 2m,)."""
        head = np.array([self.nodes, len(self.edges)], np.int32)
        return np.concatenate([head, np.ascontiguousarray(self.edges, np.int32).ravel()])


def from_payload(payload: NDArray[Any]) -> Graph:
    """The inverse of ``Graph.to_payload``. Raises ``DataError`` for what is no graph."""
    flat = np.asarray(payload)
    if flat.ndim != 1 or len(flat) < 2 or flat.dtype.kind != "i" or len(flat) != 2 + 2 * int(flat[1]):
        raise DataError(
            f"a payload of shape {flat.shape} and type {flat.dtype} is no graph",
            field="payload",
            value=str(flat.shape),
            remedy="Use a workload of graphs, such as qubo-mis",
        )
    nodes, edges = int(flat[0]), flat[2:].reshape(-1, 2).astype(np.int32, copy=False)
    u, v = edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64)
    order = u * max(nodes, 1) + v
    if nodes < 1 or (len(edges) and (u.min() < 0 or v.max() >= nodes or np.any(u >= v) or np.any(np.diff(order) <= 0))):
        raise DataError(
            f"the payload's edges are not those of a graph of {nodes} nodes",
            field="payload",
            value=nodes,
            remedy="Edges have u < v, rows sorted, none twice, all below the number of nodes",
        )
    return Graph(nodes, edges)
