"""From the shape of the edges of spans, find an undeclared filter: it smooths begins and ends alike."""

from __future__ import annotations

import numpy as np

from rig.analysis.timing.activity_signal import edges_of, mean_signal
from rig.analysis.timing.lag_path import GROUPS
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.shown import Edges, Shown
from rig.analysis.timing.timebase import CERTAIN
from rig.types import Floats

SMOOTHER, UNLIKE = 1.5, 0.05
"""Least ratio of misfits without and with a filter, and largest difference of begins and ends with it, in steps."""
OF_MEDIAN = 1.8582
"""Standard uncertainty of a median, times the root of the number of values, over the median distance from it."""
NEIGHBOURS = 12
"""A filter is looked for in at most this many readings on either side of an edge."""


def undeclared_tau_s(shown: Shown, edges: Edges) -> float | None:
    """Return the time constant of a filter that smooths begins and ends alike, or None without one.

    A moving mean counts as the filter that is most like it. What a device itself does at begins and at ends is not
    alike, but a filter turns both into the same curve.
    """
    r, c = shown.readings, shown.cells
    # an edge between two apertures is found in the middle, so a sharp edge looks as wide as a whole interval
    aperture_s = max(float(np.median(r.end_s - r.start_s)), r.period_s)
    room_s = (0.5 * (c.off_s - c.on_s), c.on_s - c.begin_s, c.end_s - c.off_s)
    count = int(min(NEIGHBOURS, *(float(np.median(x)) / r.period_s for x in room_s)))
    if count < 3:
        return None
    tried_s = r.period_s * np.array([1e-3, *0.2 * 1.25 ** np.arange(GROUPS)])  # the first means no filter
    taus = []
    for stamp, lag in ((c.on_s, edges.begin_s), (c.off_s, edges.end_s)):
        x, y = _curve(r, (stamp + lag)[np.isfinite(lag)], count)
        if not len(y):
            return None
        misfit = [float(np.mean(np.minimum((y - _step(x, aperture_s, t)) ** 2, 1.0 / 4.0))) for t in tried_s]
        best = int(np.argmin(misfit))
        if best == 0 or misfit[0] < SMOOTHER * misfit[best]:
            return None
        taus.append(float(tried_s[best]))
    # a filter delays both edges equally; the curve removes the differing distances of readings from the edges
    tau_s, both_s = float(np.mean(taus)), 0.5 * (edges.begin_s + edges.end_s)
    curves = [_curve(r, (stamp + both_s)[np.isfinite(both_s)], count) for stamp in (c.on_s, c.off_s)]
    if not all(len(y) for _, y in curves):
        return None
    off = [y - _step(x, aperture_s, tau_s) for x, y in curves]
    apart = np.abs(np.median(off[0], axis=0) - np.median(off[1], axis=0))
    u2 = sum(np.median(np.abs(y - np.median(y, axis=0)), axis=0) ** 2 / len(y) for y in off)
    return None if np.any(apart > UNLIKE + CERTAIN * OF_MEDIAN * np.sqrt(u2)) else tau_s


def _curve(r: Readings, at_s: Floats, count: int) -> tuple[Floats, Floats]:
    """Return middles of readings beside edges at ``at_s``, and how far each is between the levels; shapes (k, m)."""
    middle_s = 0.5 * (r.start_s + r.end_s)
    number = np.searchsorted(middle_s, at_s)[:, None] + np.arange(-count, count)
    inside = (number[:, 0] >= 0) & (number[:, -1] < len(middle_s))
    number = number[inside]
    low, high = (np.median(r.watts[number][:, part], axis=1)[:, None] for part in (slice(0, 2), slice(-2, None)))
    y = (r.watts[number] - low) / np.where(high == low, 1.0, high - low)
    return middle_s[number] - at_s[inside][:, None], y


def _step(x_s: Floats, aperture_s: float, tau_s: float) -> Floats:
    """Return means over an aperture around times ``x_s`` after the centre of a step behind a filter."""
    at_s, step = x_s.ravel() + tau_s, edges_of(np.array([[0.0, np.inf]]))
    return mean_signal(step, at_s - 0.5 * aperture_s, at_s + 0.5 * aperture_s, tau_s).reshape(x_s.shape)
