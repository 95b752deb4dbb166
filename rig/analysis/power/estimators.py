"""The estimators compute idle, active and dynamic power of one rail from readings and windows.

Every estimate is a weighted sum of readings, so the effect of noise with any spectrum follows from the weights. There
are two estimators:

* integrated: all energy above idle, from before each window to after it, divided by the busy time. It needs no sharp
  edges and also measures spans correctly in which power changes. It needs idle on both sides.
* trimmed: readings that lie wholly inside a window, after the uncertainty of the clock and the settling time of the
  filter are cut off. It needs no idle beside the window, but it leaves out what happens at the ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.rail_fit import baseline
from rig.analysis.power.rail_model import CONTRAST, RailModel
from rig.analysis.timing.activity_signal import SETTLE_TAU, edges_of, inside, margin_s, mean_signal, merged, touches
from rig.analysis.timing.meter_clock import Baseline
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timeline import Activity
from rig.types import Floats

MIN_SHARE = 0.5
"""Share of the windows that must hold a whole reading after trimming."""
MOST_GAPS = 0.9
"""Share of the gaps between windows that must hold a whole reading where no window does."""
MOVED = 1.1
"""Part of the difference between two idle windows up to which a level in the gaps is idle that moved."""
BEGINS_AT_IDLE = 0.3
"""Part of the level in the gaps that a line through them may miss the only idle window by."""
WHOLE = 0.999
"""Part of a reading that a span fills, from which the reading shows the power of this span alone."""
IN_DOUBT = 3.0
"""Standard errors by which gaps must differ from idle to cast doubt on its line."""


@dataclass(frozen=True)
class Estimate:
    """Dynamic power ``value_w`` and idle power ``idle_w`` as weighted sums of the readings.

    ``dynamic`` and ``idle`` are the weights, shape (n,); ``share`` is the part of the windows that took part.
    ``by_length`` says that energy was divided by the stamped length of the windows.
    """

    dynamic: Floats
    idle: Floats
    value_w: float
    idle_w: float
    share: float
    by_length: bool = False


@dataclass(frozen=True)
class TooShort:
    """Windows that are too short for a power figure.

    ``window_s`` is their median length, and ``needed_s`` the length that they would need.
    """

    window_s: float
    needed_s: float
    share: float


def integrated(model: RailModel, windows_s: Floats, other_s: Floats) -> Estimate | None:
    """Return dynamic power by integration outward into idle, or None if no window has idle on both sides.

    ``windows_s`` has shape (k, 2). A stretch that also touches ``other_s`` is left out as a whole.
    """
    r = model.readings
    margin = margin_s(model.sigma_s, r.tau_s)
    regions = merged(windows_s + margin)
    foreign = merged(other_s + margin)
    # a reading that other activity touches does not show idle at this edge
    spoiled = touches(foreign, regions[:, 0] - r.period_s, regions[:, 1] + r.period_s)
    cut = (regions[:, 0] < r.start_s[0]) | (regions[:, 1] > r.end_s[-1])
    regions = regions[~(spoiled | cut)]
    if not len(regions):
        return None
    member = touches(regions, windows_s[:, 0], windows_s[:, 1])
    z = np.where(touches(regions, r.start_s, r.end_s), model.weight, 0.0)
    counted = merged(windows_s[member])
    fill = mean_signal(edges_of(counted), r.start_s, r.end_s, r.tau_s)
    busy = float(np.sum(z * fill))
    if busy <= 0:
        return None
    at = float(np.sum(z * model.middle_s) / z.sum())
    # a reading at an edge averages the current, but the loss in the shunt depends on its square
    uneven = float(np.sum(z * fill * (1.0 - fill))) / busy
    del fill
    dynamic = model.base_weights(windows_s, at)
    dynamic *= z.sum()
    np.subtract(z, dynamic, out=dynamic)
    dynamic /= busy
    found = estimate_of(model, dynamic, windows_s[member], float(np.mean(member)), uneven)
    return replace(found, by_length=True)


def trimmed(model: RailModel, windows_s: Floats) -> Estimate | TooShort:
    """Return dynamic power from whole readings inside trimmed windows, each window weighted by its length."""
    r = model.readings
    merged_s = merged(windows_s)
    lead, tail = 2.0 * model.sigma_s + SETTLE_TAU * r.tau_s, 2.0 * model.sigma_s
    inner = merged_s + np.array([lead, -tail])
    usable = inner[:, 1] > inner[:, 0]
    where = inside(inner[usable], r.start_s, r.end_s)
    where[~r.ok] = -1
    count = np.bincount(where[where >= 0], minlength=int(usable.sum()))
    share = float(np.count_nonzero(count)) / len(merged_s)
    length = merged_s[:, 1] - merged_s[:, 0]
    if share < MIN_SHARE:
        return TooShort(float(np.median(length)), r.aperture_s + r.period_s + lead + tail, share)
    held = count.astype(float)
    if r.uneven:  # by length, so that the sum over a window is the rise of a counter
        held = np.bincount(where[where >= 0], weights=model.weight[where >= 0], minlength=len(count))
    each = length[usable] / np.where(count > 0, held, 1.0) * (count > 0)
    weight = np.where(where >= 0, each[np.clip(where, 0, None)] * (model.weight if r.uneven else 1.0), 0.0)
    weight = weight / weight.sum()
    at = float(np.sum(weight * model.middle_s))
    used = merged_s[usable][count > 0]
    return estimate_of(model, weight - model.base_weights(windows_s, at), used, share)


def estimate_of(model: RailModel, dynamic: Floats, windows_s: Floats, share: float, uneven: float = 0.0) -> Estimate:
    """Return the estimate that the weights ``dynamic`` make; ``uneven`` is the share of power in readings at edges."""
    length = windows_s[:, 1] - windows_s[:, 0]
    at = float(np.sum(windows_s.mean(axis=1) * length) / length.sum()) if length.sum() > 0 else 0.0
    idle = model.base_weights(windows_s, at)
    watts = model.readings.watts
    value, level = float(dynamic @ watts), float(idle @ watts)
    if (s := model.readings.supply) is not None:
        # a reading at an edge is a product of means, but power is the mean of products
        amperes, volts = float(dynamic @ s.amperes), float(dynamic @ s.volts)
        value += uneven * amperes * (volts - s.burden_ohm * amperes)
        return Estimate(dynamic, idle, value, level, share)
    burden = model.readings.burden_per_w
    rise = _before_shunt(level + value, burden) - _before_shunt(level, burden)
    return Estimate(dynamic, idle, value - burden * uneven * rise * rise, level, share)


def _before_shunt(power_w: float, burden_per_w: float) -> float:
    """Current times supply voltage at which ``power_w`` arrives: the inverse of ``x - b * x**2``."""
    if burden_per_w <= 0.0:
        return power_w
    return (1.0 - math.sqrt(max(1.0 - 4.0 * burden_per_w * power_w, 0.0))) / (2.0 * burden_per_w)


def unseen_between(model: RailModel, windows_s: Floats) -> bool:
    """Return whether spans follow each other so closely that most gaps between them are too short for any reading."""
    r, spans = model.readings, merged(windows_s)
    short_s = r.aperture_s + float(np.ptp(margin_s(model.sigma_s, r.tau_s)))
    return len(spans) > 1 and float(np.median(spans[1:, 0] - spans[:-1, 1])) < short_s


def gaps_seen(model: RailModel, windows_s: Floats) -> float:
    """Return the share of the gaps between windows that hold a whole reading; 0 for a single window."""
    spans = merged(windows_s)
    if len(spans) < 2:
        return 0.0
    number = np.searchsorted(spans[:, 0], model.middle_s[model.in_gaps | model.idle]) - 1
    among = number[(number >= 0) & (number < len(spans) - 1)]
    return len(np.unique(among)) / (len(spans) - 1)


def with_idle_in_gaps(model: RailModel) -> RailModel:
    """Return the model with what gaps show of idle off its line, where that need not be another level of the device.

    It is too little to be one, or not more than two offsets within the limits of the meter differ.
    """
    gaps, accuracy = model.gaps, model.rail.accuracy
    offsets_w = 2.0 * accuracy.offset * model.readings.watts_per_raw if accuracy is not None else 0.0
    other = gaps.differs and abs(gaps.level_w) > offsets_w
    if other or abs(gaps.level_w) <= IN_DOUBT * gaps.u_w:
        return model
    return replace(model, bend_w=math.hypot(model.bend_w, abs(gaps.level_w) / math.sqrt(3.0)))


def alignment_baseline(readings: Readings, activity: Activity, clock: str, sigma_s: float) -> Baseline | None:
    """Return what alignment needs of a rail: the level between spans, which is idle unless the device sleeps there.

    While the clocks hide most gaps, those that show a reading may be just those in which the device does other work.
    """
    model = baseline(readings, activity, clock, sigma_s)
    if model is None:
        return None
    known = not model.gaps.differs or gaps_seen(model, model.all_busy_s) >= MOST_GAPS
    return Between(model, _usual_gap_w(model) if model.gaps.differs and known else 0.0, known)


def _usual_gap_w(model: RailModel) -> float:
    """Return the level of most gaps above idle; some may be full of work that no span covers."""
    r, gap = model.readings, np.flatnonzero(model.in_gaps)
    _, number = np.unique(np.searchsorted(model.all_busy_s[:, 0], model.middle_s[gap]), return_inverse=True)
    level_w = np.bincount(number, r.many[gap] * r.watts[gap]) / np.bincount(number, r.many[gap])
    return float(np.median(level_w)) - model.idle_level_w(float(model.middle_s[gap].mean()))


@dataclass(frozen=True)
class Between:
    """A rail whose device is at ``level_w`` above idle between its spans, or at another level if that is not known."""

    model: RailModel
    level_w: float
    gaps_known: bool

    def idle_level_w(self, at_s: float) -> float:
        """Return the level between spans at a moment."""
        return self.model.idle_level_w(at_s) + self.level_w

    def reading_u_w(self, busy: bool) -> float:
        """Return the standard deviation of one reading by noise."""
        return self.model.reading_u_w(busy)


def idle_moved_w(model: RailModel) -> float:
    """Return how far idle lies off its straight line during the activity, where the gaps between spans show it; else 0.

    Gaps at another level are idle that moved if their level lies between those of two unequal idle windows, or if it
    leaves the only idle window along a line. Otherwise the device does something else there, such as sleep; if this
    drifts beside an only idle window, idle may drift as much.
    """
    level_w = model.gaps.level_w
    if not model.gaps.differs:
        return 0.0
    if math.isfinite(model.drift_u_w):
        return abs(level_w) if abs(level_w) <= MOVED * abs(model.drift_w) else 0.0
    r, gap = model.readings, model.in_gaps
    t = model.middle_s[gap] - float(model.middle_s[model.idle].mean())
    root = None if r.pool is None else np.sqrt(r.pool.many[gap])
    (slope, start_w), cov = np.polyfit(t, r.watts[gap] - float(r.shares(model.idle) @ r.watts), 1, w=root, cov=True)
    u = math.sqrt(cov[0, 0])
    if abs(slope) <= CONTRAST * u:
        return 0.0
    drift_w = (abs(slope) + u) * abs(float(np.average(t, weights=r.many[gap])))
    return abs(level_w) if abs(start_w) < BEGINS_AT_IDLE * abs(level_w) else drift_w


def stamp_jitter_s(model: RailModel, windows_s: Floats) -> float:
    """Return the jitter of the stamped length of one span in seconds, from energy that the stamps do not explain.

    If a stamp is late by t, an energy of dynamic power times t remains unexplained near the span. A true change of the
    span's length leaves no unexplained energy. The meter's noise does; its known size is subtracted, but the
    uncertainty of this size remains in the result. The jitter is inf if there are too few spans.
    """
    r = model.readings
    if len(windows_s) < 8:
        return math.inf
    spans = windows_s[np.argsort(windows_s[:, 0])]
    fill = mean_signal(edges_of(merged(spans)), r.start_s, r.end_s, r.tau_s)
    above = np.where(r.ok, model.above_w, 0.0)
    margin = margin_s(model.sigma_s, r.tau_s)
    near = touches(merged(spans + margin), r.start_s, r.end_s) & r.ok
    many = r.many[near]
    power = float(np.sum(many * above[near]) / np.sum(many * fill[near])) if np.any(fill[near] > 0) else 0.0
    if power == 0.0:
        return math.inf
    owner = np.searchsorted(0.5 * (spans[1:, 0] + spans[:-1, 1]), model.middle_s[near])
    each_s = r.end_s - r.start_s if r.counter else r.many * r.period_s

    def unexplained(level: Floats | float) -> float:
        left = (above[near] - level * fill[near]) * (each_s[near] / power)
        return float(np.var(np.bincount(owner, weights=left, minlength=len(spans)), ddof=1))

    # spans of one power, or each of its own above the gaps; what is not so in truth only adds to what is left
    scatter = unexplained(power)
    whole = (fill[near] > WHOLE) * many
    count = np.bincount(owner, weights=whole, minlength=len(spans))
    if np.all(count > 0):
        above[near] -= model.gaps.level_w * (1.0 - fill[near])
        own = np.bincount(owner, weights=above[near] * whole, minlength=len(spans)) / count
        scatter = min(scatter, unexplained(own[owner]))
    typical = np.zeros(len(r.watts))
    mine = np.flatnonzero(near)[owner == len(spans) // 2]
    typical[mine] = each_s[mine] / power
    noise = sum(model.variances(typical).values())
    return math.sqrt(max(scatter - noise, 0.0) + noise * math.sqrt(2.0 / len(spans)))


def length_error_s(model: RailModel, windows_s: Floats, other_s: Floats, known_s: float) -> float:
    """Return by how much the length of all windows together may be wrong beyond ``known_s``, in seconds.

    Energy above idle is power times length, so it shows the true length of spans of even power. What the noise of both
    estimates hides remains in the result. It is inf if the windows have no such estimates.
    """
    cut, whole = trimmed(model, windows_s), integrated(model, windows_s, other_s)
    if isinstance(cut, TooShort) or whole is None or cut.value_w == 0.0:
        return math.inf
    per_w = float(np.sum(windows_s[:, 1] - windows_s[:, 0])) / abs(cut.value_w)
    seen_s = abs(whole.value_w - cut.value_w) * per_w
    return math.sqrt(max(seen_s**2 - known_s**2, 0.0) + (model.noise_u_w(whole.dynamic - cut.dynamic) * per_w) ** 2)
