"""Alignment by the trace: the shift and rate of a meter's clock that fit the known activity to the readings.

The spans and mark pulses that the device stamped are a train of rectangles. The trace holds the same train, blurred by
the declared aperture and front-end filter. The correlation has its peak at the true position of the train, for spans of
any positive shape. In the fit, the head and the tail of each span have levels of their own, so that bursts have little
effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rig.analysis.timing.activity_signal import (
    SETTLE_TAU,
    Edges,
    correlated,
    edges_of,
    levelled,
    mean_signal,
    merged,
    touches,
)
from rig.analysis.timing.edge_fit import (
    CERTAINTY,
    Alignment,
    Excess,
    Fit,
    judged,
    longer_s,
    refined,
    stands_out,
    width_of,
)
from rig.analysis.timing.stretches import groups
from rig.types import Floats

RIVAL = 0.75
MAX_RIVALS = 6
MOST_RATES = 16
"""Rates on either side of the bracketed rate from which fits begin."""
COARSE_POINTS = 1 << 18
"""With more readings than this, the coarse search averages neighbours, as far as the spans allow."""
FITTED = 1 << 18
"""With more readings than this near the edges of spans, fits look at those near groups of successive spans."""
EMPTY = 4096
"""Successive slots without a reading from which stretches are looked at one by one."""
MOST_LONGER = 0.5
"""Part of a gap up to which activity beside the spans is looked for."""


def align(excess: Excess, phases: Mapping[str, Floats], reach_s: float, rate_reach: float = 0.0) -> Alignment | None:
    """Fit the shift within +-``reach_s`` and the rate within about +-``rate_reach``.

    Return None if the trace cannot decide. ``phases`` maps each phase to its windows, shape (k, 2), on the device's
    clock in run seconds. A periodic train fits almost as well when it is shifted by one period. So every lag that
    correlates nearly as well is refined, and the best lag must explain the trace better than the next by more than
    noise could.
    """
    spans = np.concatenate([w for w in phases.values() if len(w)] or [np.zeros((0, 2))])
    windows = merged(spans)
    if len(spans) < 3 or not len(excess.watts):
        return None
    # farther away, no span would lie within the readings
    reach_s = min(reach_s, max(excess.end_s[-1] - windows[0, 0], windows[-1, 1] - excess.start_s[0], 0.0))
    margin = reach_s + 2.0 * excess.period_s + SETTLE_TAU * excess.tau_s + rate_reach * float(np.ptp(windows))
    near = _within(excess, windows, margin)
    at_edges = _at_edges(excess, spans, margin)
    if near is None or at_edges is None:
        return None
    phase_trains = [edges_of(merged(w)) for w in phases.values() if len(w)]
    known = excess.gaps_known or len(windows) == 1
    beside = [] if known else [edges_of(np.array([[windows[0, 0], windows[-1, 1]]]))]
    ends = _ends(windows, 2.0 * excess.period_s + SETTLE_TAU * excess.tau_s)
    trains = phase_trains + beside + ends
    # which signal correlates best depends on the rail: all phases alike, or each phase at its own level
    signals = [edges_of(windows)]
    if len(phase_trains) > 1:
        signals.append(levelled(phase_trains, near.start_s, near.end_s, near.watts, near.tau_s))
    if not excess.gaps_known:
        signals = [_centred(signal) for signal in signals]
    starts = {(0.0, 0.0), *(start for signal in signals for start in _starts(near, signal, spans, reach_s, rate_reach))}
    ordered = sorted(starts, key=lambda start: (abs(start[0]), abs(start[1])))
    fits = [refined(at_edges, trains, spans, start, rate_reach) for start in ordered]
    best = _decided(at_edges, [f for f in fits if abs(f.shift_s) <= reach_s])
    found = None if best is None else judged(at_edges, trains, best, float(spans.mean()), rate_reach)
    if best is None or found is None or not stands_out(at_edges, phase_trains, ends, beside, spans, best):
        return None
    most_s = min(margin, MOST_LONGER * _gap_s(windows))
    active_s = longer_s(at_edges, trains, windows, best, found.ref_s, most_s)
    return replace(found, sigma_s=math.hypot(found.sigma_s, 0.5 * active_s))


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


def _centred(signal: Edges) -> Edges:
    """The signal less its mean from its first edge to its last, which any level between spans leaves as it is."""
    jump = signal.jump.copy()
    mean = float(np.cumsum(jump)[:-1] @ np.diff(signal.at_s)) / float(np.ptp(signal.at_s))
    jump[[0, -1]] += [-mean, mean]
    return Edges(signal.at_s, jump)


def _decided(e: Excess, fits: list[Fit]) -> Fit | None:
    """The best fit, if it beats a flat line and every rival at another lag by more than noise can."""
    if not fits:
        return None
    best = min(fits, key=lambda f: f.misfit)
    floor = float(np.finfo(float).eps * abs(e.level_w))
    noise2 = max(e.noise_w**2, best.misfit / len(e.watts), floor**2)
    rivals = [f.misfit for f in fits if abs(f.shift_s - best.shift_s) > e.period_s]
    gains = [0.5 * (float(np.sum(e.watts**2)) - best.misfit), *(m - best.misfit for m in rivals)]
    return best if min(gains) >= CERTAINTY * noise2 else None


def _within(excess: Excess, windows: Floats, margin_s: float) -> Excess | None:
    use = touches(merged(windows + np.array([-margin_s, margin_s])), excess.start_s, excess.end_s)
    if np.count_nonzero(use) < 8:
        return None
    return replace(excess, start_s=excess.start_s[use], end_s=excess.end_s[use], watts=excess.watts[use])


def _at_edges(excess: Excess, spans: Floats, margin_s: float) -> Excess | None:
    """The readings near the edges of spans, shape (k, 2), or near those of groups of spans, if ``FITTED`` bounds them.

    The cost of a fit is thus bounded, however loosely brackets place readings that spans may not even fit.
    """
    near = _within(excess, spans.reshape(-1, 1) + np.zeros(2), margin_s)
    if near is None or len(near.watts) <= FITTED:
        return near
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    chosen = spans[groups(np.full(len(spans), len(near.watts) / len(spans)), FITTED)]
    return _within(near, chosen.reshape(-1, 1) + np.zeros(2), margin_s)


def _starts(e: Excess, activity: Edges, spans: Floats, reach_s: float, rate_reach: float) -> list[tuple[float, float]]:
    """Lags and rates to begin fits from: each lag that correlates nearly as well as the best, with its best rate.

    A fit may settle wrongly if it begins with the outer edges off by a large part of a span, so rates are tried in
    steps that move the outer edges by half a span.
    """
    width, middle, half_s = width_of(spans), float(spans.mean()), max(0.5 * float(np.ptp(spans)), 1e-12)
    steps = math.ceil(rate_reach * half_s / (0.5 * width)) if width > 0 else 0
    steps = min(steps, MOST_RATES) if rate_reach * half_s > 0.25 * width else 0
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
        values: Floats = np.asarray(np.bincount(at, weights=e.watts[part]), dtype=float)
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


def _gap_s(windows: Floats) -> float:
    return float(np.median(windows[1:, 0] - windows[:-1, 1])) if len(windows) > 1 else 0.0
