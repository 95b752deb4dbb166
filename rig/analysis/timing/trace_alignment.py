"""Alignment by the trace: the shift and rate of a meter's clock that fit the known activity to the readings.

The spans and mark pulses that the device stamped are a train of rectangles. The trace holds the same train, blurred by
the declared aperture and front-end filter. The correlation has its peak at the true position of the train, for spans of
any positive shape. In the fit, the head and the tail of each span have levels of their own, so that bursts have little
effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.activity_signal import (
    SETTLE_TAU,
    Edges,
    correlated,
    edges_of,
    joined,
    levelled,
    mean_signal,
    merged,
    touches,
)
from rig.types import Floats

FINEST = 0.25
"""The interval, in readings, over which the finest slopes are computed."""
FINE_STEPS = 6
RIVAL = 0.75
MAX_RIVALS = 6
MOST_RATES = 16
"""Rates on either side of the bracketed rate from which fits begin."""
COARSE_POINTS = 1 << 18
"""With more readings than this, the coarse search averages neighbours, as far as the spans allow."""
KNOWN = 0.5
"""Part of a shift that slopes must show beside levels."""
EMPTY = 4096
"""Successive slots without a reading from which stretches are looked at one by one."""
MOST_LONGER = 0.5
"""Part of a gap up to which activity beside the spans is looked for."""
LEAST_BEYOND, LEAST_GAIN = 0.1, 0.1
"""Part of the level of spans that counts as activity beside them, and of the misfit that it must explain."""
CERTAINTY = 25.0
"""The best lag must have a better log-likelihood than any other; twice the difference must exceed this (five sigma)."""


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
    """

    start_s: Floats
    end_s: Floats
    watts: Floats
    noise_w: float
    period_s: float
    tau_s: float
    level_w: float = 0.0


def align(excess: Excess, phases: Mapping[str, Floats], reach_s: float, rate_reach: float = 0.0) -> Alignment | None:
    """Fit the shift within +-``reach_s`` and the rate within about +-``rate_reach``.

    Return None if the trace cannot decide. ``phases`` maps each phase to its windows, shape (k, 2), on the device's
    clock in run seconds. A periodic train fits almost as well when it is shifted by one period. So every lag that
    correlates nearly as well is refined, and the best lag must explain the trace better than the next by more than
    noise could.
    """
    spans = np.concatenate([w for w in phases.values() if len(w)] or [np.zeros((0, 2))])
    windows = merged(spans)
    if len(spans) < 3:
        return None
    margin = reach_s + 2.0 * excess.period_s + SETTLE_TAU * excess.tau_s + rate_reach * float(np.ptp(windows))
    near = _within(excess, windows, margin)
    if near is None:
        return None
    edges = np.repeat(spans.reshape(-1, 1), 2, axis=1)
    at_edges = _within(excess, edges, margin)
    if at_edges is None:
        return None
    phase_trains = [edges_of(merged(w)) for w in phases.values() if len(w)]
    trains = phase_trains + _ends(windows, 2.0 * excess.period_s + SETTLE_TAU * excess.tau_s)
    # which signal correlates best depends on the rail: all phases alike, or each phase at its own level
    starts = {(0.0, 0.0), *_starts(near, edges_of(windows), spans, reach_s, rate_reach)}
    if len(phase_trains) > 1:
        starts |= set(
            _starts(
                near,
                levelled(phase_trains, near.start_s, near.end_s, near.watts, near.tau_s),
                spans,
                reach_s,
                rate_reach,
            )
        )
    ordered = sorted(starts, key=lambda start: (abs(start[0]), abs(start[1])))
    fits = [_refined(at_edges, trains, spans, start, rate_reach) for start in ordered]
    best = _decided(at_edges, [f for f in fits if abs(f.shift_s) <= reach_s])
    if best is None:
        return None
    found = _judged(at_edges, trains, best, float(spans.mean()), rate_reach)
    if found is None:
        return None
    longer_s = _longer_s(at_edges, trains, windows, best, found.ref_s, min(margin, MOST_LONGER * _gap_s(windows)))
    return replace(found, sigma_s=math.hypot(found.sigma_s, 0.5 * longer_s))


def _ends(windows: Floats, ends_s: float) -> list[Edges]:
    """Heads and tails of the windows as trains with levels of their own, so that bursts there hardly move the fit.

    Only windows that stand alone get them: between neighbours, a free level would let their common edge move.
    """
    gap = windows[1:, 0] - windows[:-1, 1] > 2.0 * ends_s
    alone = windows[np.append(True, gap) & np.append(gap, True)]
    if 2 * len(alone) < len(windows):
        return []
    on, off = alone[:, 0], alone[:, 1]
    cut = np.minimum((off - on) / 3.0, ends_s)
    return [edges_of(np.column_stack(pair)) for pair in ((on, on + cut), (off - cut, off))]


def _decided(e: Excess, fits: list[_Fit]) -> _Fit | None:
    """The best fit, if it beats a flat line and every rival at another lag by more than noise can."""
    if not fits:
        return None
    best = min(fits, key=lambda f: f.misfit)
    floor = float(np.finfo(float).eps * abs(e.level_w))
    noise2 = max(e.noise_w**2, best.misfit / len(e.watts), floor**2)
    rivals = [f.misfit for f in fits if abs(f.shift_s - best.shift_s) > e.period_s]
    gains = [0.5 * (float(np.sum(e.watts**2)) - best.misfit), *(m - best.misfit for m in rivals)]
    return best if min(gains) >= CERTAINTY * noise2 else None


@dataclass(frozen=True)
class _Fit:
    shift_s: float
    rate: float
    misfit: float


def _within(excess: Excess, windows: Floats, margin_s: float) -> Excess | None:
    use = touches(merged(windows + np.array([-margin_s, margin_s])), excess.start_s, excess.end_s)
    if np.count_nonzero(use) < 8:
        return None
    return replace(excess, start_s=excess.start_s[use], end_s=excess.end_s[use], watts=excess.watts[use])


def _starts(e: Excess, activity: Edges, spans: Floats, reach_s: float, rate_reach: float) -> list[tuple[float, float]]:
    """Lags and rates to begin fits from: each lag that correlates nearly as well as the best, with its best rate.

    A fit may settle wrongly if it begins with the outer edges off by a large part of a span, so rates are tried in
    steps that move the outer edges by half a span.
    """
    width, middle = _width(spans), float(spans.mean())
    steps = math.ceil(rate_reach * _half(spans) / (0.5 * width)) if width > 0 else 0
    steps = min(steps, MOST_RATES) if rate_reach * _half(spans) > 0.25 * width else 0
    found: list[tuple[float, float, float]] = []
    for rate in np.linspace(-rate_reach, rate_reach, 2 * steps + 1) if steps else [0.0]:
        moved = replace(activity, at_s=activity.at_s - rate * (activity.at_s - middle))
        found += [(score, lag_s, float(rate)) for score, lag_s in _coarse(e, moved, reach_s, width)]
    best = max((score for score, _, _ in found), default=0.0)
    chosen: list[tuple[float, float]] = []
    for score, lag_s, rate in sorted(found, key=lambda f: -f[0]):
        distinct = all(abs(lag_s - other) > 0.5 * width for other, _ in chosen) or not steps
        if score >= RIVAL * best and distinct and len(chosen) < MAX_RIVALS:
            chosen.append((lag_s, rate))
    return chosen


def _width(spans: Floats) -> float:
    return float(np.median(spans[:, 1] - spans[:, 0]))


def _half(spans: Floats) -> float:
    return max(0.5 * float(np.ptp(spans)), 1e-12)


def _coarse(e: Excess, activity: Edges, reach_s: float, width: float) -> list[tuple[float, float]]:
    """Scores and lags, in whole readings, whose cross-correlation is close to the best, best first."""
    slot = np.round((e.start_s - e.start_s[0]) / e.period_s).astype(np.int64)
    joined = max(1, int(width / (16.0 * e.period_s))) if slot[-1] > COARSE_POINTS else 1
    period_s, slot = joined * e.period_s, slot // joined
    steps = math.ceil(reach_s / period_s)
    if steps == 0:
        return [(1.0, 0.0)]
    length = float(np.median(e.end_s - e.start_s)) if joined == 1 else period_s
    score = np.zeros(2 * steps + 1)
    # where a long trace is looked at in stretches, most slots are empty
    for part in np.split(np.arange(len(slot)), np.flatnonzero(np.diff(slot) > EMPTY + 4 * steps) + 1):
        at = slot[part] - slot[part[0]]
        values = np.bincount(at, weights=e.watts[part])
        if joined > 1:
            values = values / np.maximum(np.bincount(at), 1)
        start = e.start_s[0] + period_s * (slot[part[0]] + np.arange(-steps, len(values) + steps))
        train = mean_signal(activity, start, start + length, e.tau_s)
        score += correlated(train, values)
    if score.max() <= 0:
        return []
    beside = np.concatenate([[-np.inf], score, [-np.inf]])
    peaks = np.flatnonzero((score > beside[:-2]) & (score >= beside[2:]) & (score >= RIVAL * score.max()))
    ranked = sorted(peaks.tolist(), key=lambda k: -score[k])[:MAX_RIVALS]
    return [(float(score[k]), (k - steps) * period_s) for k in ranked]


def _refined(e: Excess, trains: list[Edges], spans: Floats, start: tuple[float, float], rate_reach: float) -> _Fit:
    """Gauss-Newton fit of shift, rate and the level of every phase, from coarse slopes to fine ones."""
    lever = 0.5 * (e.start_s + e.end_s) - float(spans.mean())
    half_span = max(float(np.max(np.abs(lever))), 1e-12)
    shift, rate = start
    eta = max(min(0.25 * _width(spans), rate_reach * half_span), FINEST * e.period_s)
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
    return _Fit(shift, rate, float(np.sum((e.watts - design @ level) ** 2)))


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
    columns = [mean_signal(t, start, end, e.tau_s) for t in trains]
    level = np.linalg.lstsq(np.column_stack(columns), e.watts, rcond=None)[0]
    all_edges = joined(trains, level)
    slopes = []
    for rising in (True, False):
        mask = (all_edges.jump > 0) == rising
        moved = [
            mean_signal(all_edges.shifted(np.where(mask, sign * eta, 0.0)), start, end, e.tau_s) for sign in (-1.0, 1.0)
        ]
        slopes.append((moved[0] - moved[1]) / (2.0 * eta))
    return columns, slopes[0], slopes[1], mean_signal(all_edges, start, end, e.tau_s)


def _judged(e: Excess, trains: list[Edges], fit: _Fit, ref: float, rate_reach: float) -> Alignment | None:
    """The fit with its sigmas: noise, disagreement of rising and falling edges, and wander."""
    shift, rate = fit.shift_s, fit.rate
    lever = 0.5 * (e.start_s + e.end_s) - ref
    columns, up, down, fitted = _columns(e, trains, shift, rate, lever, FINEST * e.period_s)
    both = up + down
    if not np.any(both):
        return None
    residual = e.watts - fitted
    noise = max(e.noise_w, 1e-300)
    edge = both != 0
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
    sigma = math.hypot(sigma, min(shape, e.period_s), _wander(e, residual, both, scale))
    return Alignment(shift, rate, ref, sigma, rate_sigma)


def _gap_s(windows: Floats) -> float:
    return float(np.median(windows[1:, 0] - windows[:-1, 1])) if len(windows) > 1 else 0.0


def _longer_s(e: Excess, trains: list[Edges], windows: Floats, fit: _Fit, ref: float, most_s: float) -> float:
    """How far the device is active before or after its spans, at the place of the fit; 0 if it is not.

    A device that wakes with an inrush is active for longer than it stamped. Its spans may then lie at either end of
    what the trace shows.
    """
    t = fit.shift_s + fit.rate * (0.5 * (e.start_s + e.end_s) - ref)
    start, end = e.start_s + t, e.end_s + t
    columns = [mean_signal(train, start, end, e.tau_s) for train in trains]
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
