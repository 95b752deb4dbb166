"""The estimators compute the power of spans on one rail from readings, each as a weighted sum of readings.

* ``core``: readings wholly inside spans, after the uncertainty of the clock and the settling time of the filter are cut
  off. It leaves out what happens at the ends of spans.
* ``whole``: all readings that spans touch, minus their part outside spans. That part is taken at the level of the
  readings beside, or of idle if there are none.

If nothing happens at the ends, the two agree. Dynamic power is one of them minus idle under the spans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.result.quantity import Component
from rig.analysis.timing.activity_signal import SETTLE_TAU, edges_of, inside, margin_s, mean_signal, merged, touches
from rig.types import Floats, Indices

MIN_SHARE = 0.5
"""At least this share of the windows must take part in an estimate."""

Idle = tuple[Floats, float]
"""Weights of readings whose sum is idle under spans, shape (n,), and its uncertainty besides noise, in watts."""


@dataclass(frozen=True)
class Estimate:
    """Dynamic power ``value_w`` and idle power ``idle_w`` as weighted sums of the readings.

    ``level`` are the weights of the power of spans, and ``idle`` those of idle under them, shapes (n,). ``idle_u_w`` is
    the uncertainty of idle besides noise, and ``share`` the part of the windows that took part. ``by_length`` says that
    energy was divided by the stamped length of the windows.
    """

    level: Floats
    idle: Floats
    value_w: float
    idle_w: float
    idle_u_w: float
    share: float
    by_length: bool = False

    @property
    def dynamic(self) -> Floats:
        """Return the weights of dynamic power, shape (n,)."""
        return self.level - self.idle


@dataclass(frozen=True)
class TooShort:
    """Windows too short for whole readings: their median length, the length needed, and the share that hold one."""

    window_s: float
    needed_s: float
    share: float


@dataclass(frozen=True)
class Margin:
    """A shift of dynamic power, a bound for its error, and components, in watts."""

    shift_w: float = 0.0
    bias_w: float = 0.0
    components: tuple[Component, ...] = ()

    def __add__(self, other: Margin) -> Margin:
        return Margin(
            self.shift_w + other.shift_w, self.bias_w + other.bias_w, (*self.components, *other.components)
        )  # fmt: skip


def core(model: RailModel, windows_s: Floats, idle: Idle) -> Estimate | TooShort:
    """Return power by whole readings inside windows, shape (k, 2); each window is weighted by its length."""
    r = model.readings
    spans = merged(windows_s)
    lead, tail = 2.0 * model.sigma_s + SETTLE_TAU * r.tau_s, 2.0 * model.sigma_s
    inner = spans + np.array([lead, -tail])
    usable = inner[:, 1] > inner[:, 0]
    where = inside(inner[usable], r.start_s, r.end_s)
    where[~r.ok] = -1
    at = np.flatnonzero(where >= 0)
    of = where[at]
    held = np.bincount(of, model.weight[at], int(usable.sum()))
    share = float(np.count_nonzero(held)) / len(spans)
    length = spans[:, 1] - spans[:, 0]
    if share < MIN_SHARE:
        return TooShort(float(np.median(length)), r.aperture_s + r.period_s + lead + tail, share)
    each = length[usable] / np.where(held > 0, held, 1.0) * (held > 0)
    weight = np.zeros(len(where))
    weight[at] = each[of] * model.weight[at]
    return estimate_of(model, weight / weight.sum(), idle, share)


@dataclass(frozen=True)
class Touched:
    """Readings that windows touch, with the margins of clock and filter, and the level beside each end of a window.

    ``z`` is the weight of a reading and ``fill`` the part of it that windows fill, shapes (n,). ``at`` are the readings
    that lie partly outside and ``side`` the end nearby: 2 k for the begin of region k, 2 k + 1 for its end.
    ``beside_w`` is the level beside each end. ``level`` are the weights of mean power over the windows that took part,
    shape (n,), and ``share`` is the share of these windows.
    """

    z: Floats
    fill: Floats
    at: Indices
    side: Indices
    beside_w: Floats
    level: Floats
    share: float

    @cached_property
    def busy(self) -> float:
        """Return the total weight of the parts of readings that windows fill."""
        return float(self.z @ self.fill)


def touched(model: RailModel, windows_s: Floats, other_s: Floats, idle: Idle) -> Touched | None:
    """Return the readings that windows touch, shape (k, 2), or None if no window has a level on both sides.

    A stretch that also touches ``other_s`` is left out as a whole.
    """
    r = model.readings
    margin = margin_s(model.sigma_s, r.tau_s)
    regions, foreign = merged(windows_s + margin), merged(other_s + margin)
    # a reading touched by other activity does not show the level at this end
    spoiled = touches(foreign, regions[:, 0] - r.period_s, regions[:, 1] + r.period_s)
    cut = (regions[:, 0] < r.start_s[0]) | (regions[:, 1] > r.end_s[-1])
    regions = regions[~(spoiled | cut)]
    if not len(regions):
        return None
    z = np.where(touches(regions, r.start_s, r.end_s), model.weight, 0.0)
    member = touches(regions, windows_s[:, 0], windows_s[:, 1])
    fill = mean_signal(edges_of(merged(windows_s[member])), r.start_s, r.end_s, r.tau_s)
    outside = z * (1.0 - fill)
    busy = float(z @ fill)
    if busy <= 0.0:
        return None
    at = np.flatnonzero(outside != 0.0)
    of = np.clip(np.searchsorted(regions[:, 0], r.end_s[at]) - 1, 0, None)
    side = 2 * of + (model.middle_s[at] > regions.mean(axis=1)[of])
    beside, beside_w = _beside(
        model, regions, np.bincount(side, outside[at], 2 * len(regions)).astype(np.float64), idle[0]
    )
    return Touched(z, fill, at, side, beside_w, (z - beside) / busy, float(np.mean(member)))


def whole(model: RailModel, of: Touched, idle: Idle, inner: Estimate | None = None) -> Estimate:
    """Return power by all readings that windows touch; ``inner``, if given, replaces windows that are left out."""
    # a reading at an end averages the current, but the shunt's loss depends on the square of the current
    uneven = float(np.sum(of.z * of.fill * (1.0 - of.fill))) / of.busy
    level = of.level
    if inner is not None:
        rest = np.where(of.z > 0.0, 0.0, inner.level)
        level = level * (1.0 - rest.sum()) + rest
    return replace(estimate_of(model, level, idle, of.share, uneven), by_length=True)


def _beside(model: RailModel, regions: Floats, total: Floats, idle: Floats) -> tuple[Floats, Floats]:
    """Return weights, shape (n,), for the sum of levels beside ends times ``total``, and these levels, shape (2 k,).

    The level beside an end is the mean of the nearest readings in the gap, as many as the parts outside make up.
    Without a reading in the gap, it is the level of all gaps, or else of idle.
    """
    r = model.readings
    free = np.flatnonzero(r.ok & ~model.busy & ~touches(regions, r.start_s, r.end_s))
    unit = float(np.median(model.weight[model.weight > 0.0]))
    many = np.maximum(np.ceil(np.abs(total) / unit - 0.5), 1.0).astype(np.int64)
    # begin and end of the free readings in the gaps before and after each region
    first, last = np.searchsorted(model.middle_s[free], regions.T)
    before_from, after_until = np.append(0, last[:-1]), np.append(first[1:], len(free))
    low = np.column_stack([np.maximum(first - many[0::2], before_from), last]).ravel()
    high = np.column_stack([first, np.minimum(last + many[1::2], after_until)]).ravel()
    known = high > low
    each = np.where(known, total / np.maximum(high - low, 1), 0.0)
    steps = np.bincount(low, each, len(free) + 1) - np.bincount(high, each, len(free) + 1)
    out = np.zeros(len(r.watts))
    out[free] = np.cumsum(steps)[:-1]
    sums = np.append(0.0, np.cumsum(r.watts[free]))
    rest = np.where(model.gap, model.weight, 0.0)
    rest = rest / rest.sum() if np.any(model.gap) else idle
    out += float(total[~known].sum()) * rest
    return out, np.where(known, (sums[high] - sums[low]) / np.maximum(high - low, 1), float(rest @ r.watts))


def estimate_of(model: RailModel, level: Floats, under: Idle, share: float, uneven: float = 0.0) -> Estimate:
    """Return the estimate by the weights ``level``; ``uneven`` is the share of power in readings at ends."""
    r, (idle, idle_u_w) = model.readings, under
    busy_w, idle_w = float(level @ r.watts), float(idle @ r.watts)
    value_w = busy_w - idle_w
    if (s := r.supply) is not None:
        # a reading at an end is a product of means, but power is the mean of products
        amperes, volts = (float((level - idle) @ x) for x in (s.amperes, s.volts))
        value_w += uneven * amperes * (volts - s.burden_ohm * amperes)
    else:
        rise = _before_shunt(busy_w, r.burden_per_w) - _before_shunt(idle_w, r.burden_per_w)
        value_w -= r.burden_per_w * uneven * rise * rise
    return Estimate(level, idle, value_w, idle_w, idle_u_w, share)


def _before_shunt(power_w: float, burden_per_w: float) -> float:
    """Return current times supply voltage if ``power_w`` is left behind the shunt: the inverse of ``x - b * x**2``."""
    if burden_per_w <= 0.0:
        return power_w
    return (1.0 - math.sqrt(max(1.0 - 4.0 * burden_per_w * power_w, 0.0))) / (2.0 * burden_per_w)
