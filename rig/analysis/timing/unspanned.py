"""Work that no span covers: a try that was repeated, a warm-up without a mark, a chore of the device."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rig.analysis.timing.activity_signal import SETTLE_TAU, merged, touches
from rig.analysis.timing.placed_rails import AlignedRail
from rig.analysis.timing.spans_in_trace import Levels, levels_in
from rig.analysis.timing.timeline import Activity
from rig.types import Floats

LEAST_SPANS = 3
PART = 0.5
"""Part of a span that work must last, and of the rise of spans that it must draw."""
LEAST_READINGS, LEAST_SIGMAS = 4, 3.0
"""Work must also last for so many readings, and for so many standard uncertainties of where spans are."""
OFTEN = 3
"""Times that work comes in one idle window from which it comes back all the time."""


def with_unspanned(activity: Activity, rails: list[AlignedRail]) -> tuple[Activity, list[AlignedRail]]:
    """Return the activity with the work that no span covers, and the rails with a note if there is any.

    The rail that shows the spans best against its noise tells it. Work that is seen three times in one idle window, or
    in each of them, comes back all the time and is part of idle.
    """
    spans_s = activity.active_s()
    seen = [(rail, levels) for rail in rails if (levels := _levels(rail, spans_s)) is not None]
    if not seen:
        return activity, rails
    rail, best = max(seen, key=lambda pair: pair[1].rise / max(pair[1].noise2, 1e-300))
    found_s = _stretches(rail, best, spans_s, activity.idle_s)
    at_idle = [int(np.count_nonzero(touches(window, *found_s.T))) for window in activity.idle_s.reshape(-1, 1, 2)]
    if not len(found_s) or max(at_idle, default=0) >= OFTEN or min(at_idle, default=0) > 0:
        return activity, rails
    often = "once" if len(found_s) == 1 else f"{len(found_s)} times"
    where = f" ({sum(at_idle)} in idle windows)" * any(at_idle)
    note = (
        f"Rail {rail.readings.rail.name}: the device was busy {often} where no span is{where}, for "
        f"{float(np.sum(np.diff(found_s))):.3g} s in all. Spans beside this work, gaps with it, and this part of "
        "idle are left out of power. Mark a warm-up as one, and do not repeat a try within a span"
    )
    noted = [replace(r, notes=(*r.notes, note)) if r is rail else r for r in rails]
    return replace(activity, unspanned_s=found_s), noted


def _levels(rail: AlignedRail, spans_s: Floats) -> Levels | None:
    r = rail.readings
    if len(spans_s) < LEAST_SPANS or r.counter or r.period_s <= 0.0 or not np.any(r.ok):
        return None
    return levels_in(r, spans_s)


def _stretches(rail: AlignedRail, levels: Levels, spans_s: Floats, idle_s: Floats) -> Floats:
    """Stretches of successive readings outside of spans that draw as much as spans, shape (k, 2)."""
    r = rail.readings
    at_idle = r.watts[r.ok & touches(merged(idle_s), r.start_s, r.end_s)]
    # a device that sleeps between its spans draws more in idle windows, and does no work there
    low = max(levels.low, float(np.median(at_idle))) if len(at_idle) else levels.low
    if low >= levels.high:
        return np.zeros((0, 2))
    settled_s = spans_s + np.array([0.0, SETTLE_TAU * r.tau_s])
    busy = r.ok & (r.watts > low + PART * (levels.high - low)) & ~touches(settled_s, r.start_s, r.end_s)
    turns = np.flatnonzero(np.diff(busy, prepend=False, append=False))
    first, last = turns[::2], turns[1::2] - 1
    found_s = np.column_stack([r.start_s[first], r.end_s[last]])
    length_s = float(np.median(spans_s[:, 1] - spans_s[:, 0]))
    least_s = max(PART * length_s, LEAST_READINGS * r.period_s, LEAST_SIGMAS * math.hypot(rail.sigma_s, r.aperture_s))
    return found_s[found_s[:, 1] - found_s[:, 0] >= least_s]
