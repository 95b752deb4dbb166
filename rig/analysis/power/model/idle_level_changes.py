"""The shapes that a change of idle power may have in a trace.

They are steps, intervals at another level, decays and heat of the work. Times are divided by the length of the trace. A
block is a few neighbouring readings as one mean, see ``blocks``.
"""

import math

import numpy as np

from rig.analysis.power.model.blocks import GAP, IDLE, SPAN
from rig.analysis.power.model.noise import SHOWN
from rig.types import Bools, Floats, Indices

RARE = 0.1
"""Prior probability that the level of idle power changes during a recording, by one of the shapes below."""
DECAYS = (*(0.05 * 2.0 ** (0.5 * k) for k in range(12)), 100.0)
"""Time constants of a decay from the begin of the trace to 0 at its end; the longest is a drift along a line."""
HEATS = tuple(0.01 * 2.0 ** (0.25 * k) for k in range(25))
"""Time constants of leakage power that follows the heat of the work."""
SETTLES = HEATS[::4]
"""Time constants of a decay after a step."""
BEYOND = 2.0
"""A time after the end of the trace, for a begin or end that is never reached."""
TINY = 1e-9
"""A length that stands for a single moment."""
LEAST_W = 1e-200
"""Lower limit of the power of work, for a trace without any."""


def means(shapes: Floats, start: Floats, end: Floats, work: Floats) -> Floats:
    """Return the mean of each shape over each interval from ``start`` to ``end``, shape (intervals, c).

    A row of ``shapes`` has a begin, an end and a time constant; infinity means none. A step has only a begin. An
    interval at another level also has an end. A decay has a begin and a time constant. Heat has all three, and follows
    ``work``, which is from ``work_of``.
    """
    since, until, tau = shapes.T
    settles, heats = np.isfinite(tau), is_heat(shapes)
    slow = np.where(settles, tau, 1.0)
    level = np.maximum(np.minimum(end[:, None], until) - np.maximum(start[:, None], since), 0.0)
    found = np.where(settles, _faded(since, slow, start, end), level) / (end - start)[:, None]
    last = np.where(settles & (since == 0.0), np.exp(-1.0 / slow), 0.0)
    found = (found - last) / (1.0 - last)
    if np.any(heats):
        most = np.max(_heat(tau[heats], work[:, 1], work[:, 1] + TINY, work), axis=0)
        found[:, heats] = _heat(tau[heats], start, end, work) / most
    return np.asarray(found)


def is_heat(shapes: Floats) -> Bools:
    """Return which shapes are heat, shape (c,)."""
    return np.asarray(np.isfinite(shapes[:, 1:]).all(axis=1))


def _faded(at: Floats, tau: Floats, start: Floats, end: Floats) -> Floats:
    """Return the integral from ``start`` to ``end`` of a value that is 1 at ``at`` and decays, shape (intervals, c)."""
    first, last = np.maximum(start[:, None], at), np.maximum(end[:, None], at)
    return np.asarray(tau * (np.exp((at - first) / tau) - np.exp((at - last) / tau)))


def _heat(tau: Floats, start: Floats, end: Floats, work: Floats) -> Floats:
    """Return the mean from ``start`` to ``end`` of a value that follows the work late, shape (intervals, c)."""
    found = np.zeros((len(start), len(tau)))
    for since, until, share in work:
        level = np.maximum(np.minimum(end, until) - np.maximum(start, since), 0.0)[:, None]
        found += share * (level - _faded(since, tau, start, end) + _faded(until, tau, start, end))
    return np.asarray(found / (end - start)[:, None])


def work_of(state: Indices, start: Floats, end: Floats, many: Floats, watts: Floats) -> Floats:
    """Return begin, end and relative mean power of the work of each block of spans, shape (k, 3).

    This power is above idle. Without spans, the result is one row for all activity.
    """
    span = state == SPAN
    if np.any(span):
        above = np.maximum(np.abs(watts[span] - np.mean(watts[state == IDLE])), LEAST_W)
        return np.column_stack([start[span], end[span], above * many[span] / (end - start)[span]])
    first, last = activity_of(state, start, end)
    return np.array([[first, last, 1.0]] if first < last else []).reshape(-1, 3)


def simple_changes(state: Indices, start: Floats, end: Floats, watts: Floats, work: Floats) -> tuple[Floats, Floats]:
    """Return the simple shapes that change the mean of idle windows or gaps, (c, 3), and their means in blocks, (b, c).

    They are steps, decays from the begin, and heat. A step may also be absent during spans. No begin and end describe
    this step, so its row of shapes is a placeholder: a step after the end of the trace.
    """
    borders = np.unique(np.concatenate([start, 0.5 * (start + end)]))[1:]
    simple = np.array([
        *((at, np.inf, np.inf) for at in borders), *((0.0, np.inf, tau) for tau in DECAYS),
        *((0.0, BEYOND, tau) for tau in HEATS if len(work)),
    ])  # fmt: skip
    columns = means(simple, start, end, work)
    use = shown(columns, state)
    amid = use & np.isinf(simple[:, 1:]).all(axis=1)
    amid[amid] = [_stays(watts[state == SPAN], (end <= at)[state == SPAN]) for at in simple[amid, 0]]
    absent = columns[:, amid] * (state != SPAN)[:, None]
    return np.vstack([simple[use], _beyond(absent)]), np.column_stack([columns[:, use], absent])


def _stays(watts: Floats, before: Bools) -> bool:
    """Return whether spans draw the same power before and after a step, so that the step may be absent in spans."""
    a, b = watts[before], watts[~before]
    if min(len(a), len(b)) < 2:
        return False
    u = math.sqrt(np.var(a, ddof=1) / len(a) + np.var(b, ddof=1) / len(b))
    return abs(float(a.mean() - b.mean())) < SHOWN * u


def compound_changes(state: Indices, start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Return shapes of intervals at another level and of decaying steps, (c, 3), and their means in blocks, (b, c)."""
    begins = np.unique(start)[1:]
    # a change that lasts as long as all activity looks the same as another level of all gaps and spans
    first, last = activity_of(state, start, end)
    pairs = [(a, b, np.inf) for k, a in enumerate(begins) for b in begins[k + 1 :] if a > first or b < last]
    every = np.array(pairs + [(a, np.inf, tau) for a in begins for tau in SETTLES]).reshape(-1, 3)
    columns = means(every, start, end, np.empty((0, 3)))
    use = shown(columns, state)
    # a device may also work on after some of its spans, and into a window; this does not change idle under spans
    level = columns[:, np.isinf(every[:, 2])]
    beside = np.hstack([level * (state == GAP)[:, None], level * (state != SPAN)[:, None]])
    different = [*{column.tobytes(): k for k, column in enumerate(beside.T)}.values()]  # to sort all takes much longer
    beside = np.unique(beside[:, different], axis=1)
    beside = beside[:, shown(beside, np.where(state == GAP, GAP, SPAN))]
    return np.vstack([every[use], _beyond(beside)]), np.hstack([columns[:, use], beside])


def _beyond(columns: Floats) -> Floats:
    """Return placeholder shapes, (c, 3), for columns that no begin and end describe: steps after the trace's end."""
    return np.tile([BEYOND, np.inf, np.inf], (columns.shape[1], 1))


def activity_of(state: Indices, start: Floats, end: Floats) -> tuple[float, float]:
    """Return when the first gap or span begins and the last ends, in lengths of the trace."""
    busy = state != IDLE
    return float(start[busy].min(initial=np.inf)), float(end[busy].max(initial=-np.inf))


def shown(columns: Floats, state: Indices) -> Bools:
    """Return which columns, (b, c), differ between blocks of idle or between blocks of gaps, shape (c,)."""
    some = [columns[state == k] for k in (IDLE, GAP) if np.any(state == k)]
    return np.asarray(sum((np.ptp(each, axis=0) for each in some), np.zeros(columns.shape[1])) > 0.5)
