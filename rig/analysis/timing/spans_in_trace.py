"""What a trace shows of its spans, at any place: sums of readings, and of their squares, over windows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats, Indices

LEAST_SPANS = 8
UNLIKE, USUAL = 0.35, 4.0
"""How far a span may miss its place: this part of a span, or this many times what is usual, if that is less."""
LEAST_UNLIKE = 0.05
RAREST = 1e-3
"""Share of the readings that a level holds at least."""
APART = 20.0
"""Squared distance of two levels over the variance of a reading; halves of one level have less than seven."""
NOWHERE = np.zeros(1)


@dataclass(frozen=True)
class Sums:
    """A signal that is constant between places, and its square, summed up to each place, shapes (n + 1,)."""

    at: Floats
    first: Floats
    second: Floats

    @staticmethod
    def of(level: Floats, at: Floats) -> Sums:
        """Return the sums of levels, shape (n,), between places, shape (n + 1,)."""
        return Sums(at, *(np.concatenate([[0.0], np.cumsum(x * np.diff(at))]) for x in (level, level**2)))

    def between(self, on: Floats, off: Floats) -> tuple[Floats, Floats]:
        """Return both sums from ``on`` to ``off``, shape kept."""
        first, second = (np.interp(off, self.at, x) - np.interp(on, self.at, x) for x in (self.first, self.second))
        return first, second


@dataclass(frozen=True)
class Spans:
    """Spans, and cells that reach to the middle of the gap on either side, in numbers of readings, shapes (k,)."""

    on: Floats
    off: Floats
    begin: Floats
    end: Floats

    def __len__(self) -> int:
        return len(self.on)

    @property
    def width(self) -> float:
        """Return the median length."""
        return float(np.median(self.off - self.on))

    def some(self, which: Indices | slice) -> Spans:
        """Return part of the spans."""
        return Spans(self.on[which], self.off[which], self.begin[which], self.end[which])


@dataclass(frozen=True)
class Levels:
    """Watts between spans and in them, and the variance of a reading about them."""

    low: float
    high: float
    noise2: float

    @property
    def rise(self) -> float:
        """Return the difference of both, squared."""
        return (self.high - self.low) ** 2


@dataclass(frozen=True)
class Seen:
    """Spans, and what the trace shows at any place of them; ``watts`` are its readings less their mean."""

    watts: Floats
    sums: Sums
    spans: Spans
    levels: Levels

    def unlike(self, lags: Floats, paces: Floats | float = 1.0) -> Floats:
        """Return how far each cell is from its two levels beyond noise, as a part of a span, shape (k, m).

        Each of the m places is a lag, in numbers of readings, by which the trace shows the spans earlier, after its
        grid is stretched by a pace. The result is about 1 for a span that shows no rise.
        """
        s, low, high = self.spans, self.levels.low, self.levels.high
        on, off, begin, end = (x[:, None] / paces - lags for x in (s.on, s.off, s.begin, s.end))
        inside, _ = self.sums.between(on, off)
        cell, cell2 = self.sums.between(begin, end)
        within, total = off - on, end - begin
        misfit = (
            cell2 - 2.0 * high * inside + high**2 * within - 2.0 * low * (cell - inside) + low**2 * (total - within)
        )
        part = (misfit - self.levels.noise2 * total) / (self.levels.rise * within)
        return np.where((begin < 0.0) | (end > len(self.sums.first) - 1.0), 1.0, part)

    def rise(self, lag: float) -> Floats:
        """Return the rise of each span above the gaps beside it, as a part of the usual one, shape (k,)."""
        s = self.spans
        inside, _ = self.sums.between(s.on - lag, s.off - lag)
        cell, _ = self.sums.between(s.begin - lag, s.end - lag)
        outside = (cell - inside) / (s.end - s.begin - s.off + s.on)
        return np.asarray(inside / (s.off - s.on) - outside) / (self.levels.high - self.levels.low)

    def some(self, which: Indices | slice) -> Seen:
        """Return the same for part of the spans."""
        return replace(self, spans=self.spans.some(which))


def seen_in(r: Readings, windows_s: Floats) -> Seen | None:
    """Return the disjoint spans in the trace, shape (k, 2), or None if one has no length or it shows no two levels."""
    if np.any(windows_s[:, 1] <= windows_s[:, 0]):
        return None
    x = (windows_s - r.start_s[0]) / r.period_s
    middle = 0.5 * (x[1:, 0] + x[:-1, 1])
    margin = 0.5 * float(np.median(x[1:, 0] - x[:-1, 1]))
    spans = Spans(x[:, 0], x[:, 1], np.append(x[0, 0] - margin, middle), np.append(middle, x[-1, 1] + margin))
    watts = np.where(r.ok, r.watts, float(np.mean(r.watts[r.ok])))
    watts = watts - watts.mean()
    levels = _levels(watts, *np.clip([spans.begin[0], spans.end[-1]], 0, len(watts)).astype(int))
    return None if levels is None else Seen(watts, Sums.of(watts, np.arange(len(watts) + 1.0)), spans, levels)


def levels_in(r: Readings, windows_s: Floats) -> Levels | None:
    """Return the two levels of a trace, or None if it shows no two; its readings may be means of several."""
    ok, first_s, last_s = r.ok, windows_s[0, 0], windows_s[-1, 1]
    return _levels(r.watts[ok], *np.searchsorted(r.start_s[ok], [first_s, last_s]).tolist())


def _levels(watts: Floats, first: int, last: int) -> Levels | None:
    """Split the readings of the activity into two levels (Lloyd, 1982), or all readings if they lie elsewhere."""
    for some, tail in ((watts[first:last], 0.1), (watts, RAREST)):
        if len(some) < 4 * LEAST_SPANS:
            continue
        low, high = np.quantile(some, [tail, 1.0 - tail])
        for _ in range(10):
            upper = some > 0.5 * (low + high)
            if upper.all() or not upper.any():
                break
            low, high = some[~upper].mean(), some[upper].mean()
        else:
            noise2 = float(min(some[upper].var(), some[~upper].var()))
            if (high - low) ** 2 > APART * noise2:
                return Levels(float(low), float(high), noise2)
    return None


def fits(r: Readings, windows_s: Floats) -> Bools:
    """Return which of the disjoint spans rise in the trace where they were recorded, shape (k,)."""
    if r.period_s <= 0.0 or r.counter:
        return np.ones(len(windows_s), bool)
    seen = seen_in(r, windows_s)
    if seen is None:
        return np.ones(len(windows_s), bool)
    unlike = seen.unlike(NOWHERE)[:, 0]
    return np.asarray(unlike <= most_unlike(unlike))


def most_unlike(unlike: Floats) -> float:
    """Return how far a span may miss its place, from how far spans do."""
    return min(UNLIKE, LEAST_UNLIKE + USUAL * max(float(np.median(unlike)), 0.0))
