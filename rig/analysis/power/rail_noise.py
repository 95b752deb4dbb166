"""The noise of one rail, from its idle windows and from differences of readings inside spans."""

from __future__ import annotations

import numpy as np

from rig.analysis.power.counter import Counted, Jitter
from rig.analysis.power.counter import estimate as estimate_counter
from rig.analysis.power.noise import Noise
from rig.analysis.power.noise import estimate as estimate_noise
from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats, Indices


def rail_noise(r: Readings, where: Indices, held: Indices) -> tuple[Noise, Jitter | None]:
    """Return the noise of a rail of single readings, and the jitter of a counter's.

    ``where`` is the number of the idle window that holds a reading, and ``held`` the number of the span, shapes (n,);
    -1 means none.
    """
    pair = (held[1:] >= 0) & (held[1:] == held[:-1]) & r.ok[1:] & r.ok[:-1] & r.adjacent()
    windows = [np.flatnonzero(where == k) for k in np.unique(where[where >= 0])]
    if r.counter:
        return _counted(r, windows, pair)
    # a line through windows at different levels would leave a slope in each
    t, y = (np.concatenate([x[at] - x[at].mean() for at in windows]) for x in (r.start_s, r.watts))
    slope = float(t @ y) / max(float(t @ t), 1e-300) if len(windows) > 1 else 0.0
    stretches = []
    for at in windows:
        slot = np.round((r.start_s[at] - r.start_s[at][0]) / r.period_s).astype(np.int64)
        grid = np.zeros(slot[-1] + 1)
        left = r.watts[at] - slope * r.start_s[at]
        grid[slot] = left - left.mean()
        stretches.append(grid)
    return estimate_noise(stretches, r.period_s, np.diff(r.watts)[pair]), None


def _counted(r: Readings, windows: list[Indices], pair: Bools) -> tuple[Noise, Jitter]:
    """Noise of a counter, from joules: its intervals are uneven, and its errors are alike only in joules."""
    share = (r.end_s - r.start_s) / r.period_s
    idle = np.concatenate(windows)
    quiet_w, busy_w = float(np.mean(r.watts[idle])), 0.0
    stretches = list[Floats]()
    for at in windows:
        grid = np.zeros(at[-1] - at[0] + 1)
        grid[at - at[0]] = (r.watts[at] - quiet_w) * share[at]
        stretches.append(np.where(grid != 0.0, grid - grid[at - at[0]].mean(), 0.0))
    loud = np.append(pair, False) | np.append(False, pair)
    if np.any(loud):
        busy_w = float(np.median(r.watts[loud]))
    ratio = abs(busy_w) / max(abs(quiet_w), 1e-12 * abs(busy_w), 1e-300)
    # lengths are uneven, so the difference within a pair is computed at the power of this pair
    joules = r.watts * share
    drop = np.diff(joules) - 0.5 * (r.watts[1:] + r.watts[:-1]) * np.diff(share)
    # a filter that is slower than the reads is not an age of a counter
    age_j = abs(quiet_w) * r.tau_s if 2.0 * r.tau_s < 1.01 * r.period_s else 0.0
    return estimate_counter(Counted(stretches, drop[pair], r.period_s, ratio, r.step_j, age_j))
