"""Time stamps become the times of readings: a uniform grid, or a begin and an end for each reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rig.errors import DataError, refused
from rig.types import Chunk, Floats, Indices

EVEN = 0.01
"""How far stamps may lie off a uniform grid, as a part of its period, and still be taken for one."""
BLOCK = 1 << 20
"""Readings in one chunk."""
LAGS = {"start": 0.0, "middle": -0.5, "end": -1.0}
"""Periods from the stamp of a reading to its begin, by the part of the reading that is stamped."""
PLACES = tuple(LAGS)


@dataclass(frozen=True)
class TimeAxis:
    """Times in ns of the recording's own clock: a grid from ``t0_ns`` at ``rate_hz``, or ticks of shape (n,).

    All of them may be off together by ``uncertainty_s``, where it is not known which part of a reading is stamped.
    """

    t0_ns: int
    rate_hz: float
    start_ns: Indices | None = None
    end_ns: Indices | None = None
    uncertainty_s: float = 0.0


def axis_of(stamps_ns: Indices, place: str | None) -> TimeAxis:
    """The axis of readings that are stamped at their ``start``, ``middle`` or ``end``.

    With ``place`` None it is not known: the readings lie around their stamps, uncertain by half a period. A reading of
    a point is stamped at its end. Raises ``DataError`` for stamps that do not move forward.
    """
    if place is not None and place not in LAGS:
        raise refused("stamp", place, "Give start, end or middle")
    if len(stamps_ns) < 2:
        what = f"the trace holds {len(stamps_ns)} readings"
        raise DataError(what, field="time", value=len(stamps_ns), remedy="A trace needs at least two readings")
    steps = np.diff(stamps_ns)
    back = np.flatnonzero(steps <= 0)
    if len(back):
        row = int(back[0]) + 1
        raise DataError(
            f"time does not move forward at reading {row + 1}: {stamps_ns[row] * 1e-9:.9g} s after "
            f"{stamps_ns[row - 1] * 1e-9:.9g} s",
            field="time",
            value=int(stamps_ns[row]),
            remedy="Remove repeated and backward stamps, or import each part by itself",
        )
    typical = float(np.median(steps))
    uncertainty_s = 0.5e-9 * typical if place is None else 0.0
    lag = LAGS[place or "middle"]
    period = float(stamps_ns[-1] - stamps_ns[0]) / (len(stamps_ns) - 1)
    off = stamps_ns - stamps_ns[0] - period * np.arange(len(stamps_ns))
    if float(np.max(np.abs(off))) <= max(EVEN * period, 1.0):
        return TimeAxis(int(stamps_ns[0]) + round(lag * period), 1e9 / period, uncertainty_s=uncertainty_s)
    even = float(np.mean(np.abs(steps - typical) <= 0.2 * typical)) >= 0.9
    start, end = _edges(stamps_ns, steps, typical, lag)
    return TimeAxis(int(start[0]), 1e9 / typical if even else 0.0, start, end, uncertainty_s)


def _edges(stamps: Indices, steps: Indices, typical: float, lag: float) -> tuple[Indices, Indices]:
    """Begin and end of each reading: up to its neighbour, but no longer than one and a half typical periods."""
    longest = np.minimum(steps, round(1.5 * typical))
    behind = np.concatenate([[round(typical)], longest])  # from the stamp before
    ahead = np.concatenate([longest, [round(typical)]])
    if lag == LAGS["end"]:
        return stamps - behind, stamps
    if lag == LAGS["start"]:
        return stamps, stamps + ahead
    return stamps - behind // 2, stamps + ahead // 2


def chunks(rail: str, values: Floats, axis: TimeAxis, zero_ns: int) -> Iterator[Chunk]:
    """The readings in blocks, with their ticks in ns since ``zero_ns`` where the axis is not a grid."""
    for first in range(0, len(values), BLOCK):
        part = slice(first, first + BLOCK)
        if axis.start_ns is None or axis.end_ns is None:
            yield Chunk(rail, values[part])
        else:
            yield Chunk(rail, values[part], axis.start_ns[part] - zero_ns, axis.end_ns[part] - zero_ns)
