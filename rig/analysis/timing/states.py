"""Which readings show idle, and which the gaps between spans; and the level that spans stand on for their alignment.

Alignment needs a level of its own, and forgets it: the level between spans, which is idle unless the device sleeps or
works there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rig.analysis.timing.activity_signal import SETTLE_TAU, inside, margin_s, merged, touches
from rig.analysis.timing.pooling import span_sigma_s
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timeline import Activity
from rig.types import Floats, Indices

MOST_GAPS = 0.9
"""Share of the gaps that must hold a reading before their level is known."""
CONTRAST = 4.0
"""Standard errors by which gaps must differ from idle to count as another level."""
ALLOWANCE = 1e-3
"""A difference between gaps and idle below this share of dynamic power does not matter."""


def idle_window_of(r: Readings, idle_s: Floats, busy_s: Floats, sigma_s: float, host_sigma_s: float) -> Indices:
    """Return the idle window that holds each reading, or -1; nothing of the activity reaches such a reading."""
    quiet = idle_s + np.array([2.0 * host_sigma_s + SETTLE_TAU * r.tau_s, -2.0 * host_sigma_s])
    quiet = merged(quiet[quiet[:, 1] > quiet[:, 0]])
    where = inside(quiet, r.start_s, r.end_s)
    guard = merged(busy_s + margin_s(sigma_s, r.tau_s))
    where[~r.ok | touches(guard, r.start_s, r.end_s)] = -1
    return where


def gap_of(r: Readings, spans_s: Floats, sigma_s: float, where: Indices) -> Indices:
    """Return the gap between disjoint sorted spans that holds each reading, or -1; ``where`` is its idle window."""
    guard = merged(spans_s + margin_s(sigma_s, r.tau_s))
    between = (r.start_s > spans_s[0, 0]) & (r.end_s < spans_s[-1, 1]) & r.ok & (where < 0)
    between &= ~touches(guard, r.start_s, r.end_s)
    return np.where(between, np.searchsorted(spans_s[:, 0], r.start_s), -1)


def spread(differences: Floats) -> float:
    """Return a robust standard deviation of readings, from the differences of neighbours."""
    if not len(differences):
        return 0.0
    return float(np.median(np.abs(differences - np.median(differences)))) * 1.4826 / math.sqrt(2.0)


@dataclass(frozen=True)
class Baseline:
    """A straight line of watts between spans, and the standard deviation of a reading at idle and at work.

    ``gaps_known`` says that this is the level of most gaps too.
    """

    slope_w_per_s: float
    at_zero_w: float
    idle_u_w: float
    busy_u_w: float
    gaps_known: bool

    def level_w(self, at_s: float) -> float:
        """Return the level between spans at a moment."""
        return self.at_zero_w + self.slope_w_per_s * at_s


def baseline(r: Readings, activity: Activity, sigma_s: float) -> Baseline | None:
    """Return the level between spans, or None if no two readings lie in idle windows."""
    everything = merged(np.concatenate([activity.busy_windows_s(), activity.excluded_s()]))
    sigma_s = span_sigma_s(r, activity, sigma_s)
    where = idle_window_of(r, activity.idle_s, everything, sigma_s, sigma_s)
    idle, middle_s = where >= 0, 0.5 * (r.start_s + r.end_s)
    if np.count_nonzero(idle) < 2:
        return None
    weight = r.end_s - r.start_s if r.counter else r.many
    several = len(np.unique(where[idle])) > 1
    line = np.polyfit(middle_s[idle], r.watts[idle], int(several), w=np.sqrt(weight[idle]))
    slope_w, at_zero_w = (float(x) for x in (line if several else (0.0, line[0])))
    left = r.watts[idle] - slope_w * middle_s[idle] - at_zero_w
    idle_u_w = float(np.std(left)) if r.counter else spread(np.diff(left))
    held = inside(everything, r.start_s, r.end_s)
    pair = (held[1:] >= 0) & (held[1:] == held[:-1]) & r.ok[1:] & r.ok[:-1]
    busy_u_w = max(spread(np.diff(r.watts)[pair]), idle_u_w)
    if not len(everything):
        return Baseline(slope_w, at_zero_w, idle_u_w, busy_u_w, True)
    gap = gap_of(r, everything, sigma_s, where)
    more_w, known = _gaps(r, gap, everything, (slope_w, at_zero_w, float(np.std(left))), middle_s, weight)
    return Baseline(slope_w, at_zero_w + more_w, idle_u_w, busy_u_w, known)


def _gaps(
    r: Readings, gap: Indices, spans_s: Floats, line: tuple[float, float, float], middle_s: Floats, weight: Floats
) -> tuple[float, bool]:
    """How far most gaps lie above the line of idle, 0 if they are at idle or few are seen, and whether this is known.

    While the clocks hide most gaps, those that show a reading may be just those in which the device does other work.
    """
    slope_w, at_zero_w, scatter_w = line
    at = np.flatnonzero(gap >= 0)
    if not len(at):
        return 0.0, True
    _, number = np.unique(gap[at], return_inverse=True)
    total = np.bincount(number, weight[at])
    means = np.bincount(number, weight[at] * (r.watts[at] - slope_w * middle_s[at] - at_zero_w)) / total
    level_w = float(np.average(means, weights=total))
    busy = inside(spans_s, r.start_s, r.end_s) >= 0
    above_w = float(np.mean(r.watts[busy])) - at_zero_w if np.any(busy) else 0.0
    u_w = scatter_w / math.sqrt(max(min(r.count(gap >= 0), r.count(busy)), 1))
    if abs(level_w) <= CONTRAST * u_w + ALLOWANCE * abs(above_w):
        return 0.0, True
    known = len(means) >= MOST_GAPS * (len(spans_s) - 1)
    return (float(np.median(means)), True) if known else (0.0, False)
