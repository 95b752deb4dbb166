"""The volts of a supply at each reading of its amperes, and the error of their product.

If a rail of amperes names a rail of volts (``Conversion.supply_rail``), its power is ``i * v - i**2 * r``, reading by
reading. The volts are taken as constant over an aperture and as a straight line between readings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.errors import DataError
from rig.types import Bools, Floats, Rail

LEAST = 6
"""At least this many readings of the volts show the resistance of a supply."""
FARTHEST = 2.5
"""Volts are unknown in a pause of more than this many periods between two of their readings."""


@dataclass(frozen=True)
class Volts:
    """The readings of a rail of volts on the run's axis, shapes (n,)."""

    rail: Rail
    start_s: Floats
    end_s: Floats
    value: Floats
    ok: Bools
    overload: Bools


@dataclass(frozen=True)
class Sag:
    """The resistance of a supply with its standard uncertainty, in ohms, from its readings.

    ``lever`` is watts per ohm in each reading, shape (n,).
    """

    ohm: float
    ohm_u: float
    lever: Floats


@dataclass(frozen=True)
class Supply:
    """Amperes and volts of a rail of amperes, reading by reading, shapes (n,); ``rail`` is that of the volts.

    ``window_s`` is the length of one reading of the volts. ``burden_ohm`` is the shunt between volts and device.
    ``sag`` says how the volts follow the amperes inside a volts reading that is as long as several ampere readings.
    """

    rail: Rail
    amperes: Floats
    volts: Floats
    window_s: float
    burden_ohm: float
    sag: Sag | None = None

    def slope(self) -> Floats:
        """Return watts per ampere, shape (n,)."""
        return np.asarray(self.volts - 2.0 * self.amperes * self.burden_ohm)


def mean_volts(v: Volts, start_s: Floats, end_s: Floats) -> tuple[Floats, Bools, Bools]:
    """Return for each interval the mean volts, whether they are known, and whether any of them is an overload.

    The results have the shape of ``start_s``. Raises ``DataError`` if there is no reading of the volts.
    """
    good = np.flatnonzero(v.ok)
    if not len(good):
        raise DataError(
            f"rail {v.rail.name} holds no volts",
            field="supply_rail",
            value=v.rail.name,
            remedy="Check the meter on the supply, or state the voltage (supply_v)",
        )
    on, off, value = v.start_s[good], v.end_s[good], v.value[good]
    at = np.column_stack([on, off]).ravel()
    level = np.repeat(value, 2)
    sums = np.concatenate([[0.0], np.cumsum(0.5 * (level[1:] + level[:-1]) * np.diff(at))])

    def area(t: Floats) -> Floats:
        """Return the integral of the line through the knots; beyond its ends the line stays level."""
        k = np.clip(np.searchsorted(at, t, side="right") - 1, 0, None)
        return np.asarray(sums[k] + 0.5 * (t - at[k]) * (level[k] + np.interp(t, at, level)))

    length = end_s - start_s
    mean = (area(end_s) - area(start_s)) / np.where(length > 0, length, 1.0)
    volts = np.where(length > 0, mean, np.interp(start_s, at, level))
    period_s = float(np.median(np.diff(off))) if len(off) > 1 else 0.0
    reach_s = max(FARTHEST * period_s, float(np.max(off - on)))
    before = np.clip(np.searchsorted(on, start_s, side="right") - 1, 0, len(on) - 1)
    after = np.clip(np.searchsorted(off, end_s, side="left"), 0, len(off) - 1)
    near = (np.abs(on[before] - start_s) <= reach_s) & (np.abs(off[after] - end_s) <= reach_s)
    over = np.concatenate([[0], np.cumsum(v.overload)])
    first = np.searchsorted(v.end_s, start_s, side="right")
    last = np.maximum(np.searchsorted(v.start_s, end_s, side="left"), first)
    return volts, near, over[last] > over[first]


def sagging(v: Volts, volts: Floats, amperes: Volts, known: Sag | None = None) -> tuple[Floats, Sag | None]:
    """Return volts that follow the amperes inside each volts reading that is as long as two ampere readings.

    ``volts`` are those of ``mean_volts``, shape (n,), and ``amperes`` the readings of the current. The resistance of
    the supply is the ``known`` one, or else the slope of volts over the mean current of the same aperture, fitted
    together with a straight line over time.
    """
    length_s = float(np.median(amperes.end_s - amperes.start_s)) if len(volts) else 0.0
    if length_s <= 0.0 or round(float(np.median(v.end_s - v.start_s)) / length_s) < 2:
        return volts, None
    seen, shown, _ = mean_volts(amperes, v.start_s, v.end_s)
    sag = known if known is not None else _sag(v, amperes, seen, shown)
    if sag is None:
        return volts, None
    over, _, _ = mean_volts(replace(v, value=seen, ok=v.ok & shown), amperes.start_s, amperes.end_s)
    above = np.where(amperes.ok, amperes.value - over, 0.0)
    return volts - sag.ohm * above, replace(sag, lever=-above * amperes.value)


def _sag(v: Volts, amperes: Volts, seen: Floats, shown: Bools) -> Sag | None:
    """Return the resistance that volts show; ``seen`` are mean amperes in each volts reading, valid where ``shown``."""
    use = shown & v.ok & (v.start_s >= amperes.start_s[0]) & (v.end_s <= amperes.end_s[-1])
    count = int(np.count_nonzero(use))
    if count < LEAST or not np.ptp(seen[use]) > 0.0:
        return None
    t = v.start_s[use] - v.start_s[use].mean()
    design = np.column_stack([np.ones(count), t / max(float(np.ptp(t)), 1e-300), seen[use] - seen[use].mean()])
    solution, *_ = np.linalg.lstsq(design, v.value[use], rcond=None)
    left = v.value[use] - design @ solution
    variance = float(left @ left) / (count - 3) * float(np.linalg.pinv(design.T @ design)[2, 2])
    return Sag(-float(solution[2]), math.sqrt(max(variance, 0.0)), np.zeros(0))


def covariance_w(s: Supply, whole: Bools, beside: Bools | np.bool_) -> float:
    """Return the mean product of current and voltage minus the product of their means, while busy, in watts.

    ``whole`` are the readings inside a span, shape (n,), and ``beside`` says which follow the one before without a
    pause, shape (n - 1,), or that all do. Current and voltage are assumed to change together inside an aperture as they
    do from one reading to the next. The estimate is half the mean product of their differences, in which independent
    noise averages out.
    """
    pair = whole[1:] & whole[:-1] & beside
    together = np.diff(s.amperes)[pair] * np.diff(s.volts)[pair]
    return 0.5 * abs(float(np.mean(together))) if len(together) > 2 else 0.0
