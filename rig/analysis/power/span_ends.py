"""What trimmed windows leave out: the heads and tails of spans, as far as the readings there show them."""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.estimators import Estimate
from rig.analysis.power.rail_model import RailModel
from rig.analysis.timing.activity_signal import edges_of, margin_s, mean_signal, merged, touches
from rig.types import Floats

SEEN, ROUNDING = 2.0, 1e-9
"""Standard uncertainties from which on an excess is taken to be real; what arithmetic adds to it, of active power."""
LEAST_ENDS, LEAST_SPREAD = 6, 0.08
"""Ends of spans, and the standard deviation of the shares of their readings, by which inside and outside are told."""


def cut_off_w(model: RailModel, windows_s: Floats, cut: Estimate) -> float:
    """Return how far the mean power of whole spans may be from ``cut``, in watts, beyond what noise explains.

    The energy of all readings that touch a span is compared with spans of even power between the levels beside them.
    The level beside a begin or an end is that of the next reading that touches no span. What is found to lie outside
    the spans, such as the inrush of a device that wakes up, is left out.
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
    if r.tau_s == 0.0:
        excess = r.watts[near] - fill * (cut.value_w + cut.idle_w) - (1.0 - fill) * r.watts[level]
        for side in (late, ~late):
            found -= _outside_w(excess[side], fill[side], share[side])
    u_w = model.noise_u_w(weight)
    return abs(found) - u_w if abs(found) > SEEN * u_w + ROUNDING * abs(cut.value_w + cut.idle_w) else 0.0


def _outside_w(excess_w: Floats, fill: Floats, share: Floats) -> float:
    """Return the part of the excess at one side of all spans that lies outside of them; shapes (k,).

    Ends of spans fall anywhere in a reading. What a burst adds to readings that a span fills almost wholly lies inside,
    and what it adds to those that it hardly fills lies outside. A straight line through each half of the readings, by
    fill, gives both. If more lies outside, the excess counts only up to what lies inside.
    """
    inside_w, outside_w = (
        _at_limit(excess_w[half], left[half])
        for left, half in ((1.0 - fill, (fill > 0.5) & (fill < 1.0)), (fill, (fill > 0.0) & (fill <= 0.5)))
    )
    if not abs(outside_w) > 2.0 * abs(inside_w):  # or not known
        return 0.0
    part = (fill > 0.0) & (fill < 1.0)
    return float(share[part] @ (excess_w[part] - inside_w))


def _at_limit(excess_w: Floats, left: Floats) -> float:
    """Return the excess of readings at which ``left`` is 0, by a straight line; NaN if too few or too alike."""
    if len(left) < LEAST_ENDS or float(np.std(left)) < LEAST_SPREAD:
        return math.nan
    return float(np.polyfit(left, excess_w, 1)[1])
