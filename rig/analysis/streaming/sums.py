"""Sums by window over blocks of readings, which are on a grid or have a begin and an end each."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError
from rig.types import Floats, Indices

Block = tuple[int, NDArray[Any]]
"""The index of the block's first reading, and its readings as they are in the file, shape (n,)."""

SLACK = 1e-6
"""How many readings a window may lie outside the trace, because seconds are rounded."""


@dataclass(frozen=True)
class Parts:
    """Stretches of readings, sorted by their begin.

    Each one lasts from ``start`` to ``end`` of one window, and its readings have one weight.
    """

    start: Indices
    end: Indices
    weight: Floats
    window: Indices


@dataclass(frozen=True)
class Watts:
    """Conversion of raw numbers to watts: ``x = scale * raw + offset``, then ``p = x * volts - x**2 * burden_ohm``."""

    scale: float = 1.0
    offset: float = 0.0
    volts: float = 1.0
    burden_ohm: float = 0.0

    def of(self, raw: NDArray[Any]) -> Floats:
        """Return the watts of raw readings as float64 of the same shape."""
        x = raw.astype(np.float64) * self.scale + self.offset
        return np.asarray(x * self.volts - x * x * self.burden_ohm)


@dataclass(frozen=True)
class Sums:
    """Integrals and lengths by window, shapes (k,).

    The integral and the total length are of the readings that are numbers. ``readings`` is the number of readings that
    are wholly or partly in a window. ``missing`` is the number of those that are not numbers.
    """

    energy_j: Floats
    covered_s: Floats
    readings: Indices
    missing: Indices


def check_inside(low: Floats, high: Floats, n: int, extent_s: tuple[float, float]) -> None:
    """Raise ``DataError`` for windows, in units of readings, that are not inside a trace of ``n`` readings."""
    outside = np.flatnonzero(~((low >= -SLACK) & (low <= high) & (high <= n + SLACK)))
    if len(outside):
        k = int(outside[0])
        raise DataError(
            f"window {k} runs from reading {low[k]:.9g} to {high[k]:.9g} of {n}",
            field="windows",
            value=k,
            remedy=f"Windows must lie inside the trace ({extent_s[0]:.9g} s to {extent_s[1]:.9g} s), begin before end",
        )


def parts_of(low: Floats, high: Floats) -> Parts:
    """Return the parts of windows in units of readings.

    The parts of a window are the reading cut at its begin, the whole readings, and the reading cut at its end.
    """
    first, last = np.ceil(low).astype(np.int64), np.floor(high).astype(np.int64)
    alone = last < first  # wholly within one reading
    own = np.arange(len(low))
    whole = (first, last, np.ones(len(low)), own)
    head = (np.where(alone, last, first - 1), np.where(alone, last + 1, first), np.where(alone, high, first) - low, own)
    tail = (last, last + 1, np.where(alone, 0.0, high - last), own)
    start, end, weight, window = (np.concatenate(column) for column in zip(head, whole, tail, strict=True))
    used = (end > start) & (weight > 0.0)
    order = np.flatnonzero(used)[np.argsort(start[used], kind="stable")]
    return Parts(start[order], end[order], weight[order], window[order])


def grid_sums(parts: Parts, blocks: Iterable[Block], windows: int, rate_hz: float, watts: Watts, name: str) -> Sums:
    """Return sums over blocks that come in order and hold all of ``parts``.

    Raises ``DataError`` if the trace ends before the last part, or if a sum exceeds double precision.
    """
    total, held, count, missing = (array("d", bytes(8 * windows)) for _ in range(4))
    linear, waiting, end = watts.burden_ohm == 0.0, 0, 0
    active: list[tuple[int, int, float, int]] = []
    for start, block in blocks:
        end = start + len(block)
        begun = int(np.searchsorted(parts.start, end))
        if begun > waiting:
            columns = (parts.start, parts.end, parts.weight, parts.window)
            active += zip(*(column[waiting:begun].tolist() for column in columns), strict=True)
            waiting = begun
        for first, last, weight, window in active:
            values = block[max(first - start, 0) : last - start]
            sum_, good = _sum(values if linear else watts.of(values))
            total[window] += weight * sum_
            held[window] += weight * good
            count[window] += len(values)
            missing[window] += len(values) - good
        active = [part for part in active if part[1] > end]
    if active or waiting < len(parts.start):
        window = active[0][3] if active else int(parts.window[waiting])
        raise DataError(
            f"{name} ends after reading {end}, before the end of window {window}",
            field="windows",
            value=end,
            remedy="Windows must lie inside the trace",
        )
    raw, lasted = np.array(total), np.array(held)
    energy = (watts.scale * raw + watts.offset * lasted) * watts.volts if linear else raw
    if not np.all(np.isfinite(energy)):
        what = f"{name} holds readings beyond 1e300, which cannot be"
        raise DataError(what, field="trace", value=name, remedy="Check --format")
    return Sums(energy / rate_hz, lasted / rate_hz, np.array(count, np.int64), np.array(missing, np.int64))


def _sum(values: NDArray[Any]) -> tuple[float, int]:
    """The sum of the readings that are numbers, and their count."""
    found = float(np.add.reduce(values, dtype=np.float64))
    if math.isfinite(found):
        return found, len(values)
    good = values[np.isfinite(values)]
    return float(np.add.reduce(good, dtype=np.float64)), len(good)


def stamped_sums(windows_s: Floats, blocks: Iterable[tuple[Floats, Floats, NDArray[Any]]], watts: Watts) -> Sums:
    """Return sums of readings in order, each with its own begin and end.

    ``blocks`` hold begins and ends in run seconds and raw readings, shapes (n,).
    """
    k = len(windows_s)
    total, held, count, missing = np.zeros(k), np.zeros(k), np.zeros(k, np.int64), np.zeros(k, np.int64)
    order = np.argsort(windows_s[:, 0], kind="stable").tolist()
    bounds: list[tuple[float, float]] = windows_s.tolist()
    waiting, active = 0, list[int]()
    for start, end, values in blocks:
        ended = float(end[-1])
        while waiting < k and bounds[order[waiting]][0] < ended:
            active.append(order[waiting])
            waiting += 1
        power = watts.of(values) if active else np.zeros(0)
        for w in active:
            low, high = bounds[w]
            inside = slice(int(np.searchsorted(end, low, side="right")), int(np.searchsorted(start, high, side="left")))
            length = np.minimum(end[inside], high) - np.maximum(start[inside], low)
            good = np.isfinite(power[inside])
            total[w] += float(np.add.reduce((power[inside] * length)[good]))
            held[w] += float(np.add.reduce(length[good]))
            count[w] += len(length)
            missing[w] += len(length) - int(np.count_nonzero(good))
        active = [w for w in active if bounds[w][1] > ended]
    return Sums(total, held, count, missing)
