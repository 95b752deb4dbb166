"""Looking into one rail of a run directory: any stretch of it in a few columns, however long the trace is.

Wide stretches come from the pyramid, narrow ones from the readings themselves. No figure is computed from either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.analysis.streaming.run import RailFile, at_the_end, extent_s
from rig.analysis.streaming.trace_index import Index, Told, index_of, power_of, shown
from rig.analysis.timing.timebase import Timebase
from rig.recording.pyramid import FINEST
from rig.recording.reader import Run
from rig.types import ClockInfo, Floats, Indices

MOST_READ = 1500 * FINEST
"""A longer stretch is never read reading by reading, also where the pyramid has fewer columns of it than asked for."""


@dataclass(frozen=True)
class Look:
    """A stretch of a trace in columns, ready to be drawn.

    ``edges_s`` (n + 1,) bound the columns in run seconds. ``least``, ``mean`` and ``most`` (n,) are in the unit of the
    trace, and NaN where no reading is a number. ``single`` says that each column is one reading.
    """

    edges_s: Floats
    least: Floats
    mean: Floats
    most: Floats
    readings: int
    missing: int
    single: bool


@dataclass(frozen=True)
class LongTrace:
    """One rail that can be looked into; ``unit`` is W where its readings alone give power, and else their own."""

    file: RailFile
    clock: Timebase
    unit: str
    index: Index

    @property
    def extent_s(self) -> tuple[float, float]:
        """Return when the trace begins and ends, in run seconds."""
        return extent_s(self.file, self.clock)

    def look(self, low_s: float, high_s: float, columns: int) -> Look:
        """Return the readings between two moments in at most ``columns`` columns, or each by itself if they are few.

        Readings that are partly between them are included. ``columns`` is at least 1.
        """
        first, last = self._between(low_s, high_s)
        fitting = [level for level in self.index.levels if level.step * columns <= last - first]
        if not fitting and last - first <= MOST_READ:
            return self._from_readings(first, last, (low_s, high_s), columns)
        level = fitting[-1] if fitting else self.index.levels[0]
        a, b = first // level.step, -(-last // level.step)
        edges = self._seconds(np.minimum(np.arange(a, b + 1) * level.step, self.file.readings))
        held = min(b * level.step, self.file.readings) - a * level.step
        parts = (level.least[a:b], level.mean[a:b], level.most[a:b], level.count[a:b])
        return _look(edges, parts, held, columns)

    def clipped(self, windows_s: Floats) -> Indices:
        """Return how many readings that begin in each window are at the end of the meter's range, shape (k,).

        ``windows_s`` has shape (k, 2). Readings that the instrument flagged count too. This reads the whole trace.
        """
        counts, row = np.zeros(len(windows_s), np.int64), 0
        start = None if self.file.grid is not None else self.file.columns["start_tick"]
        for over in at_the_end(self.file):
            if len(at := row + np.flatnonzero(over)):
                begin = self._seconds(at) if start is None else self.clock.seconds(start[at])
                counts += np.diff(np.searchsorted(begin, windows_s), axis=1)[:, 0]
            row += len(over)
        return counts

    def _from_readings(self, first: int, last: int, between_s: tuple[float, float], columns: int) -> Look:
        values, ticks = self._read(first, last)
        if ticks is None:
            edges = self._seconds(np.arange(first, first + len(values) + 1))
        else:
            starts = self.clock.seconds(ticks)
            end = self._seconds(np.array([first + len(values)]))
            edges = np.append(starts, np.maximum(end, starts[-1:]) if len(starts) else end)
            low = max(int(np.searchsorted(starts, between_s[0], side="right")) - 1, 0)
            high = int(np.searchsorted(starts, between_s[1], side="left"))
            values, edges = values[low:high], edges[low : high + 1]
        values = shown(values, self.file).astype(np.float64)
        good = np.isfinite(values)
        values = np.where(good, values, np.nan)
        return _look(edges, (values, values, values, good.astype(np.int64)), len(values), columns)

    def _between(self, low_s: float, high_s: float) -> tuple[int, int]:
        """The first reading of a stretch and the one after its last; whole buckets if readings have their own ticks."""
        n = self.file.readings
        if self.file.grid is None:
            at = self.clock.seconds(self.index.ticks)
            low = int(np.searchsorted(at, low_s, side="right")) - 1
            high = int(np.searchsorted(at, high_s, side="left"))
            return max(low, 0) * FINEST, min(max(high, low + 1, 0) * FINEST, n)
        begin, end = self.extent_s
        per_s = n / (end - begin)
        first = int(np.clip(np.floor((low_s - begin) * per_s), 0, n))
        return first, int(np.clip(np.ceil((high_s - begin) * per_s), first, n))

    def _seconds(self, reading: Indices) -> Floats:
        """When readings begin; those with their own ticks must be the first of a bucket, or the end of the trace."""
        if self.file.grid is None:
            return self.clock.seconds(self.index.ticks[-(-reading // FINEST)])
        begin, end = self.extent_s
        return np.asarray(begin + (end - begin) / max(self.file.readings, 1) * reading)

    def _read(self, first: int, last: int) -> tuple[NDArray[Any], Indices | None]:
        """The raw readings of a stretch, and their ticks if they have their own."""
        ticks = None if self.file.grid is not None else self.file.columns["start_tick"][first:last]
        return self.file.columns["value"][first:last], ticks


def long_trace(run: Run, file: RailFile, clock: Timebase, told: Told | None = None) -> LongTrace:
    """Return a rail that can be looked into, by the index that is stored in ``derived/`` or built now."""
    return LongTrace(file, clock, "W" if power_of(file) else file.rail.conversion.unit, index_of(run, file, told))


def placed(file: RailFile, begin_s: float, end_s: float) -> Timebase:
    """Return a straight clock by which a trace begins and ends at two moments of the run."""
    if file.grid is not None:
        first, last = file.grid.t0_tick, file.grid.t0_tick + file.readings * file.grid.period_tick
    else:
        first, last = (int(file.columns[name][k]) for name, k in (("start_tick", 0), ("end_tick", -1)))
    rate = (end_s - begin_s) / max(last - first, 1)
    return Timebase(ClockInfo("picture", 1.0), round(first), begin_s, rate, 0.0, 0.0, "its ends")


def _look(edges: Floats, parts: tuple[Any, ...], readings: int, columns: int) -> Look:
    """Buckets gathered to at most ``columns`` columns, or to twice as many where they are single readings."""
    least, mean, most, count = parts
    missing = readings - int(count.sum())
    if len(mean) <= 2 * columns:
        return Look(edges, least, mean, most, readings, missing, readings == len(mean))
    at = np.unique(np.linspace(0, len(mean), columns + 1).astype(np.int64))
    total, held = np.add.reduceat(np.where(count > 0, mean, 0.0) * count, at[:-1]), np.add.reduceat(count, at[:-1])
    means = np.divide(total, held, out=np.full(len(held), np.nan), where=held > 0)
    return Look(
        edges[at], np.fmin.reduceat(least, at[:-1]), means, np.fmax.reduceat(most, at[:-1]), readings, missing, False
    )
