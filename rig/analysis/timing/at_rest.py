"""Whether readings at idle are noise about a level, alike in all windows."""

from __future__ import annotations

import numpy as np

from rig.analysis.result.finding import Finding
from rig.analysis.timing.activity_signal import SETTLE_TAU, inside, merged
from rig.analysis.timing.placement import AlignedRail
from rig.analysis.timing.profile import FAR, LEAST, MANY, SEVERAL, Profile
from rig.analysis.timing.readings import Readings, idle_window_of
from rig.analysis.timing.timeline import Activity
from rig.types import Floats, Indices

FEWER = 0.1
"""This part of the readings of idle, or of work, may be unlike most of them."""
MOVES = 0.05
"""If idle moves by more than work adds, gaps move too, up to this part of what work adds."""
NOISIER = 5.0
"""The noise of one idle window may be at most this many times that of another."""


def restless(rail: AlignedRail, activity: Activity) -> list[Finding]:
    """Return a failed check if readings at idle are more than noise about a level that their windows share.

    A changed unit, a lost sign, a switched probe or a mean since the start makes them so. A pulse now and then, a
    device that settles or one that wakes does not.
    """
    r, spans_s = rail.single or rail.readings, activity.active_s()
    if r.counter or not len(spans_s):
        return []
    inner_s = spans_s + np.array([2.0 * rail.sigma_s + SETTLE_TAU * r.tau_s, -2.0 * rail.sigma_s])
    inner_s = merged(inner_s[inner_s[:, 1] > inner_s[:, 0]])
    window = idle_window_of(r, activity.idle_s, spans_s, rail.sigma_s, rail.host_sigma_s)
    windows = [r.watts[window == k] for k in np.unique(window[window >= 0])]
    work = r.watts[r.ok & (inside(inner_s, r.start_s, r.end_s) >= 0)]
    guard_s = 2.0 * rail.sigma_s + np.array([SETTLE_TAU * r.tau_s, 0.0])
    gaps_s = np.column_stack([spans_s[:-1, 1] + guard_s[0], spans_s[1:, 0] - guard_s[1]])
    gap = inside(merged(gaps_s[gaps_s[:, 1] > gaps_s[:, 0]]), r.start_s, r.end_s)
    gap[~r.ok | np.isin(gap, gap[window >= 0])] = -1  # a gap with an idle window in it may move within
    near = [_near(r, gap, np.flatnonzero(window == k)) for k in np.unique(window[window >= 0])]
    how = _how(windows, work, near) if sum(map(len, windows)) >= LEAST and len(work) else ""
    return [Finding(f"readings of rail {r.rail.name} at idle", how, "noise about one level")] if how else []


def _near(r: Readings, gap: Indices, at: Indices) -> float:
    """Return the median of that gap beside an idle window, of readings ``at``, whose level is next to its own."""
    own_w, gaps = float(np.median(r.watts[at])), np.flatnonzero(gap >= 0)
    beside = [gap[g[k]] for g, k in ((gaps[gaps < at[0]], -1), (gaps[gaps > at[-1]], 0)) if len(g)]
    return min((float(np.median(r.watts[gap == k])) for k in beside), key=lambda w: abs(w - own_w), default=0.0)


def _how(windows: list[Floats], work: Floats, near: list[float]) -> str:
    """Describe how readings of idle windows are restless compared with those at work; "" if they are not."""
    quiet, middle = np.concatenate(windows), [float(np.median(w)) for w in windows]
    level, rest = float(np.median(work)), float(np.quantile(quiet, FEWER))
    off = np.concatenate([w - m for w, m in zip(windows, middle, strict=True)])
    exact = 1e-9 * max(abs(level), float(np.max(np.abs(quiet))))  # less is rounding alone
    typical = Profile(quiet, np.ones(len(quiet), bool)).typical
    far = FAR * max(float(np.median(np.abs(off))), typical, exact)
    if all(len(w) > 1 and w[-1] > w[0] and np.all(np.diff(w) >= 0.0) for w in (*windows, work)):
        return "that never fall, nor do those at work"
    adds, apart = abs(level - float(np.median(quiet))), float(np.ptp(np.subtract(middle, near)))
    if np.ptp(middle) > max(adds, far) and apart > max(MOVES * adds, far):
        return "that change from one idle window to another by more than work adds"
    over = float(np.mean(np.maximum(quiet - max(rest, float(np.quantile(work, 1.0 - FEWER))), 0.0)))
    if over > 0.5 * abs(level - rest):
        return "so far above those of work that they add half as much as work"
    noise = [float(np.median(np.abs(np.diff(w)))) for w in windows if len(w) > MANY]
    if min(noise, default=0.0) > exact and max(noise) > NOISIER * min(noise):
        return f"{max(noise) / min(noise):.3g} times as noisy in one idle window as in another"
    above, below = int(np.count_nonzero(off > far)), off < -far
    lone, most = int(np.count_nonzero(below[1:-1] & ~below[:-2] & ~below[2:])), int(2.0 * FEWER * len(off))
    if lone >= SEVERAL and lone > 4 * above and np.count_nonzero(below) < min(2 * lone, most):
        return f"{lone} single ones that lack a part of what those beside them hold"
    return ""
