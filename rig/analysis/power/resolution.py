"""The step of a meter's converter, and what noise leaves of the error of rounding to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rig.analysis.distributions import normal_quantile
from rig.types import Bools, Floats

LOOKED_AT = 4096
LEAST_LEVELS = 4
"""Fewer may be the levels of a device whose power does not vary, not those of a converter."""
READINGS_PER_LEVEL = 8
"""Readings that must share each level before a meter is taken to round to it."""
FRACTIONS = 6
"""Into how many steps the closest two levels may fall, where readings take few levels."""
NEIGHBOURS = 4
"""Values beside a level that must be multiples of the step of its range; others may be of a finer range."""
STRETCHES = 12
"""Stretches in which dither is looked for, so that a slow change of the level is not taken for it."""
LEAST_CHANGES = 0.3
"""Share of neighbouring readings that differ where noise dithers them."""
WIDEST_LOOK = 0.5
"""Steps of noise up to which the readings' own levels limit what is believed of it."""


def apparent_step(values: Floats) -> float:
    """Return the step of which all readings are multiples, in their own unit; 0 if they take too many values for one.

    A meter that declares no resolution may still round, and one that declares it may round more coarsely. At most
    ``LOOKED_AT`` readings are looked at, evenly spaced.
    """
    some = values[:: max(1, len(values) // LOOKED_AT)]
    levels = np.unique(some)
    if not LEAST_LEVELS <= len(levels) <= len(some) / READINGS_PER_LEVEL:
        return 0.0
    return _common_step(levels)


def step_in_spans(raw: Floats, within: Bools, busy: Bools) -> tuple[float, Bools]:
    """Return the step of the range in which spans are read, in the unit of ``raw``, and which readings show it.

    A meter that changes its range may round in the high one alone, or more coarsely there. Then values recur within
    spans, at ``raw[within]``. Readings that begin and end spans, the others of ``raw[busy]``, may show their neighbours
    in that range. The step is 0 if none recurs.
    """
    positions = np.flatnonzero(within)
    some = raw[positions[:: max(1, len(positions) // LOOKED_AT)]]
    levels, count = np.unique(some, return_counts=True)
    often = levels[count >= READINGS_PER_LEVEL]
    if not len(often):
        return 0.0, within
    recurring, level = within & np.isin(raw, often), levels[np.argmax(count)]
    beside = np.unique(np.concatenate([levels, raw[busy & ~within]]))
    # a reading of a finer range may lie between the neighbours, but does not recur
    for values in (beside, often):
        near = np.sort(values[np.argsort(np.abs(values - level))[: NEIGHBOURS + 1]])
        if len(near) > 1 and (step := _common_step(near)):
            return step, recurring
    others = beside[beside != level]
    return float(np.min(np.abs(others - level))) if len(others) else 0.0, recurring


def _common_step(levels: Floats) -> float:
    """Return the largest step of which all differences of sorted levels are multiples, or 0 without one."""
    closest = float(np.min(np.diff(levels)))
    for parts in range(1, FRACTIONS + 1):
        multiples = (levels - levels[0]) / (step := closest / parts)
        if np.allclose(multiples, np.round(multiples), rtol=0.0, atol=0.02):
            return step
    return 0.0


def undithered(raw: Floats, of_level: Bools, step: float, noise: float, lines: Sequence[float]) -> float:
    """Return the part of the error of rounding, 0 to 1, that is left at a level whose readings are ``raw[of_level]``.

    Rounding is a function of the level: repetition does not average it. Noise acts as dither and reduces it. The error
    is on average at most step/pi times the characteristic function of the dither at 2 pi/step (Widrow and Kollar,
    Quantization Noise, 2008, ch. 4). For white noise this function is exp(-2 pi^2 (sigma/step)^2). For hum of phase
    amplitude x = 2 pi a/step it is a Bessel function; its envelope sqrt(2/(pi x)) is used here. ``noise`` is sigma and
    ``lines`` are the amplitudes, as found in the rounded readings, in the unit of ``step``.

    A level beside a threshold flips between two values however small the noise is. So no dither is believed where
    readings rarely change, and no more white noise than the readings show that fall outside the two commonest values.
    """
    positions = np.flatnonzero(of_level)
    stretches = [raw[p[: LOOKED_AT // STRETCHES]] for p in np.array_split(positions, STRETCHES) if len(p) > 1]
    if not stretches:
        return 1.0
    steps = [np.round((x - x[0]) / step).astype(np.int64) for x in stretches]
    changes = np.mean(np.concatenate([np.diff(k) != 0 for k in steps]))
    if changes < LEAST_CHANGES:
        return 1.0
    outside = sum(_outside(k) for k in steps) / sum(len(k) for k in steps)
    sigma = math.sqrt(max(noise**2 - step**2 / 12.0, 0.0)) / step
    left = math.exp(-2.0 * math.pi**2 * min(sigma, _sigma_at_least(outside)) ** 2)
    for amplitude in lines if outside > 0.0 else ():
        left *= min(1.0, math.sqrt(step / (math.pi**2 * amplitude))) if amplitude > 0 else 1.0
    return left


def _outside(steps: np.ndarray) -> int:
    """How many readings lie outside the two neighbouring steps that hold most of them."""
    low = int(steps.min())
    if int(steps.max()) - low > len(steps):  # so wide that two steps hold next to nothing
        return len(steps)
    count = np.bincount(steps - low, minlength=2)
    return len(steps) - int(np.max(count[1:] + count[:-1]))


def _sigma_at_least(outside: float) -> float:
    """Return the least sigma, in steps, of noise that puts this share outside the two commonest steps.

    The most that a sigma puts there is one tail, for a level in the middle of a step.
    """
    if outside <= 0.0:
        return 0.0
    return math.inf if outside >= 0.5 else WIDEST_LOOK / -normal_quantile(outside)
