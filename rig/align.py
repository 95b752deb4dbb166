"""Marks in the trace: shift a meter's clock until the known activity fits what the meter saw.

The spans (and mark pulses) that the device stamped are a train of rectangles; the trace holds the same
train, blurred by the aperture and the front-end filter, which are declared. A rectangle's correlation
peaks where it belongs whatever positive shape stands inside it, so bursts do not pull the fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rig.occupancy import SETTLE_TAU, Edges, edges_of, merged, seen, touches
from rig.types import Floats

ITERATIONS = 8
CERTAINTY = 25.0
"""Twice the log-likelihood by which the best lag must beat every other (five standard deviations)."""


@dataclass(frozen=True)
class Alignment:
    """Add ``shift_s + rate * (t - ref_s)`` to the meter's seconds. Sigmas are against the device's clock."""

    shift_s: float
    rate: float
    ref_s: float
    sigma_s: float
    rate_sigma: float


@dataclass(frozen=True)
class Excess:
    """Readings above idle: start and end in run seconds, watts, shapes (n,); ``noise_w`` per reading."""

    start_s: Floats
    end_s: Floats
    watts: Floats
    noise_w: float
    period_s: float
    tau_s: float


def align(excess: Excess, phases: Mapping[str, Floats], reach_s: float) -> Alignment | None:
    """Fit within +-``reach_s``; None when the trace does not decide.

    ``phases`` maps each phase to its windows, shape (k, 2), on the device's clock in run seconds.
    """
    windows = merged(np.concatenate([w for w in phases.values() if len(w)] or [np.zeros((0, 2))]))
    if len(windows) < 3 or excess.noise_w < 0:
        return None
    near = _near(excess, windows, reach_s)
    if near is None:
        return None
    lag_s = _coarse(near, windows, reach_s)
    if lag_s is None:
        return None
    return _refine(_near(excess, windows, abs(lag_s) + 3.0 * excess.period_s) or near, phases, windows, lag_s, reach_s)


def _near(excess: Excess, windows: Floats, reach_s: float) -> Excess | None:
    margin = reach_s + 2.0 * excess.period_s + SETTLE_TAU * excess.tau_s
    use = touches(merged(windows + np.array([-margin, margin])), excess.start_s, excess.end_s)
    if np.count_nonzero(use) < 8:
        return None
    return Excess(
        excess.start_s[use],
        excess.end_s[use],
        excess.watts[use],
        excess.noise_w,
        excess.period_s,
        excess.tau_s,
    )


def _coarse(e: Excess, windows: Floats, reach_s: float) -> float | None:
    """Best whole-reading lag by cross-correlation, or None when another lag does as well."""
    from scipy.signal import correlate

    steps = math.ceil(reach_s / e.period_s)
    if steps == 0:
        return 0.0
    slot = np.round((e.start_s - e.start_s[0]) / e.period_s).astype(np.int64)
    values = np.zeros(slot[-1] + 1)
    values[slot] = e.watts
    start = e.start_s[0] + e.period_s * np.arange(-steps, len(values) + steps)
    length = float(np.median(e.end_s - e.start_s))
    train = seen(edges_of(windows), start, start + length, e.tau_s)
    score = correlate(train, values, mode="valid", method="fft")
    best = int(np.argmax(score))
    power = float(np.sum(train**2))
    rival = np.abs(np.arange(len(score)) - best) > 0.6 * float(np.median(np.diff(windows))) / e.period_s + 1.0
    second = float(np.max(score[rival], initial=0.0))
    if score[best] <= 0 or power <= 0:
        return None
    if (score[best] ** 2 - second**2) / power < CERTAINTY * max(e.noise_w**2, 1e-300):
        return None
    return (best - steps) * e.period_s


def _refine(e: Excess, phases: Mapping[str, Floats], windows: Floats, lag_s: float, reach_s: float) -> Alignment | None:
    """Gauss-Newton on shift and rate, with every phase's level fitted alongside."""
    trains = [edges_of(merged(w)) for w in phases.values() if len(w)]
    ref = float(windows.mean())
    lever = 0.5 * (e.start_s + e.end_s) - ref
    shift, rate = lag_s, 0.0
    for _ in range(ITERATIONS):
        columns, up, down, _ = _columns(e, trains, shift, rate, lever)
        design = np.column_stack([*columns, up + down, (up + down) * lever])
        solution = np.linalg.lstsq(design, e.watts, rcond=None)[0]
        step = np.clip(solution[-2:], -e.period_s, [e.period_s, e.period_s])
        step[1] = np.clip(solution[-1], -1.0, 1.0) * min(1.0, e.period_s / max(abs(step[1]) * np.ptp(lever), 1e-30))
        shift, rate = shift + float(step[0]), rate + float(step[1])
        if abs(shift) > 2.0 * reach_s + e.period_s:
            return None
    return _judged(e, trains, shift=shift, rate=rate, ref=ref)


def _columns(
    e: Excess, trains: list[Edges], shift: float, rate: float, lever: Floats
) -> tuple[list[Floats], Floats, Floats, Floats]:
    """Occupancy of each phase at the present shift, and the slopes for moving rising and falling edges."""
    start, end = e.start_s + shift + rate * lever, e.end_s + shift + rate * lever
    columns = [seen(t, start, end, e.tau_s) for t in trains]
    level = np.linalg.lstsq(np.column_stack(columns), e.watts, rcond=None)[0]
    all_edges = _joined(trains, level)
    eta = 0.25 * e.period_s
    slopes = []
    for rising in (True, False):
        mask = (all_edges.jump > 0) == rising
        moved = [seen(all_edges.shifted(np.where(mask, sign * eta, 0.0)), start, end, e.tau_s) for sign in (-1.0, 1.0)]
        slopes.append((moved[0] - moved[1]) / (2.0 * eta))
    return columns, slopes[0], slopes[1], seen(all_edges, start, end, e.tau_s)


def _joined(trains: list[Edges], level: Floats) -> Edges:
    """One signal in watts: each phase's train at its fitted level, coinciding edges combined."""
    at = np.concatenate([t.at_s for t in trains])
    jump = np.concatenate([t.jump * k for t, k in zip(trains, level, strict=True)])
    times, which = np.unique(at, return_inverse=True)
    return Edges(times, np.bincount(which, weights=jump).astype(float))


def _judged(e: Excess, trains: list[Edges], *, shift: float, rate: float, ref: float) -> Alignment | None:
    lever = 0.5 * (e.start_s + e.end_s) - ref
    columns, up, down, fitted = _columns(e, trains, shift, rate, lever)
    both = up + down
    if not np.any(both):
        return None
    residual = e.watts - fitted
    noise = max(e.noise_w, 1e-300)
    edge = both != 0
    scale = max(noise, float(np.sqrt(np.mean(residual[edge] ** 2))))
    design = np.column_stack([*columns, both, both * lever])
    cov = np.linalg.pinv(design.T @ design)
    sigma, rate_sigma = scale * math.sqrt(cov[-2, -2]), scale * math.sqrt(cov[-1, -1])
    split = np.linalg.lstsq(np.column_stack([*columns, up, down]), residual, rcond=None)[0]
    shape = 0.5 * abs(float(split[-2] - split[-1])) if np.any(up) and np.any(down) else 0.0
    sigma = math.hypot(sigma, min(shape, e.period_s), _wander(e, residual, both, scale))
    return Alignment(shift, rate, ref, sigma, rate_sigma)


def _wander(e: Excess, residual: Floats, slope: Floats, noise: float) -> float:
    """What a straight line leaves between the clocks, beyond what noise explains, over eight stretches."""
    parts = np.array_split(np.arange(len(residual)), 8)
    weight = np.array([float(np.sum(slope[p] ** 2)) for p in parts])
    good = weight > 0
    if np.count_nonzero(good) < 3:
        return 0.0
    moved = np.array([float(np.sum(slope[p] * residual[p])) for p in parts])[good] / weight[good]
    excess = float(np.mean(np.clip(moved, -e.period_s, e.period_s) ** 2 - noise**2 / weight[good]))
    return math.sqrt(max(excess, 0.0))
