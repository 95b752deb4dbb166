"""Which single readings of a long trace are looked at one by one; of a short trace, all are.

Alignment, the spectrum of noise, rounding and the ends of a range need single readings. A long trace has far more of
them than these need, so whole stretches are taken, evenly spread: the middles of idle windows, all marks, and groups of
successive spans from the first to the last. What depends on every reading is summed over the whole trace instead
(``rig.analysis.timing.pooling``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rig.analysis.timing.activity_signal import SETTLE_TAU, merged
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Phase
from rig.recording.stored import Stored
from rig.recording.traces import Trace
from rig.types import Bools, Floats, Indices

BLOCK = 1 << 16
Seconds = Callable[[NDArray[np.int64]], Floats]
"""From ticks of the meter to run seconds on the device's time, shape kept."""
OF_IDLE, OF_MARKS, OF_SPANS = 0.25, 0.125, 0.25
"""Parts of the readings that may be looked at, for idle windows, marks and spans."""
IDLE_WINDOWS, LEAST_GROUPS, GROUPS = 4, 8, 16
"""Idle windows that are looked at, and groups of successive spans, at least and at most."""
SPREAD = 16
"""Stretches of a trace that are looked at where nothing is known of its times."""
LEAST, INSIDE, ENDS = 256, 1024, 64
"""Readings on either side of an edge at least, those within a long span, and those at both ends of the trace."""
GOLDEN = 0.618034
"""Of two places within successive spans, how far apart they are, as a part of a span: they never repeat."""


def stretches(
    trace: Trace, meter: Timebase, activity: Activity, reach_s: float, at_once: int
) -> tuple[Floats, Activity]:
    """Return disjoint windows that hold at most ``at_once`` readings or little more, and the activity in them.

    ``meter`` places readings by brackets, which may be off by ``reach_s``. Each stretch of spans reaches as far beyond
    their edges, but no farther than the middle of the gap and no farther than ``at_once`` allows for all groups.
    """
    n = len(trace.value)
    first_s, last_s = meter.seconds(np.asarray(trace.start_tick[np.array([0, n - 1])])).tolist()
    period_s = (last_s - first_s) / (n - 1)
    most_s = at_once * period_s
    found = [np.array([[first_s, first_s + ENDS * period_s], [last_s - ENDS * period_s, last_s + period_s]])]
    idle = _evenly(merged(np.clip(activity.idle_s, first_s, last_s)), IDLE_WINDOWS)
    half = 0.5 * np.minimum(idle[:, 1] - idle[:, 0], OF_IDLE * most_s / max(len(idle), 1))
    found.append(idle.mean(axis=1)[:, None] + half[:, None] * np.array([-1.0, 1.0]))
    reach_s = min(
        reach_s + 2.0 * period_s + SETTLE_TAU * trace.rail.filter_tau_s, OF_SPANS * most_s / (4.0 * LEAST_GROUPS)
    )
    reach_s = max(reach_s, LEAST * period_s)
    marks = _evenly(activity.marks_s, max(int(OF_MARKS * most_s / (4.0 * reach_s)), 1))
    found.append(marks + np.array([-reach_s, reach_s]))
    windows = _every(activity)
    looked_at = np.zeros(len(windows), bool)
    if len(windows):
        order = np.argsort(windows[:, 0], kind="stable")
        pieces, cost_s = _around(windows[order], reach_s, INSIDE * period_s)
        which = groups(cost_s, OF_SPANS * most_s)
        looked_at[order[which]] = True
        found.append(pieces[:, which].reshape(-1, 2))
    limits = np.clip(np.concatenate(found), first_s, last_s + period_s)
    return merged(limits[limits[:, 1] > limits[:, 0]]), _only(activity, looked_at)


def single(trace: Trace, meter: Timebase, windows_s: Floats) -> Trace:
    """Return the readings that begin in the disjoint windows as a trace in memory, each with its ticks."""
    return _joined(trace, before(trace.start_tick, meter.seconds, windows_s.ravel()).reshape(-1, 2))


def spread_out(trace: Trace, most: int) -> Trace:
    """Return ``most`` readings of a trace as arrays, in stretches evenly from its begin to its end, or all if fewer."""
    n, each = len(trace.value), most // SPREAD
    if n <= most:
        return trace.part(0, n)
    first = np.linspace(0, n - each, SPREAD).astype(np.int64)
    return _joined(trace, np.column_stack([first, first + each]))


def _joined(trace: Trace, ranges: Indices) -> Trace:
    parts = [trace.part(a, b) for a, b in ranges.tolist() if b > a]
    columns = ("start_tick", "end_tick", "value", "overload")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    return replace(trace, **joined, uniform=False)


def before(ticks: NDArray[np.int64], seconds: Seconds, moments_s: Floats, *, also_at: bool = False) -> Indices:
    """Return how many of the rising ticks, shape (n,), lie before each of the sorted moments, shape (k,).

    With ``also_at``, those at the moment count too.
    """
    n, side = len(ticks), "right" if also_at else "left"
    if not isinstance(ticks, Stored):
        lies = np.less_equal if also_at else np.less
        return first_not(lambda k: np.asarray(lies(seconds(ticks[k]), moments_s)), n, len(moments_s))
    found, done = np.full(len(moments_s), n), 0
    for a in range(0, n, BLOCK):
        at_s = seconds(ticks[a : a + BLOCK])
        upto = int(np.searchsorted(moments_s, at_s[-1], "left" if also_at else "right"))
        found[done:upto] = a + np.searchsorted(at_s, moments_s[done:upto], side)
        done = max(done, upto)
    return found


def first_not(holds: Callable[[Indices], Bools], n: int, size: int) -> Indices:
    """Return the first number below ``n`` of which a condition no longer holds, or n, shape (size,).

    ``holds`` maps numbers, shape (size,), to whether it does for each; it holds up to some number and never after.
    """
    low, high = np.zeros(size, dtype=np.int64), np.full(size, n, dtype=np.int64)
    while np.any(low < high):
        middle = np.minimum((low + high) // 2, n - 1)
        true = holds(middle) & (low < high)
        low, high = np.where(true, middle + 1, low), np.where(true, high, np.minimum(middle, high))
    return low


def _every(activity: Activity) -> Floats:
    windows = [*(p.windows_s for p in activity.phases.values()), activity.warmup_s, activity.marks_s]
    return np.concatenate(windows)


def _evenly(windows: Floats, most: int) -> Floats:
    return np.asarray(windows[np.unique(np.linspace(0, len(windows) - 1, min(len(windows), most)).astype(int))])


def _around(windows: Floats, reach: float, within: float) -> tuple[Floats, Floats]:
    """What to look at around each of the sorted windows, shape (3, k, 2), and how long it is, shape (k,)."""
    on, off = windows.T
    middle = 0.5 * (np.maximum.accumulate(off)[:-1] + on[1:])
    begin, end = np.append(on[0] - reach, middle), np.append(middle, off[-1] + reach)
    inside = on + np.mod(GOLDEN * np.arange(len(on)), 1.0) * np.maximum(off - on - within, 0.0)
    pieces = np.array([[on - reach, on + reach], [inside, inside + within], [off - reach, off + reach]])
    pieces = np.clip(pieces, begin, np.maximum(begin, end)).transpose(0, 2, 1)
    return pieces, np.minimum(np.sum(pieces[:, :, 1] - pieces[:, :, 0], axis=0), np.maximum(end - begin, 0.0))


def groups(cost: Floats, most: float) -> Indices:
    """Return the numbers of spans in groups of successive ones, evenly from the first to the last.

    ``cost``, shape (k,), is what each takes of ``most``. All are returned if it suffices for them, and at least one for
    each of ``LEAST_GROUPS`` if it does not.
    """
    k = len(cost)
    if cost.sum() <= most:
        return np.arange(k)
    affordable = most / float(np.mean(cost))
    many = int(np.clip(affordable, LEAST_GROUPS, GROUPS))
    each = max(int(affordable / many), 1)
    first = np.unique(np.round(np.linspace(0, max(k - each, 0), many)).astype(np.int64))
    return np.unique(np.minimum(first[:, None] + np.arange(each), k - 1))


def _only(activity: Activity, looked_at: Bools) -> Activity:
    """The activity with the windows of ``_every`` that are marked, and all marks; phases without any are left out."""
    phases, at = dict[str, Phase](), 0
    for name, p in activity.phases.items():
        use = looked_at[at : at + len(p.windows_s)]
        at += len(use)
        if use.any():
            phases[name] = Phase(p.windows_s[use], p.inferences[use], p.executions[use], p.issue[use])
    return replace(activity, phases=phases, warmup_s=activity.warmup_s[looked_at[at : at + len(activity.warmup_s)]])
