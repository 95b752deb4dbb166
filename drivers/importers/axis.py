"""Where in time readings lie: a column of stamps to a uniform grid, or to a begin and an end for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rig.errors import DataError, UsageError
from rig.types import Chunk, Floats, Indices

EVEN = 0.01
"""Part of a period that stamps may be off a uniform grid and still be taken for one."""
BLOCK = 1 << 20
PLACES = ("start", "end", "middle")


@dataclass(frozen=True)
class Axis:
    """Times in ns of the recording's own clock: a grid from ``t0_ns`` at ``rate_hz``, or ticks of shape (n,).

    ``doubt_s`` is how far all of them may be off together, since nobody said which end of a reading was stamped.
    """

    t0_ns: int
    rate_hz: float
    start_ns: Indices | None = None
    end_ns: Indices | None = None
    doubt_s: float = 0.0


def axis_of(stamps_ns: Indices, place: str | None, kind: str = "mean") -> Axis:
    """The axis of readings that are stamped at their ``start``, ``end`` or ``middle``.

    ``place`` None means that it is not known: then they are put about their stamps, and half a period is doubted.
    A ``point`` is stamped where it was taken. Raises ``DataError`` for stamps that do not move forward.
    """
    if place is not None and place not in PLACES:
        raise UsageError(f"stamp is {place!r}", field="stamp", value=place, remedy="Give start, end or middle")
    if len(stamps_ns) < 2:
        raise DataError(
            f"the trace holds {len(stamps_ns)} readings", field="time", value=len(stamps_ns), remedy="It needs two"
        )
    steps = np.diff(stamps_ns)
    back = np.flatnonzero(steps <= 0)
    if len(back):
        row = int(back[0]) + 1
        raise DataError(
            f"time does not move forward at reading {row + 1}: {stamps_ns[row] * 1e-9:.9g} s after "
            f"{stamps_ns[row - 1] * 1e-9:.9g} s",
            field="time",
            value=int(stamps_ns[row]),
            remedy="Remove repeated and backward stamps, or import the stretches one by one",
        )
    typical = float(np.median(steps))
    doubt_s = 0.5e-9 * typical if place is None and kind == "mean" else 0.0
    lag = {"start": 0.0, "end": -1.0}.get(place or "middle", -0.5)
    if kind == "point":
        lag = -1.0
    period = float(stamps_ns[-1] - stamps_ns[0]) / (len(stamps_ns) - 1)
    off = stamps_ns - stamps_ns[0] - period * np.arange(len(stamps_ns))
    if float(np.max(np.abs(off))) <= max(EVEN * period, 1.0):
        return Axis(int(stamps_ns[0]) + round(lag * period), 1e9 / period, doubt_s=doubt_s)
    even = float(np.mean(np.abs(steps - typical) <= 0.2 * typical)) >= 0.9
    start, end = _edges(stamps_ns, steps, typical, lag)
    return Axis(int(start[0]), 1e9 / typical if even else 0.0, start, end, doubt_s)


def _edges(stamps: Indices, steps: Indices, typical: float, lag: float) -> tuple[Indices, Indices]:
    """Begin and end of each reading: up to its neighbour, but never longer than a typical one and a half."""
    longest = np.minimum(steps, round(1.5 * typical))
    behind = np.concatenate([[round(typical)], longest])  # from the stamp before
    ahead = np.concatenate([longest, [round(typical)]])
    if lag == -1.0:
        return stamps - behind, stamps
    if lag == 0.0:
        return stamps, stamps + ahead
    return stamps - behind // 2, stamps + ahead // 2


def chunks(rail: str, values: Floats, axis: Axis, zero_ns: int) -> Iterator[Chunk]:
    """The readings in blocks, with their ticks in ns since ``zero_ns`` where the axis is no grid."""
    for first in range(0, len(values), BLOCK):
        part = slice(first, first + BLOCK)
        if axis.start_ns is None or axis.end_ns is None:
            yield Chunk(rail, values[part])
        else:
            yield Chunk(rail, values[part], axis.start_ns[part] - zero_ns, axis.end_ns[part] - zero_ns)
