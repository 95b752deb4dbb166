"""Where a meter's readings lie on the device's time: at the shift where the spans stand out most."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reports.audit.clocks import line
from reports.audit.figures import Spans, device_line
from reports.audit.reading import Run, Trace
from reports.audit.windows import TINY, facts_of, sums
from rig.types import Floats

SEARCHED, SHIFTS = 300, 4000
"""How many spans place the readings, and at most how many shifts are tried for each.

A coarser step could take a neighbour of the true place, a whole span away, for the better one.
"""


def shift_s(run: Run, rails: Iterable[Trace], stamped: Spans, idle: Floats) -> float:
    """By how much the readings of rails with one clock lie late on the device's time, as the clearest rail says."""
    chosen = np.unique(np.linspace(0, len(stamped.on) - 1, SEARCHED).astype(int))
    window = np.stack([stamped.on[chosen], stamped.off[chosen]], axis=1)
    return max(_clearest(run, trace, window, idle) for trace in rails)[1]


def open_s(run: Run, clock: str) -> float:
    """By how much the clocks alone leave the readings of a meter's clock open on the device's time."""
    same = (run.start["device"].get("clock") or {}).get("name", "host") == clock
    return 0.0 if same else device_line(run).bound_s + line(run, clock).bound_s


def _clearest(run: Run, trace: Trace, window: Floats, idle: Floats) -> tuple[float, float]:
    """How clearly windows stand out of a rail, and the shift at which they do so most."""
    facts, most = facts_of(run, trace), open_s(run, trace.clock)
    step = max(facts.period_s / 4, 2 * most / SHIFTS)
    tried = np.arange(-most - step, most + 2 * step, step)
    level = _levels(run, trace, window, tried)
    upwards = -1.0 if level.mean() < sums(run, trace, {"idle": idle})["idle"].mean_w else 1.0
    clear = float(np.ptp(level) / (facts.noise_w + 1e-3 * abs(float(level.mean())) + TINY))
    return clear, float(tried[np.argmax(upwards * level)])


def drift_s(run: Run, trace: Trace, window: Floats, shift: float, period: float) -> float:
    """By how much the first and the last third of the spans lie apart in the trace, within the rates of the clocks."""
    rates = device_line(run).rate_bound + line(run, trace.clock).rate_bound
    slack = rates * float(np.ptp(window))
    if slack <= period or len(window) < 6:
        return 0.0
    tried = shift + np.arange(-slack, slack, max(period / 2, slack / SEARCHED))
    ends = (window[: len(window) // 3], window[-(len(window) // 3) :])
    level = [_levels(run, trace, end, tried) for end in ends]
    sign = 1.0 if level[0].mean() + level[1].mean() <= level[0].max() + level[1].max() else -1.0
    return float(abs(tried[np.argmax(sign * level[0])] - tried[np.argmax(sign * level[1])]))


def _levels(run: Run, trace: Trace, window: Floats, tried: Floats) -> Floats:
    """The mean power inside the windows, for each shift that is tried."""
    found = sums(run, trace, {"tried": (window[None] + tried[:, None, None]).reshape(-1, 2)})["tried"]
    energy, seen = (total.reshape(len(tried), -1).sum(axis=1) for total in (found.energy_j, found.seen_s))
    return np.where(seen > 0, energy / np.maximum(seen, TINY), 0.0)
