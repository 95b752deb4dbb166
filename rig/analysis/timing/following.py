"""Spans that wander along the trace: where each edge of the activity is found, and readings moved by as much.

A straight line between the brackets of two clocks misses an oscillator that warms up, single readings that are lost,
and stamps that are late. The edges of the spans show it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.activity_signal import SETTLE_TAU
from rig.analysis.timing.spans_in_trace import Sums
from rig.analysis.timing.timeline import Readings
from rig.types import Floats, Indices

LEAST_SPANS = 8
MOST_SPANS = 512
"""Spans that are looked at; more are thinned evenly."""
FARTHEST, MOST_LAGS, NEAR_LAGS = 0.005, 400, 6
"""How far the spans are looked for, of the length of the trace, and lags on either side, at most and at first."""
PER_SPAN = 24.0
"""Lags to a span in the coarse search."""
CHANGE = 0.05
"""Cost of a change of the lag by one step, in parts of what a span explains."""
CERTAINTY = 4.0
"""Standard uncertainties by which spans must be elsewhere."""
CLEAR = 0.8
"""Share of the variance beside its edges that the median span must explain at its place."""
FINE = 0.1
"""Standard uncertainty of a place, in readings, for which neighbouring edges are averaged."""
LEAST_SHIFT = 0.1
"""In readings; less than this is not followed."""
LEAST_SEEN = 0.95
"""Share of the spans whose edges must be seen; where more are not, readings of whole spans are missing."""
NEAR = 2.0
"""Guards beside an edge within which it is found at last."""
STEEPEST, MOST_STEP = 0.015, 4.0
"""What two neighbouring edges may move against each other, of the time between them and in readings.

More is a break, not a wander.
"""
GUARD = 1.5
"""Readings beside an edge that take no part in the levels of both sides."""
MOST_GUARD = 0.6
"""The same, at most, as part of the cell beside an edge."""
SLOW = 0.2 * 1.25 ** np.arange(16)
"""Time constants of an undeclared filter that are tried, in readings."""
SMOOTHER, ALIKE = 1.5, 2.0
"""Times as much misfit without a filter, and the largest ratio of the time constants at begins and at ends."""
NEIGHBOURS = 12
"""Readings on either side of an edge in which a filter is looked for."""


@dataclass(frozen=True)
class Followed:
    """Readings at the times that the edges of the spans show, and how they were moved."""

    readings: Readings
    sigma_s: float
    """Standard uncertainty of the place of an edge."""
    shift_s: tuple[float, float]
    """The least and the largest shift."""
    steepest: float
    """The largest change of the shift over time between two tenths of the activity."""
    tau_s: float | None = None
    """The time constant of a filter that the edges show and nobody declared."""
    knots_s: tuple[Floats, Floats] | None = None
    """Moments as the clocks say, and the shift at each, which is to be subtracted; None if nothing was moved."""

    def moved(self, t_s: Floats) -> Floats:
        """Return where the spans say that moments are, shape kept."""
        return t_s if self.knots_s is None else np.asarray(t_s - np.interp(t_s, *self.knots_s))


def followed(r: Readings, windows_s: Floats) -> Followed | None:
    """Return the readings at the times that the spans show, or None if they agree with ``windows_s``.

    ``windows_s`` are the disjoint sorted spans, shape (k, 2).
    """
    if len(windows_s) < LEAST_SPANS or r.counter or r.period_s <= 0.0 or len(r.watts) < 16:
        return None
    cells = _cells(r, windows_s)
    edges = _found(cells) if cells is not None else None
    if cells is None or edges is None:
        return None
    tau_s = None if r.tau_s else _undeclared_tau_s(r, cells, edges)
    if tau_s is None:
        return _moved(r, edges)
    smooth = replace(r, tau_s=tau_s)
    found = followed(smooth, windows_s) or Followed(smooth, r.period_s, (0.0, 0.0), 0.0)
    return replace(found, tau_s=tau_s)


def _found(cells: _Cells) -> _Edges | None:
    """The edges of the spans in the trace, ever closer."""
    edges = _edges(cells, _path(cells) - cells.tau_s)
    for near_s in (math.inf, math.inf, NEAR * cells.guard_s):
        better = _edges(cells, _filled(edges), near_s) if edges is not None else None
        edges = better if better is not None else edges
    return edges


def _moved(r: Readings, edges: _Edges) -> Followed | None:
    """The readings moved by what the edges show, unless that is a break, or nothing beyond noise."""
    step_s, apart_s = np.abs(np.diff(edges.moved())), np.diff(edges.at_s)
    if np.any(step_s > np.maximum(STEEPEST * apart_s, MOST_STEP * r.period_s)):
        return None
    at_s, shift_s, u_s, shape_s = _averaged(edges, r.period_s)
    mean_s = float(np.mean(shift_s))
    wanders = float(np.std(shift_s)) > CERTAINTY * u_s
    moved = abs(mean_s) > CERTAINTY * math.hypot(u_s, shape_s)
    if max(abs(mean_s), float(np.std(shift_s))) < LEAST_SHIFT * r.period_s or not (wanders or moved):
        return None
    left_s = float(np.std(edges.moved() - np.interp(edges.at_s, at_s, shift_s)))
    start_s, end_s = (t - np.interp(t, at_s + shift_s, shift_s) for t in (r.start_s, r.end_s))
    if np.any(np.diff(start_s) <= 0.0) or np.any(end_s < start_s):
        return None
    tenth = np.linspace(at_s[0], at_s[-1], 11)
    steepest = float(np.max(np.abs(np.diff(np.interp(tenth, at_s, shift_s)) / np.diff(tenth))))
    return Followed(
        replace(r, start_s=start_s, end_s=end_s),
        math.hypot(u_s, left_s, shape_s),
        (float(np.min(shift_s)), float(np.max(shift_s))),
        steepest,
        knots_s=(at_s + shift_s, shift_s),
    )


@dataclass(frozen=True)
class _Cells:
    """Spans that are looked at, and how far the cells beside their edges reach, in seconds, shapes (k,)."""

    on_s: Floats
    off_s: Floats
    inward_s: Floats
    before_s: Floats
    after_s: Floats
    sums: Sums
    """Watts between the begins and ends of readings."""
    period_s: float
    guard_s: float
    tau_s: float

    def mean(self, on_s: Floats, off_s: Floats) -> Floats:
        """Return mean watts between moments, shape kept."""
        return np.asarray(self.sums.between(on_s, off_s)[0] / np.maximum(off_s - on_s, 1e-12))

    def explained(self, lag_s: Floats) -> Floats:
        """Return the share of the variance about each span that a rise explains, shape (k, m).

        ``lag_s`` are lags of all spans, shape (m,), or of each, shape (k, m).
        """
        on, off = self.on_s[:, None] + lag_s, self.off_s[:, None] + lag_s
        begin, end = on - self.before_s[:, None], off + self.after_s[:, None]
        total, width = end - begin, off - on
        inside = self.mean(on, off)
        first, second = (x / total for x in self.sums.between(begin, end))
        share = width / total
        outside = (first - share * inside) / (1.0 - share)
        between = share * (1.0 - share) * (inside - outside) * np.abs(inside - outside)
        found = between / np.maximum(second - first**2, 1e-300)
        return np.where((begin < self.sums.at[0]) | (end > self.sums.at[-1]), 0.0, found)


def _cells(r: Readings, windows_s: Floats) -> _Cells | None:
    inside = (windows_s[:, 0] > r.start_s[0]) & (windows_s[:, 1] < r.end_s[-1])
    spans = windows_s[inside]
    if len(spans) < LEAST_SPANS:
        return None
    gap = spans[1:, 0] - spans[:-1, 1]
    typical = float(np.median(gap))
    lead_s, tail_s = spans[0, 0] - r.start_s[0], r.end_s[-1] - spans[-1, 1]
    before, after = np.append(min(typical, lead_s), gap), np.append(gap, min(typical, tail_s))
    thin = np.unique(np.linspace(0, len(spans) - 1, min(len(spans), MOST_SPANS)).astype(int))
    half = 0.5 * np.minimum(np.minimum(before, after), 2.0 * (spans[:, 1] - spans[:, 0]))
    # beside short spans the levels are not settled, which the readings near the edge then make up for
    guard_s = min(GUARD * r.period_s + SETTLE_TAU * r.tau_s, MOST_GUARD * float(np.median(half)))
    if guard_s < GUARD * r.period_s:
        return None
    watts = np.where(r.ok, r.watts, float(np.mean(r.watts[r.ok])))
    watts = watts - float(np.mean(watts))
    # between two apertures the power is the mean of both
    at_s = np.maximum.accumulate(np.column_stack([r.start_s, r.end_s]).ravel())
    level = np.column_stack([watts, 0.5 * (watts + np.append(watts[1:], watts[-1]))]).ravel()[:-1]
    width = spans[:, 1] - spans[:, 0]
    return _Cells(
        spans[thin, 0],
        spans[thin, 1],
        0.5 * width[thin],
        half[thin],
        half[thin],
        Sums.of(level, at_s),
        r.period_s,
        guard_s,
        r.tau_s,
    )


def _path(cells: _Cells) -> Floats:
    """The lag of each span: close to none if spans are seen there, else wherever they are."""
    width_s = float(np.median(cells.off_s - cells.on_s))
    step_s = max(0.5 * cells.period_s, width_s / PER_SPAN)
    near = _cheapest(cells, step_s * np.arange(-NEAR_LAGS, NEAR_LAGS + 1))
    within = float(np.max(np.abs(near))) < step_s * NEAR_LAGS
    if within and float(np.median(cells.explained(near[:, None]))) > CLEAR:
        return near
    far_s = FARTHEST * float(cells.sums.at[-1] - cells.sums.at[0])
    count = int(min(math.ceil(far_s / step_s), MOST_LAGS))
    return _cheapest(cells, step_s * np.arange(-count, count + 1)) if count > NEAR_LAGS else near


def _cheapest(cells: _Cells, lags_s: Floats) -> Floats:
    """The path through the lags that explains most, where changes of the lag cost (Viterbi, 1967)."""
    cost = 1.0 - cells.explained(lags_s)
    slope = CHANGE * np.arange(len(lags_s))
    total = [cost[0]]
    for own in cost[1:]:
        from_below = np.minimum.accumulate(total[-1] - slope) + slope
        from_above = (np.minimum.accumulate((total[-1] + slope)[::-1]))[::-1] - slope
        total.append(np.minimum(from_below, from_above) + own)
    path: Indices = np.zeros(len(cost), dtype=np.int64)
    path[-1] = int(np.argmin(total[-1]))
    for k in range(len(cost) - 1, 0, -1):
        path[k - 1] = np.argmin(total[k - 1] + np.abs(slope - slope[path[k]]))
    return np.asarray(lags_s[path])


@dataclass(frozen=True)
class _Edges:
    """Where begins and ends of spans are in the trace, less where they were stamped, shapes (k,); NaN if not seen."""

    on_s: Floats
    off_s: Floats
    begin_s: Floats
    end_s: Floats

    @property
    def shape_s(self) -> float:
        """Return by how much spans are longer than stamped."""
        return float(np.nanmedian(self.end_s - self.begin_s))

    @property
    def at_s(self) -> Floats:
        """Return the stamps of the edges that are seen, in order."""
        at, seen = np.column_stack([self.on_s, self.off_s]).ravel(), self._lags()
        return np.asarray(at[np.isfinite(seen)])

    def moved(self) -> Floats:
        """Return how far these edges are from their stamps, without the change of length that all spans share."""
        lags = self._lags()
        return np.asarray(lags[np.isfinite(lags)])

    def _lags(self) -> Floats:
        half = 0.5 * self.shape_s
        return np.column_stack([self.begin_s + half, self.end_s - half]).ravel()


def _edges(cells: _Cells, lag_s: Floats, near_s: float = math.inf) -> _Edges | None:
    """The edges from the areas within ``near_s`` of the places ``lag_s``, and from the levels on both sides.

    This is exact for spans of even power and readings that are means. Spans so close to each other that no level shows
    between them have no edges.
    """
    found = []
    wide = np.minimum(np.minimum(cells.before_s, cells.after_s), cells.inward_s) > cells.guard_s
    for stamp, sign in ((cells.on_s, 1.0), (cells.off_s, -1.0)):
        at = stamp + lag_s + cells.tau_s
        # before: low level; after: high level; mirrored at the end
        first = at - (cells.before_s if sign > 0 else cells.inward_s)
        last = at + (cells.inward_s if sign > 0 else cells.after_s)
        left, right = cells.mean(first, at - cells.guard_s), cells.mean(at + cells.guard_s, last)
        first, last = np.maximum(first, at - near_s), np.minimum(last, at + near_s)
        mean = cells.mean(first, last)
        rise = right - left
        safe = np.where(rise == 0.0, 1.0, rise)
        edge = last - (mean - left) / safe * (last - first)
        near = (edge > first) & (edge < last)
        found.append(np.where(wide & near & (sign * rise > 0.0), edge - stamp - cells.tau_s, np.nan))
    explained = cells.explained(lag_s[:, None] + cells.tau_s)[:, 0]
    seen = np.isfinite(found[0]) & np.isfinite(found[1]) & (explained > 0.5 * CLEAR)
    if (
        np.count_nonzero(seen) < max(LEAST_SPANS, LEAST_SEEN * np.count_nonzero(wide))
        or float(np.median(explained)) < CLEAR
    ):
        return None
    return _Edges(cells.on_s, cells.off_s, *found)


def _undeclared_tau_s(r: Readings, cells: _Cells, edges: _Edges) -> float | None:
    """The time constant of a filter that smooths begins and ends alike, or None without one.

    A moving mean counts as the filter that is most like it. What a device itself does at its begins and at its ends
    is not alike.
    """
    middle_s, taus = 0.5 * (r.start_s + r.end_s), []
    aperture_s = max(float(np.median(r.end_s - r.start_s)), 1e-3 * r.period_s)
    count = int(
        min(NEIGHBOURS, float(np.median(cells.inward_s)) / r.period_s, float(np.median(cells.before_s)) / r.period_s)
    )
    if count < 3:
        return None
    for stamp, lag in ((cells.on_s, edges.begin_s), (cells.off_s, edges.end_s)):
        at = (stamp + lag)[np.isfinite(lag)]
        number = np.searchsorted(middle_s, at)[:, None] + np.arange(-count, count)
        number = number[(number[:, 0] >= 0) & (number[:, -1] < len(middle_s))]
        at = at[: len(number)]
        x = (middle_s[number] - at[:, None]).ravel()
        low, high = (np.median(r.watts[number][:, part], axis=1) for part in (slice(0, 2), slice(-2, None)))
        y = ((r.watts[number] - low[:, None]) / np.where(high == low, 1.0, high - low)[:, None]).ravel()
        misfit = [
            float(np.mean(np.minimum((y - _step(x, aperture_s, t * r.period_s)) ** 2, 0.25))) for t in (1e-3, *SLOW)
        ]
        best = int(np.argmin(misfit))
        if best == 0 or misfit[0] < SMOOTHER * misfit[best]:
            return None
        taus.append(float(SLOW[best - 1]))
    return float(np.mean(taus)) * r.period_s if max(taus) <= ALIKE * min(taus) else None


def _step(x_s: Floats, aperture_s: float, tau_s: float) -> Floats:
    """Means over an aperture about moments after the centre of a step behind a filter."""

    def area(t: Floats) -> Floats:
        t = np.clip(t, 0.0, None)
        return np.asarray(t - tau_s * (1.0 - np.exp(-t / tau_s)))

    return np.asarray((area(x_s + tau_s + 0.5 * aperture_s) - area(x_s + tau_s - 0.5 * aperture_s)) / aperture_s)


def _filled(edges: _Edges) -> Floats:
    """The place of each span, by its neighbours where it is not seen."""
    middle = 0.5 * (edges.begin_s + edges.end_s)
    seen = np.isfinite(middle)
    return np.asarray(np.interp(edges.on_s, edges.on_s[seen], middle[seen]))


def _averaged(edges: _Edges, period_s: float) -> tuple[Floats, Floats, float, float]:
    """Moments and shifts, averaged over as many neighbours as noise asks for; their sigma, and that of the shape."""
    at, lag = edges.at_s, edges.moved()
    # a straight line through three neighbours leaves sqrt(3/2) of the noise of one
    bent = lag[1:-1] - 0.5 * (lag[:-2] + lag[2:])
    # and where readings are lost one by one, only the straightest tell noise: a tenth of a normal is within 0.1257
    each_s = float(np.quantile(np.abs(bent), 0.1)) / 0.1257 / math.sqrt(1.5)
    count = int(np.clip(math.ceil((each_s / (FINE * period_s)) ** 2), 1, max(len(lag) // 8, 1)))
    even = np.full(count, 1.0 / count)
    at, lag = (np.convolve(x, even, mode="valid") for x in (at, lag))
    return at, lag, each_s / math.sqrt(count), 0.5 * abs(edges.shape_s)
