"""The estimators compute the power of spans on one rail from readings, each as a weighted sum of readings.

A span is a time in which the device works, by its stamps.

* ``core`` uses readings wholly inside spans. At each end, it cuts off the uncertainty of the clock, and at the begin
  also the settling time of the filter. It leaves out what happens at the ends of spans.
* ``whole`` uses all readings that touch spans, and subtracts the part of these readings outside spans. The power of
  this part is the mean of the readings beside the span, or else of all gaps, or else of idle.

If nothing happens at the ends, the two agree. Dynamic power is one of them minus idle under the spans: the power that
the device would draw at rest at the time of the spans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.result.quantity import Component
from rig.analysis.timing.activity_signal import SETTLE_TAU, edges_of, inside, margin_s, mean_signal, merged, touches
from rig.types import Floats, Indices

MIN_SHARE = 0.5
"""At least this share of the windows must take part in an estimate."""

Idle = tuple[Floats, float]
"""Weights of readings whose weighted sum is idle power under spans, (n,), and its uncertainty besides noise, in W."""


@dataclass(frozen=True)
class Estimate:
    """Dynamic power ``value_w`` and idle power ``idle_w`` as weighted sums of the readings.

    Both ``level`` and ``idle`` are weights of readings, shape (n,): ``level`` for the power of spans, and ``idle`` for
    idle power under the spans. ``idle_u_w`` is the uncertainty of idle power besides noise. ``by_length`` is true if
    energy was divided by the stamped length of the windows.
    """

    level: Floats
    idle: Floats
    value_w: float
    idle_w: float
    idle_u_w: float
    by_length: bool = False

    @property
    def dynamic(self) -> Floats:
        """Return the weights of dynamic power, shape (n,)."""
        return self.level - self.idle


@dataclass(frozen=True)
class TooShort:
    """Windows too short for whole readings: median and needed length, and the share of windows with a whole reading."""

    window_s: float
    needed_s: float
    share: float


@dataclass(frozen=True)
class Margin:
    """A correction of dynamic power, a bound for its error, and components of its uncertainty, in watts.

    ``told`` is what a note says of the bias; a sum of margins has none.
    """

    shift_w: float = 0.0
    bias_w: float = 0.0
    components: tuple[Component, ...] = ()
    told: str = ""

    def __add__(self, other: Margin) -> Margin:
        parts = (*self.components, *other.components)
        return Margin(self.shift_w + other.shift_w, self.bias_w + other.bias_w, parts)


def core(model: RailModel, windows_s: Floats, idle: Idle) -> Estimate | TooShort:
    """Return power from whole readings inside windows, shape (k, 2); each window is weighted by its length."""
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
        lasts_s = r.end_s - r.start_s
        # the mean length of the reading at a random time
        typical_s = float(lasts_s @ lasts_s) / max(float(lasts_s.sum()), 1e-300)
        return TooShort(float(np.median(length)), typical_s + max(r.period_s, typical_s) + lead + tail, share)
    each = length[usable] / np.where(held > 0, held, 1.0) * (held > 0)
    weight = np.zeros(len(where))
    weight[at] = each[of] * model.weight[at]
    return estimate_of(model, weight / weight.sum(), idle)


@dataclass(frozen=True)
class Touched:
    """Readings in regions, which are windows widened by the margins of clock and filter, and the level beside each end.

    ``z`` is the weight of each reading and ``fill`` the part of it that windows fill, shapes (n,). ``at`` are the
    numbers of readings partly outside windows. ``side`` is the nearest end of each: 2 k for the begin of region k,
    2 k + 1 for its end. ``beside_w`` is the level beside each end. ``level`` are the weights of readings for the mean
    power over the windows in use, shape (n,), and ``share`` is the share of all windows that are in use. ``busy`` is
    the total weight of the parts of readings that windows fill.
    """

    z: Floats
    fill: Floats
    at: Indices
    side: Indices
    beside_w: Floats
    level: Floats
    share: float
    busy: float


def touched(model: RailModel, windows_s: Floats, other_s: Floats, idle: Idle) -> Touched | None:
    """Return the readings that touch windows, shape (k, 2), or None if no window can be used.

    A region, which is one or more windows with their margins, is left out if the trace does not cover it. It is also
    left out if other activity, ``other_s``, is within one period of it.
    """
    r = model.readings
    margin = margin_s(model.sigma_s, r.tau_s)
    regions, foreign = merged(windows_s + margin), merged(other_s + margin)
    # a reading with other activity in it does not show the level beside the window
    spoiled = touches(foreign, regions[:, 0] - r.period_s, regions[:, 1] + r.period_s)
    cut = (regions[:, 0] < r.start_s[0]) | (regions[:, 1] > r.end_s[-1])
    regions = regions[~(spoiled | cut)]
    if not len(regions):
        return None
    z = np.where(touches(regions, r.start_s, r.end_s), model.weight, 0.0)
    member = touches(regions, windows_s[:, 0], windows_s[:, 1])
    fill = mean_signal(edges_of(merged(windows_s[member])), r.start_s, r.end_s, r.tau_s)
    # readings of a region have equal weights; a region has the weight of the time that they cover (points cover none)
    lasts = model.weight if r.pool is not None or r.aperture_s <= 0.0 else r.end_s - r.start_s
    of = np.clip(np.searchsorted(regions[:, 0], r.end_s) - 1, 0, None)
    shown, held = (np.bincount(of, fill * x * (z > 0.0), len(regions)) for x in (lasts, z))
    longer = np.where(held > 0.0, shown * held.sum() / np.maximum(held * shown.sum(), 1e-300), 1.0)
    z = z * np.round(longer, 9)[of]  # exactly 1 if all readings last equally long
    outside = z * (1.0 - fill)
    busy = float(z @ fill)
    if busy <= 0.0:
        return None
    at = np.flatnonzero(outside != 0.0)
    side = 2 * of[at] + (model.middle_s[at] > regions.mean(axis=1)[of[at]])
    beside, beside_w = _beside(
        model, regions, np.bincount(side, outside[at], 2 * len(regions)).astype(np.float64), idle[0]
    )
    return Touched(z, fill, at, side, beside_w, (z - beside) / busy, float(np.mean(member)), busy)


def whole(model: RailModel, of: Touched, idle: Idle, inner: Estimate | None = None) -> Estimate:
    """Return power from all readings that touch windows; for windows left out, it uses ``inner`` if given."""
    # a reading at an end averages the current, but the shunt's loss depends on the square of the current
    uneven = float(np.sum(of.z * of.fill * (1.0 - of.fill))) / of.busy
    level = of.level
    if inner is not None:
        rest = np.where(of.z > 0.0, 0.0, inner.level)
        level = level * (1.0 - rest.sum()) + rest
    return replace(estimate_of(model, level, idle, uneven), by_length=True)


def _beside(model: RailModel, regions: Floats, total: Floats, idle: Floats) -> tuple[Floats, Floats]:
    """Return weights of readings, shape (n,), for the sum of ``total`` times the levels beside ends, and these levels.

    ``total`` is the weight of the parts of readings outside windows at each end; like the levels, it has the shape
    (2 k,). The level beside an end is the mean of the nearest readings in the gap, and their number follows from
    ``total``. If the gap has no reading, the level is that of all gaps, or else of idle.
    """
    r = model.readings
    free = np.flatnonzero(r.ok & ~model.busy & ~touches(regions, r.start_s, r.end_s))
    unit = float(np.median(model.weight[model.weight > 0.0]))
    many = np.maximum(np.ceil(np.abs(total) / unit - 0.5), 1.0).astype(np.int64)
    # numbers of the free readings at the begin and end of each region, and at the far ends of the gaps beside it
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


def estimate_of(model: RailModel, level: Floats, under: Idle, uneven: float = 0.0) -> Estimate:
    """Return the estimate with the weights ``level``, corrected for the loss in the meter's shunt.

    ``uneven`` is the weighted mean of 1 - fill over the readings in windows: 0 if windows fill all readings.
    """
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
    return Estimate(level, idle, value_w, idle_w, idle_u_w)


def _before_shunt(power_w: float, burden_per_w: float) -> float:
    """Return current times supply voltage from the power behind the shunt: the inverse of ``x - b * x**2``."""
    if burden_per_w <= 0.0:
        return power_w
    return (1.0 - math.sqrt(max(1.0 - 4.0 * burden_per_w * power_w, 0.0))) / (2.0 * burden_per_w)
