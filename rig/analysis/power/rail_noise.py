"""The noise of one rail, from its idle stretches, its busy stretches and the slow residual of the whole run."""

from __future__ import annotations

import numpy as np

from rig.analysis.power.counter import Counted, Jitter
from rig.analysis.power.counter import estimate as estimate_counter
from rig.analysis.power.noise import Noise
from rig.analysis.power.noise import estimate as estimate_noise
from rig.analysis.timing.activity_signal import SETTLE_TAU, merged, touches
from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats, Indices


def rail_noise(
    r: Readings,
    residual: Floats,
    idle: Bools,
    where: Indices,
    held: Indices,
    beside: Bools | bool,
    slow: tuple[Floats, float],
) -> tuple[Noise, Jitter | None]:
    """Return the noise of a rail and the jitter of a counter's readings; arrays have the shape of the readings, (n,).

    ``residual`` is in watts above the idle line. ``where`` is the number of the idle window that holds a reading, and
    ``held`` the number of the span; -1 means none. ``beside`` says which readings follow the one before, shape
    (n - 1,), if not all do. ``slow`` comes from ``slow_residual``.
    """
    pair = (held[1:] >= 0) & (held[1:] == held[:-1]) & r.ok[1:] & r.ok[:-1] & beside
    if r.counter:
        return _counted(r, residual, idle, where, pair, slow)
    stretches = []
    # a line through windows at different levels would leave a slope in each
    windows = [idle & (where == k) for k in np.unique(where[idle])]
    t, y = (np.concatenate([x[use] - x[use].mean() for use in windows]) for x in (r.start_s, residual))
    slope = float(t @ y) / max(float(t @ t), 1e-300) if len(windows) > 1 else 0.0
    for use in windows:
        slot = np.round((r.start_s[use] - r.start_s[use][0]) / r.period_s).astype(np.int64)
        grid = np.zeros(slot[-1] + 1)
        left = residual[use] - slope * r.start_s[use]
        grid[slot] = left - left.mean()
        stretches.append(grid)
    return estimate_noise(stretches, r.period_s, np.diff(r.watts)[pair], *slow), None


def _straightened(residual: Floats, t_s: Floats) -> Floats:
    """Return the residual without its straight line."""
    t = t_s - t_s.mean()
    slope = float(t @ residual) / max(float(t @ t), 1e-300)
    return np.asarray(residual - residual.mean() - slope * t)


def _counted(
    r: Readings, residual: Floats, idle: Bools, where: Indices, pair: Bools, slow: tuple[Floats, float]
) -> tuple[Noise, Jitter]:
    """Noise of a counter, from joules: its intervals are uneven, and its errors are alike only in joules."""
    share = (r.end_s - r.start_s) / r.period_s
    stretches = []
    for k in np.unique(where[idle]):
        at = np.flatnonzero(idle & (where == k))
        grid = np.zeros(at[-1] - at[0] + 1)
        grid[at - at[0]] = residual[at] * share[at]
        stretches.append(np.where(grid != 0.0, grid - grid[at - at[0]].mean(), 0.0))
    quiet_w, busy_w = float(np.mean(r.watts[idle])), 0.0
    loud = np.append(pair, False) | np.append(False, pair)
    if np.any(loud):
        busy_w = float(np.median(r.watts[loud]))
    ratio = abs(busy_w) / max(abs(quiet_w), 1e-12 * abs(busy_w), 1e-300)
    # lengths are uneven, so the difference within a pair is computed at the power of this pair
    joules = r.watts * share
    drop = np.diff(joules) - 0.5 * (r.watts[1:] + r.watts[:-1]) * np.diff(share)
    # a filter that is slower than the reads is not an age of a counter
    age_j = abs(quiet_w) * r.tau_s if 2.0 * r.tau_s < 1.01 * r.period_s else 0.0
    return estimate_counter(Counted(stretches, drop[pair], r.period_s, ratio, r.step_j, slow, age_j))


def slow_residual(r: Readings, left: Floats, busy_s: Floats) -> tuple[Floats, float]:
    """Return what remains of the readings after the levels are fitted, averaged over two spans or more with their gaps.

    For a counter one span is enough, because its readings lose nothing at the ends of spans.
    """
    if len(busy_s) < 2:
        return np.zeros(0), 0.0
    cycle_s = (1.0 if r.counter else 2.0) * float(np.median(np.diff(busy_s[:, 0])))
    bins = int((r.end_s[-1] - r.start_s[0]) / max(cycle_s, 8.0 * r.period_s))
    if bins < 12:
        return np.zeros(0), 0.0
    step_s = (r.end_s[-1] - r.start_s[0]) / bins
    slot = np.clip(((r.start_s - r.start_s[0]) / step_s).astype(np.int64), 0, bins - 1)
    if r.uneven:
        share_s = r.many if r.pool is not None else np.where(r.ok, r.end_s - r.start_s, 0.0)
        total_s = np.bincount(slot, weights=share_s, minlength=bins)
        level = np.bincount(slot, weights=left * share_s, minlength=bins) / np.maximum(total_s, 1e-300)
        if r.counter:
            return level, float(step_s)
    else:
        count = np.bincount(slot, minlength=bins)
        level = np.bincount(slot, weights=left, minlength=bins) / np.maximum(count, 1)
    return _by_gaps(r, left, busy_s, bins) or (_straightened(level, np.arange(float(bins))), float(step_s))


def _by_gaps(r: Readings, left: Floats, busy_s: Floats, most: int) -> tuple[Floats, float] | None:
    """The same of the readings between spans alone, if there are enough: the power of spans varies by itself."""
    first_s, last_s = float(busy_s[0, 1]), float(busy_s[-1, 0])
    bins = int(min(most, len(busy_s) // 2))
    if bins < 12:
        return None
    step_s = (last_s - first_s) / bins
    margin = np.array([0.0, 1.5 * SETTLE_TAU * r.tau_s])
    use = r.ok & (r.start_s > first_s) & (r.end_s < last_s) & ~touches(merged(busy_s + margin), r.start_s, r.end_s)
    slot = ((r.start_s[use] - first_s) / step_s).astype(np.int64)
    many = r.many[use]
    count = np.bincount(slot, weights=many, minlength=bins)
    if np.any(count == 0):
        return None
    level = np.bincount(slot, weights=many * left[use], minlength=bins) / count
    return _straightened(level, np.arange(float(bins))), step_s
