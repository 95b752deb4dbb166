"""The errors of a cumulative counter belong to its readings, not to the power between two readings.

A counter shows joules as of its last renewal, in steps. So the error of a reading is its step and about ``power x
age``. What one interval has too much, the next has too little. Let the errors have the standard deviation sigma and the
correlation rho from one reading to the next. Power over even intervals T then has the one-sided spectrum ``2 sigma**2 /
T`` times ``(2 - 2 cos w) (1 - rho**2) / (1 - 2 rho cos w + rho**2)``, with w = 2 pi f T. It is almost zero at low
frequencies, which determine sums over windows. Ages are independent (rho = 0) if renewals or reads are irregular. They
change slowly (rho near 1) if both have a fixed rhythm. In both cases an age lies between zero and one renewal interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.noise import SHORTEST, Noise, binned, lines_of, periodogram
from rig.analysis.timing.states import spread
from rig.types import Floats

RHO = (-0.8, -0.5, 0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
"""Correlations from one reading to the next that are considered."""
SHOWN = 20.0
"""How many correlation times the longest idle stretch must hold; slower jitter counts as white noise."""
CALM = 1.0
"""Prior odds that a sensor behind a counter adds no white noise of its own, and likewise no 1/f noise."""
TAPERED = 2.0 / 3.0
"""Number of independent ordinates for each ordinate of a sine-tapered periodogram."""


@dataclass(frozen=True)
class Jitter:
    """Errors of single readings of a counter.

    ``ages`` are pairs of correlation and variance at idle in J**2. ``rise`` is the factor from idle to busy on the
    standard deviation. ``step_j`` is the standard deviation from the step. ``dof`` are the degrees of freedom of the
    ages.
    """

    ages: tuple[tuple[float, float], ...]
    rise: float
    step_j: float
    dof: float

    def watts(self, period_s: float, busy: bool) -> float:
        """Return the standard deviation of the mean power between two readings, in watts."""
        factor2 = self.rise**2 if busy else 1.0
        apart = sum((1.0 - rho) * j2 for rho, j2 in self.ages)  # half the variance of the difference of neighbours
        return math.sqrt(2.0 * (apart * factor2 + self.step_j**2)) / period_s


@dataclass(frozen=True)
class Counted:
    """The data of a counter that show its errors.

    ``idle`` has one array for each unbroken idle stretch: residual watts times interval length over ``period_s``.
    ``busy`` holds the differences of neighbouring values of the same kind while the device is busy. ``ratio`` is busy
    power over idle power. ``step`` is the step in joules, or 0 if it is not stated. ``age_j`` is the energy that is
    used at idle during the declared mean age, or 0 if none is declared.
    """

    idle: Sequence[Floats]
    busy: Floats
    period_s: float
    ratio: float
    step: float
    age_j: float = 0.0


def variances(jitter: Jitter, weight: Floats, length_s: Floats, busy: Floats) -> dict[str, float]:
    """Return the variance of ``sum(weight * watts)`` from the errors of the counter's readings, by source.

    The arrays have the shape (n,). One interval follows another, so the error of a reading enters with the difference
    of the two weights beside it. ``busy``, shape (n + 1,), says for each reading how far the power was from idle (0) to
    busy (1).
    """
    from scipy.signal import lfilter

    each = np.where(weight != 0.0, weight / np.where(length_s > 0, length_s, np.inf), 0.0)
    factor = np.diff(each, prepend=0.0, append=0.0)
    scaled = factor * (1.0 + (jitter.rise - 1.0) * busy)
    age = 0.0
    for rho, j2 in jitter.ages:
        before = lfilter([0.0, rho], [1.0, -rho], scaled) if rho else np.zeros(1)  # sum of rho**k of those before
        age += j2 * float(np.sum(scaled * (scaled + 2.0 * before)))
    return {"counter": max(age, 0.0), "step": jitter.step_j**2 * float(np.sum(factor**2))}


def estimate(c: Counted) -> tuple[Noise, Jitter]:
    """Fit white noise, flicker noise, lines and counter jitter to the idle stretches, and scale the fit to busy ones.

    Ages do not depend on the power, so the effect of an age is proportional to the power. The same holds for the noise
    of a sensor behind the counter. Readings while busy may scatter more than that. This excess counts as jitter too,
    although it may be changes of the device, which a counter measures correctly.
    """
    step_j, period_s = c.step / math.sqrt(12.0), c.period_s
    n = float(sum(len(r) for r in c.idle))
    dof = max(n - 2.0, 1.0)
    long = [r for r in c.idle if len(r) >= SHORTEST]
    ages: list[tuple[float, float]] = []
    if long:
        plain = [periodogram(r, period_s) for r in long]
        lines = lines_of(c.idle, plain, period_s)
        white, flicker, blue = _fit(long, c, [line[0] for line in lines])
        white_w = math.sqrt(white / (2.0 * period_s))
        ages = [(rho, 0.5 * level * period_s) for rho, level in blue]
        total = sum(j2 for _, j2 in ages)
        left = max(total - step_j**2, 0.0) / total if total > 0 else 0.0  # the fit holds the step too
        ages = [(rho, left * j2) for rho, j2 in ages if left * j2 > 1e-6 * total]
    else:  # too few readings to tell jitter from noise: all counts as noise, which is the larger
        pooled = np.concatenate([*c.idle, np.zeros(0)])
        white_w, flicker, lines = float(np.std(pooled)) if len(pooled) > 1 else 0.0, 0.0, ()
    white_w = math.hypot(white_w, _unseen_w(c, sum(j2 for _, j2 in ages), n))
    jitter = Jitter(tuple(ages), max(c.ratio, 1.0), step_j, max(0.5 * dof, 1.0))
    return _busy(c, Noise(white_w, white_w, flicker, lines, period_s, dof), jitter)


def _unseen_w(c: Counted, found_j2: float, n: float) -> float:
    """Return white noise per reading from slowly growing ages that fall back by twice their mean, if no fall was seen.

    The expected number of unseen falls in n readings is one half (Jeffreys). It is zero if the ages were seen over
    their whole range, from 0 to twice their mean.
    """
    if not c.age_j > 0.0:
        return 0.0
    hidden = max(1.0 - 3.0 * found_j2 / c.age_j**2, 0.0)
    return 2.0 * c.age_j / c.period_s * math.sqrt(hidden * 0.5 / (n + 1.0))


def _busy(c: Counted, noise: Noise, jitter: Jitter) -> tuple[Noise, Jitter]:
    """Noise and jitter with their levels while busy, by differences of neighbouring intervals.

    Those have the variance 2 white + ages of ``(1 - rho) (3 - rho)`` twice + 6 steps, over the square of the period.
    Their robust spread is taken in units of that at idle: ages are anything but Gaussian where they creep.
    """
    own = sum((1.0 - rho) * (3.0 - rho) * j2 for rho, j2 in jitter.ages) / c.period_s**2
    step = 3.0 * jitter.step_j**2 / c.period_s**2
    quiet = noise.white_w**2 + own + step
    idle = np.concatenate([*(np.diff(r) for r in c.idle), np.zeros(0)])
    if len(c.busy) < 2 or len(idle) < 2 or not quiet > 0:
        return replace(noise, busy_w=noise.white_w * jitter.rise), jitter
    unit = float(np.clip(spread(idle) ** 2 / quiet, 0.1, 10.0))
    found = max(spread(c.busy) ** 2 / unit - step, 0.0)
    known = (noise.white_w**2 + own) * jitter.rise**2
    sure = 2.0 * math.sqrt(2.0 / len(c.busy) + 2.0 / len(idle))
    scale = 1.0
    if found > (1.0 + sure) * known and known > 0:
        scale = math.sqrt(found / known)
    elif found * (1.0 + sure) < known:
        scale = max(math.sqrt(found * (1.0 + sure) / known), 1.0 / jitter.rise)
    rise = jitter.rise * scale
    return replace(noise, busy_w=noise.white_w * min(rise, jitter.rise)), replace(jitter, rise=rise)


def _fit(
    long: Sequence[Floats], c: Counted, skip_hz: Sequence[float]
) -> tuple[float, float, list[tuple[float, float]]]:
    """Expected densities (white, flicker, ages by their correlation) under a Whittle likelihood, as in ``noise``.

    The ratios of white and flicker to the ages' density lie on a log-uniform grid, and the prior has each absent in one
    case of two; the level of all follows from the data. Stretches are tapered by a half sine, without which the
    readings at the ends of a stretch leak into its low frequencies.
    """
    spectra = [_tapered(r, c.period_s) for r in long]
    f, power, count = binned(spectra, skip_hz, c.period_s)
    if not np.any(power > 0):
        return 0.0, 0.0, []
    count = count * TAPERED
    longest = max(map(len, long))
    floor = math.cos(math.pi / (longest + 1.0))
    rhos = [rho for rho in RHO if rho <= 0.0 or (1.0 - rho) * longest >= SHOWN]
    cosine, rho = np.cos(2.0 * math.pi * f * c.period_s), np.array(rhos)[:, None]
    shape = (2.0 - 2.0 * floor * cosine) * (1.0 - rho**2) / (1.0 - 2.0 * rho * cosine + rho**2)
    white = np.geomspace(1e-7, 1e3, 51)[:, None, None]
    flicker = np.geomspace(1e-8, 1e2, 51)[None, :, None] * float(f[0])
    level = np.zeros((len(rhos), 51, 51))
    cost = np.zeros_like(level)
    for k, own in enumerate(shape):
        model = own + white + flicker / f
        level[k] = np.sum(count * power / model, axis=2) / float(count.sum())
        cost[k] = np.sum(count * np.log(model), axis=2) + float(count.sum()) * np.log(level[k])
    whites, flickers = level * white[None, :, :, 0], level * flicker[None, :, :, 0]
    chance = np.exp(-(cost - cost.min()))
    chance[:, 0] *= CALM * chance.shape[1]
    chance[:, :, 0] *= CALM * chance.shape[2]
    chance /= chance.sum()
    ages = np.sum(chance * level, axis=(1, 2)).tolist()
    return float(np.sum(chance * whites)), float(np.sum(chance * flickers)), list(zip(rhos, ages, strict=True))


def _tapered(x: Floats, period_s: float) -> tuple[Floats, Floats]:
    """One-sided periodogram after a half-sine taper, without the mean, whose removal costs its neighbour 9 %."""
    n = len(x)
    taper = np.sin(math.pi * np.arange(1, n + 1) / (n + 1.0)) * math.sqrt(2.0 / (n + 1.0))
    power = 2.0 * period_s * np.abs(np.fft.rfft(x * taper)) ** 2
    last = len(power) - 1 if n % 2 == 0 else len(power)
    return (np.arange(len(power)) / (n * period_s))[1:last], power[1:last]
