"""Build a pyramid of a trace for pictures: least, mean, greatest and count of readings in longer and longer buckets.

One pass over blocks of any length builds it. No figure is computed from it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.types import Floats, Indices

FACTOR = 16
"""This many buckets of one level make one of the next. A picture of 1500 columns thus reads at most 24000 buckets, in a
few milliseconds."""
FINEST = FACTOR**3
"""Readings in a bucket of the finest level. The pyramid thus takes 8 bytes for each 1000 readings. A picture of 1500
columns that is finer than this level reads at most 6e6 readings from the trace itself."""
_ROWS = 64  # buckets reduced together: their doubles fit into a cache of 2 MB


@dataclass(frozen=True)
class Level:
    """Buckets of ``step`` readings each (the last may have fewer); shapes (k,).

    ``count`` is the number of readings that are finite numbers. The other columns are of these readings only, and NaN
    where the count is 0.
    """

    step: int
    least: Floats
    mean: Floats
    most: Floats
    count: Indices


class PyramidBuilder:
    """Builds a pyramid from successive blocks of a trace; the length of the blocks does not matter.

    It holds the buckets of the finest level, 32 bytes for every 4096 readings, and one unfinished bucket.
    """

    def __init__(self) -> None:
        self._rest: NDArray[Any] = np.zeros(0, np.float32)
        self._done: list[tuple[NDArray[Any], ...]] = []

    def add(self, readings: NDArray[Any]) -> None:
        """Add the next readings of the trace, shape (n,), of any type of numbers."""
        if len(self._rest):
            missing = FINEST - len(self._rest)
            self._rest = np.concatenate([self._rest, readings[:missing]])
            if len(self._rest) < FINEST:
                return
            self._done.append(_reduced(self._rest.reshape(1, -1)))
            readings = readings[missing:]
        whole = len(readings) // FINEST * FINEST
        for first in range(0, whole, _ROWS * FINEST):
            part = readings[first : min(first + _ROWS * FINEST, whole)]
            self._done.append(_reduced(part.reshape(-1, FINEST)))
        self._rest = readings[whole:].copy()

    def levels(self) -> tuple[Level, ...]:
        """Return the levels of what was added, from the finest to the level with one bucket."""
        parts = [*self._done, *([_reduced(self._rest.reshape(1, -1))] if len(self._rest) else [])]
        if not parts:
            return ()
        columns: tuple[NDArray[Any], ...] = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        found, step = [_level(FINEST, *columns)], FINEST
        while len(columns[0]) > 1:
            columns, step = gathered(np.arange(0, len(columns[0]), FACTOR), *columns), step * FACTOR
            found.append(_level(step, *columns))
        return tuple(found)


def _reduced(rows: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return least, sum, greatest and count of the finite readings of each row."""
    wide = rows.astype(np.float64)  # all sums in double precision, so that blocks do not change their rounding
    with np.errstate(invalid="ignore"):  # infinities of both signs
        least, total, most = rows.min(axis=1), wide.sum(axis=1), rows.max(axis=1)
    count = np.full(len(rows), rows.shape[1], np.int64)
    holed = np.flatnonzero(~np.isfinite(total) | ~np.isfinite(least) | ~np.isfinite(most))
    least, most = least.astype(np.float64), most.astype(np.float64)
    for k in holed:
        good = wide[k][np.isfinite(wide[k])]
        count[k], total[k] = len(good), good.sum()
        least[k], most[k] = (good.min(), good.max()) if len(good) else (np.nan, np.nan)
    return least, total, most, count


def gathered(at: Indices, least: Floats, total: Floats, most: Floats, count: Indices) -> tuple[NDArray[Any], ...]:
    """Join buckets to wider ones that begin at the places ``at``, and return their columns."""
    joins = (np.fmin, np.add, np.fmax, np.add)
    return tuple(join.reduceat(column, at) for join, column in zip(joins, (least, total, most, count), strict=True))


def _level(step: int, least: Floats, total: Floats, most: Floats, count: Indices) -> Level:
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return Level(step, least, mean, most, count)
