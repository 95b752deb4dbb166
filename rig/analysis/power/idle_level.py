"""The idle level of a rail: the readings that show it, its straight line over time, and its drift.

Idle power is the level of the configured device, taken through the idle windows before and after the activity.
"""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.timing.activity_signal import SETTLE_TAU, inside, margin_s, merged, touches
from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats, Indices


def idle_window_of(r: Readings, idle_s: Floats, busy_s: Floats, sigma_s: float, host_sigma_s: float) -> Indices:
    """The idle window that holds each reading, or -1; nothing of the activity reaches such a reading."""
    quiet = idle_s + np.array([2.0 * host_sigma_s + SETTLE_TAU * r.tau_s, -2.0 * host_sigma_s])
    quiet = merged(quiet[quiet[:, 1] > quiet[:, 0]])
    where = inside(quiet, r.start_s, r.end_s)
    guard = merged(busy_s + margin_s(sigma_s, r.tau_s))
    where[~r.ok | touches(guard, r.start_s, r.end_s)] = -1
    return where


def idle_weights(idle: Bools, weight: Floats, middle_s: Floats, at_s: float, *, straight: bool) -> Floats:
    """Return weights that make of the readings the idle level at a moment, shape (n,).

    The level is a straight line through the readings marked ``idle``, or their mean if not ``straight``.
    """
    g = np.where(idle, weight, 0.0)
    total = g.sum()
    mean = float(np.sum(g * middle_s) / total)
    lever = middle_s - mean
    square = lever**2
    square *= g
    sxx = float(np.sum(square))
    if not straight or sxx <= 0:
        return np.asarray(g / total)
    # g / total + g * lever * ((at_s - mean) / sxx), without five arrays more
    lever *= g
    lever *= (at_s - mean) / sxx
    g /= total
    g += lever
    return g


def gap_weights(gap: Bools, many: Floats, middle_s: Floats, windows_s: Floats) -> Floats:
    """Return weights that make of the readings the level of the gaps beside windows, shape (n,).

    The level under a window, shape (k, 2), lies on the line between the gaps before and after it, which are marked
    ``gap``. Each window counts by its length, and each reading of a gap by the ``many`` that it stands for.
    """
    spans = merged(windows_s)
    at = np.flatnonzero(gap)
    _, number = np.unique(np.searchsorted(spans[:, 0], middle_s[at]), return_inverse=True)
    count = np.bincount(number, weights=many[at])
    gap_s = np.bincount(number, weights=many[at] * middle_s[at]) / count
    middle, length = spans.mean(axis=1), spans[:, 1] - spans[:, 0]
    place = np.interp(middle, gap_s, np.arange(float(len(gap_s))))
    before = np.minimum(place.astype(np.int64), max(len(gap_s) - 2, 0))
    after, part = np.minimum(before + 1, len(gap_s) - 1), place - before
    share = length / length.sum()
    each = np.bincount(before, share * (1.0 - part), len(gap_s)) + np.bincount(after, share * part, len(gap_s))
    weight = np.zeros(len(middle_s))
    weight[at] = (each / count)[number] * many[at]
    return weight


def idle_line(r: Readings, middle: Floats, idle: Bools, drift_u: float) -> Floats:
    """Return the idle level over time, as a straight line."""
    watts, weight = r.watts, (r.end_s - r.start_s)[idle] if r.counter else r.many[idle] if r.pool else None
    if not math.isfinite(drift_u):
        return np.full(len(watts), float(np.average(watts[idle], weights=weight)))
    root = None if weight is None else np.sqrt(weight)
    return np.asarray(np.polyval(np.polyfit(middle[idle], watts[idle], 1, w=root), middle))


def drift_w(r: Readings, idle: Bools, where: Indices) -> tuple[float, float]:
    """Change of the idle level from the first window to the last, and its sigma; inf if there is only one window."""
    numbers = np.unique(where[idle])
    if len(numbers) < 2:
        return 0.0, math.inf
    windows = [idle & (where == k) for k in (numbers[0], numbers[-1])]
    parts = [r.watts[use] for use in windows]
    if r.pool is None:
        u = math.sqrt(sum(float(np.var(p)) / max(len(p), 1) for p in parts))
        return float(parts[1].mean() - parts[0].mean()), u
    many = [r.pool.many[use] for use in windows]
    level = [float(np.average(p, weights=m)) for p, m in zip(parts, many, strict=True)]
    u2 = [float(m @ (p - at) ** 2) / len(p) / float(m.sum()) for p, m, at in zip(parts, many, level, strict=True)]
    return level[1] - level[0], math.sqrt(sum(u2))


def counted_drift_w(r: Readings, idle: Bools, where: Indices) -> tuple[float, float]:
    """The same for a counter, whose mean over a window follows from the readings at its ends."""
    numbers = np.unique(where[idle])
    if len(numbers) < 2:
        return 0.0, math.inf
    level, u2 = [], 0.0
    length = r.end_s - r.start_s
    for k in (numbers[0], numbers[-1]):
        at = idle & (where == k)
        total_s = float(length[at].sum())
        level.append(float(r.watts[at] @ length[at]) / total_s)
        u2 += float(np.var(r.watts[at] * length[at])) / total_s**2
    return level[1] - level[0], math.sqrt(u2)
