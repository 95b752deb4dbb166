"""The low end of a spectrum: whether slow noise shows there, and what stands out above it.

Pulses that come back and steps have spectra as steep as those of slow noise, but they stop above the lowest
frequencies. A Hann window keeps strong lines from leaking there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rig.analysis.distributions import gamma_below
from rig.types import Floats

LOW_END, LOWEST = 8.5, 3.5
"""Multiples of the lowest frequency up to which slow noise is fitted, and up to which it must show.

A level that wanders or steps once shows at the very lowest alone.
"""
CHANCE = 1e-3
"""Probability below which the power found there contradicts slow noise."""
FINE = 8
"""Parts of the resolution of a spectrum in which its peaks are looked for."""
LOOKED_AT = 1 << 17
"""Readings of a stretch in which peaks are looked for."""
STANDS_OUT = 8.0
"""How far above the noise, in its mean and beyond what chance gives, an ordinate must be to count as a line."""
KNOWN = 4.0
"""Standard deviations by which the frequency of a line may be off."""
WANDER = 5e-4
"""Part by which it may change during a run, as that of the mains does."""

Bins = tuple[Floats, Floats, Floats]


def tapered(x: Floats) -> Floats:
    """Return readings under a Hann window, whose mean square is one, without their mean there."""
    window = np.hanning(len(x) + 2)[1:-1] * math.sqrt(8.0 / 3.0)
    return np.asarray(window * (x - np.average(x, weights=window)))


def low_end(bins: Bins, reach: float = LOW_END) -> Bins:
    """Return the lowest frequencies of a binned periodogram, up to ``reach`` times the lowest."""
    f, power, count = bins
    low = f < reach * f[0]
    return f[low], power[low], count[low]


def contradicts(end: Bins, flicker: float, walk: float) -> bool:
    """Return whether the low end of a tapered spectrum holds too little power for these densities of slow noise."""
    f, power, count = low_end(end, LOWEST)
    found = power / np.maximum(flicker / f + walk / f**2, 1e-300)
    # the taper leaves half of the ordinates independent
    shown, expected = 0.5 * float(count @ found), 0.5 * float(count.sum())
    return shown < expected and gamma_below(shown, expected) < CHANCE


def peaks(
    x: Floats, period_s: float, lines_hz: Sequence[float], densities: tuple[float, float, float]
) -> Iterator[tuple[float, float, float]]:
    """Yield frequency in Hz, amplitude in W and uncertainty of the frequency of what stands out besides the lines.

    ``densities`` are those of white noise, flicker noise and a random walk, above which it stands out.
    """
    x = x[:LOOKED_AT]
    n, (white, flicker, walk) = len(x), densities
    df = 1.0 / (n * period_s)
    size = np.abs(np.fft.rfft(tapered(x), FINE * n)) / n
    at = 1 + np.flatnonzero((size[1:-1] > size[:-2]) & (size[1:-1] >= size[2:]))
    f = at * df / FINE
    ratio = 2.0 * size[at] ** 2 / df / np.maximum(white + flicker / f + walk / f**2, 1e-300)
    out = ratio > math.log(n) + STANDS_OUT
    for line_hz in lines_hz:
        out &= np.abs(f - line_hz) > 3.0 * df
    for k in np.flatnonzero(out):
        off_hz = df / FINE + frequency_u_hz(df, float(ratio[k]), float(f[k]))
        yield float(f[k]), float(size[at[k]]) * 4.0 / math.sqrt(8.0 / 3.0), min(off_hz, df)


def frequency_u_hz(df_hz: float, ratio: float, at_hz: float) -> float:
    """Return by how much the frequency of a line may be off that stands out by ``ratio`` at the resolution ``df_hz``.

    Rife and Boorstyn (1974): the least variance of the frequency of a tone in white noise.
    """
    return max(KNOWN * 0.39 * df_hz / math.sqrt(ratio), WANDER * at_hz)
