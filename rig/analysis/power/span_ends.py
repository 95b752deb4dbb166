"""The ends of spans: what trimmed windows leave out there, and what lies beside the spans."""

from __future__ import annotations

import numpy as np

from rig.analysis.power.coverage import NOISE_WIDTHS
from rig.analysis.power.estimators import Estimate
from rig.analysis.power.gap_level import in_gaps
from rig.analysis.power.idle_level import idle_line
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.unseen_spans import around, span_watts
from rig.analysis.timing.activity_signal import SETTLE_TAU, edges_of, margin_s, mean_signal, merged, touches
from rig.types import Bools, Floats

VISIBLE = 0.05
"""Part of dynamic power above idle from which a reading counts as busy."""
SEEN, ROUNDING = 2.0, 1e-9
"""Standard uncertainties from which on an excess is taken to be real; what arithmetic adds to it, of active power."""
ASLEEP = 0.05
"""Share of the readings between spans that is below idle where a device sleeps, which no filter makes of idle."""


def outlasts(model: RailModel, e: Estimate, windows_s: Floats) -> float:
    """Return for how many readings more than spans can touch power is above idle around each; 0 if for less than one.

    Wherever spans lie and whatever happens inside, as much lies beside them, such as the copy of the input.
    """
    r, spans = model.readings, merged(windows_s)
    if r.counter or r.period_s <= 0.0:
        return 0.0
    least_w = max(VISIBLE * abs(e.value_w), NOISE_WIDTHS * model.reading_u_w(True))
    watts, gap = r.watts - idle_line(r, model.middle_s, model.idle, model.drift_u_w), in_gaps(model)
    above = r.ok & (watts - (float(np.median(watts[gap])) if np.any(gap) else 0.0) > least_w)
    first, last = around(model, spans)
    count = np.concatenate([[0.0], np.cumsum(above * r.many)])
    length_s = spans[:, 1] - spans[:, 0] + 1.5 * SETTLE_TAU * r.tau_s
    more = float(np.mean(count[last] - count[first] - length_s / r.period_s)) - 1.0
    return more if more > 1.0 else 0.0


def cut_off_w(model: RailModel, windows_s: Floats, cut: Estimate) -> float:
    """Return how far the mean power of whole spans may be from ``cut``, in watts, beyond what noise explains.

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
        return 0.0
    fill = mean_signal(edges_of(spans), r.start_s, r.end_s, r.tau_s)[near]
    busy = float(np.sum(model.weight[near] * fill))
    if busy <= 0.0:
        return 0.0
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
    return abs(found) - u_w if abs(found) > SEEN * u_w + ROUNDING * abs(cut.value_w + cut.idle_w) else 0.0


def smeared_w(model: RailModel, windows_s: Floats, cut: Estimate) -> float:
    """Return how far the area above idle is from ``cut``, in watts, if neither spans nor gaps show a level; else 0.

    A filter that nobody declared may be as slow as that. A device may also do the same by itself, at the ends of its
    spans and between them; then ``cut`` is right.
    """
    r, spans = model.readings, merged(windows_s)
    least_w, gap = max(VISIBLE * abs(cut.value_w), SEEN * model.reading_u_w(False)), in_gaps(model)
    if r.counter or min(_uneven_w(model, spans, model.held), _uneven_w(model, spans, gap)) < least_w:
        return 0.0
    above_w = (r.watts - idle_line(r, model.middle_s, model.idle, model.drift_u_w))[gap]
    if float(np.quantile(above_w, ASLEEP)) < -least_w:
        return 0.0
    area_w = float(np.average(span_watts(model, spans), weights=spans[:, 1] - spans[:, 0]))
    return abs(area_w - cut.value_w)


def _uneven_w(model: RailModel, spans: Floats, use: Bools) -> float:
    """Standard deviation of the readings in use about the mean of those in the same span, or in the gap after it."""
    use = use & model.readings.ok
    watts, number = model.readings.watts[use], np.searchsorted(spans[:, 0], model.middle_s[use])
    count = np.bincount(number)
    left = watts - (np.bincount(number, weights=watts) / np.maximum(count, 1))[number]
    free = len(watts) - np.count_nonzero(count)
    return float(np.sqrt(float(left @ left) / free)) if free > 0 else 0.0
