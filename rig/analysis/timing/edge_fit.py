"""Least squares on the edges of spans: the shift and rate of a meter's clock, from coarse slopes to fine ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rig.analysis.timing.activity_signal import Edges, edges_of, joined, mean_signal, mean_signals, merged
from rig.types import Bools, Floats

FINEST = 0.25
"""The interval, in readings, over which the finest slopes are computed."""
FINE_STEPS = 6
KNOWN = 0.5
"""Part of a shift that slopes must show beside levels."""
LEAST_BEYOND, LEAST_GAIN = 0.1, 0.1
"""Part of the level of spans that counts as activity beside them, and of the misfit that it must explain."""
ROUNDED = 64.0
"""Ulps of the latest moment by which the slopes of readings that no edge touches may differ from zero."""
CERTAINTY = 25.0
"""Twice the log-likelihood by which another place or shape of the spans must be better (five sigma)."""

STANDS_OUT = 9.0
"""Times as much as by chance that whole spans must explain (the square of three standard deviations)."""


@dataclass(frozen=True)
class Alignment:
    """The correction ``shift_s + rate * (t - ref_s)`` to add to the meter's seconds.

    Sigmas are against the device's clock.
    """

    shift_s: float
    rate: float
    ref_s: float
    sigma_s: float
    rate_sigma: float


@dataclass(frozen=True)
class Excess:
    """Readings above idle: start and end in run seconds, and watts, shapes (n,); ``noise_w`` is per reading.

    ``level_w`` is the idle level below them. A reading is never more accurate than the rounding of its full value.
    Unless ``gaps_known``, the level between spans may be another one, and is fitted.
    """

    start_s: Floats
    end_s: Floats
    watts: Floats
    noise_w: float
    period_s: float
    tau_s: float
    level_w: float = 0.0
    gaps_known: bool = True


@dataclass(frozen=True)
class Fit:
    """A correction of a meter's seconds, as in ``Alignment``, and the sum of squares that it leaves."""

    shift_s: float
    rate: float
    misfit: float


def width_of(spans: Floats) -> float:
    """Return the median length of spans, shape (k, 2)."""
    return float(np.median(spans[:, 1] - spans[:, 0]))


def refined(e: Excess, trains: list[Edges], spans: Floats, start: tuple[float, float], rate_reach: float) -> Fit:
    """Return the Gauss-Newton fit of shift, rate and the level of every phase, from coarse slopes to fine ones."""
    lever = 0.5 * (e.start_s + e.end_s) - float(spans.mean())
    half_span = max(float(np.max(np.abs(lever))), 1e-12)
    shift, rate = start
    eta = max(min(0.25 * width_of(spans), rate_reach * half_span), FINEST * e.period_s)
    fine = 0
    while fine < FINE_STEPS:
        columns, up, down, fitted = _columns(e, trains, shift, rate, lever, eta)
        design = np.column_stack([*columns, up + down, (up + down) * lever])
        scale = max(float(np.sqrt(np.mean((e.watts - fitted) ** 2))), e.noise_w)
        known, target = _known_rate(design.shape[1], scale, rate_reach, rate)
        solution = np.linalg.lstsq(np.vstack([design, known]), np.append(e.watts, target), rcond=None)[0]
        limit = max(eta, e.period_s)
        shift += float(np.clip(solution[-2], -limit, limit))
        rate += float(np.clip(solution[-1], -limit / half_span, limit / half_span))
        fine += eta <= FINEST * e.period_s
        eta = max(0.7 * eta, FINEST * e.period_s)
    columns, _, _, _ = _columns(e, trains, shift, rate, lever, eta)
    design = np.column_stack(columns)
    level = np.linalg.lstsq(design, e.watts, rcond=None)[0]
    return Fit(shift, rate, float(np.sum((e.watts - design @ level) ** 2)))


def _known_rate(width: int, scale: float, rate_reach: float, rate: float) -> tuple[Floats, float]:
    """One more equation for the fit: the brackets know the rate to half of ``rate_reach``."""
    row = np.zeros(width)
    row[-1] = 2.0 * scale / rate_reach if rate_reach > 0 else 0.0
    return row, -rate * float(row[-1])


def _columns(
    e: Excess, trains: list[Edges], shift: float, rate: float, lever: Floats, eta: float
) -> tuple[list[Floats], Floats, Floats, Floats]:
    """Activity signal of each phase at the present shift, the slopes for rising and falling edges, and the fit."""
    start, end = e.start_s + shift + rate * lever, e.end_s + shift + rate * lever
    columns = mean_signals(trains, start, end, e.tau_s)
    level = np.linalg.lstsq(np.column_stack(columns), e.watts, rcond=None)[0]
    all_edges = joined(trains, level)
    rising = all_edges.jump > 0
    moved = [all_edges.shifted(np.where(mask, by_s, 0.0)) for mask in (rising, ~rising) for by_s in (-eta, eta)]
    fitted, *beside = mean_signals([all_edges, *moved], start, end, e.tau_s)
    up, down = ((before - after) / (2.0 * eta) for before, after in (beside[:2], beside[2:]))
    return columns, up, down, fitted


def judged(e: Excess, trains: list[Edges], fit: Fit, ref: float, rate_reach: float) -> Alignment | None:
    """Return the fit with its sigmas from noise, from edges that disagree and from wander, or None without edges."""
    shift, rate = fit.shift_s, fit.rate
    lever = 0.5 * (e.start_s + e.end_s) - ref
    columns, up, down, fitted = _columns(e, trains, shift, rate, lever, FINEST * e.period_s)
    both, edge = up + down, _moved(e, up + down)
    if not edge.any():
        return None
    residual = e.watts - fitted
    noise = max(e.noise_w, 1e-300)
    scale = max(noise, float(np.sqrt(np.mean(residual[edge] ** 2))))
    design = np.column_stack([*columns, both, both * lever])
    known, _ = _known_rate(design.shape[1], scale, rate_reach, rate)
    information = design.T @ design + np.outer(known, known)
    cov = np.linalg.pinv(information)
    if not (cov[-2, -2] > 0.0 and cov[-1, -1] > 0.0):  # a trace that consists of rounding errors has no edges
        return None
    if (information @ cov)[-2, -2] < KNOWN:  # spans in step with the readings change level and place alike
        return None
    sigma, rate_sigma = scale * math.sqrt(cov[-2, -2]), scale * math.sqrt(cov[-1, -1])
    split = np.linalg.lstsq(np.column_stack([*columns, up, down]), residual, rcond=None)[0]
    shape = 0.5 * abs(float(split[-2] - split[-1])) if np.any(up) and np.any(down) else 0.0
    sigma = math.hypot(sigma, min(shape, e.period_s), _wander(e, residual, np.where(edge, both, 0.0), scale))
    return Alignment(shift, rate, ref, sigma, rate_sigma)


def _moved(e: Excess, slope: Floats) -> Bools:
    """Which readings an edge moves; ``slope``, shape (n,), is that of signals which are ``FINEST`` apart.

    Where no edge is, rounding alone keeps a slope from zero. Moments are rounded by ulps of the latest one. As a part
    of the interval between the signals, this bounds what rounding adds, as a part of the steepest slope.
    """
    latest_s = float(np.max(np.abs([e.start_s[[0, -1]], e.end_s[[0, -1]]])))
    least = ROUNDED * float(np.finfo(float).eps) * latest_s / (FINEST * e.period_s)
    return np.asarray(np.abs(slope) > least * np.max(np.abs(slope), initial=0.0))


def _placed(e: Excess, fit: Fit, ref: float) -> tuple[Floats, Floats]:
    """Begin and end of the readings at the place of the fit."""
    t = fit.shift_s + fit.rate * (0.5 * (e.start_s + e.end_s) - ref)
    return e.start_s + t, e.end_s + t


def stands_out(e: Excess, whole: list[Edges], ends: list[Edges], beside: list[Edges], spans: Floats, fit: Fit) -> bool:
    """Return whether spans, shape (k, 2), differ from what is beside them by more than chance, at the place of the fit.

    Whole spans must, or all of them with their heads and tails, each of which may fit to something. ``beside`` is the
    level between spans, if it is not known. What is neither noise nor spans may change as often as spans do, so any
    train explains one in two ``k`` parts of it by chance.
    """
    start, end = _placed(e, fit, float(spans.mean()))
    level, columns = (mean_signals(t, start, end, e.tau_s) for t in (beside, [*whole, *ends]))
    without = _misfit(e, level)
    for trains, count in ((columns[: len(whole)], 1), (columns, len(columns))):
        misfit = _misfit(e, [*trains, *level])
        chance = max(misfit - len(e.watts) * e.noise_w**2, 0.0) / (2.0 * len(spans)) + e.noise_w**2
        if without - misfit >= STANDS_OUT * count * chance:
            return True
    return False


def _misfit(e: Excess, columns: list[Floats]) -> float:
    """Return the sum of squares that is left of the readings when signals are fitted to them."""
    if not columns:
        return float(e.watts @ e.watts)
    signals = np.column_stack(columns)
    left = e.watts - signals @ np.linalg.lstsq(signals, e.watts, rcond=None)[0]
    return float(left @ left)


def longer_s(e: Excess, trains: list[Edges], windows: Floats, fit: Fit, ref: float, most_s: float) -> float:
    """Return how far the device is active before or after its spans, at the place of the fit; 0 if it is not.

    A device that wakes with an inrush is active for longer than it stamped. Its spans may then lie at either end of
    what the trace shows.
    """
    start, end = _placed(e, fit, ref)
    columns = mean_signals(trains, start, end, e.tau_s)
    left = e.watts - (plain := np.column_stack(columns)) @ np.linalg.lstsq(plain, e.watts, rcond=None)[0]
    level = float(np.linalg.lstsq(plain[:, :1], e.watts, rcond=None)[0][0])
    noise2 = max(e.noise_w**2, float(np.finfo(float).eps * e.level_w) ** 2)
    found, least = 0.0, float(left @ left) - max(CERTAINTY * noise2, LEAST_GAIN * float(left @ left))
    for side in (0, 1):
        for by_s in e.period_s * 2.0 ** np.arange(0.0, math.log2(max(most_s / e.period_s, 1.0)) + 1e-9):
            edge = windows[:, side]
            beyond = np.column_stack([edge - by_s, edge] if side == 0 else [edge, edge + by_s])
            design = np.column_stack([*columns, mean_signal(edges_of(merged(beyond)), start, end, e.tau_s)])
            solution = np.linalg.lstsq(design, e.watts, rcond=None)[0]
            misfit = float(np.sum((e.watts - design @ solution) ** 2))
            if misfit < least and solution[-1] > LEAST_BEYOND * level:
                found, least = float(by_s), misfit
    return found


def _wander(e: Excess, residual: Floats, slope: Floats, noise: float) -> float:
    """Seconds between the clocks that a straight line leaves over eight stretches, beyond what noise explains."""
    parts = np.array_split(np.arange(len(residual)), 8)
    weight = np.array([float(np.sum(slope[p] ** 2)) for p in parts])
    good = weight > 0
    if np.count_nonzero(good) < 3:
        return 0.0
    moved = np.array([float(np.sum(slope[p] * residual[p])) for p in parts])[good] / weight[good]
    excess = float(np.mean(np.clip(moved, -e.period_s, e.period_s) ** 2 - noise**2 / weight[good]))
    return math.sqrt(max(excess, 0.0))
