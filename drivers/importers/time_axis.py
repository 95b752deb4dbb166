"""Convert time stamps to times of readings: a uniform grid, or a begin and an end for each reading."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from rig.errors import DataError, refused
from rig.types import Chunk, Floats, Indices

EVEN = 0.01
"""Stamps that are at most this many periods off a uniform grid are replaced by this grid."""
BLOCK = 1 << 20
"""The largest number of readings in one chunk."""
BUCKET = 1 << 12
"""In each bucket of this many readings, only the extreme distances from a first grid are kept, to save memory."""
LAGS = {"start": 0.0, "middle": -0.5, "end": -1.0}
"""The begin of a reading relative to its stamp (periods), by the part of the reading that is stamped."""
Block = tuple[Indices | None, Floats]
"""Stamps in ns and values of successive readings, shapes (n,). If readings are on a grid, the stamps are None."""


@dataclass(frozen=True)
class TimeAxis:
    """Times in ns of the recording's own clock: a grid from ``t0_ns`` at ``rate_hz``, or a stamp for each reading.

    If it is unknown which part of a reading is stamped, all times may have a common error of up to ``uncertainty_s``.
    Stamps are typically ``typical_ns`` and at least ``shortest_ns`` apart; both values are 0 on a grid. ``first_ns`` is
    the first stamp. A reading begins ``lag`` periods after its stamp (negative: before it).
    """

    t0_ns: int
    rate_hz: float
    uncertainty_s: float = 0.0
    typical_ns: float = 0.0
    shortest_ns: float = 0.0
    lag: float = 0.0
    first_ns: int = 0


def axis_of(blocks: Iterable[Indices], place: str | None) -> TimeAxis:
    """Return the axis of readings from blocks of their stamps; ``place`` is the stamped part: start, middle or end.

    If ``place`` is None, the part is unknown: readings are centred on their stamps, and times are uncertain by half a
    period. For points, pass ``end``. Raises ``DataError`` for stamps that do not increase and for fewer than two, and
    ``UsageError`` for an unknown ``place``.
    """
    if place is not None and place not in LAGS:
        raise refused("stamp", place, "Give start, end or middle")
    n, zero, last, typical, slope, even, shortest = 0, 0, 0, 0.0, 0.0, 0, np.inf
    far: list[tuple[Indices, Floats, Floats]] = []
    for stamps in blocks:
        if not len(stamps):
            continue
        steps = np.diff(stamps, prepend=stamps[:0] if n == 0 else last)
        _check_forward(stamps, steps, n)
        if n == 0 and len(steps):
            zero, typical = int(stamps[0]), float(np.median(steps))
            slope = float(stamps[-1] - zero) / len(steps)
        even += int(np.count_nonzero(np.abs(steps - typical) <= 0.2 * typical))
        shortest = min(shortest, float(steps.min(initial=round(typical))))
        off, at = stamps - zero - slope * np.arange(n, n + len(stamps)), np.arange(0, len(stamps), BUCKET)
        far.append((n + at, np.minimum.reduceat(off, at), np.maximum.reduceat(off, at)))
        n, last = n + len(stamps), int(stamps[-1])
    if n < 2:
        what, remedy = f"the trace holds {n} readings", "A trace needs at least two readings"
        raise DataError(what, field="time", value=n, remedy=remedy)
    uncertainty_s = 0.5e-9 * typical if place is None else 0.0
    lag = LAGS[place or "middle"]
    period = float(last - zero) / (n - 1)
    if _farthest(far, period - slope) <= max(EVEN * period, 1.0):
        return TimeAxis(zero + round(lag * period), 1e9 / period, uncertainty_s, first_ns=zero)
    begin = zero - round(typical) if lag == LAGS["end"] else zero - (round(typical) // 2 if lag else 0)
    rate_hz = 1e9 / typical if even >= 0.9 * (n - 1) else 0.0
    return TimeAxis(begin, rate_hz, uncertainty_s, typical, shortest, lag, zero)


def _check_forward(stamps: Indices, steps: Indices, before: int) -> None:
    back = np.flatnonzero(steps <= 0)
    if len(back):
        row = int(back[0]) + len(stamps) - len(steps)
        by_s, remedy = steps[back[0]] * -1e-9, "Import each part by itself"
        how = "use --format plain-csv with rate_hz=NUMBER, without time="
        what = f"reading {before + row + 1} is {by_s:.9g} s earlier than the reading before it"
        if not by_s:
            what = f"reading {before + row + 1} has the stamp of the reading before it"
            remedy = f"Remove it; or where stamps are rounded, {how}"
        elif by_s > 43200.0:
            remedy = f"Where stamps without a date pass midnight, write dates into them, or {how}"
        raise DataError(what, field="time", value=int(stamps[row]), remedy=remedy)


def _farthest(buckets: list[tuple[Indices, Floats, Floats]], lean: float) -> float:
    """Return the largest distance of a stamp from the grid of ``buckets``, whose period is lengthened by ``lean``.

    The result may be too large by ``lean`` times ``BUCKET``.
    """
    at, low, high = (np.concatenate(column) for column in zip(*buckets, strict=True))
    moved = np.sort([lean * at, lean * (at + BUCKET)], axis=0)
    return float(max(np.max(high - moved[0]), np.max(moved[1] - low)))


def placed(blocks: Iterable[tuple[Indices, Floats]], axis: TimeAxis) -> Iterator[tuple[Indices, Indices, Floats]]:
    """Yield begin, end and value of each reading. Readings adjoin; beside a gap, a reading lasts a typical period."""
    typical, longest = round(axis.typical_ns), round(1.5 * axis.typical_ns)
    step = typical  # from the last stamp of the block before; the first block has none before
    for here, after in pairwise(chain(blocks, [None])):
        assert here is not None
        stamps, values = here
        ahead = np.diff(stamps if after is None else np.append(stamps, after[0][0]))
        ahead = np.where(ahead > longest, typical, ahead)
        ahead = np.append(ahead, typical) if after is None else ahead
        behind = np.concatenate([[step], ahead[:-1]])
        step = int(ahead[-1])
        if axis.lag == LAGS["end"]:
            yield stamps - behind, stamps, values
        elif axis.lag == LAGS["start"]:
            yield stamps, stamps + ahead, values
        else:
            yield stamps - behind // 2, stamps + ahead // 2, values


def chunks(rail: str, blocks: Iterable[Block], axis: TimeAxis, zero_ns: int) -> Iterator[Chunk]:
    """Yield the readings in chunks. If the axis is not a grid, chunks have ticks in ns since ``zero_ns``."""
    if not axis.typical_ns:
        for _, values in blocks:
            for first in range(0, len(values), BLOCK):
                yield Chunk(rail, values[first : first + BLOCK])
        return
    stamped = ((stamps, values) for stamps, values in blocks if stamps is not None and len(stamps))
    for start, end, values in placed(stamped, axis):
        for first in range(0, len(values), BLOCK):
            part = slice(first, first + BLOCK)
            yield Chunk(rail, values[part], start[part] - zero_ns, end[part] - zero_ns)
