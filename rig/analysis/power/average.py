"""Average power of a serving system, including idle time between samples, and energy per sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.power.budget import active_power, dynamic_power, noise_parts
from rig.analysis.power.estimators import touched, whole
from rig.analysis.power.rail_model import RailModel
from rig.analysis.quantity import linear
from rig.analysis.timing.execution_time import BusyTime
from rig.analysis.timing.timeline import Activity

METHOD = "mean from the first request to the last completion"


def average_figures(
    models: Sequence[RailModel], activity: Activity, window_s: tuple[float, float], samples: int
) -> Figures:
    """Return the average power of each rail and of all rails over ``window_s`` in run seconds, and energy per sample.

    There is no figure if a rail has no idle on both sides of the window, or no whole reading in it.
    """
    on_s, off_s = window_s
    if not (off_s > on_s and samples and models):
        return Figures()
    window = np.array([[on_s, off_s]])
    busy = BusyTime(off_s - on_s, {}, samples)
    excluded_s = activity.excluded_s()
    other_s = excluded_s[(excluded_s[:, 0] < on_s) | (excluded_s[:, 1] > off_s)]
    rails = Figures()
    for model in models:
        idle = model.trace.idle_under(window)
        of = touched(model, window, other_s, idle)
        if of is None or off_s - on_s < 2.0 * model.readings.period_s:
            return Figures()
        e = whole(model, of, idle)
        noise = noise_parts(model, e)
        average = active_power(model, e, dynamic_power(model, e, busy, METHOD, noise), noise)
        rails |= {FigureKey("average_power_w", rail=model.rail.name): average}
    total = linear([(1.0, q) for q in rails.values()], "W", METHOD)
    per_sample = total.scaled((off_s - on_s) / samples, "J", "average power x duration over samples completed")
    return rails | {FigureKey("average_power_w"): total, FigureKey("average_energy_per_sample_j"): per_sample}
