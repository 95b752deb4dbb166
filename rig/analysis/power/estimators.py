"""The estimators compute the power of spans on one rail from readings, each as a weighted sum of readings.

A span is a time in which the device works, by its stamps.

* ``core`` uses readings wholly inside spans. At each end, it cuts off the uncertainty of the clock, and at the begin
  also the settling time of the filter. It leaves out what happens at the ends of spans.
* ``whole`` uses all readings that touch spans, and subtracts the part of these readings outside spans. The power of
  this part is the mean of the readings beside the span, or else beside the ends of other gaps, or else of idle.
* ``fitted`` uses all readings near spans, if no reading lies inside one span alone. Stamps, the meter's aperture and
  its filter determine how much of each reading is span and how much is gap. The fit finds the levels of spans and gaps,
  the delay of spans against the meter, and the filter's time constant. The filter is one pole or a moving mean of the
  same delay, whichever fits better.

``core`` and ``whole`` agree if nothing happens at the ends of spans. Dynamic power is the power of spans minus idle
under the spans: the power that the device would draw at rest at the time of the spans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.result.quantity import Component
from rig.analysis.timing import activity_signal as signal
from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.execution_time import BusyTime
from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats, Indices

MIN_SHARE = 0.5
"""At least this share of the windows must take part in an estimate."""
PLACES = 64
"""A span, a gap between spans, or a loop is divided into at most this many equal parts, called places."""
LEAST = 4
"""At least this many spans or issues, and twice as many readings, are needed to tell spans from what is beside them."""
STEPS = 6
"""Number of Gauss-Newton steps for delay and filter."""
LARGEST = 0.5
"""Largest step of the delay in periods, and of the time constant relative to itself."""
LONG = tuple(2.0 ** (k / 2.0) for k in range(-6, 3))
"""Gaps longer than one of these numbers of readings, 1/8 to 2, may have a level of their own."""

Idle = tuple[Floats, float]
"""Weights of readings whose weighted sum is idle power under spans, (n,), and its uncertainty besides noise, in W."""
Parts = Callable[[float, float], Floats]
"""A function of delay and time constant that returns how much of each reading is span, gap and other work."""


class Scope(Struct, frozen=True):
    """The windows of one power figure: of one phase, or of all phases under the name "".

    ``other_s`` are the windows of all activity outside the scope, in seconds.
    """

    phase: str
    windows_s: Floats
    other_s: Floats
    busy: BusyTime
    phases: tuple[Phase, ...]
    unlooped: bool = False
    """True if each span has only one execution, although it should have several in a loop."""

    @property
    def words(self) -> str:
        """Return the words for the scope in a finding."""
        return self.phase or "all phases"


def scopes_of(activity: Activity, busy: Mapping[str, BusyTime]) -> Iterator[Scope]:
    """Yield a scope for all phases if they were measured together, and a scope for each of several phases."""
    if not activity.per_phase:
        phases = tuple(activity.phases.values())
        yield Scope("", activity.busy_windows_s(), activity.excluded_s(), busy[""], phases, activity.unlooped)
    if len(activity.phases) > 1 or activity.per_phase:
        for name, phase in activity.phases.items():
            yield Scope(name, phase.windows_s, activity.other_s(name), busy[name], (phase,), activity.unlooped)


class Estimate(Struct, frozen=True):
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


class TooShort(Struct, frozen=True):
    """Windows too short for whole readings: median and needed length, and the share of windows with a whole reading."""

    window_s: float
    needed_s: float
    share: float


class Margin(Struct, frozen=True):
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
    spans = signal.merged(windows_s)
    lead, tail = 2.0 * model.sigma_s + signal.SETTLE_TAU * r.tau_s, 2.0 * model.sigma_s
    inner = spans + np.array([lead, -tail])
    usable = inner[:, 1] > inner[:, 0]
    where = signal.inside(inner[usable], r.start_s, r.end_s)
    where[~r.ok] = -1
    at = np.flatnonzero(where >= 0)
    of = where[at]
    held = np.bincount(of, model.weight[at], int(usable.sum()))
    share = float(np.count_nonzero(held)) / len(spans)
    length = spans[:, 1] - spans[:, 0]
    if share < MIN_SHARE:
        lasts_s = (r.end_s - r.start_s) * signal.touches(spans, r.start_s, r.end_s)
        # the mean length of the reading at a random time while the device works
        typical_s = float(lasts_s @ lasts_s) / max(float(lasts_s.sum()), 1e-300)
        return TooShort(float(np.median(length)), typical_s + max(r.period_s, typical_s) + lead + tail, share)
    each = length[usable] / np.where(held > 0, held, 1.0) * (held > 0)
    weight = np.zeros(len(where))
    weight[at] = each[of] * model.weight[at]
    return estimate_of(model, weight / weight.sum(), idle)


class Touched(Struct, frozen=True):
    """Readings in regions, and the level beside each end of a region.

    A region is one or more windows, widened by the margins of clock and filter. ``z`` is the weight of each reading and
    ``fill`` the part of it that windows fill, shapes (n,). ``at`` are the indices of readings partly outside windows.
    ``side`` is the end next to each of these: 2 k for the begin of region k, 2 k + 1 for its end. ``beside_w`` is the
    level beside each end. ``level`` are the weights of readings for the mean power over windows in use, shape (n,), and
    ``share`` is the share of all windows that are in use. ``busy`` is the total weight of the parts of readings that
    windows fill.
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
    margin = signal.margin_s(model.sigma_s, r.tau_s)
    regions, foreign = signal.merged(windows_s + margin), signal.merged(other_s + margin)
    # a reading with other activity in it does not show the level beside the window
    spoiled = signal.touches(foreign, regions[:, 0] - r.period_s, regions[:, 1] + r.period_s)
    regions = regions[~spoiled & covered(r, regions)]
    if not len(regions):
        return None
    z = np.where(signal.touches(regions, r.start_s, r.end_s), model.weight, 0.0)
    member = signal.touches(regions, windows_s[:, 0], windows_s[:, 1])
    fill = signal.mean_signal(signal.edges_of(signal.merged(windows_s[member])), r.start_s, r.end_s, r.tau_s)
    # readings of a region have equal weights; a region has the weight of the time that they cover, if they cover any
    lasts = model.weight if r.pool is not None or r.aperture_s <= 0.0 else r.end_s - r.start_s
    of = np.maximum(signal.count_before(regions[:, 0], r.end_s) - 1, 0)
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
    level = of.level
    if inner is not None:
        rest = np.where(of.z > 0.0, 0.0, inner.level)
        level = level * (1.0 - rest.sum()) + rest
    return replace(estimate_of(model, level, idle), by_length=True)


def _beside(model: RailModel, regions: Floats, total: Floats, idle: Floats) -> tuple[Floats, Floats]:
    """Return weights of readings, shape (n,), for the sum of ``total`` times the levels beside ends, and these levels.

    ``total`` is the weight of the parts of readings outside windows at each end; like the levels, it has the shape
    (2 k,). The level beside an end is the mean of the nearest readings in the gap, and their number follows from
    ``total``. If the gap has no reading, it has the mean of the levels beside the ends of other gaps, or else idle.
    The mean over their readings would be that of a few long gaps, which may differ from the many short ones.
    """
    r = model.readings
    free = np.flatnonzero(r.ok & ~model.busy & ~signal.touches(regions, r.start_s, r.end_s))
    unit = float(np.median(model.weight[model.weight > 0.0])) if r.pool is None else 1.0
    many = np.maximum(np.ceil(np.abs(total) / unit - 0.5), 1.0)
    # indices of the free readings at the begin and end of each region, and at the far ends of the gaps beside it
    first, last = np.searchsorted(model.middle_s[free], regions.T)
    before_from, after_until = np.append(0, last[:-1]), np.append(first[1:], len(free))
    upto = np.append(0.0, np.cumsum(r.many[free]))
    low = np.column_stack([np.maximum(np.searchsorted(upto, upto[first] - many[0::2]), before_from), last]).ravel()
    high = np.column_stack([first, np.minimum(np.searchsorted(upto, upto[last] + many[1::2]), after_until)]).ravel()
    known, held = high > low, np.maximum(upto[high] - upto[low], 1.0)
    seen = known & (np.arange(len(known)) % (len(known) - 1) > 0)  # beyond the first and last end there is no gap
    unseen = float(total[~known].sum())
    each = np.where(known, (total + seen * (unseen / max(int(np.count_nonzero(seen)), 1))) / held, 0.0)
    steps = np.bincount(low, each, len(free) + 1) - np.bincount(high, each, len(free) + 1)
    out = np.zeros(len(r.watts))
    out[free] = np.cumsum(steps)[:-1] * r.many[free]
    sums = np.append(0.0, np.cumsum(r.many[free] * r.watts[free]))
    beside_w = (sums[high] - sums[low]) / held
    rest_w = float(np.mean(beside_w[seen])) if seen.any() else float(idle @ r.watts)
    return out + (0.0 if seen.any() else unseen) * idle, np.where(known, beside_w, rest_w)


def estimate_of(model: RailModel, level: Floats, under: Idle) -> Estimate:
    """Return the estimate with the weights ``level``."""
    idle, idle_u_w = under
    busy_w, idle_w = (float(weight @ model.readings.watts) for weight in (level, idle))
    return Estimate(level, idle, busy_w - idle_w, idle_w, idle_u_w)


def covered_share(r: Readings, windows_s: Floats) -> float:
    """Return the share of the windows that lie wholly within the trace."""
    return float(np.mean(covered(r, windows_s))) if len(windows_s) else 1.0


def covered(r: Readings, windows_s: Floats) -> Bools:
    """Return which of the windows lie wholly within the trace, shape (k,)."""
    return np.asarray((windows_s[:, 0] >= r.start_s[0]) & (windows_s[:, 1] <= r.end_s[-1]))


# ---- windows shorter than a reading ------------------------------------------------------------


def fitted(model: RailModel, windows_s: Floats, other_s: Floats, idle: Idle) -> tuple[Estimate, Margin] | None:
    """Return the power of windows, shape (k, 2), with the margin of the fit.

    The result is None if there are too few spans or readings, or if its uncertainty is above half of dynamic power.

    A residual that recurs at the same place of all spans may be power of spans or of gaps, so it becomes a bias.
    """
    r, spans = model.readings, signal.merged(windows_s)
    near = np.array([[spans[0, 0], spans[-1, 1]]]) + signal.margin_s(model.sigma_s, r.tau_s) + [-r.period_s, r.period_s]
    use = np.flatnonzero(r.ok & (model.weight > 0.0) & signal.touches(near, r.start_s, r.end_s))
    if len(spans) < LEAST or len(use) < 2 * LEAST or covered_share(r, spans) < MIN_SHARE:
        return None
    y, root = model.above_w[use], np.sqrt(model.weight[use] / float(np.mean(model.weight[use])))
    found = [_converged(parts, y, root, r.tau_s, r.period_s) for parts in _shapes(model, spans, other_s, use)]
    # more parts count as better if they explain more than chance does (Schwarz, 1978)
    n = len(y)
    design, left = min(found, key=lambda d: n * math.log(max(float(d[1] @ d[1]), 1e-300)) + d[0].shape[1] * math.log(n))
    size = np.linalg.norm(design, axis=0)
    design = design / np.where(size > 0.0, size, 1.0)
    gram = design.T @ design
    if np.linalg.matrix_rank(gram) < len(gram):
        return None
    each = np.linalg.solve(gram, design.T)[0] / size[0]
    u_w, bias_w = _left_over(each, left, model.middle_s[use], spans)
    level = np.zeros(len(r.watts))
    level[use] = each * root
    e = estimate_of(model, level + (1.0 - level.sum()) * idle[0], idle)
    if math.hypot(u_w, bias_w) > 0.5 * abs(e.value_w):
        return None
    return e, Margin(0.0, bias_w, (Component("spans and gaps in one reading", u_w),))


def _shapes(model: RailModel, spans: Floats, other_s: Floats, use: Indices) -> list[Parts]:
    """Return functions for the parts of readings: with one pole, and with a moving mean if there is a filter.

    Gaps longer than one of ``LONG`` may have a level of their own: some devices sleep in these alone.
    """
    r, start, end = model.readings, model.readings.start_s[use], model.readings.end_s[use]
    others, gaps = signal.merged(other_s), np.column_stack([spans[:-1, 1], spans[1:, 0]])
    signals = [spans, np.array([[spans[0, 0], spans[-1, 1]]])]
    if signal.touches(signals[1], *others.T).any():
        signals.append(others)
    some = [gaps[np.diff(gaps)[:, 0] > least * r.period_s] for least in LONG] if len(signals) == 2 else []
    different = {len(long): long for long in some if 0 < len(long) < len(gaps)}  # fewer gaps, the longer they are
    each = [signals, *([*signals, long] for long in different.values())]

    def parts(of: list[Floats], mean: bool, late_s: float, tau_s: float) -> Floats:
        width_s, tau_s = (2.0 * tau_s, 0.0) if mean else (0.0, tau_s)
        held = [signal.mean_signal(signal.edges_of(s + late_s), start - width_s, end, tau_s) for s in of]
        held[1] = held[1] - held[0] - sum(held[2:])
        return np.column_stack(held)

    return [partial(parts, of, mean) for of in each for mean in (False, True)[: 1 + (r.tau_s > 0.0)]]


def _converged(parts: Parts, y: Floats, root: Floats, tau_s: float, period_s: float) -> tuple[Floats, Floats]:
    """Return the weighted design at the best delay and time constant, and the residuals; shapes (n, p) and (n,)."""
    late_s, slow, step_s = 0.0, tau_s > 0.0, 0.05 * period_s
    for _ in range(STEPS):
        columns = parts(late_s, tau_s)
        levels = np.linalg.lstsq(columns * root[:, None], y * root, rcond=None)[0]
        moves = [(parts(late_s + step_s, tau_s) - parts(late_s - step_s, tau_s)) @ levels / (2.0 * step_s)]
        if slow:
            less_s, more_s = 0.98 * tau_s, 1.02 * tau_s
            moves.append((parts(late_s, more_s) - parts(late_s, less_s)) @ levels / (more_s - less_s))
        design = np.column_stack([columns, *moves]) * root[:, None]
        found = np.linalg.lstsq(design, y * root, rcond=None)[0]
        by = found[columns.shape[1] :]
        late_s += float(np.clip(by[0], -LARGEST * period_s, LARGEST * period_s))
        tau_s += float(np.clip(by[1], -LARGEST * tau_s, LARGEST * tau_s)) if slow else 0.0
    return design, y * root - design @ found


def _left_over(each: Floats, left: Floats, middle_s: Floats, spans: Floats) -> tuple[float, float]:
    """Return the uncertainty of a level from residuals that vary between spans, and its bias from those that recur."""
    of = np.clip(signal.count_before(spans[:, 0], middle_s) - 1, 0, len(spans) - 1)
    u_w = math.sqrt(float(np.sum(np.bincount(of, each * left) ** 2)))
    pitch_s = float(np.median(np.diff(spans[:, 0])))
    places = int(np.clip(len(left) // LEAST, 2, PLACES))
    place = np.clip((middle_s - spans[of, 0]) / pitch_s * places, -1, 2 * places).astype(np.int64) + 1
    count = np.maximum(np.bincount(place), 2)  # one reading does not show what recurs, so its part is then exactly 0
    mean_w = np.bincount(place, left) / count
    own_w2 = np.bincount(place, left**2) / count - mean_w**2
    alike_w2 = float(np.sum(np.maximum(count * mean_w**2 - own_w2 * count / (count - 1), 0.0)))
    return u_w, math.sqrt(alike_w2 * float(each @ each))
