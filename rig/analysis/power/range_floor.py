"""Readings that stop at the low end of a range, such as a converter's zero, where noise would have gone below it.

Their mean is too high. If noise is Gaussian, the share of such readings at idle and the mean of all of them give the
level and the noise that they come from (a censored sample; Cohen, Technometrics 1, 1959, 217).
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats

MOST = 0.9
"""Share of the idle readings at the low end above which the others do not show the level."""
TRUSTED = 0.75
"""Part of the correction that holds whatever the shape of the noise; the rest is stated as bias."""


def lift_w(r: Readings, idle: Bools) -> float | None:
    """Return by how many watts readings at the low end of the range are moved to what they hide, as idle shows it.

    ``idle`` marks the readings at idle, shape (n,). It is None if they need not move, or if too many would have to.
    """
    at_floor = idle & (r.floor > 0) if len(r.floor) else idle[:0]
    share = float(np.count_nonzero(at_floor)) / max(int(np.count_nonzero(idle)), 1)
    if not 0.0 < share <= MOST:
        return None
    normal = NormalDist()
    level = -normal.inv_cdf(share)  # above the floor, in widths of the noise, as the density below
    floor_w = float(np.mean(r.watts[at_floor]))
    mean_w = float(np.mean(r.watts[idle])) - floor_w
    noise_w = mean_w / (level * normal.cdf(level) + normal.pdf(level))
    return noise_w * (level - normal.pdf(level) / share)


def lifted(r: Readings, moved_w: float | None) -> Readings:
    """Return the readings with those at the low end of the range moved."""
    if moved_w is None or not len(r.floor):
        return r
    by_w = r.floor * moved_w if r.pool is not None else np.where(r.floor, moved_w, 0.0)
    return replace(r, watts=r.watts + by_w, lifted_w=by_w)


def floor_bias_w(r: Readings, weight: Floats) -> float:
    """Return the bias that readings at the low end of the range leave in ``sum(weight * watts)``, in watts."""
    return (1.0 - TRUSTED) * abs(float(weight @ r.lifted_w)) if len(r.lifted_w) else 0.0


def floor_note(r: Readings) -> str | None:
    """Return a note if readings at idle were at the low end of the range and were moved below it."""
    if not np.any(r.lifted_w):
        return None
    return (
        f"Rail {r.rail.name}: {round(float(r.floor @ r.many))} readings are at the low end of the meter's range, where "
        f"noise is cut off. They count {abs(float(r.lifted_w.min())):.3g} W lower, as their share at idle shows for "
        f"Gaussian noise; {1.0 - TRUSTED:.0%} of this correction is stated as bias"
    )
