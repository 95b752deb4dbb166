"""Spans that wander along the trace: readings are moved to where the edges of the spans are.

A straight line between the brackets of two clocks misses an oscillator that warms up, single readings that are lost,
and stamps that are late. The edges of the spans show it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.readings import Readings
from rig.analysis.timing.span_edges import Cells, SpanEdges, cells_of, edges_in
from rig.analysis.timing.spans_in_trace import LEAST_SPANS
from rig.types import Floats

CERTAINTY = 4.0
"""Standard uncertainties by which spans must be elsewhere."""
PROOF = 2.0
"""Times the variance of edges about their neighbours that their variance about the clocks must be."""
FINE = 0.1
"""Standard uncertainty of a place, in readings, for which neighbouring edges are averaged."""
LEAST_SHIFT = 0.1
"""In readings; less than this is not followed."""
STEEPEST, MOST_STEP = 0.015, 4.0
"""What two neighbouring edges may move against each other, of the time between them and in readings.

More is a break, not a wander.
"""
TAUS = np.array([1e-3, *0.2 * 1.25 ** np.arange(16)])
"""Time constants of an undeclared filter that are tried, in readings; the first stands for none."""
SMOOTHER, UNLIKE = 1.5, 0.05
"""Times as much misfit without a filter, and how far begins and ends may be apart behind one, of a step."""
OF_MEDIAN = 1.8582
"""The standard uncertainty of a median over the median distance from it, times the root of their number."""
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
    cells = cells_of(r, windows_s)
    edges = edges_in(cells) if cells is not None else None
    if cells is None or edges is None:
        return None
    tau_s = None if r.tau_s else _undeclared_tau_s(r, cells, edges)
    if tau_s is None:
        return _moved(r, edges)
    smooth = replace(r, tau_s=tau_s)
    found = followed(smooth, windows_s) or Followed(smooth, r.period_s, (0.0, 0.0), 0.0)
    return replace(found, tau_s=tau_s)


def _moved(r: Readings, edges: SpanEdges) -> Followed | None:
    """The readings moved by what the edges show, unless that is a break, or nothing beyond noise.

    Where all edges are late alike, the readings stay, and the place of an edge is uncertain by as much; but a filter
    that was found delays all edges.
    """
    step_s, apart_s = np.abs(np.diff(edges.moved())), np.diff(edges.at_s)
    if np.any(step_s > np.maximum(STEEPEST * apart_s, MOST_STEP * r.period_s)):
        return None
    at_s, shift_s, u_s, shape_s = _averaged(edges, r.period_s)
    mean_s, spread_s = float(np.mean(shift_s)), float(np.std(shift_s))
    proven = float(np.var(edges.moved())) > PROOF * _apart_s(edges.moved(), len(edges.at_s) - len(at_s) + 1) ** 2
    wanders = proven and spread_s > max(CERTAINTY * u_s, LEAST_SHIFT * r.period_s)
    if not wanders and abs(mean_s) < max(CERTAINTY * math.hypot(u_s, shape_s), LEAST_SHIFT * r.period_s):
        return None
    if not (wanders or r.inferred):
        # the clocks may be off by as much, or else the device works less at begins and more after ends
        return Followed(r, math.hypot(u_s, shape_s, mean_s), (mean_s, mean_s), 0.0)
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


def _undeclared_tau_s(r: Readings, cells: Cells, edges: SpanEdges) -> float | None:
    """The time constant of a filter that smooths begins and ends alike, or None without one.

    A moving mean counts as the filter that is most like it. What a device itself does at its begins and at its ends
    is not alike: a filter turns both into the same curve.
    """
    # an edge that no aperture sees is found halfway, so a sharp one makes the curve of a whole interval
    aperture_s = max(float(np.median(r.end_s - r.start_s)), r.period_s)
    count = int(min(NEIGHBOURS, *(float(np.median(s)) / r.period_s for s in (cells.inward_s, cells.beside_s))))
    if count < 3:
        return None
    taus = []
    for stamp, lag in ((cells.on_s, edges.begin_s), (cells.off_s, edges.end_s)):
        x, y = _curve(r, (stamp + lag)[np.isfinite(lag)], count)
        misfit = [float(np.mean(np.minimum((y - _step(x, aperture_s, t)) ** 2, 0.25))) for t in r.period_s * TAUS]
        best = int(np.argmin(misfit))
        if best == 0 or misfit[0] < SMOOTHER * misfit[best]:
            return None
        taus.append(float(TAUS[best]) * r.period_s)
    # a filter delays both by the same time; readings lie at other places beside them, which the curve takes out
    tau_s, both_s = float(np.mean(taus)), 0.5 * (edges.begin_s + edges.end_s)
    curves = [_curve(r, (stamp + both_s)[np.isfinite(both_s)], count) for stamp in (cells.on_s, cells.off_s)]
    off = [y - _step(x, aperture_s, tau_s) for x, y in curves]
    apart = np.abs(np.median(off[0], axis=0) - np.median(off[1], axis=0))
    u2 = sum(np.median(np.abs(y - np.median(y, axis=0)), axis=0) ** 2 / len(y) for y in off)
    return None if np.any(apart > UNLIKE + CERTAINTY * OF_MEDIAN * np.sqrt(u2)) else tau_s


def _curve(r: Readings, at_s: Floats, count: int) -> tuple[Floats, Floats]:
    """The middles of readings beside edges at ``at_s``, and how far each is between the levels; shapes (k, m)."""
    middle_s = 0.5 * (r.start_s + r.end_s)
    number = np.searchsorted(middle_s, at_s)[:, None] + np.arange(-count, count)
    inside = (number[:, 0] >= 0) & (number[:, -1] < len(middle_s))
    number = number[inside]
    low, high = (np.median(r.watts[number][:, part], axis=1)[:, None] for part in (slice(0, 2), slice(-2, None)))
    y = (r.watts[number] - low) / np.where(high == low, 1.0, high - low)
    return middle_s[number] - at_s[inside][:, None], y


def _step(x_s: Floats, aperture_s: float, tau_s: float) -> Floats:
    """Means over an aperture about moments after the centre of a step behind a filter."""

    def area(t: Floats) -> Floats:
        t = np.clip(t, 0.0, None)
        return np.asarray(t - tau_s * (1.0 - np.exp(-t / tau_s)))

    return np.asarray((area(x_s + tau_s + 0.5 * aperture_s) - area(x_s + tau_s - 0.5 * aperture_s)) / aperture_s)


def _apart_s(lag_s: Floats, count: int) -> float:
    """How far edges are from the mean of ``count`` neighbours, themselves left out, root mean square.

    Where the clocks wander, begins and ends of neighbouring spans do so together, so each tells where the next is.
    Where edges are seen or stamped unevenly, each for itself, the clocks tell it better.
    """
    count = max(count, 3)
    beside = np.full(count, 1.0 / (count - 1))
    beside[count // 2] = 0.0
    seen = lag_s[(count - 1) // 2 : len(lag_s) - count // 2]
    return float(np.sqrt(np.mean((seen - np.convolve(lag_s, beside, mode="valid")) ** 2)))


def _averaged(edges: SpanEdges, period_s: float) -> tuple[Floats, Floats, float, float]:
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
