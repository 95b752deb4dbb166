"""The meter's noise, found in the idle windows, and what it does to any weighted sum of readings.

A sum ``sum(w * y)`` over evenly spaced readings has the variance ``integral S(f) |W(f)|^2 df`` with the
one-sided spectrum S. We take S as white + flicker + a few lines (mains), which idle data can tell
apart; a standard error from repetition alone would miss the last two, since they repeat.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rig.types import Floats

MAX_LINES = 3
SEGMENT = 1 << 17


@dataclass(frozen=True)
class Noise:
    """``white_w`` is a standard deviation per reading at idle, ``busy_w`` the same while busy;

    ``flicker_w2`` is h in h / f; ``lines`` are (frequency in Hz, amplitude in W); ``period_s`` the
    reading interval; ``dof`` the degrees of freedom behind the white level.
    """

    white_w: float
    busy_w: float
    flicker_w2: float
    flicker_spread: float
    lines: tuple[tuple[float, float, float], ...]
    period_s: float
    dof: float


def estimate(residuals: Sequence[Floats], period_s: float, busy_differences: Floats) -> Noise:
    """Fit the spectrum to idle residuals, one array per unbroken idle stretch (missing readings as 0).

    ``busy_differences`` are differences of neighbouring readings inside busy windows, in watts; their
    median size gives the busy noise, which the steps of a burst cannot move.
    """
    spectra = [s for r in residuals if len(r) >= 8 for s in [_periodogram(r, period_s)]]
    if not spectra:
        pooled = np.concatenate([*residuals, np.zeros(0)])
        sigma = float(np.std(pooled)) if len(pooled) > 1 else 0.0
        return Noise(sigma, max(sigma, _spread(busy_differences)), 0.0, 0.0, (), period_s, max(len(pooled) - 1.0, 1.0))
    lines = _lines(residuals, spectra, period_s)
    f, power, count = _binned(spectra, [line[0] for line in lines], period_s)
    white, flicker, spread = _whittle(f, power, count)
    sigma = math.sqrt(white / (2.0 * period_s))
    idle_differences = np.concatenate([np.diff(r) for r in residuals])
    excess = _spread(busy_differences) ** 2 - _spread(idle_differences) ** 2
    n = float(sum(len(r) for r in residuals))
    doubt = 2.0 * math.sqrt(2.0 / max(len(busy_differences), 1)) * _spread(idle_differences) ** 2
    busy = math.sqrt(sigma**2 + (excess if excess > doubt else 0.0))
    return Noise(sigma, busy, flicker, spread, lines, period_s, max(n - 2.0, 1.0))


def variances(noise: Noise, weight: Floats, t_s: Floats, busy: NDArray[np.bool_]) -> dict[str, float]:
    """Variance of ``sum(weight * y)`` by source: white, flicker, lines.

    ``weight`` and ``t_s`` have shape (n,); ``busy`` tells which readings see a busy device.
    """
    white = float(noise.busy_w**2 * np.sum(weight[busy] ** 2) + noise.white_w**2 * np.sum(weight[~busy] ** 2))
    used = np.flatnonzero(weight)
    if not len(used):
        return {"white": 0.0, "flicker": 0.0, "lines": 0.0}
    t, w = t_s[used], weight[used]
    flicker = noise.flicker_w2 * _flicker_gain(t, w, noise.period_s) if noise.flicker_w2 > 0 else 0.0
    lines = sum(0.5 * a * a * _line_gain(t, w, f, df) for f, a, df in noise.lines)
    return {"white": white, "flicker": flicker, "lines": lines}


def _flicker_gain(t_s: Floats, weight: Floats, period_s: float) -> float:
    """``integral |W(f)|^2 / f df`` down to a fourth of the inverse length of the stretch."""
    slot = np.round((t_s - t_s[0]) / period_s).astype(np.int64)
    stride = max(1, int(np.ceil((slot[-1] + 1) / SEGMENT)))
    grid = np.bincount(slot // stride, weights=weight)
    n = 4 * _fast_length(len(grid))
    gain = np.abs(np.fft.rfft(grid, n)[1:]) ** 2
    return float(np.sum(gain / np.arange(1, len(gain) + 1)))


def _line_gain(t_s: Floats, weight: Floats, f_hz: float, df_hz: float) -> float:
    centre = t_s - t_s.mean()
    worst = 0.0
    for f in f_hz + df_hz * np.linspace(-1.0, 1.0, 5):
        worst = max(worst, float(np.abs(np.sum(weight * np.exp(-2j * np.pi * f * centre))) ** 2))
    return worst


def _periodogram(x: Floats, period_s: float) -> tuple[Floats, Floats]:
    """One-sided, without the two lowest bins, which the level and drift of the idle fit have eaten."""
    n = len(x)
    power = 2.0 * period_s / n * np.abs(np.fft.rfft(x)) ** 2
    f = np.arange(len(power)) / (n * period_s)
    last = len(power) - 1 if n % 2 == 0 else len(power)
    return f[1:last], power[1:last]


def _lines(
    residuals: Sequence[Floats], spectra: Sequence[tuple[Floats, Floats]], period_s: float
) -> tuple[tuple[float, float, float], ...]:
    longest = int(np.argmax([len(f) for f, _ in spectra]))
    data = [r for r in residuals if len(r) >= 8]
    f, power = spectra[longest]
    if len(f) < 16:
        return ()
    smooth = np.interp(np.arange(len(f)), *_running_median(power))
    limit = math.log(len(f)) + 8.0
    found: list[tuple[float, float, float]] = []
    ratio = power / np.maximum(smooth / math.log(2.0), 1e-300)
    df = f[1] - f[0]
    for k in np.argsort(ratio)[::-1][: 4 * MAX_LINES]:
        if ratio[k] < limit or len(found) == MAX_LINES:
            break
        if any(abs(f[k] - g) < 3.0 * df for g, _, _ in found):
            continue
        amplitude = math.sqrt(np.mean([_amplitude(r, f[k], df, period_s) ** 2 for r in data]))
        found.append((float(f[k]), amplitude, float(df)))
    return tuple(found)


def _amplitude(x: Floats, f_hz: float, df_hz: float, period_s: float) -> float:
    t = np.arange(len(x)) * period_s
    scan = f_hz + df_hz * np.linspace(-0.6, 0.6, 7)
    return max(2.0 / len(x) * float(np.abs(np.sum(x * np.exp(-2j * np.pi * f * t)))) for f in scan)


def _running_median(power: Floats) -> tuple[Floats, Floats]:
    """Median of log-spaced groups of bins, as (index, level) for interpolation."""
    cuts = np.unique(np.geomspace(1, len(power), 24).astype(int)) - 1
    cuts = np.append(cuts[cuts < len(power)], len(power))
    pairs = [(a, b) for a, b in itertools.pairwise(cuts) if b > a]
    return np.array([(a + b - 1) / 2 for a, b in pairs]), np.array([np.median(power[a:b]) for a, b in pairs])


def _binned(
    spectra: Sequence[tuple[Floats, Floats]], skip_hz: Sequence[float], period_s: float
) -> tuple[Floats, Floats, Floats]:
    """Average periodograms in log-spaced bins: frequency, mean power, count of ordinates."""
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


def _whittle(f: Floats, power: Floats, count: Floats) -> tuple[float, float, float]:
    """Posterior mean of (white, flicker) densities over the corner frequency, and flicker's spread.

    Whittle likelihood of averaged exponential ordinates; the corner is log-uniform from a tenth of the
    lowest frequency to a tenth of the highest, or zero.
    """
    if not np.any(power > 0):
        return 0.0, 0.0, 0.0
    corner = np.concatenate([[0.0], np.geomspace(0.1 * f[0], 0.1 * f[-1], 60)])
    shape = 1.0 + corner[:, None] / f[None, :]
    level = np.sum(count * power / shape, axis=1) / np.sum(count)
    cost = np.sum(count * (np.log(level[:, None] * shape)), axis=1)
    chance = np.exp(-(cost - cost.min()))
    chance[0] *= 10.0
    chance /= chance.sum()
    flicker = float(np.sum(chance * level * corner))
    spread = math.sqrt(max(float(np.sum(chance * (level * corner) ** 2)) - flicker**2, 0.0))
    return float(np.sum(chance * level)), flicker, spread


def _spread(differences: Floats) -> float:
    """Standard deviation of the readings behind differences of neighbours, robustly."""
    if not len(differences):
        return 0.0
    return float(np.median(np.abs(differences - np.median(differences)))) * 1.4826 / math.sqrt(2.0)


def _fast_length(n: int) -> int:
    from scipy.fft import next_fast_len

    return int(next_fast_len(n, real=True))
