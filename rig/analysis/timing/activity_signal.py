"""Compute which part of each reading an activity fills, after the filter and over the aperture of the meter."""

from functools import cache
from typing import Literal, NamedTuple

import numpy as np

from rig.types import Bools, Floats, Indices

BLOCK = 65_536
"""Number of readings in a block; intermediate arrays of one block fit into the cache."""
SETTLE_TAU = 5.0
"""Filter time constants after which a step counts as settled (0.7 % of it is left)."""
HARMONICS = 8
"""The error of a step is a sawtooth over its place between two readings; this many harmonics are used."""


class Edges(NamedTuple):
    """A piecewise-constant signal by its steps: sorted times in seconds, and jumps, shapes (k,)."""

    at_s: Floats
    jump: Floats


def edges_of(windows_s: Floats) -> Edges:
    """Return the signal that is the number of windows, shape (k, 2), at each moment."""
    at, jump = windows_s.T.ravel(), np.repeat([1.0, -1.0], len(windows_s))
    order = np.argsort(at, kind="stable")
    return Edges(at[order], jump[order])


def mean_signal(edges: Edges, start_s: Floats, end_s: Floats, tau_s: float = 0.0) -> Floats:
    """Return the mean over each reading of the signal behind a single-pole filter, in the shape of ``start_s``.

    For a reading of zero length it is the filtered signal at that instant. The filter stores what it has not passed
    on: integral of output = integral of input - tau * (rise of the output).
    """
    rows, mean = _rows(edges, tau_s), np.empty(len(start_s))
    for first in range(0, len(start_s), BLOCK):
        part = slice(first, first + BLOCK)
        (before, left), (after, value) = (_upto(rows, t_s[part], tau_s) for t_s in (start_s, end_s))
        total = after - before - (tau_s * (value - left) if tau_s > 0 else 0.0)
        length = end_s[part] - start_s[part]
        mean[part] = np.divide(total, length, out=value, where=length > 0)
    return mean


def _upto(rows: Floats, t_s: Floats, tau_s: float) -> tuple[Floats, Floats]:
    """Return the integral of the signal up to each moment, and the output of the filter at that moment."""
    at, level, area, *lagged = rows.take(count_before(rows[0, 1:], t_s, "right"), axis=1)
    since = t_s - at
    output = level + (lagged[0] - level) * np.exp(-np.maximum(since, 0.0) / tau_s) if lagged else level
    return area + level * since, output


def correlated(longer: Floats, shorter: Floats) -> Floats:
    """Return the sum of products at each shift that keeps ``shorter`` inside ``longer``, by one FFT of each."""
    n = fast_length(len(longer))
    product = np.fft.rfft(longer, n) * np.conj(np.fft.rfft(shorter, n))
    return np.asarray(np.fft.irfft(product, n)[: len(longer) - len(shorter) + 1])


@cache
def fast_length(n: int) -> int:
    """Return the least length of at least ``n`` whose factors are 2, 3 and 5, for which an FFT is fast."""
    powers = range(n.bit_length())
    odd: list[int] = [3**threes * 5**fives for threes in powers for fives in powers]
    return min(factor << (-(-n // factor) - 1).bit_length() for factor in odd)


def _rows(edges: Edges, tau_s: float) -> Floats:
    """Return time, level, integral and filtered level at each edge, after zeros for the time before the first edge."""
    rows = np.zeros((4 if tau_s > 0 else 3, len(edges.at_s) + 1))
    at, level = rows[0, 1:], rows[1, 1:]
    at[:] = edges.at_s
    np.cumsum(edges.jump, out=level)
    np.cumsum(level[:-1] * (at[1:] - at[:-1]), out=rows[2, 2:])
    if tau_s > 0:
        rows[3, 1:] = _lagged(at, level, tau_s)
    return rows


def _lagged(at: Floats, level: Floats, tau_s: float) -> Floats:
    decay = np.exp(-np.diff(at) / tau_s).tolist()
    steps = level.tolist()
    out = [0.0] * len(steps)
    for k in range(1, len(steps)):
        out[k] = steps[k - 1] + (out[k - 1] - steps[k - 1]) * decay[k - 1]
    return np.array(out)


def margin_s(sigma_s: float, tau_s: float) -> Floats:
    """Return how far a window must be extended at its begin and end to include its effect on readings; shape (2,)."""
    return np.array([-2.0 * sigma_s, 2.0 * sigma_s + 1.5 * SETTLE_TAU * tau_s])


def merged(windows_s: Floats) -> Floats:
    """Return the union of windows, shape (k, 2), as disjoint sorted windows."""
    if not len(windows_s):
        return windows_s.reshape(-1, 2)
    order = windows_s[np.argsort(windows_s[:, 0], kind="stable")]
    reach = np.maximum.accumulate(order[:, 1])
    first = np.concatenate([[True], order[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.column_stack([order[first, 0], reach[last]])


def touches(windows_s: Floats, start_s: Floats, end_s: Floats) -> Bools:
    """Return which readings overlap any of the disjoint sorted windows, in the shape of ``start_s``."""
    on_s, off_s = windows_s.T
    return np.asarray(np.append(-np.inf, off_s).take(count_before(on_s, end_s)) > start_s)


def inside(windows_s: Floats, start_s: Floats, end_s: Floats) -> Indices:
    """Return for each reading the index of the window that wholly holds it, or -1."""
    on_s, off_s = windows_s.T
    count = count_before(on_s, start_s, "right")
    return np.where(np.append(-np.inf, off_s).take(count) >= end_s, count - 1, -1)


def count_before(edges_s: Floats, t_s: Floats, side: Literal["left", "right"] = "left") -> Indices:
    """Return how many sorted edges are before each moment or, with "right", before or at it; shape of ``t_s``."""
    if not len(t_s) or not (t_s[1:] >= t_s[:-1]).all():
        return edges_s.searchsorted(t_s, side)
    # search each edge among the moments, because there are far more moments than edges
    before, upto = edges_s.searchsorted(t_s[[0, -1]], side)
    first = t_s.searchsorted(edges_s[before:upto], "right" if side == "left" else "left")
    many = np.append(first, len(t_s))
    many[1:] -= first
    return np.repeat(np.arange(before, upto + 1), many)


def means_by(of: Indices, n: int, weight: Floats | None, values: Floats) -> tuple[Floats, Floats]:
    """Return weighted means of values over ``n`` groups, 0 for an empty group, and the sums of weights; shapes (n,).

    ``of`` is the number of the group of each value. Without ``weight``, each value has the weight 1.
    """
    total = np.bincount(of, weight, n).astype(float)
    return np.bincount(of, values if weight is None else weight * values, n) / np.where(total > 0.0, total, 1.0), total


def in_step(at_s: Floats, period_s: float) -> float:
    """Return how alike moments lie in the period of readings: 1 if all at one place, 1/n for n random places.

    If readings leave out part of their period, the mean of n equal steps has an error. The result is the mean square
    of this error, divided by that of one step.
    """
    if period_s <= 0.0 or not len(at_s):
        return 1.0
    order = np.arange(1.0, HARMONICS + 1.0)
    turns = (at_s - at_s[0]) / period_s
    alike = np.array([abs(np.mean(np.exp(2j * np.pi * m * turns))) ** 2 for m in order])
    return float(alike @ order**-2.0) / float(np.sum(order**-2.0))
