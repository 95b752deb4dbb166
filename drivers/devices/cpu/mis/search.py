"""Local search for large independent sets, anytime and resumable. Imports numba: import this file when opening.

The search walks over independent sets. A vertex without a neighbour in the set (a free one) joins at once. Otherwise
a vertex with one neighbour in the set replaces this neighbour or, more rarely, a vertex with two replaces both. A
temperature that falls along a cycle of moves sets how much more rarely. A vertex that left stays out for a few moves.
Each cycle is longer than the last, so the schedule does not depend on the time of the search. No move is rejected:
vertices are in lists by the number (0, 1, 2) of their neighbours in the set.

The walk is annealing of a hard-core lattice gas with swap moves (as in Angelini and Ricci-Tersenghi, Phys. Rev. E
100, 013302, 2019) with the tabu lists of swap-based local search (as in Jin and Hao, Eng. Appl. AI 37, 2015).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivers.devices.cpu.mis.search_kernel import BEST, COUNTERS, CYCLE, FREE, MOVE, RANDOM, STEP, walk
from scenarios.workloads.qubo_mis.graph import Graph, Vector

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Parameters:
    """A replacement of two members has ``exp(-cooling)`` times the weight of a swap; cooling rises along a cycle."""

    cooling_first: float
    cooling_last: float
    tenure: int
    first_cycle: int
    growth: float


def parameters(nodes: int, density: float) -> Parameters:
    """Return the search's parameters, which depend on nodes and density alone."""
    first, last = (2.0, 5.0) if density <= 0.02 else (3.0, 7.0)
    return Parameters(first, last, 5, STEP * max(1, 20 * nodes // STEP), 1.5)


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A graph as the search reads it, compiled code included. Get one from ``load``."""

    nodes: int
    start: NDArray[np.int64]
    indices: NDArray[np.int32]
    parameters: Parameters


def load(graph: Graph) -> Loaded:
    """Compressed rows of a graph; compiles the search if this process has not yet."""
    _compile()
    return _loaded(graph)


def _loaded(graph: Graph) -> Loaded:
    start, indices = graph.neighbours()
    density = 2.0 * len(graph.edges) / graph.nodes**2
    return Loaded(graph.nodes, start, indices, parameters(graph.nodes, density))


class Search:
    """One walk from the empty set. The same seed gives the same walk, in whatever slices it is taken."""

    def __init__(self, loaded: Loaded, seed: int) -> None:
        n, p = loaded.nodes, loaded.parameters
        self._counters = np.zeros(COUNTERS, np.int64)
        self._counters[FREE], self._counters[CYCLE], self._counters[RANDOM] = n, p.first_cycle, _scrambled(seed)
        self._best = np.zeros(n, np.uint8)
        lists, positions = np.zeros((3, n), np.int32), np.arange(n, dtype=np.int32)
        lists[FREE] = positions
        member, key, until = np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64)
        settings = (p.cooling_first, p.cooling_last, p.tenure, p.growth)
        graph_and_state = (loaded.start, loaded.indices, member, key, lists, positions)
        self._arguments = (*graph_and_state, until, self._best, self._counters, *settings)

    def advance(self, moves: int) -> bool:
        """Walk at most ``moves`` further; stop early and return True at a set larger than any before.

        Such a set is maximal: no vertex could be added.
        """
        return bool(walk(*self._arguments, moves))

    @property
    def moves(self) -> int:
        """Moves so far."""
        return int(self._counters[MOVE])

    @property
    def cost(self) -> int:
        """Return the QUBO cost of the largest set so far: minus its size."""
        return -int(self._counters[BEST])

    def solution(self) -> Vector:
        """Return the largest set so far: uint8 of shape (nodes,), a copy."""
        return self._best.copy()


@dataclass(frozen=True, slots=True, eq=False)
class Improvement:
    """A set larger than those before it: its cost, and the moves and seconds of search until then."""

    cost: int
    solution: Vector
    moves: int
    seconds: float


def improvements(
    loaded: Loaded, seed: int, *, moves: int | None = None, seconds: float | None = None, slice_moves: int = 20_000
) -> Iterator[Improvement]:
    """Each larger set as it is found, until ``moves`` or about ``seconds`` are spent, whichever is first."""
    began = time.perf_counter()
    walk = Search(loaded, seed)
    while (moves is None or walk.moves < moves) and (seconds is None or time.perf_counter() - began < seconds):
        left = slice_moves if moves is None else min(slice_moves, moves - walk.moves)
        if walk.advance(left):
            yield Improvement(walk.cost, walk.solution(), walk.moves, time.perf_counter() - began)


def _compile() -> None:
    Search(_loaded(Graph(3, np.array([[0, 1], [1, 2]], np.int32))), 0).advance(1000)


def _scrambled(seed: int) -> int:
    """Return an int64 for the generator, never 0, that differs widely for neighbouring seeds (Stafford's mix 13)."""
    z = (seed + 1) * 0x9E3779B97F4A7C15 & _MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
    z = (z ^ z >> 31) or 1
    return z - (1 << 64) if z >> 63 else z
