"""Noise that is there only while the device works, whose neighbouring readings may have it in common.

Idle windows do not show it. If the device draws it, the mean of the readings is right; if the meter adds it, this mean
is off by it. No recording tells which, so it counts as the meter's: spans scatter by it, beyond white noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rig.analysis.power.noise import spread
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.spans_scatter import scatter_u_w
from rig.analysis.power.unseen_spans import span_watts
from rig.types import Bools, Floats

SIGNIFICANT = 5.0
"""Standard errors by which differences of neighbouring readings must be larger in spans than at idle."""
SPREAD_U = 2.4
"""Standard error of the square of ``spread``, over that and the root of the number of differences."""
ALIKE = 3.2
"""Nine in ten differences are below this many times their median size; 2.4 for Gaussian noise, more for steps."""
NOTED = 1e-3
"""Part of dynamic power from which a note tells of such noise."""
LEAST = 32
"""Differences inside spans that are looked at."""


def load_noise_w(model: RailModel) -> tuple[float, float]:
    """Return the standard uncertainty of dynamic power by noise under load, in watts, and its degrees of freedom.

    Spans that differ in power, or in which power steps, do not show such noise: most neighbouring readings inside them
    differ as they do at idle. Noise shows between all neighbours.
    """
    one = model.single
    if one.readings.counter:
        return 0.0, math.inf
    within = _differences(model, one.held & one.readings.ok)
    at_idle = _differences(model, one.idle)
    if min(len(within), len(at_idle)) < LEAST:
        return 0.0, math.inf
    size, least = np.abs(within - np.median(within)), spread(at_idle) ** 2
    excess, u2 = spread(within) ** 2 - least, SPREAD_U * least * math.hypot(len(within) ** -0.5, len(at_idle) ** -0.5)
    if excess <= SIGNIFICANT * u2 or float(np.quantile(size, 0.9)) > ALIKE * float(np.median(size)):
        return 0.0, math.inf
    return scatter_u_w(model, model.all_busy_s)


def load_noise_notes(model: RailModel) -> Iterator[str]:
    """Yield a note if noise under load matters."""
    u_w, _ = model.load_noise
    if u_w and u_w > NOTED * abs(float(np.mean(span_watts(model, model.all_busy_s)))):
        yield (
            f"Rail {model.rail.name}: readings are noisier while the device works than at idle, as are means of spans. "
            "Nothing tells whether the device draws this or the meter adds it, so noise under load is a component of "
            f"{u_w:.2g} W"
        )


def _differences(model: RailModel, use: Bools) -> Floats:
    one = model.single
    return np.asarray(np.diff(one.readings.watts)[use[1:] & use[:-1] & one.beside])
