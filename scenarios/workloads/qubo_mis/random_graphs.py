"""Draw random graphs that are equal to those of ``networkx.gnm_random_graph``, but faster.

The networkx function draws two nodes at a time from ``random.Random(seed)``, skips loops and known pairs, and stops at
m edges. Python's generator is a Mersenne Twister; numpy has the same generator and accepts its state. To draw a node
below n, Python takes the upper bits of the next 32-bit word, and tries again if the number is n or more. This module
draws the same words in large blocks, so the graph is the same. A pair of nodes is stored as one int64.
"""

import math
import random

import numpy as np
import psutil
from numpy.typing import NDArray

from rig.bench.settings import within
from rig.errors import UsageError, refused, unfit
from scenarios.workloads.qubo_mis.graph import MAX_EDGES, MAX_NODES, Graph

Keys = NDArray[np.int64]
MAX_SEED = 2**63 - 1
"""The largest integer that a recording can store."""

_CHUNK = 1 << 18
"""About this many words are drawn together, so that the arrays stay in the processor's cache."""
_SHIFT = 32
_LOW = 0xFFFFFFFF
_BYTES_PER_EDGE = 32
"""Memory in bytes for one edge while it is drawn: its pair and its row, and a copy of each."""


def gnm_edges(nodes: int, density: float, seed: int) -> Graph:
    """Return ``networkx.gnm_random_graph(nodes, edge_count(nodes, density), seed)``, edge for edge.

    ``density`` is a share of nodes^2 / 2 (as in the benchmark's generator), in (0, 1]. If every pair is an edge, the
    graph does not depend on the seed. The array of edges is read-only.
    Raises ``UsageError`` for fewer than 2 nodes, a density out of range, a negative seed, and for more edges than fit
    into memory or into a payload.
    """
    check_graph(nodes, density, seed)
    pairs = nodes * (nodes - 1) // 2
    m = min(edge_count(nodes, density), pairs)
    free = int(psutil.virtual_memory().available)
    if m > MAX_EDGES or _BYTES_PER_EDGE * m > free:
        raise _too_large(nodes, density, m, free)
    try:
        if m == pairs:
            edges = np.column_stack(np.triu_indices(nodes, 1)).astype(np.int32)
        else:
            keys = _drawn(_Pairs(nodes, seed), m, pairs)
            edges = np.empty((m, 2), np.int32)
            edges[:, 0], edges[:, 1] = keys >> _SHIFT, keys & _LOW
    except MemoryError as error:
        raise _too_large(nodes, density, m, free) from error
    edges.flags.writeable = False
    return Graph(nodes, edges)


def edge_count(nodes: int, density: float) -> int:
    """Return the benchmark's number of edges: int(0.5 density nodes^2), in floating point and in this order."""
    return int(0.5 * density * nodes**2)


def check_graph(nodes: int, density: float, seed: int) -> None:
    """Raise ``UsageError`` if no graph has these nodes, this density and this seed."""
    within(2, MAX_NODES, nodes=nodes)
    within(0, MAX_SEED, seed=seed)
    if not 0 < density <= 1:
        raise unfit("density", density, "is not a density", "Give a share above 0 and up to 1, such as 0.05 for 5 %")


class _Pairs:
    """The pairs of nodes that networkx would draw for a seed, in the same order and without loops."""

    def __init__(self, nodes: int, seed: int) -> None:
        bits = nodes.bit_length()
        self._nodes, self._shift = nodes, np.uint32(32 - bits)
        self._words_per_pair = 2.0 * (1 << bits) / (nodes - 1)
        self._words = _words(seed)
        self._odd = np.empty(0, np.uint32)
        self._ready: Keys = np.empty(0, np.int64)

    def next(self, count: int) -> Keys:
        """Return the next ``count`` pairs, each as u << 32 | v with u < v."""
        parts, have = [self._ready], len(self._ready)
        while have < count:
            parts.append(self._chunk(count - have))
            have += len(parts[-1])
        drawn = np.concatenate(parts)
        self._ready = drawn[count:].copy()
        return drawn[:count]

    def _chunk(self, wanted: int) -> Keys:
        """Return about ``wanted`` pairs, at most a chunk."""
        size = min(_CHUNK, int(1.05 * wanted * self._words_per_pair) + 64)
        words = self._words.randint(0, 1 << 32, size, dtype=np.uint32)
        words >>= self._shift
        drawn = np.concatenate([self._odd, words.compress(words < self._nodes)])
        even = len(drawn) & ~1
        self._odd = drawn[even:]
        a, b = drawn[0:even:2], drawn[1:even:2]
        keys = np.minimum(a, b).astype(np.int64) << _SHIFT | np.maximum(a, b)
        pairs: Keys = keys.compress(a != b)
        return pairs


def _words(seed: int) -> np.random.RandomState:
    """Return a source of the 32-bit words of ``random.Random(seed)``; numpy guarantees the words of ``RandomState``."""
    *key, position = random.Random(seed).getstate()[1]
    twister = np.random.MT19937(0)
    twister.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, np.uint32), "pos": position}}
    return np.random.RandomState(twister)


def _drawn(source: _Pairs, m: int, pairs: int) -> Keys:
    """Return the first ``m`` distinct pairs drawn, sorted.

    The graph has all distinct pairs among the first ``m`` drawn. After these, each new pair is added in the order of
    drawing, until there are ``m``.
    """
    early = np.sort(source.next(m))
    early = early[np.diff(early, prepend=-1) > 0]
    late, wanted = np.empty(0, np.int64), m - len(early)
    while missing := wanted - len(late):
        likely = int(1.1 * missing * pairs / (pairs - m + missing)) + 64
        drawn = np.concatenate([late, source.next(likely)])
        keys, first = np.unique(drawn, return_index=True)
        known = early.take(early.searchsorted(keys), mode="clip") == keys
        late = drawn[np.sort(first[~known])[:wanted]]
    return np.sort(np.concatenate([early, late]))


def _too_large(nodes: int, density: float, m: int, free: int) -> UsageError:
    most = min(MAX_EDGES, free / _BYTES_PER_EDGE)
    limit = "a payload can hold" if m > MAX_EDGES else "memory holds"
    what = f"{nodes} nodes at a density of {density} are {m} edges of {_BYTES_PER_EDGE} bytes each, more than {limit}"
    return refused("nodes", nodes, f"Use at most {math.isqrt(int(2 * most / density))} nodes at this density", what)
