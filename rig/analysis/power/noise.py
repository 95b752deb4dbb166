"""The noise of a meter, estimated in the idle windows.

Its one-sided spectrum is that of white noise, flicker noise and a few lines (mains). Idle data can separate these
three. A standard error from repetition alone would not include flicker noise and lines, because they are the same in
every repetition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.low_end import LOWEST, STANDS_OUT, Bins, contradicts, frequency_u_hz, low_end, peaks, tapered
from rig.types import Floats

Lines = tuple[tuple[float, float, float], ...]

MAX_LINES = 3
RARE = 0.02
"""How likely a random walk is, before the readings are seen, compared with flicker noise."""
TIED = 1e-9
"""Part by which sizes of a line differ at most if only rounding does, as on either side of the Nyquist frequency."""


@dataclass(frozen=True)
class Noise:
    """The spectrum of a rail's noise.

    ``white_w`` is the standard deviation per reading at idle, and ``busy_w`` the same while busy. ``flicker_w2`` is h
    in h / f. ``lines`` are pairs of frequency in Hz and amplitude in W. ``period_s`` is the interval between readings.
    ``dof`` are the degrees of freedom of the white level. ``walk_w2_per_s`` is the variance by which a random walk
    grows in a second; its spectrum is walk_w2_per_s / (2 pi^2 f^2).
    """

    white_w: float
    busy_w: float
    flicker_w2: float
    lines: Lines
    period_s: float
    dof: float
    walk_w2_per_s: float = 0.0
    peaks: Lines = ()
    """What else stands out of the spectrum, such as pulses that come back; as ``lines``."""
    between: tuple[float, float] | None = None
    """Slow noise as the readings between spans show it, if the idle windows show another."""

    def between_spans(self) -> Noise:
        """Return the noise without what only the idle windows show of slow noise."""
        if self.between is None:
            return self
        return replace(self, flicker_w2=self.between[0], walk_w2_per_s=self.between[1])


def estimate(residuals: Sequence[Floats], period_s: float, busy_differences: Floats, slow: Floats | None = None,
             slow_period_s: float = 0.0) -> Noise:  # fmt: skip
    """Fit the spectrum to idle residuals, one array per unbroken idle stretch (missing readings as 0).

    ``busy_differences`` are differences of neighbouring readings inside busy windows, in watts. Their median size gives
    the noise while busy, because the steps of a burst do not change a median. ``slow`` is the residual of the whole run
    after the levels are fitted, averaged over ``slow_period_s``, which is long compared with a span. It shows flicker
    noise that is too slow for an idle window.
    """
    spectra = [periodogram(r, period_s, 1) for r in residuals if len(r) >= 8]
    if not spectra:
        pooled = np.concatenate([*residuals, np.zeros(0)])
        sigma = float(np.std(pooled)) if len(pooled) > 1 else 0.0
        return Noise(sigma, max(sigma, spread(busy_differences)), 0.0, (), period_s, max(len(pooled) - 1.0, 1.0))
    lines = lines_of(residuals, spectra, period_s)
    known = [line[0] for line in lines]
    stretches = [r for r in residuals if len(r) >= 8]
    bins = [binned(spectra, known, period_s)]
    ends = [low_end(binned([periodogram(tapered(r), period_s, 1) for r in stretches], known, period_s))]
    if slow is not None and len(slow) >= 12:
        bins.append(binned([periodogram(slow, slow_period_s, 1)], [], slow_period_s))
        ends.append(low_end(binned([periodogram(tapered(slow), slow_period_s, 1)], [], slow_period_s)))
    white, flicker, walk = _whittle(bins)
    others: Lines = ()
    between = None
    if any(contradicts(end, flicker, walk) for end in ends):
        flicker, walk = _at_low_end(ends, white)
        if len(bins) > 1:
            _, h, w = _whittle(bins[1:])
            between = h, 2.0 * math.pi**2 * w
        share = 1.0 / math.sqrt(len(stretches))
        found = [p for r in stretches for p in peaks(r, period_s, known, (white, flicker, walk))]
        others = tuple((f, share * amplitude, df) for f, amplitude, df in found)
    sigma = math.sqrt(white / (2.0 * period_s))
    at_idle_w = spread(np.concatenate([np.diff(r) for r in residuals]))
    excess = spread(busy_differences) ** 2 - at_idle_w**2
    n = float(sum(len(r) for r in residuals))
    u2 = 2.0 * math.sqrt(2.0 / max(len(busy_differences), 1)) * at_idle_w**2
    busy = math.sqrt(sigma**2 + (excess if excess > u2 else 0.0))
    walk_w2_per_s = 2.0 * math.pi**2 * walk
    return Noise(sigma, busy, flicker, lines, period_s, max(n - 2.0, 1.0), walk_w2_per_s, others, between)


def _at_low_end(ends: Sequence[Bins], white: float) -> tuple[float, float]:
    """Return the expected (flicker, walk) densities by the low ends of tapered spectra alone.

    What comes back a few times in a window shows there as well, but not at the very lowest frequencies.
    """
    _, flicker, walk = _whittle(ends, white)
    if any(contradicts(end, flicker, walk) for end in ends):
        _, flicker, walk = _whittle([low_end(end, LOWEST) for end in ends], white)
    return flicker, walk


def periodogram(x: Floats, period_s: float, skip: int) -> tuple[Floats, Floats]:
    """Return the one-sided periodogram without its ``skip`` lowest bins.

    Fitting the levels and the drift has removed the power in these bins.
    """
    n = len(x)
    power = 2.0 * period_s / n * np.abs(np.fft.rfft(x)) ** 2
    f = np.arange(len(power)) / (n * period_s)
    last = len(power) - 1 if n % 2 == 0 else len(power)
    return f[skip:last], power[skip:last]


def lines_of(residuals: Sequence[Floats], spectra: Sequence[tuple[Floats, Floats]], period_s: float) -> Lines:
    """Return up to three spectral lines: frequency in Hz, amplitude in W, and uncertainty of the frequency in Hz."""
    longest = int(np.argmax([len(f) for f, _ in spectra]))
    data = [r for r in residuals if len(r) >= 8]
    f, power = spectra[longest]
    if len(f) < 16:
        return ()
    smooth = np.interp(np.arange(len(f)), *_running_median(power))
    limit = math.log(len(f)) + STANDS_OUT
    found: list[tuple[float, float, float]] = []
    ratio = power / np.maximum(smooth / math.log(2.0), 1e-300)
    df = f[1] - f[0]
    for k in np.argsort(ratio)[::-1][: 4 * MAX_LINES]:
        if ratio[k] < limit or len(found) == MAX_LINES:
            break
        if any(abs(f[k] - g) < 3.0 * df for g, _, _ in found):
            continue
        shown = [line_near(r, f[k], df, period_s) for r in data]
        at_hz = max(zip(map(len, data), shown, strict=True))[1][0]
        off_hz = frequency_u_hz(df, ratio[k], at_hz)
        found.append((at_hz, math.sqrt(np.mean([a * a for _, a in shown])), min(off_hz, float(df))))
    return tuple(found)


def line_near(x: Floats, f_hz: float, df_hz: float, period_s: float) -> tuple[float, float]:
    """Return the frequency near ``f_hz`` at which a line is strongest, the lower of two, and its amplitude there."""
    t = np.arange(len(x)) * period_s
    scan = f_hz + df_hz * np.linspace(-0.6, 0.6, 13)
    size = np.array([2.0 / len(x) * float(np.abs(np.sum(x * np.exp(-2j * np.pi * f * t)))) for f in scan])
    k = int(np.clip(np.argmax(size >= (1.0 - TIED) * size.max()), 1, len(size) - 2))
    bow = size[k - 1] - 2.0 * size[k] + size[k + 1]
    by = 0.5 * (size[k - 1] - size[k + 1]) / bow if bow < 0.0 else 0.0
    return float(scan[k] + np.clip(by, -1.0, 1.0) * (scan[1] - scan[0])), float(size.max())


def _running_median(power: Floats) -> tuple[Floats, Floats]:
    """Median of log-spaced groups of bins, as (index, level) for interpolation."""
    cuts = np.unique(np.round(np.geomspace(1, len(power) + 1, 24)).astype(int)) - 1
    pairs = [(a, b) for a, b in itertools.pairwise(cuts) if b > a]
    return np.array([(a + b - 1) / 2 for a, b in pairs]), np.array([np.median(power[a:b]) for a, b in pairs])


def binned(spectra: Sequence[tuple[Floats, Floats]], skip_hz: Sequence[float], period_s: float) -> Bins:
    """Average a periodogram in log-spaced bins, and return frequency, mean power and number of ordinates."""
    f = np.concatenate([s[0] for s in spectra])
    power = np.concatenate([s[1] for s in spectra])
    resolution = min(s[0][0] for s in spectra)
    keep = np.ones(len(f), bool)
    for line in skip_hz:
        keep &= np.abs(f - line) > 3.0 * resolution
    f, power = f[keep], power[keep]
    cuts = np.geomspace(resolution * 0.99, 0.5001 / period_s, 64)
    which = np.digitize(f, cuts)
    count = np.bincount(which, minlength=len(cuts) + 1).astype(float)
    full = count > 0
    mean = np.bincount(which, weights=power, minlength=len(count))[full] / count[full]
    centre = np.exp(np.bincount(which, weights=np.log(f), minlength=len(count))[full] / count[full])
    return centre, mean, count[full]


def _whittle(bins: Sequence[Bins], white: float | None = None) -> tuple[float, float, float]:
    """Return the expected (white, flicker, walk) densities over all levels of slow noise that the data allow.

    Slow noise is either flicker noise, h / f, or a random walk, w / f**2.

    The likelihood is Whittle's, for averaged exponential ordinates. Each set of bins has its own white level, because
    spans may add some; the slow noise is common to all. The prior of each kind of slow noise is: none with probability
    one third, otherwise log-uniform over the eight decades below the level that explains everything; a random walk is
    ``RARE``. The returned white level is that of the first set, which is ``white`` if this is given.
    """
    if not np.any(bins[0][1] > 0):
        return 0.0, 0.0, 0.0
    levels, costs, whites = [], [], []
    for power in (1, 2):
        most = max(float(np.max(p * g**power)) for g, p, _ in bins)
        levels.append(np.geomspace(1e-8 * most, most, 97))
        fits = [_profile(g**power, p, c, levels[-1], None if k else white) for k, (g, p, c) in enumerate(bins)]
        costs.append(np.sum([own for _, own in fits], axis=0))
        whites.append(fits[0][0])
    chance = np.exp(np.min(costs) - np.array(costs))
    chance[:, 0] *= 0.5 * chance.shape[1]  # the lowest density means no slow noise
    chance[1] *= RARE
    chance /= chance.sum()
    flicker, walk = (float(np.sum(c * level)) for c, level in zip(chance, levels, strict=True))
    return float(np.sum(chance * np.array(whites))), flicker, walk


def _profile(steep: Floats, power: Floats, count: Floats, slow: Floats, known: float | None) -> tuple[Floats, Floats]:
    """Most likely white level, if not ``known``, and its cost for each density of slow noise; shapes of ``slow``.

    The spectrum of slow noise is ``slow / steep``.
    """
    slope = slow[:, None] / steep[None, :]
    mean = float(np.sum(count * power) / np.sum(count))
    grid = mean * np.geomspace(1e-3, 3.0, 80) if known is None else np.array([known])
    best: Floats = np.full(len(slow), np.inf)
    white: Floats = np.zeros(len(slow))
    model, terms = np.empty_like(slope), np.empty_like(slope)
    for level in grid:
        np.log(np.add(level, slope, out=model), out=terms)
        terms += np.divide(power, model, out=model)
        terms *= count
        cost = terms.sum(axis=1)
        white = np.where(cost < best, level, white)
        best = np.minimum(best, cost)
    return white, best


def spread(differences: Floats) -> float:
    """Return a robust standard deviation of readings, from the differences of neighbours."""
    if not len(differences):
        return 0.0
    return float(np.median(np.abs(differences - np.median(differences)))) * 1.4826 / math.sqrt(2.0)
