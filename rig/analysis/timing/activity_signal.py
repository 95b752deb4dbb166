"""The activity signal: how much of each reading an activity fills, after the front-end filter and the aperture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rig.types import Floats, Indices

BLOCK = 1 << 16
"""Number of readings in a block; intermediate arrays of one block fit into the cache."""
SETTLE_TAU = 5.0
"""Filter time constants after which a step counts as settled (0.7 % of it is left)."""


HARMONICS = 8
"""Number of harmonics of the sawtooth that is the error of a step, by its place between two readings."""


@dataclass(frozen=True)
class Edges:
    """A piecewise-constant signal by its steps: sorted times in seconds, and jumps, shapes (k,)."""

    at_s: Floats
    jump: Floats


def edges_of(windows_s: Floats, height: Floats | float = 1.0) -> Edges:
    """Return rectangles, shape (k, 2), of the given height as one signal."""
    tall = np.broadcast_to(np.asarray(height, dtype=float), (len(windows_s),))
    at = np.concatenate([windows_s[:, 0], windows_s[:, 1]])
    jump = np.concatenate([tall, -tall])
    order = np.argsort(at, kind="stable")
    return Edges(at[order], jump[order])


def mean_signal(edges: Edges, start_s: Floats, end_s: Floats, tau_s: float = 0.0) -> Floats:
    """Return the mean over each reading of the signal behind a single-pole filter, in the shape of ``start_s``.

    For a reading of zero length it is the filtered signal at that instant. The filter stores what it has not passed
    on: integral of output = integral of input - tau * (rise of the output).
    """
    return mean_signals([edges], start_s, end_s, tau_s)[0]


def mean_signals(signals: Sequence[Edges], start_s: Floats, end_s: Floats, tau_s: float = 0.0) -> list[Floats]:
    """Return ``mean_signal`` of each of several signals; the order of readings is examined once for all."""
    rows = [_rows(edges, tau_s) for edges in signals]
    out: list[Floats] = [np.empty(len(start_s)) for _ in signals]
    for part in _blocks(len(start_s)):
        start, end = start_s[part], end_s[part]
        # the end of a reading that is the begin of the next is computed once
        joined = np.array_equal(start[1:], end[:-1])
        moments = [_moments(t) for t in ([np.concatenate([start, end[-1:]])] if joined else [start, end])]
        length = end - start
        instant = length <= 0
        length[instant] = 1.0
        ends = _moments(end) if instant.any() else None
        for of, mean in zip(rows, out, strict=True):
            held = [_held(of, m) for m in moments]
            total = _rise([_area(h, m.t_s) for h, m in zip(held, moments, strict=True)])
            if tau_s > 0:
                total -= tau_s * _rise([_output(h, m.t_s, tau_s) for h, m in zip(held, moments, strict=True)])
            if ends is not None:
                total = np.where(instant, _output(_held(of, ends), ends.t_s, tau_s), total)
            np.divide(total, length, out=mean[part])
    return out


@dataclass(frozen=True)
class _Moments:
    """Moments, shape (n,), and whether they are in order of time."""

    t_s: Floats
    in_order: bool


def _moments(t_s: Floats) -> _Moments:
    return _Moments(t_s, _in_order(t_s))


def _in_order(*times_s: Floats) -> bool:
    return all((t[1:] >= t[:-1]).all() for t in times_s)


def _area(held: list[Floats], t_s: Floats) -> Floats:
    """Return the integral of the signal up to each moment."""
    at, level, area, *_ = held
    return np.asarray(area + level * (t_s - at))


def _output(held: list[Floats], t_s: Floats, tau_s: float) -> Floats:
    """Return the output of the filter at each moment."""
    at, level, _, *lagged = held
    return level + (lagged[0] - level) * np.exp(-np.maximum(t_s - at, 0.0) / tau_s) if lagged else level


def _rise(values: list[Floats]) -> Floats:
    """Return the rise over each reading, from values at begins and at ends, or at moments that readings share."""
    first, last = values if len(values) == 2 else (values[0][:-1], values[0][1:])
    return np.asarray(last - first)


def correlated(longer: Floats, shorter: Floats) -> Floats:
    """Return the sum of products at each shift that keeps ``shorter`` inside ``longer``, by one FFT of each."""
    n = fast_length(len(longer))
    product = np.fft.rfft(longer, n) * np.conj(np.fft.rfft(shorter, n))
    return np.asarray(np.fft.irfft(product, n)[: len(longer) - len(shorter) + 1])


def fast_length(n: int) -> int:
    """Return the least length of at least ``n`` whose factors are 2, 3 and 5, for which an FFT is fast."""
    best, fives = 1 << (n - 1).bit_length(), 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << (-(-n // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best


def _blocks(n: int) -> Iterator[slice]:
    return (slice(first, first + BLOCK) for first in range(0, n, BLOCK))


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


def _held(rows: Floats, moments: _Moments) -> list[Floats]:
    """Return the values of each row at the last edge before each moment, in the shape of the moments."""
    at_s, t_s = rows[0, 1:], moments.t_s
    if moments.in_order:  # one search for each edge, as there are far more moments
        first = np.concatenate([[0], t_s.searchsorted(at_s), [len(t_s)]])
        count = first[1:] - first[:-1]
        return [row.repeat(count) for row in rows]
    return [*rows[:, at_s.searchsorted(t_s, side="right")]]


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


def touches(windows_s: Floats, start_s: Floats, end_s: Floats) -> NDArray[np.bool_]:
    """Return which readings overlap any of the disjoint sorted windows, in the shape of ``start_s``."""
    on_s, off_s = windows_s.T
    if not len(windows_s):
        return np.zeros(len(start_s), bool)
    if _in_order(on_s, start_s, end_s):
        after = _in_and_out(end_s.searchsorted(on_s, "right"), start_s.searchsorted(off_s), len(start_s))
        return np.repeat(np.arange(len(after)) % 2 == 1, after)
    k = on_s.searchsorted(end_s) - 1
    return np.asarray((k >= 0) & (off_s[k] > start_s))


def inside(windows_s: Floats, start_s: Floats, end_s: Floats) -> NDArray[np.int64]:
    """Return for each reading the index of the window that wholly holds it, or -1."""
    on_s, off_s = windows_s.T
    if not len(windows_s):
        return np.full(len(start_s), -1, dtype=np.int64)
    if _in_order(on_s, start_s, end_s):
        after = _in_and_out(start_s.searchsorted(on_s), end_s.searchsorted(off_s, "right"), len(start_s))
        number = np.full(len(after), -1)
        number[1::2] = np.arange(len(windows_s))
        return np.repeat(number, after)
    k = on_s.searchsorted(start_s, "right") - 1
    return np.where((k >= 0) & (off_s[k] >= end_s), k, -1)


def count_before(edges_s: Floats, t_s: Floats, side: Literal["left", "right"] = "left") -> Indices:
    """Return how many of the sorted edges are before each moment, or with "right" at it too; shape of ``t_s``."""
    if not _in_order(edges_s, t_s):
        return edges_s.searchsorted(t_s, side)
    first = t_s.searchsorted(edges_s, "right" if side == "left" else "left")
    return np.repeat(np.arange(len(edges_s) + 1), np.diff(first, prepend=0, append=len(t_s)))


def _in_and_out(first: Indices, last: Indices, n: int) -> Indices:
    """Return how many of n readings are before, in, between and after windows in turn, shape (2 k + 1,).

    Window k holds the readings from ``first[k]`` to ``last[k]``, up to the first of the next window.
    """
    until = np.append(first[1:], n)
    return np.diff(np.column_stack([first, np.clip(last, first, until)]).ravel(), prepend=0, append=n)


def in_step(at_s: Floats, period_s: float) -> float:
    """Return how far moments share one place between two readings: 1 if all do, 1/n for n at random places.

    If readings leave out part of their interval, n equal steps have an error of their mean. The result is the mean
    square of this error over that of one step.
    """
    if period_s <= 0.0 or not len(at_s):
        return 1.0
    order = np.arange(1.0, HARMONICS + 1.0)
    turns = (at_s - at_s[0]) / period_s
    alike = np.array([abs(np.mean(np.exp(2j * np.pi * m * turns))) ** 2 for m in order])
    return float(alike @ order**-2.0) / float(np.sum(order**-2.0))
