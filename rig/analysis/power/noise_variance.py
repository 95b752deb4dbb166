"""The variance of any weighted sum of readings, from the spectrum of their noise.

A sum ``sum(w * y)`` over evenly spaced readings has the variance ``integral S(f) |W(f)|^2 df``.
"""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.noise import Noise
from rig.analysis.timing.activity_signal import fast_length
from rig.types import Bools, Floats

SEGMENT = 1 << 17
HORIZON_S = 1000.0
BLOCK = 1 << 16
"""Readings in one block, where intermediate arrays would otherwise take more memory than the trace."""


def variances(noise: Noise, weight: Floats, t_s: Floats, busy: Bools, many: Floats | None = None) -> dict[str, float]:
    """Return the variance of ``sum(weight * y)`` by source: white, flicker, lines, walk.

    ``weight`` and ``t_s`` have shape (n,). ``busy`` says during which readings the device was busy, and ``many`` of how
    many successive ones each is the mean, if of any.
    """
    each = weight if many is None else weight / np.sqrt(np.maximum(many, 1.0))
    white = float(noise.busy_w**2 * np.sum(each[busy] ** 2) + noise.white_w**2 * np.sum(each[~busy] ** 2))
    used = np.flatnonzero(weight)
    if not len(used):
        return {"white": 0.0, "flicker": 0.0, "lines": 0.0, "walk": 0.0}
    t, w = (t_s, weight) if len(used) == len(weight) else (t_s[used], weight[used])
    of = None if many is None else many[used]
    del used
    flicker = noise.flicker_w2 * _flicker_gain(t, w, noise.period_s) if noise.flicker_w2 > 0 else 0.0
    lines = sum(
        0.5 * a * a * _line_gain(t, w if of is None else w * _passed(f * noise.period_s, of), f, df)
        for f, a, df in noise.lines
    )
    walk = noise.walk_w2_per_s * _walk_gain(t, w, float(t_s[0])) if noise.walk_w2_per_s > 0 else 0.0
    return {"white": white, "flicker": flicker, "lines": lines, "walk": walk}


def _passed(turns: float, many: Floats) -> Floats:
    """How much of a line is left in means of successive readings, from one to the next of which it turns by so much."""
    return np.asarray(np.sin(np.pi * turns * many) / (np.sin(np.pi * turns) * many) if turns % 1.0 else np.ones(1))


def _walk_gain(t_s: Floats, weight: Floats, from_s: float) -> float:
    """Variance of a sum over a random walk that has grown by one in a second since ``from_s``.

    Each step of the walk moves all later readings. Where the walk had come to before the recording counts as part of
    the calibration limits.
    """
    later, total, before_s = float(np.sum(weight)), 0.0, from_s
    for part in (slice(k, k + BLOCK) for k in range(0, len(t_s), BLOCK)):
        moved = later - np.cumsum(weight[part]) + weight[part]
        total += float(np.diff(t_s[part], prepend=before_s) @ moved**2)
        later, before_s = float(moved[-1] - weight[part][-1]), float(t_s[part][-1])
    return total


def _flicker_gain(t_s: Floats, weight: Floats, period_s: float) -> float:
    """Return ``integral |W(f)|^2 / f df`` from the inverse of ``HORIZON_S`` upwards.

    Below a quarter of the inverse length of the stretch, W is the sum of the weights. This sum is zero for a difference
    of levels, but not for an absolute level. Changes slower than the horizon count as part of the calibration limits.
    """
    gain, step_hz = _gain(t_s, weight, period_s)
    level = float(weight.sum()) ** 2 * max(math.log(step_hz * 2.0 * math.pi * HORIZON_S), 0.0)
    return float(np.sum(gain / np.arange(1, len(gain) + 1))) + level


def _gain(t_s: Floats, weight: Floats, period_s: float) -> tuple[Floats, float]:
    """Return ``|W(f)|^2`` at the multiples of a frequency from one upwards, and this frequency in Hz."""
    last = int(np.round((t_s[-1] - t_s[0]) / period_s))
    stride = max(1, int(np.ceil((last + 1) / SEGMENT)))
    slot = np.empty(len(t_s), dtype=np.int64)
    for part in (slice(k, k + BLOCK) for k in range(0, len(slot), BLOCK)):
        slot[part] = np.round((t_s[part] - t_s[0]) / period_s).astype(np.int64) // stride
    grid = np.bincount(slot, weights=weight)
    del slot
    n = 4 * fast_length(len(grid))
    gain = np.abs(np.fft.rfft(grid, n)[1:]) ** 2
    return gain, 1.0 / (n * period_s * stride)


def _line_gain(t_s: Floats, weight: Floats, f_hz: float, df_hz: float) -> float:
    """Return the largest ``|W(f)|^2`` within ``df_hz`` of ``f_hz``.

    The weights are demodulated and summed over stretches far shorter than ``1 / df_hz``, whose spectrum shows every
    frequency nearby. A line in step with the spans adds up over all of them, in a peak as narrow as the run is long.
    """
    slots = 1 + int(8.0 * df_hz * (t_s[-1] - t_s[0]))
    grid = np.zeros(slots, dtype=np.complex128)
    for part in (slice(k, k + BLOCK) for k in range(0, len(t_s), BLOCK)):
        since = t_s[part] - t_s[0]
        turn, slot = 2.0 * np.pi * f_hz * since, np.minimum((8.0 * df_hz * since).astype(np.int64), slots - 1)
        # a complex exponential takes four times as long as both of these
        grid += np.bincount(slot, weight[part] * np.cos(turn), slots)
        grid -= 1j * np.bincount(slot, weight[part] * np.sin(turn), slots)
    gain = np.abs(np.fft.fft(grid, 4 * slots)) ** 2
    return float(np.max(gain[np.abs(np.fft.fftfreq(4 * slots)) <= 1.0 / 8.0]))
