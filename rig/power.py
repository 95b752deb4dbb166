"""Estimators: readings and windows to idle, active and dynamic power of one rail.

Every estimate is a weighted sum of readings, so that noise of any colour propagates through its
weights. Two estimators stand side by side:

* integrated: everything above idle, from before each window to after it, over the busy time. It needs
  no sharp edges and loses nothing of a span that is not flat; it needs idle on both sides.
* trimmed: readings that lie wholly inside a window after the clock's doubt and the filter's settling
  are cut off. It needs no idle beside the window; what stood in the trimmed ends it cannot see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rig.noise import Noise
from rig.noise import estimate as estimate_noise
from rig.occupancy import SETTLE_TAU, edges_of, inside, merged, seen, touches
from rig.timeline import Activity, Readings
from rig.types import Bools, Floats

MIN_SHARE = 0.5
"""Share of windows that must hold a whole reading after trimming."""
CONTRAST = 4.0
"""Standard errors by which the gaps must differ from idle before they count as something else."""


@dataclass(frozen=True)
class View:
    """One rail with everything the estimators share. Arrays have the shape of the readings, (n,).

    ``sigma_s`` is the doubt between the meter's and the device's clock, ``idle`` marks the readings of
    the idle windows, ``other_s`` the windows of activity that does not count, ``noise`` the meter's.
    """

    readings: Readings
    sigma_s: float
    idle: Bools
    middle_s: Floats
    weight: Floats
    all_busy_s: Floats
    busy: Bools
    noise: Noise
    drift_w: float
    drift_u_w: float

    def idle_weights(self, at_s: float) -> Floats:
        """Weights whose sum with the readings is the idle level at a moment: a straight line fit."""
        g = np.where(self.idle, self.weight, 0.0)
        total = g.sum()
        mean = float(np.sum(g * self.middle_s) / total)
        lever = self.middle_s - mean
        sxx = float(np.sum(g * lever**2))
        if self.drift_u_w == math.inf or sxx <= 0:
            return g / total
        return np.asarray(g / total + g * lever * ((at_s - mean) / sxx))


@dataclass(frozen=True)
class Estimate:
    """``dynamic`` and ``idle`` are weights over the readings; ``at_s`` the mean busy moment.

    ``share`` is the part of the windows that took part, ``value_w`` the dynamic power.
    """

    dynamic: Floats
    idle: Floats
    value_w: float
    idle_w: float
    share: float
    at_s: float
    windows_s: Floats


@dataclass(frozen=True)
class TooShort:
    """Why a set of windows cannot be powered: what one lasts, and what it would have to last."""

    window_s: float
    needed_s: float
    share: float


def view_of(readings: Readings, activity: Activity, sigma_s: float, idle_sigma_s: float) -> View | None:
    """Prepare a rail, or None when no reading lies in an idle window.

    ``idle_sigma_s`` is the doubt between the meter's and the host's clock, which placed the idle windows.
    """
    r = readings
    settle = SETTLE_TAU * r.tau_s
    everything = np.concatenate([activity.busy_windows_s(), activity.excluded_s()])
    busy_s = merged(everything)
    guard = merged(everything + np.array([-2.0 * sigma_s, 2.0 * sigma_s + 1.5 * settle]))
    quiet = activity.idle_s + np.array([2.0 * idle_sigma_s + settle, -2.0 * idle_sigma_s])
    quiet = merged(quiet[quiet[:, 1] > quiet[:, 0]])
    where = inside(quiet, r.start_s, r.end_s)
    idle = (where >= 0) & r.ok & ~touches(guard, r.start_s, r.end_s)
    if np.count_nonzero(idle) < 2:
        return None
    length = r.end_s - r.start_s
    uneven = len(length) > 1 and float(length.max()) > 1.5 * float(length.min())
    weight = np.where(r.ok, length if uneven else 1.0, 0.0)
    middle = 0.5 * (r.start_s + r.end_s)
    drift, drift_u = _drift(r.watts, idle, where, middle)
    held = inside(busy_s, r.start_s, r.end_s)
    noise = _noise(r, idle, where, held, middle)
    busy = touches(busy_s, r.start_s, r.end_s)
    return View(r, sigma_s, idle, middle, weight, busy_s, busy, noise, drift, drift_u)


def _drift(watts: Floats, idle: Bools, where: Floats, middle: Floats) -> tuple[float, float]:
    """Change of the idle level from the first window to the last; inf as sigma when there is one."""
    numbers = np.unique(where[idle])
    if len(numbers) < 2:
        return 0.0, math.inf
    parts = [watts[idle & (where == k)] for k in (numbers[0], numbers[-1])]
    u = math.sqrt(sum(float(np.var(p)) / max(len(p), 1) for p in parts))
    return float(parts[1].mean() - parts[0].mean()), u


def _noise(r: Readings, idle: Bools, where: Floats, held: Floats, middle: Floats) -> Noise:
    slope = (
        np.polyfit(middle[idle], r.watts[idle], 1) if len(np.unique(where[idle])) > 1 else [0.0, np.mean(r.watts[idle])]
    )
    residual = r.watts - np.polyval(slope, middle)
    stretches = []
    for k in np.unique(where[idle]):
        use = idle & (where == k)
        slot = np.round((r.start_s[use] - r.start_s[use][0]) / r.period_s).astype(np.int64)
        grid = np.zeros(slot[-1] + 1)
        grid[slot] = residual[use]
        stretches.append(grid)
    pair = (held[1:] >= 0) & (held[1:] == held[:-1]) & r.ok[1:] & r.ok[:-1]
    return estimate_noise(stretches, r.period_s, np.diff(r.watts)[pair])


def integrated(view: View, windows_s: Floats, other_s: Floats) -> Estimate | None:
    """Dynamic power by integration outward into idle; None when no window has idle on both sides.

    ``windows_s`` (k, 2) count; stretches that also touch ``other_s`` are left out whole.
    """
    r = view.readings
    margin = np.array([-2.0 * view.sigma_s, 2.0 * view.sigma_s + 1.5 * SETTLE_TAU * r.tau_s])
    regions = merged(windows_s + margin)
    foreign = merged(other_s + margin) if len(other_s) else other_s
    spoiled = touches(foreign, regions[:, 0], regions[:, 1])
    cut = (regions[:, 0] < r.start_s[0]) | (regions[:, 1] > r.end_s[-1])
    regions = regions[~(spoiled | cut)]
    # a reading that a foreign activity touches says nothing about idle at this edge
    if len(foreign) and len(regions):
        first = touches(foreign, regions[:, 0] - r.period_s, regions[:, 1] + r.period_s)
        regions = regions[~first]
    if not len(regions):
        return None
    member = touches(regions, windows_s[:, 0], windows_s[:, 1])
    z = np.where(touches(regions, r.start_s, r.end_s), view.weight, 0.0)
    counted = merged(windows_s[member])
    fill = seen(edges_of(counted), r.start_s, r.end_s, r.tau_s)
    busy = float(np.sum(z * fill))
    if busy <= 0:
        return None
    at = float(np.sum(z * view.middle_s) / z.sum())
    dynamic = (z - z.sum() * view.idle_weights(at)) / busy
    return _estimate(view, dynamic, windows_s[member], float(np.mean(member)))


def trimmed(view: View, windows_s: Floats) -> Estimate | TooShort:
    """Dynamic power from whole readings inside trimmed windows, each window weighted by its length."""
    r = view.readings
    merged_s = merged(windows_s)
    lead, tail = 2.0 * view.sigma_s + SETTLE_TAU * r.tau_s, 2.0 * view.sigma_s
    inner = merged_s + np.array([lead, -tail])
    usable = inner[:, 1] > inner[:, 0]
    where = inside(inner[usable], r.start_s, r.end_s)
    where[~r.ok] = -1
    count = np.bincount(where[where >= 0], minlength=int(usable.sum()))
    share = float(np.count_nonzero(count)) / len(merged_s)
    length = merged_s[:, 1] - merged_s[:, 0]
    if share < MIN_SHARE:
        aperture = float(np.median(r.end_s - r.start_s))
        return TooShort(float(np.median(length)), aperture + r.period_s + lead + tail, share)
    each = length[usable] / np.maximum(count, 1) * (count > 0)
    weight = np.where(where >= 0, each[np.clip(where, 0, None)], 0.0)
    weight = weight / weight.sum()
    at = float(np.sum(weight * view.middle_s))
    kept = merged_s[usable][count > 0]
    return _estimate(view, weight - view.idle_weights(at), kept, share)


def _estimate(view: View, dynamic: Floats, windows_s: Floats, share: float) -> Estimate:
    length = windows_s[:, 1] - windows_s[:, 0]
    at = float(np.sum(windows_s.mean(axis=1) * length) / length.sum()) if length.sum() > 0 else 0.0
    idle = view.idle_weights(at)
    watts = view.readings.watts
    return Estimate(dynamic, idle, float(dynamic @ watts), float(idle @ watts), share, at, windows_s)


def gaps_differ(view: View) -> tuple[bool, float]:
    """Whether the gaps between spans, where readings fit into them, are at another level than idle.

    Returns the verdict and the level found, in watts above idle (0 when no reading fits).
    """
    r = view.readings
    guard = merged(view.all_busy_s + np.array([-2.0 * view.sigma_s, 2.0 * view.sigma_s + 1.5 * SETTLE_TAU * r.tau_s]))
    between = (r.start_s > view.all_busy_s[0, 0]) & (r.end_s < view.all_busy_s[-1, 1])
    gap = between & r.ok & ~touches(guard, r.start_s, r.end_s) & ~view.idle
    count = np.count_nonzero(gap)
    if count == 0:
        return False, 0.0
    at = float(view.middle_s[gap].mean())
    weight = gap / count - view.idle_weights(at)
    from rig.noise import variances

    level = float(weight @ r.watts)
    doubt = math.sqrt(sum(variances(view.noise, weight, view.middle_s, view.busy).values()))
    allowance = 0.2 * abs(view.drift_w)
    return abs(level) > CONTRAST * doubt + allowance, level
