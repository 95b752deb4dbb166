"""Find a maximum independent set and prove that none is larger, for graphs of up to some thousand nodes.

Sparse graphs are reduced first (``reduce.py``). The rest is searched by branch and bound on bit sets. Cliques that
cover the candidates bound how many candidates a set can still get, since it contains at most one vertex of a clique.
The bound comes from maximum clique searches on the complement: greedy colouring in a fixed order (San Segundo,
Rodriguez-Losada and Jimenez, Comput. Oper. Res. 38, 2011), with vertices moved between classes (Tomita et al., WALCOM
2010) and pairs of classes that no third vertex can complete (San Segundo, Nikolaev and Batsyn, Comput. Oper. Res. 64,
2015).
"""

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.mis_proof.exact_kernel import BEST, STATE, branch
from benchmarks.mis_proof.reduce import Adjacency, components, reduced, undone
from drivers.devices.cpu.mis.search import improvements, load
from rig.errors import DataError
from scenarios.workloads.qubo_mis.graph import Graph, Vector, to_hex
from scenarios.workloads.qubo_mis.targets import Target

Bits = NDArray[np.uint64]
PROOF = "reductions and branch and bound"
_REDUCE_BELOW = 20.0
"""Above this mean degree, hardly any reduction applies in random graphs, so trying would only cost time."""
_FIRST_MOVES = 100_000
"""The number of moves of the local search that precedes the proof."""


def maximum_independent_set(graph: Graph, seconds: float = 60.0) -> tuple[Vector, bool]:
    """Return the largest set found in about ``seconds`` (uint8, shape (nodes,)), and whether it is proven.

    Proven means that the branch and bound came to its end: no independent set of the graph is larger.
    """
    deadline = time.perf_counter() + seconds
    out = np.zeros(graph.nodes, np.uint8)
    if 2.0 * len(graph.edges) > _REDUCE_BELOW * graph.nodes:
        chosen, closed = _solved(graph, deadline)
        out[chosen] = 1
        return out, closed
    kernel = reduced(graph)
    whole, all_closed = set[int](), True
    for part in components(kernel.adjacency):
        chosen, closed = _solved(_subgraph(kernel.adjacency, part), deadline)
        whole |= {part[i] for i in chosen}
        all_closed &= closed
    out[sorted(undone(kernel, whole))] = 1
    return out, all_closed


def _subgraph(adjacency: Adjacency, part: list[int]) -> Graph:
    place = {v: i for i, v in enumerate(part)}
    edges = [(i, place[w]) for i, v in enumerate(part) for w in sorted(adjacency[v]) if place[w] > i]
    return Graph(len(part), np.array(edges, np.int32).reshape(-1, 2))


def _solved(graph: Graph, deadline: float) -> tuple[list[int], bool]:
    """Return the largest independent set found without reductions, and whether it is proven to be a largest one."""
    first = list(improvements(load(graph), 0, moves=_FIRST_MOVES))[-1].solution
    order = _order(graph)
    compatible = _compatible(graph, order)
    n, words = len(order), compatible.shape[1]
    state = np.array([0, int(first.sum()), 0], np.int64)
    depth = n + 2
    candidates = np.zeros((depth, words), np.uint64)
    candidates[0] = _full(n, words)
    branches, bounds = np.zeros((depth, n), np.int32), np.zeros((depth, n), np.int32)
    left, path, best = np.full(depth, -1, np.int64), np.zeros(depth, np.int32), np.zeros(n, np.int32)
    classes, locked = np.zeros((n + 2, words), np.uint64), np.zeros(n + 2, np.uint8)
    closed = False
    while not closed and time.perf_counter() < deadline:
        closed = bool(branch(compatible, candidates, branches, bounds, left, path, best, classes, locked, state))
    if state[STATE] == 0:
        return np.flatnonzero(first).tolist(), closed
    return sorted(int(order[i]) for i in best[: state[BEST]]), closed


def _order(graph: Graph) -> NDArray[np.int64]:
    """Order vertices: the vertex with most remaining neighbours is removed repeatedly; the first removed comes last."""
    start, indices = graph.neighbours()
    degree = np.diff(start).astype(np.int64)
    out = np.zeros(graph.nodes, np.int64)
    for at in range(graph.nodes - 1, -1, -1):
        v = int(np.argmax(degree))
        out[at] = v
        degree[indices[start[v] : start[v + 1]]] -= 1
        degree[v] = -graph.nodes - 1
    return out


def _compatible(graph: Graph, order: NDArray[np.int64]) -> Bits:
    """Return in row i the places of the vertices that may join the vertex at place i; shape (nodes, words)."""
    n = graph.nodes
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    allowed = np.ones((n, -(-n // 64) * 64), np.uint8)
    allowed[:, n:] = 0
    np.fill_diagonal(allowed, 0)
    u, v = place[graph.edges[:, 0]], place[graph.edges[:, 1]]
    allowed[u, v] = allowed[v, u] = 0
    return np.packbits(allowed, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _full(n: int, words: int) -> Bits:
    bits = np.zeros(64 * words, np.uint8)
    bits[:n] = 1
    return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)


def proven(target: Target, graph: Graph, seconds: float) -> Target:
    """Try to prove a row of the table; return the row, with a larger set if one was found.

    Raises ``DataError`` if the proof contradicts the row.
    """
    began = time.perf_counter()
    solution, closed = maximum_independent_set(graph, seconds=seconds)
    cost, took_s = graph.cost(solution), round(time.perf_counter() - began, 3)
    if closed and cost > target.cost:
        what = f"{target.key} has a cost of {target.cost}, but {cost} is marked as proven optimal"
        raise DataError(what, field="cost", value=cost, remedy="Report this: the proof or the certificate is wrong")
    if cost < target.cost:
        target = replace(target, cost=cost, certificate=to_hex(solution), method=PROOF, found_s=took_s)
        target = replace(target, search_seed=None, moves=None)
    return replace(target, proven=PROOF, proof_s=took_s) if closed else target
