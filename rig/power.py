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
from dataclasses import dataclass, replace

import numpy as np

from rig.noise import Noise, variances
from rig.noise import estimate as estimate_noise
from rig.occupancy import SETTLE_TAU, edges_of, inside, merged, seen, touches
from rig.timeline import Activity, Readings
from rig.types import Bools, Floats, Indices

MIN_SHARE = 0.5
"""Share of windows that must hold a whole reading after trimming."""
BEND_PRIOR = 0.12
GAP_ALLOWANCE = 1e-3
"""Part of dynamic power below which a gap's difference from idle does not matter."""
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
    held: Bools
    noise: Noise
    drift_w: float
    drift_u_w: float
    bend_w: float
    """What a bent instead of a straight drift of idle may add to dynamic power; see ``_bend``."""

    def idle_weights(self, at_s: float) -> Floats:
        """Weights whose sum with the readings is the idle level at a moment: a straight line fit."""
        g = np.where(self.idle, self.weight, 0.0)
        total = g.sum()
        mean = float(np.sum(g * self.middle_s) / total)
        lever = self.middle_s - mean
        sxx = float(np.sum(g * lever**2))
        if self.drift_u_w == math.inf or sxx <= 0:
            return np.asarray(g / total)
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
    residual = r.watts - _line(r.watts, middle, idle, drift_u)
    fill = seen(edges_of(busy_s), r.start_s, r.end_s, r.tau_s)
    left = np.where(r.ok, residual - fill * _level(residual, fill, r.ok), 0.0)
    noise = _noise(r, residual, idle, where, held, _slow(r, left, busy_s))
    view = View(
        readings=r,
        sigma_s=sigma_s,
        idle=idle,
        middle_s=middle,
        weight=weight,
        all_busy_s=busy_s,
        busy=touches(busy_s, r.start_s, r.end_s),
        held=held >= 0,
        noise=noise,
        drift_w=drift,
        drift_u_w=drift_u,
        bend_w=0.0,
    )
    return replace(view, bend_w=math.hypot(_bend(view, left, fill), _unsettled(view, residual, where)))


def _line(watts: Floats, middle: Floats, idle: Bools, drift_u: float) -> Floats:
    """The idle level over time."""
    if not math.isfinite(drift_u):
        return np.full(len(watts), float(np.mean(watts[idle])))
    return np.asarray(np.polyval(np.polyfit(middle[idle], watts[idle], 1), middle))


def _level(residual: Floats, fill: Floats, ok: Bools) -> float:
    used = ok & (fill > 0)
    total = float(fill[used].sum())
    return float(residual[used].sum()) / total if total > 0 else 0.0


def _drift(watts: Floats, idle: Bools, where: Indices, middle: Floats) -> tuple[float, float]:
    """Change of the idle level from the first window to the last; inf as sigma when there is one."""
    numbers = np.unique(where[idle])
    if len(numbers) < 2:
        return 0.0, math.inf
    parts = [watts[idle & (where == k)] for k in (numbers[0], numbers[-1])]
    u = math.sqrt(sum(float(np.var(p)) / max(len(p), 1) for p in parts))
    return float(parts[1].mean() - parts[0].mean()), u


def _slow(r: Readings, left: Floats, busy_s: Floats) -> tuple[Floats, float]:
    """What the fitted levels leave, averaged over at least two spans and the gaps after them."""
    if len(busy_s) < 2:
        return np.zeros(0), 0.0
    cycle_s = 2.0 * float(np.median(np.diff(busy_s[:, 0])))
    bins = int((r.end_s[-1] - r.start_s[0]) / max(cycle_s, 8.0 * r.period_s))
    if bins < 12:
        return np.zeros(0), 0.0
    step_s = (r.end_s[-1] - r.start_s[0]) / bins
    slot = np.clip(((r.start_s - r.start_s[0]) / step_s).astype(np.int64), 0, bins - 1)
    count = np.bincount(slot, minlength=bins)
    return np.bincount(slot, weights=left, minlength=bins) / np.maximum(count, 1), float(step_s)


def _bend(view: View, left: Floats, fill: Floats) -> float:
    """Doubt of dynamic power because idle need not drift along the straight line between its windows.

    If it bends, so does the level of the spans: a parabola through what the fit leaves, vanishing at
    both idle ends, is measured over twelve stretches of the busy time. It is not subtracted (a device
    may really have worked harder in the middle); its size is the standard uncertainty. Where noise hides
    it, 12 % of the drift stands in (an exponential leaves 8 % over its time constant, 20 % over three).
    """
    if not math.isfinite(view.drift_u_w):
        return 0.0
    prior = BEND_PRIOR * max(abs(view.drift_w) - view.drift_u_w, 0.0)
    used = np.flatnonzero((fill > 0.01) & view.readings.ok)  # a filter leaves endless tails
    if prior == 0.0 or len(used) < 24:
        return prior
    t = view.middle_s
    first, last = float(t[view.idle].min()), float(t[view.idle].max())
    t = (t - first) / (last - first)
    parts = np.array_split(used, 12)
    weight = np.array([float(fill[p].sum()) for p in parts])
    level = np.array([float(left[p].sum()) for p in parts]) / weight
    bow = np.array([float(np.mean(t[p] * (t[p] - 1.0))) for p in parts])
    lever = np.array([float(np.mean(t[p])) for p in parts])
    design = np.column_stack([np.ones(12), lever - lever.mean(), bow])
    solution, *_ = np.linalg.lstsq(design, level, rcond=None)
    scatter = float(np.sum((level - design @ solution) ** 2)) / 9.0
    doubt = math.sqrt(max(scatter * float(np.linalg.pinv(design.T @ design)[2, 2]), 0.0))
    mean_bow = abs(float(np.average(bow, weights=weight)))
    seen_w, doubt_w = float(solution[2]) * mean_bow, doubt * mean_bow
    share = prior**2 / (prior**2 + doubt_w**2)
    return math.sqrt((share * seen_w) ** 2 + share * doubt_w**2)


def _unsettled(view: View, residual: Floats, where: Indices) -> float:
    """How far idle next to the activity is from the line, where it is so by more than noise explains."""
    numbers = np.unique(where[view.idle])
    if len(numbers) < 2:
        return 0.0
    first = np.flatnonzero(view.idle & (where == numbers[0]))
    last = np.flatnonzero(view.idle & (where == numbers[-1]))
    near = np.concatenate([first[-max(len(first) // 4, 1) :], last[: max(len(last) // 4, 1)]])
    weight = np.zeros(len(residual))
    weight[near] = 1.0 / len(near)
    off = float(weight @ residual)
    weight = weight - view.idle_weights(float(view.middle_s[near].mean()))
    doubt = math.sqrt(sum(variances(view.noise, weight, view.middle_s, view.busy).values()))
    return abs(off) if abs(off) > 2.5 * doubt else 0.0


def _noise(
    r: Readings, residual: Floats, idle: Bools, where: Indices, held: Indices, slow: tuple[Floats, float]
) -> Noise:
    stretches = []
    for k in np.unique(where[idle]):
        use = idle & (where == k)
        slot = np.round((r.start_s[use] - r.start_s[use][0]) / r.period_s).astype(np.int64)
        grid = np.zeros(slot[-1] + 1)
        grid[slot] = residual[use] - residual[use].mean()
        stretches.append(grid)
    pair = (held[1:] >= 0) & (held[1:] == held[:-1]) & r.ok[1:] & r.ok[:-1]
    return estimate_noise(stretches, r.period_s, np.diff(r.watts)[pair], *slow)


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
    level = float(weight @ r.watts)
    doubt = math.sqrt(sum(variances(view.noise, weight, view.middle_s, view.busy).values()))
    allowance = 0.2 * abs(view.drift_w) + GAP_ALLOWANCE * abs(
        float(np.mean(r.watts[view.busy]) - r.watts[view.idle].mean())
    )
    return abs(level) > CONTRAST * doubt + allowance, level


def stamp_jitter_s(view: View, windows_s: Floats) -> float:
    """How much the stamped length of one span jitters, from what the readings near it leave unexplained.

    A stamp that is late by t leaves dynamic power times t behind, which no true change of a span's
    length does. The meter's noise does too; it is known and taken off, with the doubt of doing so left
    in. inf when there are too few spans to tell.
    """
    r = view.readings
    if len(windows_s) < 8:
        return math.inf
    spans = windows_s[np.argsort(windows_s[:, 0])]
    fill = seen(edges_of(merged(spans)), r.start_s, r.end_s, r.tau_s)
    above = np.where(r.ok, r.watts - _line(r.watts, view.middle_s, view.idle, view.drift_u_w), 0.0)
    margin = np.array([-2.0 * view.sigma_s, 2.0 * view.sigma_s + 1.5 * SETTLE_TAU * r.tau_s])
    near = touches(merged(spans + margin), r.start_s, r.end_s) & r.ok
    power = float(np.sum(above[near]) / np.sum(fill[near])) if np.any(fill[near] > 0) else 0.0
    if power == 0.0:
        return math.inf
    owner = np.searchsorted(0.5 * (spans[1:, 0] + spans[:-1, 1]), view.middle_s[near])
    left = (above - power * fill)[near] * (r.period_s / power)
    each = np.bincount(owner, weights=left, minlength=len(spans))
    typical = np.zeros(len(r.watts))
    typical[np.flatnonzero(near)[owner == len(spans) // 2]] = r.period_s / power
    noise = sum(variances(view.noise, typical, view.middle_s, view.busy).values())
    return math.sqrt(max(float(np.var(each, ddof=1)) - noise, 0.0) + noise * math.sqrt(2.0 / len(spans)))
