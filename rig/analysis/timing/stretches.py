"""Choose the single readings of a long trace that are looked at one by one; of a short trace, all are.

Alignment, the spectrum of noise, rounding and the ends of a range need single readings, but far fewer than a long trace
has. So whole stretches are taken, evenly spread: the middles of idle windows, marks, and stretches about the ends of
spans from the first to the last. Results that depend on every reading are summed over the whole trace instead
(``rig.analysis.timing.pooling``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rig.analysis.timing.activity_signal import BLOCK, merged, touches
from rig.analysis.timing.readings import in_order
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Phase
from rig.recording.stored import Stored
from rig.recording.traces import Trace
from rig.types import Bools, Floats, Indices

Seconds = Callable[[NDArray[np.int64]], Floats]
"""A function from ticks of the meter to run seconds on the device's time, in the same shape."""
IDLE_WINDOWS, SPREAD = 4, 16
"""At most this many idle windows and spans, or stretches if nothing is known of times, are looked at, evenly spread."""
COLUMNS = ("start_tick", "end_tick", "value", "overload")
GOLDEN = 0.618034
"""Distance of the places in successive spans, as a part of a span: with it, places never repeat."""


def stretches(trace: Trace, meter: Timebase, activity: Activity, at_once: int) -> tuple[Floats, Activity]:
    """Return disjoint windows that hold at most ``at_once`` readings, and the activity that begins and ends in them.

    The windows have one length. They are about the middles of idle windows, the first and the last mark, and the begin,
    the end and an inner place of some spans. ``meter`` places readings by brackets. Raises ``DataError`` if the last
    reading is not after the first.
    """
    n = len(trace.value)
    first_s, last_s = meter.seconds(np.asarray(trace.start_tick[np.array([0, n - 1])])).tolist()
    in_order(trace.rail.name, np.array([first_s, last_s]))
    period_s = (last_s - first_s) / (n - 1)
    every_s = activity.every_s()
    on, off = (spans := _evenly(every_s[np.argsort(every_s[:, 0], kind="stable")], SPREAD)).T
    within = on + np.mod(GOLDEN * np.arange(len(on)), 1.0) * (off - on)
    idle_s = merged(np.clip(activity.idle_s, first_s, last_s))
    at_s = np.concatenate([
        _evenly(idle_s, IDLE_WINDOWS).mean(axis=1), _evenly(activity.marks_s, 2).ravel(), spans.ravel(), within,
        [first_s, last_s],
    ])  # fmt: skip
    half_s = 0.5 * at_once / len(at_s) * period_s
    windows = merged(np.clip(at_s[:, None] + np.array([-half_s, half_s]), first_s, last_s + period_s))
    return windows, _only(activity, windows)


def single(trace: Trace, meter: Timebase, windows_s: Floats) -> Trace:
    """Return the readings that begin in the disjoint windows as a trace in memory, each with its ticks."""
    return _joined(trace, before(trace.start_tick, meter.seconds, windows_s.ravel()).reshape(-1, 2))


def spread_out(trace: Trace, most: int) -> Trace:
    """Return ``most`` readings of a trace, or all if fewer, as arrays; they are in stretches evenly over the trace."""
    n, each = len(trace.value), most // SPREAD
    if n <= most:
        return trace.part(0, n)
    first = np.linspace(0, n - each, SPREAD).astype(np.int64)
    return _joined(trace, np.column_stack([first, first + each]))


def thinned(trace: Trace, at_once: int) -> Trace:
    """Return a long trace of a counter with about ``at_once`` of its readings; return other traces unchanged."""
    n = len(trace.value)
    if n <= at_once or trace.rail.kind != "cumulative":
        return trace
    kept = np.append(np.arange(0, n - 1, -(-n // at_once)), n - 1)
    return replace(trace, **{name: getattr(trace, name)[kept] for name in COLUMNS}, uniform=False)


def _joined(trace: Trace, ranges: Indices) -> Trace:
    parts = [trace.part(a, b) for a, b in ranges.tolist() if b > a]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
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
    """Return the first number below ``n`` for which a condition no longer holds, or n, shape (size,).

    ``holds`` returns for numbers, shape (size,), if the condition holds: it does up to some number, and never after.
    """
    low, high = np.zeros(size, dtype=np.int64), np.full(size, n, dtype=np.int64)
    while np.any(low < high):
        middle = np.minimum((low + high) // 2, n - 1)
        true = holds(middle) & (low < high)
        low, high = np.where(true, middle + 1, low), np.where(true, high, np.minimum(middle, high))
    return low


def _evenly(windows: Floats, most: int) -> Floats:
    return np.asarray(windows[np.unique(np.linspace(0, len(windows) - 1, min(len(windows), most)).astype(int))])


def _only(activity: Activity, windows: Floats) -> Activity:
    """Return the activity that begins and ends in windows, without phases that have none there."""

    def held(spans: Floats) -> Bools:
        return np.asarray(touches(windows, spans[:, 0], spans[:, 0]) & touches(windows, spans[:, 1], spans[:, 1]))

    phases = {
        name: Phase(p.windows_s[use], p.inferences[use], p.executions[use], p.issue[use])
        for name, p in activity.phases.items()
        if (use := held(p.windows_s)).any()
    }
    warmup_s, marks_s = (w[held(w)] for w in (activity.warmup_s, activity.marks_s))
    return replace(activity, phases=phases, warmup_s=warmup_s, marks_s=marks_s)
