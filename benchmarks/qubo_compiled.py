"""The gain of compiling the generator with numba: one loop fills a bitmap that gives the same graphs.

Not part of the rig. ``benchmarks.qubo_generate`` times it against ``random_graphs`` of the workload, whose numpy
needs no compiler; the figures show why that is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.workloads.qubo_mis.random_graphs import _words, edge_count

_BLOCK = 1 << 16
Edges = NDArray[np.int32]


def compiled() -> Callable[[int, float, int], Edges]:
    """Edges of (nodes, density, seed), int32 (m, 2), by loops that numba compiles on the first call.

    Raises ``ImportError`` without numba.
    """
    njit = import_module("numba").njit
    fill, collect = njit(_fill), njit(_collect)

    def edges(nodes: int, density: float, seed: int) -> Edges:
        missing, have = edge_count(nodes, density), 0
        words, shift = _words(seed), np.uint32(32 - nodes.bit_length())
        bits = np.zeros((nodes * nodes + 63) // 64, np.uint64)
        drawn, out = np.empty(_BLOCK + 2, np.uint32), np.empty((missing, 2), np.int32)
        while missing:
            raw = words.randint(0, 1 << 32, _BLOCK, dtype=np.uint32)
            have, missing = fill(raw, shift, np.uint32(nodes), drawn, bits, have, missing)
        collect(bits, nodes, out)
        return out

    return edges


def _fill(raw: Any, shift: Any, nodes: Any, drawn: Any, bits: Any, have: int, missing: int) -> tuple[int, int]:
    """Set the bits of the pairs in ``raw`` until none is missing; unused pairs stay at the front of ``drawn``."""
    for i in range(raw.size):  # branches on random numbers are mispredicted half the time, so there are none
        drawn[have] = raw[i] >> shift
        have += drawn[have] < nodes
    at = 0
    while at + 1 < have and missing > 0:
        a, b = np.uint64(drawn[at]), np.uint64(drawn[at + 1])
        at += 2
        key = min(a, b) * np.uint64(nodes) + max(a, b)
        bit = np.uint64(a != b) << (key & np.uint64(63))
        word = bits[key >> np.uint64(6)]
        bits[key >> np.uint64(6)] = word | bit
        missing -= int((bit & ~word) != 0)
    drawn[0] = drawn[at]
    return have - at, missing


def _collect(bits: Any, nodes: int, out: Any) -> None:
    found = np.int64(0)
    for at in range(bits.size):
        word = bits[at]
        while word:
            low, place = word & (~word + np.uint64(1)), 0
            for step in (32, 16, 8, 4, 2, 1):
                if low >> np.uint64(step + place):
                    place += step
            out[found, 0], out[found, 1] = (at * 64 + place) // nodes, (at * 64 + place) % nodes
            found += 1
            word ^= low
