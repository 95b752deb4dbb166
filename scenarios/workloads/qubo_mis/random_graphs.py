"""Random graphs with a given number of nodes and edges, equal to those of ``networkx.gnm_random_graph``.

That function draws two nodes at a time from ``random.Random(seed)``, skips loops and known pairs, and stops at m edges.
Python's generator is a Mersenne Twister; numpy has the same one and accepts its state. A node below n is the upper bits
of the next 32-bit word, drawn again while it is n or more. So the same words, drawn in large blocks, give the same
graph. The order of the pairs does not matter if the m-th new pair is the last one used.

A pair is one int64, and the work happens in the memory of the result: 8 bytes for each edge and little else.
"""

from __future__ import annotations

import math
import operator
import random

import numpy as np
from numpy.typing import NDArray

from rig.errors import UsageError, refused, unfit
from scenarios.workloads.qubo_mis.graph import MAX_EDGES, MAX_NODES, Graph
from scenarios.workloads.qubo_mis.memory import free_bytes

Keys = NDArray[np.int64]
MAX_SEED = 2**63 - 1
"""The largest integer that a recording holds."""

_CHUNK = 1 << 18
_LARGE = 1 << 16
_MOST = 1 << 20
_SHIFT = 32
_LOW = 0xFFFFFFFF
_BYTES_PER_EDGE = 8


def gnm_edges(nodes: int, density: float, seed: int) -> Graph:
    """Return ``networkx.gnm_random_graph(nodes, edge_count(nodes, density), seed)``, edge for edge.

    ``density`` is a share of nodes^2 / 2 (as in the benchmark's generator), in (0, 1]; if every pair is an edge, the
    graph does not depend on the seed. The edges are read-only; their memory is the tail of the payload.
    Raises ``UsageError`` for fewer than 2 nodes, a density out of range, a negative seed, and for more edges than
    memory or a payload holds.
    """
    nodes, density, seed = checked(nodes, density, seed)
    m, pairs = edge_count(nodes, density), nodes * (nodes - 1) // 2
    m = min(m, pairs)
    _check_memory(nodes, density, m)
    try:
        payload = np.empty(2 + 2 * m, np.int32)
        edges = payload[2:].reshape(-1, 2)
        if m == pairs:
            _complete(nodes, edges)
        else:
            keys = payload[2:].view(np.int64)
            _draw(_Pairs(nodes, seed), keys, pairs)
            _split(keys, edges)
    except MemoryError as error:
        raise _too_large(nodes, density, m, None) from error
    payload[:2] = nodes, m
    payload.flags.writeable = edges.flags.writeable = False
    return Graph(nodes, edges)


def edge_count(nodes: int, density: float) -> int:
    """Return the benchmark's number of edges: int(0.5 density nodes^2), in floating point and in this order."""
    return int(0.5 * density * nodes**2)


def checked(nodes: int, density: float, seed: int) -> tuple[int, float, int]:
    """Return the arguments as plain numbers. Raises ``UsageError`` if no graph fits them."""
    n, s = _whole("nodes", nodes), _whole("seed", seed)
    if not 2 <= n <= MAX_NODES:
        raise unfit("nodes", nodes, "is not a number of nodes", f"Give a whole number from 2 to {MAX_NODES}")
    if not 0 <= s <= MAX_SEED:
        raise unfit("seed", seed, "is not a seed", f"Give a whole number from 0 to {MAX_SEED}")
    try:
        d = float(density)
    except (TypeError, ValueError, OverflowError):
        d = math.nan
    if isinstance(density, str) or not 0 < d <= 1:
        raise unfit("density", density, "is not a density", "Give a share above 0 and up to 1, such as 0.05 for 5 %")
    return n, d, s


class _Pairs:
    """The pairs that Python's generator would draw for a seed, in order and without loops."""

    def __init__(self, nodes: int, seed: int) -> None:
        bits = nodes.bit_length()
        self._nodes, self._shift = nodes, np.uint32(32 - bits)
        self._words_per_pair = 2.0 * (1 << bits) / (nodes - 1)
        self._words = _words(seed)
        self._odd = np.empty(0, np.uint32)
        self._ready: Keys = np.empty(0, np.int64)

    def fill(self, out: Keys) -> None:
        """Fill ``out`` with the next pairs, each as u << 32 | v with u < v."""
        at = 0
        while at < len(out):
            if not len(self._ready):
                self._ready = self._next(len(out) - at)
            part = self._ready[: len(out) - at]
            out[at : at + len(part)] = part
            self._ready = self._ready[len(part) :]
            at += len(part)

    def _next(self, wanted: int) -> Keys:
        """Return about ``wanted`` pairs, at most a chunk, so that the work stays in the processor's cache."""
        size = min(_CHUNK, int(1.05 * wanted * self._words_per_pair) + 64)
        words = self._words.randint(0, 1 << 32, size, dtype=np.uint32)
        words >>= self._shift
        drawn = np.concatenate([self._odd, words.compress(words < self._nodes)])
        even = len(drawn) & ~1
        self._odd = drawn[even:]
        a, b = drawn[0:even:2], drawn[1:even:2]
        keys = np.minimum(a, b).astype(np.int64)
        keys <<= _SHIFT
        keys |= np.maximum(a, b)
        pairs: Keys = keys.compress(a != b)
        return pairs


def _words(seed: int) -> np.random.RandomState:
    """Return a source of 32-bit words of ``random.Random(seed)``, by the interface whose stream numpy keeps stable."""
    *key, position = random.Random(seed).getstate()[1]
    twister = np.random.MT19937(0)
    twister.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, np.uint32), "pos": position}}
    return np.random.RandomState(twister)


def _draw(drawn: _Pairs, keys: Keys, pairs: int) -> None:
    """Fill ``keys`` with the first distinct pairs drawn, sorted.

    A block with no more pairs than are missing is used whole. If few are missing, a larger block is drawn and cut
    after the last pair needed.
    """
    drawn.fill(keys)
    keys.sort()
    have = _squeeze(keys)
    early, late = keys[:have], np.empty(0, np.int64)
    while missing := len(keys) - have - len(late):
        free = pairs - (len(keys) - missing)
        likely = int(1.1 * missing * pairs / free) + 64
        block = np.empty(min(missing if missing > _LARGE else likely, _MOST), np.int64)
        drawn.fill(block)
        late = np.concatenate([late, _new(block, early, late, missing)])
        late.sort(kind="stable")
    keys[have:] = late
    keys.sort(kind="stable")  # two sorted runs, which the stable sort merges


def _new(block: Keys, early: Keys, late: Keys, missing: int) -> Keys:
    """Return the first ``missing`` distinct pairs of ``block``, in drawn order, that neither sorted array holds."""
    order = block.argsort(kind="stable") if len(block) > missing else None
    if order is None:
        block.sort()
    else:
        block = block[order]
    fresh = np.concatenate([[True], block[1:] != block[:-1]]) & ~_within(block, early) & ~_within(block, late)
    block = block.compress(fresh)
    if order is None or len(block) <= missing:
        return block
    return block[np.argsort(order.compress(fresh))[:missing]]


def _within(wanted: Keys, known: Keys) -> NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(wanted), np.bool_)
    return np.equal(known.take(known.searchsorted(wanted), mode="clip"), wanted)


def _squeeze(keys: Keys) -> int:
    """Move the distinct keys of a sorted array to its front, and return their number."""
    have, last = 0, -1
    for at in range(0, len(keys), _CHUNK):
        part = keys[at : at + _CHUNK]
        fresh = np.empty(len(part), np.bool_)
        fresh[0] = part[0] != last
        np.not_equal(part[1:], part[:-1], out=fresh[1:])
        last, kept = part[-1], part.compress(fresh)
        keys[have : have + len(kept)] = kept
        have += len(kept)
    return have


def _split(keys: Keys, edges: NDArray[np.int32]) -> None:
    """Replace each key by its two nodes, in place."""
    for at in range(0, len(keys), _CHUNK):
        part = keys[at : at + _CHUNK].copy()
        edges[at : at + _CHUNK, 0] = part >> _SHIFT
        edges[at : at + _CHUNK, 1] = part & _LOW


def _complete(nodes: int, edges: NDArray[np.int32]) -> None:
    others, at = np.arange(nodes, dtype=np.int32), 0
    for u in range(nodes - 1):
        row = edges[at : at + nodes - 1 - u]
        row[:, 0], row[:, 1] = u, others[u + 1 :]
        at += len(row)


def _check_memory(nodes: int, density: float, m: int) -> None:
    free = free_bytes()
    if m > MAX_EDGES or (free is not None and _bytes_per_edge(density) * m > free):
        raise _too_large(nodes, density, m, free)


def _bytes_per_edge(density: float) -> float:
    """Return bytes for each edge. About density / 2 of all edges replace repeats; these take three more arrays."""
    return _BYTES_PER_EDGE * (1 + 2 * density)


def _too_large(nodes: int, density: float, m: int, free: int | None) -> UsageError:
    most = MAX_EDGES if free is None else min(MAX_EDGES, free / _bytes_per_edge(density))
    limit = "a payload counts" if m > MAX_EDGES else "memory holds"
    what = f"{nodes} nodes at a density of {density} are {m} edges of {_BYTES_PER_EDGE} bytes each, more than {limit}"
    return refused("nodes", nodes, f"Use at most {math.isqrt(int(2 * most / density))} nodes at this density", what)


def _whole(field: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise unfit(field, value, "is not a whole number", "Give a whole number") from None
