"""The level between spans, which shows idle under them where idle or the meter's offset wanders.

A line through the idle windows knows nothing of what happens between them. The gaps between spans do where they are
idle themselves: dynamic power is then that of spans over the gaps beside them. The gaps are idle
where spans move as the gaps beside them do and idle next to the activity goes on in the gaps, or where a good part of
the idle windows is at the level of steady gaps. A device that polls or sleeps in its gaps shows neither.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rig.analysis.power.rail_model import RailModel
from rig.analysis.timing.activity_signal import merged
from rig.types import Bools, Floats, Indices

LEAST_SPANS = 8
GAPS_SEEN = 0.9
"""Part of the gaps that must hold a reading."""
BESIDE = (1.0, 0.25, 0.06)
"""Parts of the idle windows, nearest to the spans, that are compared with as long a stretch of gaps."""
GAIN = 0.5
"""The variance by gaps must be below this part of that by the line through the idle windows."""
AGREE = 4.0
"""Standard errors within which gaps agree with idle, or differ from it by as much at the end as at the begin."""
FOLLOW = 5.0
"""Standard errors of the slope of spans on the gaps beside them from which spans move as gaps do."""
SLOPE = 0.6
"""Least such slope, which is 1 where all is idle that moves and 0 where gaps move by themselves."""
UNEVEN = 9.0
"""Variance of the readings within a gap, over that within as long a part of idle, from which gaps are not idle."""
BLOCKS, QUIET = 32, 0.3
"""Parts of each idle window, and the share of all of them that must be at the level of steady gaps."""
ONCE = 2
"""Stretches of an idle window that may be off this level; what comes back all the time is part of idle."""


def by_gaps(model: RailModel, windows_s: Floats) -> RailModel:
    """Return the model with idle under the spans taken from gaps, if this knows more than the line.

    ``windows_s`` are all spans, shape (k, 2). The model is returned as it is if gaps are too few, if spans do not move
    as the gaps do, or if idle does not go on in the gaps.
    """
    spans = merged(windows_s)
    if len(spans) < LEAST_SPANS or model.jitter is not None or not np.isfinite(model.drift_u_w):
        return model
    t = model.middle_s
    among = (t > spans[0, 0]) & (t < spans[-1, 1])
    seen, gap = model.held & model.readings.ok & among, model.in_gaps & among
    if not np.any(seen) or len(np.unique(np.searchsorted(spans[:, 0], t[gap]))) < GAPS_SEEN * (len(spans) - 1):
        return model
    busy = model.readings.shares(seen)
    line = busy - model.idle_weights(float(t[seen].mean()))
    v = model.variances(line)
    follows = _follows(model, spans, seen, gap)
    if follows is False or (not follows and v["flicker"] + v["walk"] + model.bend_w**2 <= v["white"]):
        return model
    u_w = None if _uneven(model, gap) else _goes_on(model, gap) if follows else _steady(model, gap)
    if u_w is None:
        return model
    u_w = math.hypot(u_w, _off_a_line_w(model, gap))
    found = replace(model, gap=gap, bend_w=u_w)
    if follows:
        return found
    dynamic = np.asarray(busy - found.base_weights(windows_s, float(t[seen].mean())))
    least = GAIN * (sum(v.values()) + model.bend_w**2)
    return found if sum(found.variances(dynamic).values()) + u_w**2 < least else model


def _uneven(model: RailModel, gap: Bools) -> bool:
    """Return whether power changes within gaps as it does not at idle, so that no mean over a gap is idle."""
    per_gap = 1 + int(np.count_nonzero(gap)) // len(model.all_busy_s)
    in_gaps = np.searchsorted(model.all_busy_s[:, 0], model.middle_s[gap])
    changes = (
        _within_w2(model, gap, in_gaps),
        _within_w2(model, model.idle, np.arange(np.count_nonzero(model.idle)) // per_gap),
    )
    return changes[0] > UNEVEN * changes[1]


def _within_w2(model: RailModel, use: Bools, of: Indices) -> float:
    """Mean square of readings about the mean of their stretch, in half of all stretches; a step is in a few."""
    watts, many = model.readings.watts[use], model.readings.many[use]
    _, of = np.unique(of, return_inverse=True)
    mean_w = np.bincount(of, weights=many * watts) / np.bincount(of, weights=many)
    square = np.bincount(of, weights=many * (watts - mean_w[of]) ** 2) / np.bincount(of, weights=many)
    return float(np.median(square))


def _follows(model: RailModel, spans: Floats, seen: Bools, gap: Bools) -> bool | None:
    """Return whether spans move as the gaps beside them do, or None if gaps do not move beyond noise."""
    number = np.searchsorted(spans[:, 0], model.middle_s) - 1
    (in_gap, gap_w), (in_span, span_w) = (_means(model, number, use, len(spans)) for use in (gap, seen))
    use = np.flatnonzero((in_gap[:-1] > 0) & (in_gap[1:] > 0) & (in_span[1:] > 0))
    beside_w, span_w = 0.5 * (gap_w[use] + gap_w[use + 1]), span_w[use + 1]
    if len(use) < LEAST_SPANS - 2:
        return None
    noise = 0.25 * model.noise.white_w**2 * float(np.mean(1.0 / in_gap[use] + 1.0 / in_gap[use + 1]))
    if float(np.var(beside_w)) <= 2.0 * noise:
        return None
    x, y = beside_w - beside_w.mean(), span_w - span_w.mean()
    slope = float(x @ y) / float(x @ x)
    u = math.sqrt(float(np.sum((y - slope * x) ** 2)) / float(x @ x) / (len(x) - 2.0))
    least = SLOPE * (1.0 - noise / float(np.var(beside_w)))
    if slope > max(least, FOLLOW * u):
        return True
    return False if slope + FOLLOW * u < least else None


def _means(model: RailModel, number: Indices, use: Bools, count: int) -> tuple[Floats, Floats]:
    """Number and mean of the readings in use of each span, or of the gap after it."""
    many = model.readings.many[use]
    n = np.bincount(number[use], weights=many, minlength=count).astype(float)
    total = np.bincount(number[use], weights=many * model.readings.watts[use], minlength=count)
    return np.asarray(n), np.asarray(total / np.maximum(n, 1.0))


def _off_a_line_w(model: RailModel, gap: Bools) -> float:
    """Uncertainty of the mean level under spans because idle may step between two gaps, as gaps do among three.

    A step of one shifts one gap against the mean of its neighbours by a half, twice, and the level under one span by a
    half at most.
    """
    n, level_w = _means(model, np.searchsorted(model.all_busy_s[:, 0], model.middle_s) - 1, gap, len(model.all_busy_s))
    n, level_w = n[n > 0], level_w[n > 0]
    off = level_w[1:-1] - 0.5 * (level_w[:-2] + level_w[2:])
    noise = model.noise.white_w**2 * (1.0 / n[1:-1] + 0.25 / n[:-2] + 0.25 / n[2:])
    # the first span and the last have a gap on one side only, and may be off by all that idle changes there
    ends = [float(end @ model.readings.watts) ** 2 for end in _ends(model, gap, BESIDE[-1]) or ()]
    return math.sqrt(0.25 * max(float(np.sum(off**2 - noise)), 0.0) + sum(ends)) / len(n)


def _goes_on(model: RailModel, gap: Bools) -> float | None:
    """Return the uncertainty, in watts, of gaps as idle, if idle beside the activity goes on in them at one end.

    It goes on at its level or along its slope, as far as white noise shows, or by no more than gaps mostly change.
    """
    watts, t = model.readings.watts, model.middle_s
    ends = [end for share in BESIDE[1:] for end in _ends(model, gap, share) or ()]
    found = []
    for weight in (each for end in ends for each in (end, _along(end, t))):
        u = model.white_u_w(weight)
        if abs(float(weight @ watts)) <= AGREE * u:
            found.append(u)
    if found or not ends:
        return min(found, default=None)
    moved_w, lag_s = max(ends[-2:], key=lambda end: -abs(float(end @ watts))), abs(float(ends[-1] @ t))
    u = _moves_w(model, gap, lag_s)
    return u if abs(float(moved_w @ watts)) <= AGREE * u else None


def _along(end: Floats, t: Floats) -> Floats:
    """Return the weights of idle over gaps without what both change along their mean slope from one to the other."""
    out = end.copy()
    for part in (np.flatnonzero(end > 0.0), np.flatnonzero(end < 0.0)):
        lever = t[part] - t[part].mean()
        out[part] -= 0.5 * float(end @ t) * lever / max(float(lever @ lever), 1e-300)
    return out


def _moves_w(model: RailModel, gap: Bools, reach_s: float) -> float:
    """How much the level of gaps mostly changes within a time."""
    t = model.middle_s[gap]
    block = ((t - t[0]) / reach_s).astype(np.int64)
    _, block = np.unique(block, return_inverse=True)
    many = model.readings.many[gap]
    level = np.bincount(block, weights=many * model.readings.watts[gap]) / np.bincount(block, weights=many)
    return 1.4826 * float(np.median(np.abs(np.diff(level)))) if len(level) > 2 else float(np.ptp(level))


def _steady(model: RailModel, gap: Bools) -> float | None:
    """Return the uncertainty, in watts, of steady gaps as idle, if enough of the idle windows is at their level."""
    watts, white = model.readings.watts, model.noise.white_w
    many, readings, n = model.readings.many, np.flatnonzero(model.idle), model.readings.count(gap)
    gap_w = float(model.readings.shares(gap) @ watts) if model.readings.pool else float(watts[gap].mean())
    r = model.readings
    pause_s = r.start_s[readings[1:]] - r.end_s[readings[:-1]]
    apart = np.flatnonzero(pause_s > 2.0 * r.period_s - r.aperture_s) + 1
    at, us = list[Bools](), list[Floats]()
    for window in np.split(readings, apart):
        parts = [part for part in np.array_split(window, BLOCKS) if len(part)]
        off_w = np.array([float(np.average(watts[part], weights=many[part])) for part in parts]) - gap_w
        u = white * np.sqrt(1.0 / np.array([float(many[part].sum()) for part in parts]) + 1.0 / n)
        at.append(np.abs(off_w) <= AGREE * u)
        us.append(u[at[-1]])
        if np.count_nonzero(np.diff(at[-1].astype(np.int8), prepend=1) < 0) > ONCE:
            return None
    found = np.concatenate(us)
    enough = len(found) >= QUIET * sum(map(len, at))
    return math.sqrt(float(np.mean(found**2)) / len(found)) if enough else None


def _ends(model: RailModel, gap: Bools, share: float) -> tuple[Floats, Floats] | None:
    """Weights of idle over the gaps beside it, at the begin and at the end of the spans."""
    t, at = model.middle_s, np.flatnonzero(gap)
    first_s, last_s = t[at[0]], t[at[-1]]
    before, after = t[model.idle & (t < first_s)], t[model.idle & (t > last_s)]
    if not len(before) or not len(after):
        return None
    out = []
    for idle_s, gap_s, way in ((before[-1], first_s, -1.0), (after[0], last_s, 1.0)):
        reach_s = share * float(np.ptp(before if way < 0 else after))
        idle = model.idle & (way * (t - idle_s) >= 0.0) & (way * (t - idle_s) <= reach_s)
        within_s = min(reach_s, share * float(last_s - first_s))
        near = gap & (way * (gap_s - t) >= 0.0) & (way * (gap_s - t) <= within_s)
        out.append(model.readings.shares(idle) - model.readings.shares(near))
    return out[0], out[1]
