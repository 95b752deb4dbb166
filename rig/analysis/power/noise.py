"""The noise of a meter, estimated in the idle windows.

Its one-sided spectrum is that of white noise, flicker noise and a few lines (mains). Idle data can separate these
three. A standard error from repetition alone would not include flicker noise and lines, because they are the same in
every repetition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rig.analysis.timing.states import spread
from rig.types import Floats

Lines = tuple[tuple[float, float, float], ...]

Bins = tuple[Floats, Floats, Floats]

MAX_LINES = 3
SHORTEST = 8
"""The spectrum of a stretch with fewer readings than this is not used."""
STANDS_OUT = 8.0
"""How far above the noise, in its mean and beyond what chance gives, an ordinate must be to count as a line."""
KNOWN = 4.0
"""Standard deviations by which the frequency of a line may be off."""
WANDER = 5e-4
"""Part by which it may change during a run, as that of the mains does."""
TIED = 1e-9
"""Part by which sizes of a line differ at most if only rounding does, as on either side of the Nyquist frequency."""


@dataclass(frozen=True)
class Noise:
    """The spectrum of a rail's noise.

    ``white_w`` is the standard deviation per reading at idle, and ``busy_w`` the same while busy. ``lines`` are triples
    of frequency in Hz, amplitude in W and uncertainty of the frequency. ``period_s`` is the interval between readings.
    ``dof`` are the degrees of freedom of the white level. ``flicker_w2`` is h in h / f, and ``walk_w2_per_s`` the
    variance by which a random walk grows in a second.
    """

    white_w: float
    busy_w: float
    flicker_w2: float
    lines: Lines
    period_s: float
    dof: float
    walk_w2_per_s: float = 0.0


def estimate(residuals: Sequence[Floats], period_s: float, busy_differences: Floats) -> Noise:
    """Fit white noise and lines to idle residuals, one array per unbroken idle stretch (missing readings as 0).

    ``busy_differences`` are differences of neighbouring readings inside busy windows, in watts. Their median size gives
    the noise while busy, because the steps of a burst do not change a median. Slow noise is left to the model of the
    trace.
    """
    spectra = [periodogram(r, period_s) for r in residuals if len(r) >= SHORTEST]
    if not spectra:
        pooled = np.concatenate([*residuals, np.zeros(0)])
        sigma = float(np.std(pooled)) if len(pooled) > 1 else 0.0
        return Noise(sigma, max(sigma, spread(busy_differences)), 0.0, (), period_s, max(len(pooled) - 1.0, 1.0))
    lines = lines_of(residuals, spectra, period_s)
    white = _white(binned(spectra, [line[0] for line in lines], period_s))
    sigma = math.sqrt(white / (2.0 * period_s))
    at_idle_w = spread(np.concatenate([np.diff(r) for r in residuals]))
    excess = spread(busy_differences) ** 2 - at_idle_w**2
    u2 = 2.0 * math.sqrt(2.0 / max(len(busy_differences), 1)) * at_idle_w**2
    busy = math.sqrt(sigma**2 + (excess if excess > u2 else 0.0))
    n = float(sum(len(r) for r in residuals))
    return Noise(sigma, busy, 0.0, lines, period_s, max(n - 2.0, 1.0))


def periodogram(x: Floats, period_s: float) -> tuple[Floats, Floats]:
    """Return the one-sided periodogram without its lowest bin, whose power the fit of the level has removed."""
    n = len(x)
    power = 2.0 * period_s / n * np.abs(np.fft.rfft(x)) ** 2
    f = np.arange(len(power)) / (n * period_s)
    last = len(power) - 1 if n % 2 == 0 else len(power)
    return f[1:last], power[1:last]


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


def frequency_u_hz(df_hz: float, ratio: float, at_hz: float) -> float:
    """Return by how much the frequency of a line may be off that stands out by ``ratio`` at the resolution ``df_hz``.

    Rife and Boorstyn (1974): the least variance of the frequency of a tone in white noise.
    """
    return max(KNOWN * 0.39 * df_hz / math.sqrt(ratio), WANDER * at_hz)


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


def _white(bins: Bins) -> float:
    """Return the expected density of white noise beside slow noise, which is flicker noise or a random walk.

    The likelihood is Whittle's, for averaged exponential ordinates; all levels of slow noise that the data allow count.
    """
    f, power, count = bins
    if not np.any(power > 0):
        return 0.0
    mean = float(np.sum(count * power) / np.sum(count))
    white = mean * np.geomspace(1e-3, 3.0, 80)[:, None, None]
    costs, levels = [], np.geomspace(1e-6, 1.0, 48)
    for steep in (f, f**2):
        slow = float(np.max(power * steep)) * levels[:, None] / steep
        model = white + slow
        costs.append(np.sum(count * (np.log(model) + power / model), axis=2))
    chance = np.exp(np.min(costs) - np.array(costs))
    return float(np.sum(chance * white[:, :, 0]) / np.sum(chance))
