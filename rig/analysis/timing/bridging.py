"""Readings whose own grid contradicts the spans get the times that the spans prove, or none.

A uniform trace says when each reading was taken by its number alone. If a driver loses a block of readings, delivers
each twice or declares a wrong rate, every later reading has a wrong time. The spans then show which number of readings
is lost, and where, or at which rate the readings were taken. Everything here is computed from sums of readings, and of
their squares, over windows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.activity_signal import correlated, edges_of, mean_signal
from rig.analysis.timing.consistency import allowed_after_end_s
from rig.analysis.timing.timeline import Readings
from rig.analysis.verdict import Check
from rig.recording.reader import Trace
from rig.types import Bools, Floats, Indices

LEAST_SPANS = 8
UNLIKE, USUAL = 0.35, 4.0
"""How far a span may miss its place: this part of a span, or this many times what is usual, if that is less."""
UNSEEN = 0.7
"""What a span counts that no place shows; one that shows no rise counts about 1."""
FEWEST = 2.0
"""Spans that must fit a new place better before a break is assumed there."""
MOST_UNLIKE = 0.05
"""Share of the spans that may fit no place, apart from those in a break."""
FARTHEST_PACE = 0.1
"""How far the true rate is looked for on either side of the declared one."""
MOST_PACES, SPANS_LOOKED_AT = 40_000, 200
MOST_SPANS = 20_000
RAREST = 1e-3
"""Share of the readings that a level holds at least."""
APART = 20.0
"""Squared distance of two levels over the variance of a reading; halves of one level have less than seven."""
LEAST_UNLIKE = 0.05
GROUPS, PEAKS, LONGER = 12, 4, 1.5
COARSE_POINTS = 1 << 18
HALF = 0.5
"""Part of the usual rise below which a span shows none."""
LONGER_BY = np.array([0.75, 1.0, 1.5, 2.0, 3.0])
NOWHERE = np.zeros(1)
COPIES = (2, 3, 4)
LEAST_CHANGES = 20


@dataclass(frozen=True)
class Bridged:
    """A trace with the times that the spans prove. The mended time scale has the uncertainty ``rate_sigma``."""

    trace: Trace
    check: Check
    note: str
    unlike: float = 0.0
    """How far the spans are from their new places, on average; see ``_unlike``."""
    rate_sigma: float = 0.0
    certain: bool = True
    """Whether the spans prove it alone, without stretches that are known to be at another time."""


@dataclass(frozen=True)
class _Sums:
    """Sums of readings, and of their squares, up to each of them, shapes (n + 1,)."""

    first: Floats
    second: Floats

    def between(self, on: Floats, off: Floats) -> tuple[Floats, Floats]:
        """Return both sums from ``on`` to ``off``, in numbers of readings, shape kept."""
        return _at(self.first, off) - _at(self.first, on), _at(self.second, off) - _at(self.second, on)


def _at(total: Floats, x: Floats) -> Floats:
    x = np.clip(x, 0.0, len(total) - 1.0)
    k = np.minimum(x.astype(np.int64), len(total) - 2)
    return np.asarray(total[k] + (x - k) * (total[k + 1] - total[k]))


@dataclass(frozen=True)
class _Spans:
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

    def some(self, which: Indices | slice) -> _Spans:
        """Return part of the spans."""
        return _Spans(self.on[which], self.off[which], self.begin[which], self.end[which])


def bridged(
    trace: Trace, r: Readings, windows_s: Floats, reach_s: float, end_s: float, displaced: bool
) -> Bridged | None:
    """Return the trace with the times that the spans prove, or None if it fits as it is or proves no other times.

    ``r`` are its readings by the brackets of its clock. ``windows_s`` are the disjoint spans, shape (k, 2). ``reach_s``
    is how far the brackets may be off. The recording ended at ``end_s``, so no reading is much later. ``displaced``
    says that stretches of spans are known to be at another time.
    """
    if not trace.uniform or not LEAST_SPANS <= len(windows_s) <= MOST_SPANS or r.period_s <= 0.0 or r.counter:
        return None
    spare_s = end_s + allowed_after_end_s(r, end_s) - float(r.end_s[-1])
    if spare_s < 0.0 and (copies := copies_of(trace.value)) > 1:
        return _thinned(trace, copies)
    spans = _spans((windows_s - r.start_s[0]) / r.period_s)
    watts, sums = _summed(r)
    levels = _levels(watts, spans)
    if levels is None:
        return None
    seen = _Seen(sums, spans, levels)
    found = [_paced(trace, seen, r, end_s), _joined(trace, watts, seen, reach_s / r.period_s, spare_s / r.period_s)]
    proven = [f for f in found if f is not None and (displaced or f.certain)]
    return min(proven, key=lambda f: f.unlike, default=None)


def _summed(r: Readings) -> tuple[Floats, _Sums]:
    watts = np.where(r.ok, r.watts, float(np.mean(r.watts[r.ok])))
    watts = watts - watts.mean()
    return watts, _Sums(*(np.concatenate([[0.0], np.cumsum(x)]) for x in (watts, watts**2)))


def _spans(x: Floats) -> _Spans:
    middle = 0.5 * (x[1:, 0] + x[:-1, 1])
    margin = 0.5 * float(np.median(x[1:, 0] - x[:-1, 1]))
    return _Spans(x[:, 0], x[:, 1], np.append(x[0, 0] - margin, middle), np.append(middle, x[-1, 1] + margin))


@dataclass(frozen=True)
class _Levels:
    """Watts between spans and in them, and the variance of a reading about them."""

    low: float
    high: float
    noise2: float

    @property
    def rise(self) -> float:
        """Return the difference of both, squared."""
        return (self.high - self.low) ** 2


def _levels(watts: Floats, spans: _Spans) -> _Levels | None:
    """Split the readings of the activity into two levels (Lloyd, 1982), or all readings if they lie elsewhere."""
    first, last = np.clip([spans.begin[0], spans.end[-1]], 0, len(watts)).astype(int)
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
                return _Levels(float(low), float(high), noise2)
    return None


@dataclass(frozen=True)
class _Seen:
    """Spans, and what the trace shows at any place of them."""

    sums: _Sums
    spans: _Spans
    levels: _Levels

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

    def some(self, which: Indices | slice) -> _Seen:
        """Return the same for part of the spans."""
        return replace(self, spans=self.spans.some(which))


# ---- readings that arrived several times ----------------------------------------------------


def copies_of(value: Floats) -> int:
    """Return how often each reading stands in a trace: more than once if readings change at every so many places."""
    change = np.flatnonzero(np.diff(value) != 0.0) + 1
    for copies in reversed(COPIES):
        if len(change) >= LEAST_CHANGES and not np.any(change % copies):
            return copies
    return 1


def _thinned(trace: Trace, copies: int) -> Bridged:
    n = -(-len(trace.value) // copies)
    mended = replace(
        trace,
        start_tick=trace.start_tick[:n],
        end_tick=trace.end_tick[:n],
        value=trace.value[::copies],
        overload=trace.overload[::copies],
    )
    return Bridged(mended, *delivered(trace.rail.name, copies))


def delivered(name: str, copies: int) -> tuple[Check, str]:
    """Return the failed check and the note for a rail whose readings were delivered several times."""
    check = Check(f"deliveries of each reading of rail {name}", str(copies), "1", False)
    return check, (
        f"Rail {name}: every reading was delivered {copies} times, and its readings reach beyond the end of the "
        "recording. One of each is used, on the declared grid"
    )


# ---- a rate other than the declared one -------------------------------------------------------


def _paced(trace: Trace, seen: _Seen, r: Readings, end_s: float) -> Bridged | None:
    """Stretch the grid of the readings so that the spans fit, if they fit at one rate alone."""
    k, last, width = len(seen.spans), float(seen.spans.off[-1]), seen.spans.width
    some = seen.some(np.unique(np.linspace(0, k - 1, min(k, SPANS_LOOKED_AT)).astype(int)))
    step = 0.1 * width / last
    count = int(FARTHEST_PACE / step)
    if not 1 <= count <= MOST_PACES:
        return None
    paces = 1.0 + step * np.arange(-count, count + 1)
    misfit = np.concatenate([some.unlike(NOWHERE, p).mean(axis=0) for p in np.array_split(paces, count // 250 + 1)])
    best = int(np.argmin(misfit))
    rival = float(np.min(misfit[np.abs(paces - paces[best]) * last > 0.5 * width], initial=np.inf))
    if len(some.spans) * (rival - misfit[best]) < FEWEST:
        return None
    fine = paces[best] + 0.05 * step * np.arange(-40, 41)
    pace = float(fine[np.argmin(some.unlike(NOWHERE, fine).sum(axis=0))])
    unlike = seen.unlike(NOWHERE, np.array([pace]))[:, 0]
    too_late = float(r.start_s[0] + pace * (r.end_s[-1] - r.start_s[0])) > end_s + allowed_after_end_s(r, end_s)
    most = _most_unlike(unlike)
    if float(np.mean(unlike > most)) > MOST_UNLIKE or too_late:
        return None
    first = float(trace.start_tick[0])
    rail = replace(trace.rail, rate_hz=trace.rail.rate_hz / pace)
    start, end = (first + pace * (t - first) for t in (trace.start_tick, trace.end_tick))
    name = trace.rail.name
    check = Check(f"true rate of rail {name} over the declared one", f"{1.0 / pace:.6f}", "1", False)
    note = (
        f"Rail {name}: the spans fit the trace at {1.0 / pace:.6f} of the declared rate of readings, and at no other "
        f"rate within {FARTHEST_PACE:.0%}. The times of the readings are taken from this rate"
    )
    mended = replace(trace, rail=rail, start_tick=start, end_tick=end)
    drifts = abs(pace - 1.0) * (last - float(seen.spans.on[0])) > 0.5 * width
    return Bridged(mended, check, note, float(np.minimum(unlike / most, 1.0).mean()), step, drifts)


# ---- readings that were lost ------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """Successive spans that lie earlier in the trace by the same number of readings."""

    first: int
    last: int
    lag: float


def _joined(trace: Trace, watts: Floats, seen: _Seen, reach: float, most: float) -> Bridged | None:
    """Give the readings after each break the times that the spans show, and leave out those next to it.

    ``reach`` is how far the brackets may be off, ``most`` how many readings may be missing, as numbers of readings.
    """
    spans = seen.spans
    lags = np.unique(np.round([0.0, *_candidates(watts, spans, most)]))
    cost = seen.unlike(lags)
    cost = np.minimum(cost / _most_unlike(cost.min(axis=1)), 1.0)
    chosen = _cheapest(cost, spans, lags)
    pieces = [_placed(p, seen) for p in _pieces(chosen, lags)]
    if not pieces:
        return None
    if abs(pieces[0].lag) > reach + 1.0:
        if _longer(pieces[0], seen):
            return None
        pieces.insert(0, _Piece(-1, -1, 0.0))
    held = chosen >= 0
    unlike = np.where(held, cost[np.arange(len(spans)), chosen], UNSEEN)
    left_at_end = len(spans) - 1 - int(np.flatnonzero(held)[-1])
    if np.count_nonzero(unlike[held] >= 1.0) > MOST_UNLIKE * np.count_nonzero(held):
        return None
    if len(pieces) < 2 and (not left_at_end or np.any(unlike[held] >= 1.0)):
        return None
    rise = seen.rise(pieces[-1].lag)
    whole = bool(np.all((rise < HALF) == (np.arange(len(spans)) > pieces[-1].last)))
    certain = whole if left_at_end else len(pieces) > 1
    number = np.arange(len(trace.value))
    moved, keep = np.zeros(len(number)), np.ones(len(number), bool)
    period = float(trace.start_tick[1] - trace.start_tick[0])
    found = []
    for a, b in itertools.pairwise(pieces):
        lost = round(b.lag - a.lag)
        # the break is somewhere between two spans that fit, or before the first; the spans beside it may be cut
        since = spans.begin[a.last] - a.lag if a.last >= 0 else spans.begin[b.first] - b.lag
        until = spans.end[b.first] - b.lag
        keep[(number >= since - 1.0) & (number < until)] = False
        moved[number >= until] += lost
        found.append((lost, since / trace.rail.rate_hz, until / trace.rail.rate_hz))
    if left_at_end:
        keep[number >= spans.begin[pieces[-1].last] - pieces[-1].lag] = False
    start, end = ((t + moved * period)[keep] for t in (trace.start_tick, trace.end_tick))
    if np.any(np.diff(start) <= 0.0):
        return None
    mended = replace(
        trace, start_tick=start, end_tick=end, value=trace.value[keep], overload=trace.overload[keep], uniform=False
    )
    return _named(mended, found, left_at_end, float(unlike.mean()), certain)


def _named(
    trace: Trace, found: list[tuple[int, float, float]], left_at_end: int, unlike: float, certain: bool
) -> Bridged:
    name = trace.rail.name
    places = [f"{lost:+d} at {since:.6g} to {until:.6g} s of the trace" for lost, since, until in found]
    if left_at_end:
        places.append(f"an unknown number before the last {left_at_end} spans")
    check = Check(f"readings missing from the grid of rail {name}", "; ".join(places), "none", False)
    note = (
        f"Rail {name}: from a break on, spans fit the trace only if readings are missing from its grid: "
        f"{'; '.join(places)}. Later readings are moved by as many; the spans next to a break do not count"
    )
    return Bridged(trace, check, note, unlike, certain=certain)


def _candidates(watts: Floats, spans: _Spans, most: float) -> Iterator[float]:
    """Lags up to ``most`` at which stretches of spans correlate best with the trace: groups, and all after a moment."""
    joined = max(1, int(spans.width / 16.0)) if len(watts) > COARSE_POINTS else 1
    n = len(watts) // joined
    values = watts[: n * joined].reshape(n, joined).mean(axis=1)
    number = np.arange(len(spans))
    groups = np.array_split(number, min(GROUPS, len(spans) // 4))
    after = [number[-int(k) :] for k in 4.0 * LONGER ** np.arange(math.log(len(spans) / 4.0, LONGER))]
    for group in (*groups, *after):
        some = spans.some(group)
        first, last = np.clip(np.array([some.begin[0], some.end[-1]]) / joined, 0, None).astype(int)
        grid = np.arange(first, last + 1, dtype=float)
        train = mean_signal(edges_of(np.column_stack([some.on, some.off]) / joined), grid, grid + 1.0)
        if len(train) > n:
            continue
        score = correlated(values, train - train.mean())
        lag = float(joined) * (first - np.arange(len(score)))
        score[(lag > most) | (lag < -FARTHEST_PACE * len(watts))] = -np.inf
        apart = max(1, int(0.5 * spans.width / joined))
        for _ in range(PEAKS):
            best = int(np.argmax(score))
            if not np.isfinite(score[best]):
                break
            yield float(lag[best])
            score[max(0, best - apart) : best + apart + 1] = -np.inf


def _cheapest(cost: Floats, spans: _Spans, lags: Floats) -> Indices:
    """The place of each span along the cheapest path (Viterbi, 1967), or -1 for a span that no place shows.

    ``cost`` has shape (k, m). A change of place costs ``FEWEST`` spans; the trace is never used twice, so spans that
    were lost between two places have none.
    """
    k, m = cost.shape
    # the last span of one place (row) that may come before each span of another (column)
    before = [np.searchsorted(spans.end - a, spans.begin[:, None] - lags + 1.0, side="right") - 1 for a in lags]
    total = np.empty((k, m))
    rested = np.empty((k, m))
    origin = np.full((k, m, 2), -1, dtype=np.int64)
    since = np.zeros((k, m), dtype=np.int64)
    for i in range(k):
        arrive = np.full(m, UNSEEN * i)  # no span before it was seen
        best = np.full((m, 2), -1, dtype=np.int64)
        if i:
            for a in range(m):
                p = np.minimum(before[a][i], i - 1)
                through = np.where(p >= 0, rested[p, a] + UNSEEN * (i - 1 - p) + FEWEST, np.inf)
                better = through < arrive
                arrive = np.where(better, through, arrive)
                best[better, 0], best[better, 1] = since[p, a][better], a
            stay = total[i - 1] <= arrive
            arrive = np.where(stay, total[i - 1], arrive)
            best[stay, 0], best[stay, 1] = i - 1, np.flatnonzero(stay)
        total[i], origin[i] = arrive + cost[i], best
        waited = rested[i - 1] + UNSEEN if i else np.full(m, np.inf)
        rested[i] = np.minimum(total[i], waited)
        since[i] = np.where(total[i] <= waited, i, since[i - 1] if i else i)
    a = int(np.argmin(rested[-1]))
    path, i = np.full(k, -1, dtype=np.int64), int(since[-1, a])
    while i >= 0:
        path[i] = a
        i, a = origin[i, a]
    return path


def _pieces(chosen: Indices, lags: Floats) -> Iterator[_Piece]:
    """Runs of spans at one lag."""
    held = np.flatnonzero(chosen >= 0)
    breaks = np.flatnonzero(np.abs(np.diff(lags[chosen[held]])) > 1.5)
    for run in np.split(held, breaks + 1):
        yield _Piece(int(run[0]), int(run[-1]), float(np.median(lags[chosen[run]])))


def _placed(piece: _Piece, seen: _Seen) -> _Piece:
    """The piece with its lag to a part of a reading."""
    lags = piece.lag + 0.25 * np.arange(-10, 11)
    total = seen.some(slice(piece.first, piece.last + 1)).unlike(lags).sum(axis=0)
    return replace(piece, lag=float(lags[np.argmin(total)]))


def _longer(piece: _Piece, seen: _Seen) -> bool:
    """Whether spans that are longer at one end fit as well as spans at another place, as if a device wakes early."""
    some = seen.some(slice(piece.first, piece.last + 1))
    moved = float(some.unlike(np.array([piece.lag])).sum())
    s = some.spans
    for part in LONGER_BY * abs(piece.lag):
        on, off = (s.on - part, s.off) if piece.lag > 0.0 else (s.on, s.off + part)
        longer = _Spans(on, off, np.minimum(s.begin, on), np.maximum(s.end, off))
        if float(replace(some, spans=longer).unlike(NOWHERE).sum()) < 2.0 * moved:
            return True
    return False


def fits(r: Readings, windows_s: Floats) -> Bools:
    """Return which of the disjoint spans rise in the trace where they were recorded, shape (k,)."""
    if r.period_s <= 0.0 or r.counter:
        return np.ones(len(windows_s), bool)
    spans = _spans((windows_s - r.start_s[0]) / r.period_s)
    watts, sums = _summed(r)
    levels = _levels(watts, spans)
    if levels is None:
        return np.ones(len(windows_s), bool)
    unlike = _Seen(sums, spans, levels).unlike(NOWHERE)[:, 0]
    return np.asarray(unlike <= _most_unlike(unlike))


def _most_unlike(unlike: Floats) -> float:
    """How far a span may miss its place, from how far spans do."""
    return min(UNLIKE, LEAST_UNLIKE + USUAL * max(float(np.median(unlike)), 0.0))
