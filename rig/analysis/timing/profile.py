"""A profile of a rail's values: how often they recur, their smallest step, and the ends of their range.

Noise seldom repeats a value. So a value that recurs too often, or a row of values that recurs at all, was not measured
each time. If all readings share few values, these are the levels of a converter.
"""

import math
from functools import cached_property

import numpy as np
from msgspec import Struct

from rig.analysis.result.distributions import normal_quantile
from rig.analysis.timing.timebase import STRETCHES
from rig.types import Bools, Floats, Indices

LEAST = 64
"""Fewer readings than this are not judged."""
MANY = 16
"""Chance is ruled out if at least this many readings share a value, or repeat an earlier row of readings."""
CHANCE = 0.01
"""If more than this share of readings recurs by chance, repeats are no proof."""
NOISY = 0.3
"""If noise exceeds a step, at most this share of successive readings is equal. Otherwise at most this share differs."""
SEVERAL = 8
"""A level of a converter has at least this many readings; a running median is taken over at most this many."""
FAR = 15.0
"""A reading is far from others if it differs by at least this many times the typical difference."""
LEAST_ABOVE = 0.25
"""At least this part of the readings at idle is above the low end of a range that cuts them off."""
FEW = 0.02
"""Errors in fewer readings than this share do not matter, nor does an error of this part of a reading or of a step."""
LEVELS, FRACTIONS = 4, 6
"""A converter shows at least ``LEVELS`` levels, and the closest two are at most ``FRACTIONS`` steps apart."""
LOOKED_AT = 4096
"""At most this many readings are used to find a step and its dither."""


class Profile(Struct, frozen=True, dict=True):
    """Single readings in order, shapes (n,), and which of them are in idle windows."""

    value: Floats
    idle: Bools

    @cached_property
    def code(self) -> Indices:
        """Return a number for each reading, the same for equal values; each NaN has a number of its own."""
        if not np.any(np.diff(np.sort(self.value)) == 0.0):  # sorting takes a quarter of the time of what follows
            return np.arange(len(self.value))
        return np.unique(self.value, return_inverse=True, equal_nan=False)[1]

    @cached_property
    def lag(self) -> Indices:
        """Return how many readings ago each value occurred last, 0 if never."""
        lag, count = np.zeros(len(self.code), dtype=np.int64), np.bincount(self.code)
        again = np.flatnonzero(count[self.code] > 1)
        code = self.code[again].astype(np.min_scalar_type(len(count)))  # 16 bits are sorted ten times as fast
        order = np.argsort(code, kind="stable")
        at = again[order]
        same = np.flatnonzero(np.diff(code[order]) == 0)
        lag[at[same + 1]] = at[same + 1] - at[same]
        return lag

    @cached_property
    def copies(self) -> Bools:
        """Return which readings repeat the one before or an earlier block; none if chance may explain the repeats.

        A repeated single value is not at an end of the range, and occurs nowhere else. A repeated block does not
        overlap the block that it repeats, unlike a periodic signal.
        """
        code, lag, n = self.code, self.lag, len(self.value)
        if n < LEAST or not lag.any():
            return np.zeros(n, bool)
        first = np.flatnonzero(np.diff(lag, prepend=-1))
        at, many = lag[first], np.diff(np.append(first, n))
        held, inner = self.value[first], (np.fmin.reduce(self.value), np.fmax.reduce(self.value))
        alone = (many == np.bincount(code)[code[first]] - 1) & (held > inner[0]) & (held < inner[1])
        again = ((at == 1) & alone) | ((at > 1) & (many >= MANY) & (many <= at))
        by_chance = np.where(at == 1, 1, many)[(at > 0) & ~again]
        return np.asarray(np.repeat(again, many) & (by_chance.sum() <= CHANCE * n))

    @cached_property
    def cut_off(self) -> tuple[float, float, float, int] | None:
        """Return the low end of a range that cuts readings off, or None without such readings.

        Also return by how much these readings are truly lower on average, their share of the readings at idle, and
        their number. If noise is Gaussian, this share and the mean of all readings at idle give the level and the noise
        (a censored sample; Cohen, Technometrics 1, 1959, 217).
        """
        known = self.value[np.isfinite(self.value)]
        low = float(known.min()) if len(known) else 0.0
        above, quiet = known[known > low], self.value[self.idle & np.isfinite(self.value)]
        share = float(np.mean(quiet == low)) if len(quiet) else 0.0
        if len(above) < 3 * MANY or not 0.0 < share <= 1.0 - LEAST_ABOVE or low not in _shared(known):
            return None
        # if noise is cut off, readings just above the end are as dense as farther up; a level without noise leaves a
        # gap
        near, far = np.partition(above, [MANY, 3 * MANY - 1])[[MANY, 3 * MANY - 1]]
        if near - low > 3.0 * (far - near):
            return None
        level = -normal_quantile(share)  # above the end; this and the density are in widths of noise
        density = math.exp(-0.5 * level**2) / math.sqrt(2.0 * math.pi)
        noise = (float(np.mean(quiet)) - low) / (level * (1.0 - share) + density)
        return low, noise * (density / share - level), share, len(known) - len(above)


# ---- ends of a range --------------------------------------------------------------------------


def ends_of(value: Floats) -> tuple[float, ...]:
    """Return the upper ends of ranges of readings, shape (n,): their highest value, or the end of a smaller range.

    If readings have steps, their highest value is an end if it often repeats at once and other values seldom do.
    """
    known = value[np.isfinite(value)]
    if len(known) < MANY:
        return ()
    low, high = float(known.min()), float(known.max())
    ends, top, equal = set(_shared(known)), known == high, np.diff(known) == 0.0
    pairs, others = equal & top[1:], equal[~top[1:] & ~top[:-1]]
    count = np.count_nonzero(top)
    if count >= MANY <= len(others) and np.mean(others) <= NOISY and np.count_nonzero(pairs) >= NOISY * count:
        ends.add(high)
    return tuple(sorted(ends - {low}))


def _shared(known: Floats) -> list[float]:
    """Return the values that many readings share, if other values hardly ever repeat because of noise."""
    rising = np.sort(known)
    if not np.any(rising[MANY - 1 :] == rising[: 1 - MANY]):
        return []
    value, count = np.unique(rising, return_counts=True)
    rare = count[count < MANY]
    if not len(rare) or 3 * rare.sum() < len(known) or rare.mean() > 1.0 + NOISY:
        return []
    beside = np.concatenate([[0], count, [0]])
    often = count >= MANY * np.maximum(np.maximum(beside[:-2], beside[2:]), rare.mean())
    return [float(v) for v in value[often]]


# ---- the step of a converter ------------------------------------------------------------------


def step_of(value: Floats) -> float:
    """Return the step that divides all differences of readings, in their own unit; 0 without one.

    Readings of fewer than ``LEVELS`` values, or of too many values, do not show a step.

    A meter that declares no resolution may still round, and a meter may round more coarsely than it declares.
    """
    some = value[:: max(1, len(value) // LOOKED_AT)]
    levels = np.unique(some)
    return _common(levels) if LEVELS <= len(levels) <= len(some) / SEVERAL else 0.0


def step_in(value: Floats, beside: Floats) -> tuple[float, Floats]:
    """Return the step to which readings of one level, shape (n,), are rounded, and the readings that show it.

    A meter that changes its range may round in one range only, and values recur there. The readings ``beside`` may
    show neighbours of these values. The step is 0 if no value recurs.
    """
    levels, count = np.unique(value[:: max(1, len(value) // LOOKED_AT)], return_counts=True)
    often, others = levels[count >= SEVERAL], np.unique(np.concatenate([levels, beside]))
    if not len(often) or len(others) < 2:
        return 0.0, often
    apart = np.abs(others - levels[np.argmax(count)])
    near = others[np.sort(np.argsort(apart)[: LEVELS + 1])]
    step = _common(near) or _common(often) or float(np.min(apart[apart > 0.0]))
    return step, value[np.isin(value, often)]


def _common(levels: Floats) -> float:
    """Return the largest step that divides all differences of sorted levels, or 0 without one."""
    if len(levels) < 2:
        return 0.0
    closest = float(np.min(np.diff(levels)))
    for parts in range(1, FRACTIONS + 1):
        multiples = (levels - levels[0]) / (step := closest / parts)
        if np.allclose(multiples, np.round(multiples), rtol=0.0, atol=FEW):
            return step
    return 0.0


def undithered(value: Floats, step: float) -> float:
    """Return the part of the error of rounding, 0 to 1, that is left at a level of these readings, shape (n,).

    Rounding is a function of the level: repetition does not average it. Noise acts as dither and reduces it. The error
    is on average at most step/pi times the characteristic function of the dither at 2 pi/step (Widrow and Kollar,
    Quantization Noise, 2008, ch. 4). For white noise this is exp(-2 pi^2 (sigma/step)^2). A level beside a threshold
    flips between two values however small the noise is. So no dither is assumed where readings rarely change.
    Elsewhere, the assumed dither is the least that puts the observed share of readings beyond the two commonest values.
    """
    stretches = [part[: LOOKED_AT // STRETCHES] for part in np.array_split(value, STRETCHES) if len(part) > 1]
    steps = [np.round((part - np.quantile(part, 0.5, method="nearest")) / step) for part in stretches]
    outside = sum(min(np.count_nonzero(k * (k - 1.0)), np.count_nonzero(k * (k + 1.0))) for k in steps)
    changes = np.concatenate([np.zeros(1), *(np.diff(k) != 0.0 for k in steps)])
    if not outside or float(np.mean(changes)) < NOISY:
        return 1.0
    # the sigma that puts this share outside, for a level in the middle of a step
    sigma = 0.5 / -normal_quantile(min(outside / sum(map(len, steps)), 0.5 - CHANCE))
    return math.exp(-2.0 * (math.pi * sigma) ** 2)
