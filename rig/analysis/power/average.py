"""Average power over the time a system served, idle stretches between samples included, and energy per sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rig.analysis.power.budget import BusyTime, active_power, dynamic_power
from rig.analysis.power.estimators import integrated
from rig.analysis.quantity import Quantity, linear
from rig.analysis.timing.synchronise import Placed
from rig.analysis.timing.timeline import Activity
from rig.types import Floats

METHOD = "mean from the first sample asked for to the last answer"


def average_figures(
    placed: Sequence[Placed], activity: Activity, window_s: tuple[float, float], samples: int
) -> dict[str, Quantity]:
    """Average power by rail and in all over ``window_s`` (run seconds), and energy per sample; none when a rail

    has no idle on both sides of the window or no whole reading in it.
    """
    on_s, off_s = window_s
    if not (off_s > on_s and samples):
        return {}
    window = np.array([[on_s, off_s]])
    rails: dict[str, Quantity] = {}
    for p in placed:
        if p.view is None or off_s - on_s < 2.0 * p.readings.period_s:
            return {}
        e = integrated(p.view, window, _outside(activity.excluded_s(), window))
        if e is None:
            return {}
        busy = BusyTime(off_s - on_s, {}, samples)
        dynamic = dynamic_power(p.view, p.rail, e, busy, p.timebase.rate_sigma, METHOD)
        rails[f"rail.{p.rail.name}.average_power_w"] = active_power(p.view, p.rail, e, dynamic)
    if not rails:
        return {}
    total = linear([(1.0, q) for q in rails.values()], "W", METHOD)
    per_sample = total.scaled((off_s - on_s) / samples, "J", "average power x duration over samples answered")
    return rails | {"average_power_w": total, "average_energy_per_sample_j": per_sample}


def _outside(excluded: Floats, window: Floats) -> Floats:
    """Excluded windows that do not lie inside the time served."""
    inside = (excluded[:, 0] >= window[0, 0]) & (excluded[:, 1] <= window[0, 1])
    return np.asarray(excluded[~inside])
