"""What a meter that looks at part of the time misses of spans in which power changes, as spans differ by it.

If power pulses in step with the readings, neighbouring readings agree though each misses the same part of a pulse. Span
by span the readings then begin at another place of the pulses, so the means of spans scatter by what is missed.
"""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.estimators import Estimate
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.spans_scatter import LEAST, scatter_u_w
from rig.analysis.timing.activity_signal import in_step

SEEN = 1e-3
"""Part of the time between readings that may be missed."""
UNEVEN = 2.0
"""Variance of the readings inside spans, over that of noise, from which power is taken to change inside spans."""


def scatter_of_spans(model: RailModel, e: Estimate) -> tuple[float, float]:
    """Return the standard uncertainty of dynamic power by the scatter of spans, in watts, and its degrees of freedom.

    As far as spans begin at the same place between two readings, they miss the same, and their scatter is their own.
    """
    one = model.single
    r = one.readings
    blind = 1.0 - r.aperture_s / r.period_s if r.period_s > 0.0 else 0.0
    counted = one.held & r.ok
    used = np.flatnonzero(counted & (e.dynamic > 0.0) if model.looked_at is None else counted)
    if r.counter or blind <= SEEN or len(used) < 2 * LEAST:
        return 0.0, math.inf
    spans = model.all_busy_s
    middle_s = 0.5 * (r.start_s[used] + r.end_s[used])
    owner = np.searchsorted(spans[:, 0], middle_s, side="right") - 1
    count = np.bincount(owner, minlength=len(spans))
    mean = np.bincount(owner, weights=r.watts[used], minlength=len(spans)) / np.maximum(count, 1)
    several = count[owner] > 1
    free = int(np.count_nonzero(several)) - int(np.count_nonzero(count > 1))
    noise = model.noise.busy_w**2
    if free < LEAST or float(np.sum((r.watts[used] - mean[owner])[several] ** 2)) < UNEVEN * noise * free:
        return 0.0, math.inf
    seen = spans[count > 0] if model.looked_at is None else spans
    u_w, dof = scatter_u_w(model, seen)
    return blind * u_w * math.sqrt(1.0 - in_step(seen[:, 0], r.period_s)), dof
