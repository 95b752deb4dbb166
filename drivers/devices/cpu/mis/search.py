# mypy: allow-untyped-defs, allow-untyped-calls
"""A local search for large independent sets. It can stop and go on at any move.

This module imports numba, so it is imported only when it is needed.

The search walks over independent sets. A free vertex, which has no neighbour in the set, joins at once. If none may
join, a vertex with one neighbour in the set replaces this neighbour. More rarely, a vertex with two neighbours in the
set replaces both. A temperature, which falls along a cycle of moves, decides how rarely. A vertex that left the set
stays out for a few moves. It may return earlier if it makes the set the largest so far, or replaces several members.
Each cycle is longer than the last, so the schedule does not depend on the time of the search. Vertices are kept in
lists by the number (0, 1, 2) of their neighbours in the set, so that a move is found at once.

The walk is annealing of a hard-core lattice gas with swap moves (as in Angelini and Ricci-Tersenghi, Phys. Rev. E 100,
013302, 2019) with the tabu lists of swap-based local search (as in Jin and Hao, Eng. Appl. AI 37, 2015).

In the compiled moves, the vertices of the set are its members. For a vertex w outside, ``key[w]`` combines the count of
its adjacent members and the sum of their numbers. With one adjacent member, this sum is its number. ``lists[k]`` has
the vertices outside that are adjacent to k members, and ``positions`` their places in it. ``until`` has the
move up to which each vertex stays out, with the exceptions above.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scenarios.workloads.qubo_mis.graph import Graph, Vector

# places in the array of counters (int64); the first three are the lengths of the lists
FREE, ONE, TWO, MOVE, RANDOM, SIZE, BEST, CYCLE_START, CYCLE, COUNTERS = range(10)
STEP = 64
"""Moves between updates of the temperature. Each cycle is a multiple of it, so slices do not change the walk."""
_SHIFT = 40
_TIGHT = 1 << _SHIFT
_IDS = _TIGHT - 1
_MASK64 = (1 << 64) - 1


def compiled(function: Callable[..., Any]) -> Any:
    """Return the function as machine code that releases the interpreter's lock. It is compiled at its first call.

    A later process loads the code from the source's folder, or from the user's cache if that folder is read-only.
    """
    try:
        return njit(function, nogil=True, cache=True)
    except RuntimeError:  # neither place can be written: compile in each process
        return njit(function, nogil=True)


@compiled
def _below(counters, k):
    """Return a random whole number below k, from the upper half of Marsaglia's xorshift."""
    s = np.uint64(counters[RANDOM])
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    counters[RANDOM] = np.int64(s)
    return np.int64(((s >> np.uint64(32)) * np.uint64(k)) >> np.uint64(32))


@compiled
def _put(lists, which, positions, counters, v):
    k = counters[which]
    positions[v] = k
    lists[which, k] = v
    counters[which] = k + 1


@compiled
def _take(lists, which, positions, counters, v):
    k = counters[which] - 1
    counters[which] = k
    last, p = lists[which, k], positions[v]
    lists[which, p] = last
    positions[last] = p


@compiled
def _join(start, indices, member, key, lists, positions, counters, v):
    _take(lists, FREE, positions, counters, v)
    member[v] = 1
    counters[SIZE] += 1
    for j in range(start[v], start[v + 1]):
        w = indices[j]
        tight = key[w] >> _SHIFT
        key[w] += _TIGHT + v
        if tight <= TWO:
            _take(lists, tight, positions, counters, w)
            if tight < TWO:
                _put(lists, tight + 1, positions, counters, w)


@compiled
def _leave(start, indices, member, key, lists, positions, counters, v):
    member[v] = 0
    counters[SIZE] -= 1
    _put(lists, FREE, positions, counters, v)
    for j in range(start[v], start[v + 1]):
        w = indices[j]
        key[w] -= _TIGHT + v
        tight = key[w] >> _SHIFT
        if tight <= TWO:
            if tight < TWO:
                _take(lists, tight + 1, positions, counters, w)
            _put(lists, tight, positions, counters, w)


@compiled
def _weight(counters, cooling_first, cooling_last):
    """Return the weight of replacing two members, at the last move that was a multiple of ``STEP``."""
    now = counters[MOVE] // STEP * STEP
    share = (now - counters[CYCLE_START]) / counters[CYCLE]
    return math.exp(-(cooling_first + (cooling_last - cooling_first) * share))


@compiled
def _next_cycle(counters, growth):
    """Begin a longer cycle when this one is over."""
    if counters[MOVE] - counters[CYCLE_START] >= counters[CYCLE]:
        counters[CYCLE_START] = counters[MOVE]
        counters[CYCLE] = np.int64(counters[CYCLE] * growth) // STEP * STEP + STEP


@compiled
def _entrant(lists, member, counters, weight):
    """Choose a vertex to enter, and how many members leave for it at most; if 0, no vertex enters.

    Without a vertex that replaces one or two members, any vertex may enter, and all its neighbours leave.
    """
    ones = counters[ONE]
    draw = _below(counters, 1 << 30) / (1 << 30) * (ones + weight * counters[TWO])
    if draw < ones:
        return lists[ONE, np.int64(draw)], 1
    if counters[TWO] > 0:
        return lists[TWO, _below(counters, counters[TWO])], 2
    v = np.int32(_below(counters, len(member)))
    return v, 0 if member[v] else len(member)


@compiled
def _make_room(start, indices, member, key, lists, positions, until, counters, tenure, v, leaving):
    """Remove members adjacent to v, at most ``leaving``."""
    now = counters[MOVE]
    if leaving == 1:
        u = key[v] & _IDS
        _leave(start, indices, member, key, lists, positions, counters, u)
        until[u] = now + tenure + _below(counters, tenure + 1)
        return
    for j in range(start[v], start[v + 1]):
        u = np.int64(indices[j])
        if member[u]:
            _leave(start, indices, member, key, lists, positions, counters, u)
            until[u] = now + tenure
            leaving -= 1
            if leaving == 0:
                return


@compiled
def walk(
    start, indices, member, key, lists, positions, until, best, counters,
    cooling_first, cooling_last, tenure, growth, moves,
):  # fmt: skip
    """Make at most ``moves`` moves. Return True as soon as the set is the largest so far and no vertex can be added."""
    weight = _weight(counters, cooling_first, cooling_last)
    for _ in range(moves):
        counters[MOVE] += 1
        now = counters[MOVE]
        if now % STEP == 0:
            _next_cycle(counters, growth)
            weight = _weight(counters, cooling_first, cooling_last)
        if counters[FREE] > 0:
            v = lists[FREE, _below(counters, counters[FREE])]
            record = counters[SIZE] + 1 > counters[BEST]
            if until[v] < now or record:
                _join(start, indices, member, key, lists, positions, counters, v)
                if record and counters[FREE] == 0:
                    counters[BEST] = counters[SIZE]
                    best[:] = member
                    return True
                continue
        v, leaving = _entrant(lists, member, counters, weight)
        if leaving == 0 or (leaving == 1 and until[v] >= now):
            continue
        _make_room(start, indices, member, key, lists, positions, until, counters, tenure, v, leaving)
        _join(start, indices, member, key, lists, positions, counters, v)
    return False


@dataclass(frozen=True, slots=True)
class Parameters:
    """The search's parameters. Replacing two members has ``exp(-cooling)`` times the weight of replacing one.

    ``cooling`` rises along a cycle.
    """

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
    """A graph in the form for the search. ``load`` makes one."""

    nodes: int
    start: NDArray[np.int64]
    indices: NDArray[np.int32]
    parameters: Parameters


def load(graph: Graph) -> Loaded:
    """Return the compressed rows of a graph. Compiles the search first if this process has not yet."""
    Search(_loaded(Graph(3, np.array([[0, 1], [1, 2]], np.int32))), 0).advance(1000)  # compiles the moves
    return _loaded(graph)


def _loaded(graph: Graph) -> Loaded:
    start, indices = graph.neighbours()
    return Loaded(graph.nodes, start, indices, parameters(graph.nodes, 2.0 * len(graph.edges) / graph.nodes**2))


class Search:
    """One walk from the empty set. The same seed gives the same walk, however many moves each call makes."""

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
        """Make at most ``moves`` more moves. Stop early and return True at a set larger than any before.

        No vertex can be added to this set.
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
    """Yield each larger set when it is found, until ``moves`` are made or about ``seconds`` have passed."""
    began = time.perf_counter()
    walk = Search(loaded, seed)
    while (moves is None or walk.moves < moves) and (seconds is None or time.perf_counter() - began < seconds):
        if walk.advance(slice_moves if moves is None else min(slice_moves, moves - walk.moves)):
            yield Improvement(walk.cost, walk.solution(), walk.moves, time.perf_counter() - began)


def _scrambled(seed: int) -> int:
    """Return an int64 for the generator, never 0, that differs widely for neighbouring seeds (Stafford's mix 13)."""
    z = (seed + 1) * 0x9E3779B97F4A7C15 & _MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
    z = (z ^ z >> 31) or 1
    return z - (1 << 64) if z >> 63 else z
