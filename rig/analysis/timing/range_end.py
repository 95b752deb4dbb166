"""Values at which a meter's readings stop though no one declared them: the ends of its range, and of ranges within it.

Noise seldom repeats a value. A value that many noisy readings share is no measurement of each of them: the meter could
show no more, or no less, or had not yet changed its range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rig.types import Bools, Floats

LEAST = 16
"""Readings that must share a value, and by how many times more often it must be read than others."""
ALIKE = 0.4
"""Share of the readings at the highest value that must follow another one of the same value."""
NOISY = 0.3
"""Elsewhere at most this share of successive readings may be equal; else noise cannot tell."""
DENSE = 3.0
"""How far 17 readings may spread above a low end, over the 31 above them, which chance keeps to about one half."""
MOST_VALUES = 3
LOOKED_AT = 1 << 18


@dataclass(frozen=True)
class Ends:
    """Values at which readings stop: ``upper`` from above, ``floor`` from below."""

    upper: tuple[float, ...] = ()
    floor: float | None = None

    def clipped(self, values: Floats) -> tuple[Bools, Bools]:
        """Return which readings are only a lower bound, and which only an upper bound, shapes (n,)."""
        none = np.zeros(len(values), bool)
        floor = none if self.floor is None else values == self.floor
        return (np.isin(values, self.upper) if self.upper else none), floor


def apparent_ends(values: Floats) -> Ends:
    """Return the values at which readings, shape (n,), stop: their lowest from below, any other from above."""
    finite = np.isfinite(values)
    known = values if finite.all() else values[finite]
    if len(known) < LEAST:
        return Ends()
    low, high = float(known.min()), float(known.max())
    shared = _shared(known)
    if high not in shared and _holds(known, high):
        shared.append(high)
    return Ends(tuple(v for v in shared if v != low), low if low in shared and _cut(known, low) else None)


def _shared(known: Floats) -> list[float]:
    """Values that many readings share, if a third of them or more share none; at most ``LOOKED_AT`` are seen."""
    value, count = np.unique(known[:: max(1, len(known) // LOOKED_AT)], return_counts=True)
    often = np.flatnonzero(count >= LEAST)
    if not 0 < len(often) <= MOST_VALUES or len(value) <= len(often):
        return []
    held = int(count[often].sum())
    others = int(count.sum()) - held
    usual = others / (len(value) - len(often))
    beside = np.concatenate([[0], count, [0]])
    beside = np.maximum(beside[often], beside[often + 2])
    if 2 * others < held or usual > 1.0 + NOISY:
        return []
    return [float(v) for v in value[often][count[often] >= LEAST * np.maximum(beside, usual)]]


def _cut(known: Floats, low: float) -> bool:
    """Whether readings just above the lowest value are as dense as those above them, as where noise is cut off."""
    above = known[known > low]
    if len(above) < 3 * LEAST:
        return False
    near, far = np.partition(above, [LEAST, 3 * LEAST - 1])[[LEAST, 3 * LEAST - 1]]
    return bool(near - low <= DENSE * (far - near))


def _holds(known: Floats, high: float) -> bool:
    """Whether readings at the highest value follow each other while the other readings differ from each other."""
    top = known == high
    count = int(np.count_nonzero(top))
    if count < LEAST or np.count_nonzero(top[1:] & top[:-1]) < ALIKE * count:
        return False
    differ = np.diff(known)[~top[1:] & ~top[:-1]] != 0.0
    return len(differ) >= LEAST and 1.0 - float(np.mean(differ)) <= NOISY
