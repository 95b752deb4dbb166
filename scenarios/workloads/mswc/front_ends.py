"""Convert a second of sound to inputs of the baselines: MFCC for the M5, and spikes for the recurrent network.

Both begin with powers in 20 mel bands from 20 Hz to 4 kHz, over windows of 512 samples, one every 5 ms. NeuroBench's
text says 20 Hz to 40 kHz, but 40 kHz is above the Nyquist frequency of 24 kHz. Its harness uses 4 kHz, and so does this
module.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.signal import get_window

from rig.types import Floats

RATE_HZ = 48_000
BANDS, WINDOW, HOP = 20, 512, 240
LOW_HZ, HIGH_HZ = 20.0, 4000.0
LEAST_POWER, RANGE_DB = 1e-10, 80.0
"""Lower limits of a power: ``LEAST_POWER``, and ``RANGE_DB`` below the largest power of the sample."""
LOG_OFFSET, THRESHOLD = 1e-6, 1.0
"""Offset added to powers before the logarithm, and the change of the logarithm that causes a spike (Speech2Spikes, doi
10.1145/3584954.3584995)."""


def mfcc(sound: Floats) -> NDArray[np.float32]:
    """Return 20 mel-frequency cepstral coefficients of a second, shape (20, 201)."""
    decibels = 10.0 * np.log10(np.maximum(mel_powers(sound), LEAST_POWER))
    decibels = np.maximum(decibels, decibels.max() - RANGE_DB)
    return np.asarray(dct(decibels, type=2, norm="ortho", axis=0), np.float32)


def spikes(sound: Floats) -> NDArray[np.float32]:
    """Return the spikes of a second, shape (200, 40): 20 columns for rises of the bands' logarithms, 20 for falls.

    Each band has a level; a spike moves the level by the threshold towards the signal (delta encoding). The first of
    the 201 powers only sets the initial levels.
    """
    logs = np.log(mel_powers(sound) + LOG_OFFSET)
    level, out = np.round(logs[:, 0]), np.zeros((logs.shape[1], 2, BANDS), np.float32)
    for step, found in zip(out, logs.T, strict=True):
        step[0], step[1] = found - level > THRESHOLD, found - level < -THRESHOLD
        level = level + THRESHOLD * (step[0] - step[1])
    return out[1:].reshape(-1, 2 * BANDS)


def mel_powers(sound: Floats) -> Floats:
    """Return the power in each mel band, shape (20, 201), from Hann windows every 5 ms."""
    held = np.pad(np.asarray(sound, float), WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(held, WINDOW)[::HOP]
    powers = np.abs(np.fft.rfft(frames * get_window("hann", WINDOW), axis=1)) ** 2
    return np.asarray(_filters() @ powers.T)


@lru_cache(maxsize=1)
def _filters() -> Floats:
    """Return triangular filters over frequency bins, shape (20, 257), with corners evenly spaced on HTK's mel scale."""
    low, high = (2595.0 * np.log10(1.0 + hz / 700.0) for hz in (LOW_HZ, HIGH_HZ))
    corners = 700.0 * (10.0 ** (np.linspace(low, high, BANDS + 2) / 2595.0) - 1.0)
    bins = np.linspace(0.0, RATE_HZ / 2, WINDOW // 2 + 1)
    up = (bins - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    down = (corners[2:, None] - bins) / (corners[2:] - corners[1:-1])[:, None]
    return np.asarray(np.maximum(np.minimum(up, down), 0.0))
