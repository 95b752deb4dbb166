"""The end of a meter's range that no one declared: the highest value, which readings share though they are noisy."""

from __future__ import annotations

import numpy as np

from rig.types import Floats

LEAST = 16
"""Readings that must share the highest value."""
ALIKE = 0.4
"""Share of the readings at the highest value that must follow another one of the same value."""
NOISY = 0.3
"""Elsewhere at most this share of successive readings may be equal; else noise cannot tell."""


def apparent_range_end(values: Floats) -> float | None:
    """Return the value in the rail's raw unit at which readings end, or None if there is no such value.

    ``values`` has shape (n,). Noise seldom repeats a value, and the highest value is its rarest. If the readings at the
    highest value follow each other while the other readings differ from each other, the meter was at its end.
    """
    values = values[np.isfinite(values)]
    if len(values) < LEAST:
        return None
    top = values == values.max()
    count = int(np.count_nonzero(top))
    if count < LEAST or np.count_nonzero(top[1:] & top[:-1]) < ALIKE * count:
        return None
    elsewhere = ~top[1:] & ~top[:-1]
    differ = np.diff(values)[elsewhere] != 0.0
    return float(values.max()) if len(differ) >= LEAST and 1.0 - float(np.mean(differ)) <= NOISY else None
