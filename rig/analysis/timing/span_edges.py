"""Where each edge of the spans is in a trace, if spans wander along it.

A path along the spans, along which the lag may change a little from one to the next, shows about where they are. Each
edge is then found from the areas and the levels on both sides of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rig.analysis.timing.activity_signal import SETTLE_TAU
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.spans_in_trace import LEAST_SPANS, Sums
from rig.types import Floats, Indices

MOST_SPANS = 512
"""Spans that are looked at; more are thinned evenly."""
FARTHEST, MOST_LAGS, NEAR_LAGS = 0.005, 400, 6
"""How far the spans are looked for, of the length of the trace, and lags on either side, at most and at first."""
PER_SPAN = 24.0
"""Lags to a span in the coarse search."""
CHANGE = 0.05
"""Cost of a change of the lag by one step, in parts of what a span explains."""
CLEAR = 0.8
"""Share of the variance beside its edges that the median span must explain at its place."""
LEAST_SEEN = 0.95
"""Share of the spans whose edges must be seen; where more are not, readings of whole spans are missing."""
NEAR = 2.0
"""Guards beside an edge within which it is found at last."""
GUARD = 1.5
"""Readings beside an edge that take no part in the levels of both sides."""
MOST_GUARD = 0.6
"""The same, at most, as part of the cell beside an edge."""


def edges_in(cells: Cells) -> SpanEdges | None:
    """Return the edges of the spans in the trace, ever closer, or None if they are not seen."""
    edges = _edges(cells, _path(cells) - cells.tau_s)
    for near_s in (math.inf, math.inf, NEAR * cells.guard_s):
        better = _edges(cells, _filled(edges), near_s) if edges is not None else None
        edges = better if better is not None else edges
    return edges


@dataclass(frozen=True)
class Cells:
    """Spans that are looked at, and how far the cells beside their edges reach, in seconds, shapes (k,)."""

    on_s: Floats
    off_s: Floats
    beside_s: Floats
    sums: Sums
    """Watts between the begins and ends of readings."""
    period_s: float
    guard_s: float
    tau_s: float

    @property
    def inward_s(self) -> Floats:
        """Return how far the cells reach into the spans."""
        return 0.5 * (self.off_s - self.on_s)

    def mean(self, on_s: Floats, off_s: Floats) -> Floats:
        """Return mean watts between moments, shape kept."""
        return np.asarray(self.sums.between(on_s, off_s)[0] / np.maximum(off_s - on_s, 1e-12))

    def explained(self, lag_s: Floats) -> Floats:
        """Return the share of the variance about each span that a rise explains, shape (k, m).

        ``lag_s`` are lags of all spans, shape (m,), or of each, shape (k, m).
        """
        on, off = self.on_s[:, None] + lag_s, self.off_s[:, None] + lag_s
        begin, end = on - self.beside_s[:, None], off + self.beside_s[:, None]
        total, width = end - begin, off - on
        inside = self.mean(on, off)
        first, second = (x / total for x in self.sums.between(begin, end))
        share = width / total
        outside = (first - share * inside) / (1.0 - share)
        between = share * (1.0 - share) * (inside - outside) * np.abs(inside - outside)
        found = between / np.maximum(second - first**2, 1e-300)
        return np.where((begin < self.sums.at[0]) | (end > self.sums.at[-1]), 0.0, found)


def cells_of(r: Readings, windows_s: Floats) -> Cells | None:
    """Return the disjoint sorted spans with what lies beside them, or None if these are too few or too close."""
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
    sums = Sums.of(level, at_s)
    return Cells(spans[thin, 0], spans[thin, 1], half[thin], sums, r.period_s, guard_s, r.tau_s)


def _path(cells: Cells) -> Floats:
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


def _cheapest(cells: Cells, lags_s: Floats) -> Floats:
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
class SpanEdges:
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


def _edges(cells: Cells, lag_s: Floats, near_s: float = math.inf) -> SpanEdges | None:
    """The edges from the areas within ``near_s`` of the places ``lag_s``, and from the levels on both sides.

    This is exact for spans of even power and readings that are means. Spans so close to each other that no level shows
    between them have no edges.
    """
    found = []
    wide = np.minimum(cells.beside_s, cells.inward_s) > cells.guard_s
    for stamp, sign in ((cells.on_s, 1.0), (cells.off_s, -1.0)):
        at = stamp + lag_s + cells.tau_s
        # before: low level; after: high level; mirrored at the end
        left_s, right_s = (cells.beside_s, cells.inward_s) if sign > 0 else (cells.inward_s, cells.beside_s)
        first, last = at - left_s, at + right_s
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
    return SpanEdges(cells.on_s, cells.off_s, *found)


def _filled(edges: SpanEdges) -> Floats:
    """The place of each span, by its neighbours where it is not seen."""
    middle = 0.5 * (edges.begin_s + edges.end_s)
    seen = np.isfinite(middle)
    return np.asarray(np.interp(edges.on_s, edges.on_s[seen], middle[seen]))
