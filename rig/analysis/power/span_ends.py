"""The ends of spans: what trimmed windows leave out there, and what lies beside the spans."""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.coverage import NOISE_WIDTHS
from rig.analysis.power.estimators import Estimate
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.unseen_spans import around, span_watts
from rig.analysis.timing.activity_signal import SETTLE_TAU, edges_of, in_step, margin_s, mean_signal, merged, touches
from rig.types import Bools, Floats, Indices

VISIBLE = 0.05
"""Part of dynamic power above idle from which a reading counts as busy."""
SEEN, ROUNDING = 2.0, 1e-9
"""Standard uncertainties from which on an excess is taken to be real; what arithmetic adds to it, of active power."""
CERTAINTY, ALIKE = 3.0, 2.0
"""Standard uncertainties from which spans last too long, or lack what gaps have too much; how far one may exceed the
other."""
LEAST_SPANS = 8
AT_ONCE = 0.08
"""Part of a span or a gap within which a filter begins to show, and a device that follows its load does not."""
ONE_CURVE, SETTLED = 0.3, 0.05
"""Part of its area by which a curve must differ from another to be another, and of its height to which it must fall."""
ASLEEP = 0.05
"""Share of the readings between spans that is below idle where a device sleeps, whose gaps rest below idle."""
SLOWEST = 0.8
"""Largest ratio of two falls, one after the other, by which a gap is taken to come to rest later."""

Stretches = tuple[Floats, Indices]
"""Readings in watts in order of time, and the number of the stretch that each is in, shapes (n,)."""


def outlasts(model: RailModel, e: Estimate, windows_s: Floats) -> float:
    """Return for how many readings more than spans can touch power is above idle around each; 0 if chance explains it.

    Wherever spans lie and whatever happens inside, as much lies beside them, such as the copy of the input. A span
    touches one reading more than its length on average, and at most two, less those that it fills too little to show.
    """
    r, spans = model.readings, merged(windows_s)
    least_w = max(VISIBLE * abs(e.value_w), NOISE_WIDTHS * model.reading_u_w(True))
    if r.counter or r.period_s <= 0.0 or least_w == 0.0:
        return 0.0
    watts, gap = model.above_w, model.in_gaps
    above = r.ok & (watts - (float(np.median(watts[gap])) if np.any(gap) else 0.0) > least_w)
    first, last = around(model, spans)
    count = np.concatenate([[0.0], np.cumsum(above * r.many)])
    length_s = spans[:, 1] - spans[:, 0] + 1.5 * SETTLE_TAU * r.tau_s
    each = count[last] - count[first] - length_s / r.period_s
    more, hidden = float(np.mean(each)) - 1.0, 2.0 * least_w / max(abs(e.value_w), least_w)
    u = max(0.5 * math.sqrt(in_step(spans[:, 0], r.period_s)), float(np.std(each)) / math.sqrt(len(each)))
    return more + hidden if more > 1.0 or more + hidden > CERTAINTY * u else 0.0


def cut_off_w(model: RailModel, windows_s: Floats, cut: Estimate) -> tuple[float, float]:
    """Return how far the mean power of whole spans may be from ``cut``, in watts, beyond what noise explains.

    The second number is the standard uncertainty of this by the place of spans after which power stays up.

    The energy of all readings that touch a span is compared with spans of even power between the levels beside them.
    The level beside a begin or an end is that of the next reading that touches no span. No reading can separate a burst
    at the begin of a span from one just before it, such as the inrush of a device that wakes up, so both count.
    """
    r = model.readings
    spans = merged(windows_s)
    regions = merged(spans + margin_s(model.sigma_s, r.tau_s))
    regions = regions[(regions[:, 0] > r.start_s[0]) & (regions[:, 1] < r.end_s[-1])]
    touched = touches(regions, r.start_s, r.end_s)
    near, beside = np.flatnonzero(touched & r.ok), np.flatnonzero(~touched & r.ok)
    if not len(near) or not len(beside):
        return 0.0, 0.0
    fill = mean_signal(edges_of(spans), r.start_s, r.end_s, r.tau_s)[near]
    busy = float(np.sum(model.weight[near] * fill))
    if busy <= 0.0:
        return 0.0, 0.0
    before = np.searchsorted(beside, near) - 1
    of = np.clip(np.searchsorted(regions[:, 0], r.end_s[near]) - 1, 0, None)
    late = model.middle_s[near] > regions[of].mean(axis=1)
    level = beside[np.clip(np.where(late, before + 1, before), 0, len(beside) - 1)]
    share = model.weight[near] / busy
    weight = np.zeros(len(r.watts))
    weight[near] = share
    np.subtract.at(weight, level, share * (1.0 - fill))
    weight -= cut.dynamic + cut.idle
    found = float(weight @ r.watts)
    u_w = model.noise_u_w(weight)
    after_w, before_w = (float(np.mean(r.watts[level[side]])) if side.any() else 0.0 for side in (late, ~late))
    placed_w = model.sigma_s * max(after_w - before_w, 0.0) / float(np.mean(spans[:, 1] - spans[:, 0]))
    shown = abs(found) > SEEN * u_w + ROUNDING * abs(cut.value_w + cut.idle_w)
    hidden_w = abs(found) - u_w if shown else 0.0
    return hidden_w, min(placed_w, hidden_w)


def smeared_w(model: RailModel, windows_s: Floats, cut: Estimate) -> float:
    """Return what gaps may have of spans that ``cut`` lacks, in watts of mean power over the spans; else 0.

    A filter that nobody declared, or a capacitor behind the shunt, moves energy from the begins of spans to the gaps
    after them. A device may also do the same by itself, at the ends of its spans and between them; then ``cut`` is
    right.
    """
    r, spans = model.readings, merged(windows_s)
    if r.counter or not np.any(model.in_gaps):
        return 0.0
    noise_w, gap = model.reading_u_w(False), model.in_gaps
    least_w = max(VISIBLE * abs(cut.value_w), SEEN * noise_w)
    above_w = model.above_w[gap]
    asleep = float(np.quantile(above_w, ASLEEP)) < -least_w
    if asleep:
        spans, gap = model.all_busy_s, _between(model)
    of, beside = (_stretches(model, spans, use) for use in (model.held, gap))
    slanted = min(_slanted_w(x, noise_w) for x in (of, beside)) >= least_w
    alike = _gives_back(of, beside) and _by_one_curve(model, spans, gap)
    given = slanted or alike or _gives_back_at_once(model, spans, gap)
    if asleep:
        return _left_w(model, gap) if given else 0.0
    area_w = float(np.average(span_watts(model, spans), weights=spans[:, 1] - spans[:, 0]))
    return abs(area_w - cut.value_w) if given or r.inferred else 0.0


def _between(model: RailModel) -> Bools:
    """Readings between spans, those beside them too if a filter was found in what may be the device's own."""
    r, spans = model.readings, model.all_busy_s
    if not r.inferred:
        return model.in_gaps
    among = (r.start_s > spans[0, 0]) & (r.end_s < spans[-1, 1]) & r.ok & ~model.idle
    return np.asarray(among & ~touches(merged(spans + margin_s(model.sigma_s, 0.0)), r.start_s, r.end_s))


def _left_w(model: RailModel, gap: Bools) -> float:
    """Return the energy in gaps above the level at which they come to rest, in watts of mean power over the spans.

    If spans begin low, gaps have at most twice what spans lack before they come to rest.
    """
    spans = model.all_busy_s
    length_s, gap_s = spans[:, 1] - spans[:, 0], spans[1:, 0] - spans[:-1, 1]
    more = _beyond_rest_j(model, spans[:, 1], gap, gap_s, 1.0)
    lacks = _beyond_rest_j(model, spans[:, 0], model.held & model.readings.ok, length_s, -1.0)
    return max(min(more, ALIKE * lacks) if lacks > 0.0 else more, 0.0) / float(length_s.mean())


def _beyond_rest_j(model: RailModel, since_s: Floats, use: Bools, lasts_s: Floats, sign: float) -> float:
    """Return the mean energy of stretches above the level at which they come to rest, or below it, in joules.

    That level follows from three thirds of the mean stretch as from an exponential (Aitken, 1926). Where they do not
    fall, or rise, one after the other, it is that of the lowest, or highest.
    """
    period_s = model.readings.period_s
    level_w, n = _curve(model, since_s, use, int(float(np.median(lasts_s)) / period_s))
    level_w = sign * level_w[n > 0]
    if not len(level_w):
        return 0.0
    thirds_w = [float(x.mean()) for x in np.array_split(level_w, 3) if len(x)]
    falls_w, rest_w = -np.diff(thirds_w), min(thirds_w)
    if len(falls_w) == 2 and min(falls_w) > 0.0:
        ratio = min(float(falls_w[1] / falls_w[0]), SLOWEST)
        rest_w -= float(falls_w[1]) * ratio / (1.0 - ratio)
    # readings beside the ends of spans are not whole in the stretch, and hold what it begins with
    beside_s = float(np.mean(lasts_s)) - len(level_w) * period_s
    return float((level_w - rest_w).sum()) * period_s + float(level_w[0] - rest_w) * max(beside_s, 0.0)


def _stretches(model: RailModel, spans: Floats, use: Bools) -> Stretches:
    """The readings in use of each span, or of the gap after it, where there are two or more."""
    use = use & model.readings.ok
    _, of, count = np.unique(np.searchsorted(spans[:, 0], model.middle_s[use]), return_inverse=True, return_counts=True)
    many = count > 1
    return model.readings.watts[use][many[of]], (np.cumsum(many) - 1)[of[many[of]]]


def _gives_back(of: Stretches, beside: Stretches) -> bool:
    """Whether the earlier halves of gaps have as much more than the later ones as those of spans have less."""
    (lacks, u), (rises, v) = (_rise(x) for x in (of, beside))
    more = -rises
    shown = min(lacks - CERTAINTY * u, more - CERTAINTY * v) > 0.0
    return shown and max(lacks, more) < ALIKE * min(lacks, more) + SEEN * math.hypot(u, v)


def _by_one_curve(model: RailModel, spans: Floats, gap: Bools) -> bool:
    """Whether gaps may give back by the curve by which spans lack; not if both come to rest and differ.

    Whatever is linear and keeps energy, a filter or a capacitor, answers to a fall as it answers to a rise.
    """
    r = model.readings
    lasts_s = min(float(np.median(spans[:, 1] - spans[:, 0])), float(np.median(spans[1:, 0] - spans[:-1, 1])))
    places = int(lasts_s / r.period_s)
    rise_w, n = _curve(model, spans[:, 0], model.held & r.ok, places)
    fall_w, m = _curve(model, spans[:, 1], gap, places)
    quarter = (places - 1) // 4
    if quarter < 2 or min(n.min(), m.min()) < LEAST_SPANS:
        return True
    lacks_w, more_w = rise_w[-quarter:].mean() - rise_w, fall_w - fall_w[-quarter:].mean()
    still_w = max(abs(float(x[-2 * quarter : -quarter].mean())) for x in (lacks_w, more_w))
    if still_w > SETTLED * max(float(np.abs(lacks_w).max()), float(np.abs(more_w).max())):
        return True
    apart_w = np.abs(lacks_w - more_w) - SEEN * model.reading_u_w(True) * np.sqrt(1.0 / n + 1.0 / m)
    area_w = max(float(np.abs(lacks_w).sum()), float(np.abs(more_w).sum()))
    return float(np.maximum(apart_w, 0.0).sum()) <= ONE_CURVE * area_w


def _gives_back_at_once(model: RailModel, spans: Floats, gap: Bools) -> bool:
    """Whether gaps begin to fall at once, before a device that follows its load does, and spans do not begin even.

    A filter or a capacitor answers at once, whatever the device does later in its gaps. At the begins of spans, a burst
    of the device may hide the answer.
    """
    if len(spans) < LEAST_SPANS:
        return False
    lasts_s = min(float(np.median(spans[:, 1] - spans[:, 0])), float(np.median(spans[1:, 0] - spans[:-1, 1])))
    places = int(lasts_s / model.readings.period_s)
    early = max(int(AT_ONCE * places), 1)
    in_gap, in_span = (
        _curve(model, since_s, use, places)
        for since_s, use in ((spans[:, 1], gap), (spans[:, 0], model.held & model.readings.ok))
    )
    falls_w, u_w = _step(*in_gap, early, early + 1, model.reading_u_w(True))
    uneven_w, v_w = _step(*in_span, max(places // 4, 1), max(places // 2, 2), model.reading_u_w(True))
    return -falls_w > CERTAINTY * u_w and abs(uneven_w) > CERTAINTY * v_w


def _step(level_w: Floats, n: Floats, since: int, until: int, noise_w: float) -> tuple[float, float]:
    """How far some places, of those that most stretches reach, are above the first, and its standard error."""
    seen = np.flatnonzero(n >= LEAST_SPANS)
    later = seen[since:until]
    if not len(later):
        return 0.0, 0.0
    rise_w = float(np.average(level_w[later], weights=n[later]) - level_w[seen[0]])
    return rise_w, noise_w * math.sqrt(1.0 / float(n[later].sum()) + 1.0 / float(n[seen[0]]))


def _curve(model: RailModel, since_s: Floats, use: Bools, places: int) -> tuple[Floats, Floats]:
    """Mean power and number of the readings in use at each place after moments, from the second place on."""
    r = model.readings
    at = model.middle_s[use]
    of = np.searchsorted(since_s, at) - 1
    place = ((at - since_s[of]) / r.period_s).astype(np.int64)
    near = (of >= 0) & (place < places)
    count = np.bincount(place[near], weights=r.many[use][near], minlength=places).astype(np.float64)
    total = np.bincount(place[near], weights=(r.many * r.watts)[use][near], minlength=places)
    return np.asarray(total / np.maximum(count, 1.0))[1:], count[1:]


def _rise(stretches: Stretches) -> tuple[float, float]:
    """How much more the later halves hold than the earlier ones, in watts times readings, and its standard error."""
    watts, of = stretches
    count = np.bincount(of)
    if len(count) < LEAST_SPANS:
        return 0.0, 0.0
    place = 2 * (np.arange(len(of)) - (np.cumsum(count) - count)[of]) + 1 - count[of]
    found = 2.0 * np.bincount(of, weights=np.sign(place) * watts)
    return float(np.mean(found)), float(np.std(found)) / math.sqrt(len(found))


def _slanted_w(stretches: Stretches, noise_w: float) -> float:
    """Standard deviation of readings about the mean of their stretch, or 0 if most neighbours are at one level."""
    watts, of = stretches
    steps = np.abs(np.diff(watts))[np.diff(of) == 0]
    if not len(steps) or float(np.median(steps)) < SEEN * noise_w:
        return 0.0
    count = np.bincount(of)
    left = watts - (np.bincount(of, weights=watts) / count)[of]
    return math.sqrt(float(left @ left) / (len(left) - len(count)))
