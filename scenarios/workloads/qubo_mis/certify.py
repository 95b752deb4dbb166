"""Check certificates of target costs, without code of the solvers or of ``graph``.

A certificate is the independent set itself in hexadecimal digits. Bit i, counted from the highest bit of the first
byte, is 1 if node i is in the set; the unused bits of the last byte are 0.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError

Pairs = NDArray[np.integer]
"""Edges, shape (m, 2), in any order."""


def members(nodes: int, certificate: str) -> list[int]:
    """Return the nodes in the set, ascending. Raises ``DataError`` for a text that is no set of ``nodes`` nodes."""
    length = 2 * -(-nodes // 8)
    digits = certificate if isinstance(certificate, str) else ""
    if len(digits) != length or any(c not in "0123456789abcdef" for c in digits):
        raise _refused("certificate", str(certificate)[:40], f"is not {length} hexadecimal digits")
    bits = f"{int(digits, 16):0{4 * length}b}" if length else ""
    if "1" in bits[nodes:]:
        raise _refused("certificate", digits[-2:], f"has bits beyond {nodes} nodes in its last byte")
    return [i for i in range(nodes) if bits[i] == "1"]


def certify(nodes: int, edges: Pairs, certificate: str, cost: int) -> None:
    """Check that the set is independent and has ``-cost`` nodes. Raises ``DataError``, which names the fault."""
    chosen = set(members(nodes, certificate))
    if cost != -len(chosen):
        raise _refused("cost", cost, f"does not fit a set of {len(chosen)} nodes")
    inside = np.isin(edges, sorted(chosen)).all(axis=1)
    if inside.any():
        raise _refused("certificate", tuple(edges[inside][0].tolist()), "is an edge between two chosen nodes")


def digest(nodes: int, edges: Pairs) -> str:
    """Return SHA-256 of the node count and the edges as sorted pairs, lower node first, in little-endian int32."""
    pairs = np.sort(np.asarray(edges, np.int64).reshape(-1, 2), axis=1)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    return hashlib.sha256(np.array([nodes], "<i4").tobytes() + pairs.astype("<i4").tobytes()).hexdigest()


def _refused(field: str, value: object, what: str) -> DataError:
    what = f"{field} {value} {what}"
    return DataError(what, field=field, value=str(value), remedy="Do not use this target; compute it again")
