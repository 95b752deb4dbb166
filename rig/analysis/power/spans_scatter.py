"""By how much the mean of all spans may be off, as spans scatter."""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.unseen_spans import span_watts
from rig.types import Floats

LEAST = 6
"""Means of spans, or of groups of neighbouring spans, whose scatter is looked at."""


def scatter_u_w(model: RailModel, spans: Floats) -> tuple[float, float]:
    """Return the standard uncertainty of the mean over disjoint sorted spans, in watts, and its degrees of freedom.

    It is what spans scatter beyond the white noise of their readings.
    """
    if len(spans) < LEAST:
        return 0.0, math.inf
    watts, length = span_watts(model, spans), spans[:, 1] - spans[:, 0]
    moved = (watts - np.average(watts, weights=length)) * length / length.mean()
    cycle_s = float(np.median(np.diff(spans[:, 0])))
    busy_s, noise = float(np.mean(length)), model.noise
    joules2 = model.readings.period_s * (noise.busy_w**2 * busy_s + noise.white_w**2 * max(cycle_s - busy_s, 0.0))
    return mean_u(moved, joules2 / busy_s**2)


def mean_u(moved: Floats, known: float = 0.0) -> tuple[float, float]:
    """Return the standard uncertainty of the mean of values in order, and its degrees of freedom.

    ``moved`` are the values less their mean, shape (k,), and ``known`` is the part of their variance that counts
    elsewhere. It is the largest one of groups of 1, 2, 4, ... neighbours, because neighbours may err alike.
    """
    best, dof = 0.0, math.inf
    group = 1
    while len(moved) // group >= LEAST:
        n = len(moved) // group
        means = moved[: n * group].reshape(n, group).mean(axis=1)
        u2 = max(float(np.mean(means**2)) * n / (n - 1.0) - known / group, 0.0) / n
        if u2 > best:
            best, dof = u2, n - 1.0
        group *= 2
    return math.sqrt(best), dof
