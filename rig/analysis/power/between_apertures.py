"""What a meter that looks at part of the time misses of spans in which power changes, as spans differ by it.

If power pulses in step with the readings, neighbouring readings agree though each misses the same part of a pulse. Span
by span the readings then begin at another place of the pulses, so the means of spans scatter by what is missed.
"""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.estimators import Estimate
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.unseen_spans import span_watts
from rig.analysis.timing.activity_signal import in_step

SEEN = 1e-3
"""Part of the time between readings that may be missed."""
UNEVEN = 2.0
"""Variance of the readings inside spans, over that of noise, from which power is taken to change inside spans."""
LEAST = 6
"""Means of spans, or of groups of neighbouring spans, whose scatter is looked at."""


def scatter_of_spans(model: RailModel, e: Estimate) -> tuple[float, float]:
    """Return the standard uncertainty of dynamic power by the scatter of spans, in watts, and its degrees of freedom.

    It is the largest one of groups of 1, 2, 4, ... neighbouring spans, because neighbours may miss the same. As far as
    spans begin at the same place between two readings, they miss the same, and their scatter is their own.
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
    if len(seen) < LEAST:
        return 0.0, math.inf
    watts, length = span_watts(model, seen), seen[:, 1] - seen[:, 0]
    moved = (watts - np.average(watts, weights=length)) * length / length.mean()
    each = noise * r.period_s * float(np.median(np.diff(seen[:, 0]))) / float(np.mean(length)) ** 2
    best, dof = 0.0, math.inf
    group = 1
    while len(moved) // group >= LEAST:
        n = len(moved) // group
        means = moved[: n * group].reshape(n, group).mean(axis=1)
        u2 = max(float(np.mean(means**2)) * n / (n - 1.0) - each / group, 0.0) / n
        if u2 > best:
            best, dof = u2, n - 1.0
        group *= 2
    return blind * math.sqrt(best * (1.0 - in_step(seen[:, 0], r.period_s))), dof
