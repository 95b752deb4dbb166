"""The level between spans, which shows idle under them where idle or the meter's offset wanders.

A line through the idle windows knows nothing of what happens between them. The gaps between spans do, whatever the
device draws there: dynamic power is that of spans over gaps, plus that of the gaps over the idle windows next to them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rig.analysis.power.rail_model import RailModel
from rig.analysis.timing.activity_signal import margin_s, merged, touches
from rig.types import Bools, Floats

LEAST_SPANS = 8
GAPS_SEEN = 0.9
"""Part of the gaps that must hold a reading."""
BESIDE = (1.0, 0.25, 0.06)
"""Parts of the idle windows, nearest to the spans, that are compared with as long a stretch of gaps."""
GAIN = 0.5
"""The variance by gaps must be below this part of that by the line through the idle windows."""
AGREE = 4.0
"""Standard errors within which gaps must differ from idle by as much at the end as at the begin."""


def in_gaps(model: RailModel) -> Bools:
    """Return which readings lie wholly between spans and outside the idle windows; shape (n,)."""
    r = model.readings
    guard = merged(model.all_busy_s + margin_s(model.sigma_s, r.tau_s))
    between = (r.start_s > model.all_busy_s[0, 0]) & (r.end_s < model.all_busy_s[-1, 1])
    return np.asarray(between & r.ok & ~touches(guard, r.start_s, r.end_s) & ~model.idle)


def by_gaps(model: RailModel, windows_s: Floats) -> RailModel:
    """Return the model with idle under the spans taken from gaps, if noise moves this less than the line.

    ``windows_s`` are all spans, shape (k, 2). The model is returned as it is if gaps are too few, or if they differ
    from idle by another level at the end of the spans than at their begin.
    """
    spans = merged(windows_s)
    if len(spans) < LEAST_SPANS or model.jitter is not None or not np.isfinite(model.drift_u_w):
        return model
    t = model.middle_s
    among = (t > spans[0, 0]) & (t < spans[-1, 1])
    seen, gap = model.held & model.readings.ok & among, in_gaps(model) & among
    if not np.any(seen) or len(np.unique(np.searchsorted(spans[:, 0], t[gap]))) < GAPS_SEEN * (len(spans) - 1):
        return model
    busy = seen / np.count_nonzero(seen)
    line = busy - model.idle_weights(float(t[seen].mean()))
    v = model.variances(line)
    if v["flicker"] + v["walk"] + model.bend_w**2 <= v["white"]:
        return model
    best, least, levels_w = model, GAIN * (sum(v.values()) + model.bend_w**2), list[float]()
    for share in BESIDE:
        ends = _ends(model, gap, share)
        if ends is None:
            return model
        levels_w.append(0.5 * float((ends[0] + ends[1]) @ model.readings.watts))
        found = replace(model, gap=gap, beside=0.5 * (ends[0] + ends[1]))
        variance = sum(model.variances(busy - found.base_weights(windows_s, float(t[seen].mean()))).values())
        apart = ends[0] - ends[1]
        agree = abs(float(apart @ model.readings.watts)) <= AGREE * model.noise_u_w(apart)
        if agree and variance < least:
            best, least = found, variance
    # a level that depends on how far it is looked for still moves between idle and the gaps
    return best if best is model else replace(best, bend_w=float(np.ptp(levels_w[1:])))


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
        near = gap & (way * (gap_s - t) >= 0.0) & (way * (gap_s - t) <= reach_s)
        out.append(idle / np.count_nonzero(idle) - near / np.count_nonzero(near))
    return out[0], out[1]
