"""View one rail of a run directory: any part of it in a few columns, for traces of any length.

Wide parts come from the pyramid, narrow ones from the readings themselves. No figure is computed from either.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reports.viewing.pyramid import FINEST, gathered
from reports.viewing.trace_index import BLOCK, Index, Told, index_of, power_of, shown
from rig.analysis.power.clipped_and_missing import GAP_PERIODS, STEADY
from rig.analysis.timing.timebase import Timebase
from rig.recording.columns.stored import Batches
from rig.recording.reader import Run
from rig.recording.traces.traces import Trace
from rig.types import ClockInfo, Floats, Indices

MOST_READ = 1500 * FINEST
"""A part with more readings is always drawn from the pyramid, even if this makes fewer columns than requested."""


@dataclass(frozen=True)
class Look:
    """A part of a trace in columns, ready to be drawn.

    ``edges_s`` (n + 1,) bound the columns in run seconds. ``least``, ``mean`` and ``most`` (n,) are in the unit of the
    trace, and NaN if no reading is a number. If ``single`` is true, each column is one reading.
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
    """One rail to view; ``unit`` is W if power follows from its readings alone, else the unit of the readings."""

    trace: Trace
    clock: Timebase
    unit: str
    index: Index

    @property
    def readings(self) -> int:
        """Return how many readings the trace holds."""
        return len(self.trace.value)

    @property
    def extent_s(self) -> tuple[float, float]:
        """Return when the trace begins and ends, in run seconds."""
        begin, end = self.clock.seconds(np.array(extent_ticks(self.trace))).tolist()
        return begin, end

    def look(self, low_s: float, high_s: float, columns: int) -> Look:
        """Return the readings between two moments, singly if they are few, else in columns.

        There are at most twice ``columns`` columns; ``columns`` is at least 1. Readings that are partly inside are
        included. Between irregular readings, each pause adds a column without a number.
        """
        found = self._look(low_s, high_s, columns)
        return found if self.trace.uniform else _with_pauses(found)

    def _look(self, low_s: float, high_s: float, columns: int) -> Look:
        first, last = self._between(low_s, high_s)
        fitting = [level for level in self.index.levels if level.step * columns <= last - first]
        if not fitting and last - first <= MOST_READ:
            return self._from_readings(first, last, (low_s, high_s), columns)
        level = fitting[-1] if fitting else self.index.levels[0]
        a, b = first // level.step, -(-last // level.step)
        edges = self._seconds(np.minimum(np.arange(a, b + 1) * level.step, self.readings))
        held = min(b * level.step, self.readings) - a * level.step
        parts = (level.least[a:b], level.mean[a:b], level.most[a:b], level.count[a:b])
        return _look(edges, parts, held, columns)

    def over(self, windows_s: Floats) -> tuple[Floats, Indices]:
        """Return the energy in each window and the number of its readings at the end of the range, shapes (k,).

        ``windows_s`` has shape (k, 2). A reading that is partly in a window contributes this part. The energy is NaN if
        a reading is missing, for windows beyond the trace, if power does not follow from the readings alone, and for
        point readings at irregular times. Readings that the instrument flagged count as at the end of its range. This
        reads the whole trace.
        """
        joules, lost_s = np.zeros(len(windows_s)), np.zeros(len(windows_s))
        clipped, (begin, end), top = np.zeros(len(windows_s), np.int64), self.extent_s, self.trace.rail.range_max
        since_s = begin
        for first in range(0, self.readings, BLOCK):
            part = slice(first, min(first + BLOCK, self.readings))
            value, (on_s, off_s) = self.trace.value[part], self._stamps(part)
            over = np.asarray(self.trace.overload[part]) | (False if top is None else value >= top)
            clipped += np.diff(np.searchsorted(on_s[over], windows_s), axis=1)[:, 0]
            watts = np.asarray(shown(value, self.trace.rail), dtype=np.float64)
            good = np.isfinite(watts)
            knots = np.column_stack([on_s, off_s]).ravel()
            joules += between(windows_s, knots, np.where(good, watts, 0.0) * (off_s - on_s))
            lost_s += between(windows_s, knots, ~good * (off_s - on_s))
            until_s = np.maximum(on_s, ends_s := np.append(since_s, off_s[:-1]))
            pause_s = (until_s - ends_s) * (until_s - ends_s > (GAP_PERIODS - 1.0) * np.median(off_s - on_s))
            lost_s += between(windows_s, np.column_stack([ends_s, until_s]).ravel(), pause_s)
            since_s = off_s[-1]
        known = (lost_s == 0) & (windows_s[:, 0] >= begin) & (windows_s[:, 1] <= end)
        known &= self.unit == "W" and (self.trace.uniform or self.trace.rail.kind != "point")
        return np.where(known, joules, np.nan), clipped

    def _from_readings(self, first: int, last: int, between_s: tuple[float, float], columns: int) -> Look:
        values = self.trace.value[first:last]
        if self.trace.uniform:
            edges = self._seconds(np.arange(first, first + len(values) + 1))
        else:
            starts = self.clock.seconds(self.trace.start_tick[first:last])
            end = self._seconds(np.array([first + len(values)]))
            edges = np.append(starts, np.maximum(end, starts[-1:]) if len(starts) else end)
            low = max(int(np.searchsorted(starts, between_s[0], side="right")) - 1, 0)
            high = int(np.searchsorted(starts, between_s[1], side="left"))
            values, edges = values[low:high], edges[low : high + 1]
        values = shown(values, self.trace.rail).astype(np.float64)
        good = np.isfinite(values)
        values = np.where(good, values, np.nan)
        return _look(edges, (values, values, values, good.astype(np.int64)), len(values), columns)

    def _between(self, low_s: float, high_s: float) -> tuple[int, int]:
        """Return the first reading of a part and the reading after its last; irregular readings in whole buckets."""
        n = self.readings
        if not self.trace.uniform:
            at = self.clock.seconds(self.index.ticks)
            low = int(np.searchsorted(at, low_s, side="right")) - 1
            high = int(np.searchsorted(at, high_s, side="left"))
            return max(low, 0) * FINEST, min(max(high, low + 1, 0) * FINEST, n)
        begin, end = self.extent_s
        per_s = n / (end - begin)
        first = int(np.clip(np.floor((low_s - begin) * per_s), 0, n))
        return first, int(np.clip(np.ceil((high_s - begin) * per_s), first, n))

    def _seconds(self, reading: Indices) -> Floats:
        """Return when readings begin. Irregular readings must be the first of a bucket, or the end of the trace."""
        if not self.trace.uniform:
            return self.clock.seconds(self.index.ticks[-(-reading // FINEST)])
        begin, end = self.extent_s
        return np.asarray(begin + (end - begin) / max(self.readings, 1) * reading)

    def _stamps(self, part: slice) -> tuple[Floats, Floats]:
        """Return begins and ends of successive readings; on a grid, each lasts for its whole period."""
        if self.trace.uniform:
            at_s = self._seconds(np.arange(part.start, part.stop + 1))
            return at_s[:-1], at_s[1:]
        return self.clock.seconds(self.trace.start_tick[part]), self.clock.seconds(self.trace.end_tick[part])


def long_trace(run: Run, trace: Trace, batches: Batches, clock: Timebase, told: Told | None = None) -> LongTrace:
    """Return a rail to view, with the index from ``derived/``, or an index built now."""
    unit = "W" if power_of(trace.rail) else trace.rail.conversion.unit
    return LongTrace(trace, clock, unit, index_of(run, trace, batches, told))


def extent_ticks(trace: Trace) -> tuple[float, float]:
    """Return begin and end of a trace in ticks; on a grid a reading lasts a period, and a point is in its middle."""
    begin, end, n = trace.start_tick[0], trace.end_tick[-1], len(trace.value)
    if not trace.uniform:
        return begin, end
    period = (trace.start_tick[-1] - begin) / (n - 1) if n > 1 else trace.end_tick[0] - begin
    if trace.rail.kind == "point":
        begin = trace.end_tick[0] - 0.5 * period
    return begin, begin + n * period


def placed(trace: Trace, begin_s: float, end_s: float) -> Timebase:
    """Return a clock of constant rate that puts a trace's begin and end at these two moments of the run."""
    first, last = extent_ticks(trace)
    rate = (end_s - begin_s) / max(last - first, 1)
    return Timebase(ClockInfo("picture", 1.0), round(first), begin_s, rate, 0.0, 0.0, "its ends")


def between(windows_s: Floats, knots_s: Floats, each: Floats) -> Floats:
    """Return the part of a sum in each window, shape (k,); ``knots_s`` (2 n,) are begins and ends of ``each`` (n,)."""
    done = np.concatenate([[0.0], np.repeat(np.cumsum(each), 2)[:-1]])
    return np.asarray(np.diff(np.interp(windows_s, knots_s, done), axis=1)[:, 0])


def _look(edges: Floats, parts: tuple[Any, ...], readings: int, columns: int) -> Look:
    """Join buckets to at most ``columns`` columns; up to twice as many buckets are left as they are."""
    least, mean, most, count = parts
    missing = readings - int(count.sum())
    if len(mean) <= 2 * columns:
        return Look(edges, least, mean, most, readings, missing, readings == len(mean))
    at = np.unique(np.linspace(0, len(mean), columns + 1).astype(np.int64))
    least, total, most, held = gathered(at[:-1], least, np.where(count > 0, mean, 0.0) * count, most, count)
    means = np.divide(total, held, out=np.full(len(held), np.nan), where=held > 0)
    return Look(edges[at], least, means, most, readings, missing, False)


def _with_pauses(look: Look) -> Look:
    """Return columns of irregular readings, with each pause as a column without a number.

    A column holds a pause if it lasts more than twice the median, because joined columns may differ 1.5 times in their
    readings. It is then cut to the median. If one column in ten lasts over ``STEADY`` medians, nothing is cut.
    """
    lengths_s = np.diff(look.edges_s)
    usual_s = float(np.median(lengths_s)) if len(lengths_s) else 0.0
    long = np.flatnonzero(lengths_s > 2.0 * usual_s)
    if not len(long) or np.quantile(lengths_s, 0.9) > STEADY * usual_s:
        return look
    edges_s = np.insert(look.edges_s, long + 1, look.edges_s[long] + usual_s)
    least, mean, most = (np.insert(x, long + 1, np.nan) for x in (look.least, look.mean, look.most))
    return replace(look, edges_s=edges_s, least=least, mean=mean, most=most)
