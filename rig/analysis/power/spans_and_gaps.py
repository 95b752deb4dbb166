"""Find changes that spans share with the gaps between them: a changing gain of the meter, and swings of power.

A span is a time in which the device works, by its stamps.
"""

import math
from collections.abc import Iterator

import numpy as np

from rig.analysis.power.ends_of_spans import unrested_w
from rig.analysis.power.model.rail_model import ROUNDED, RailModel
from rig.analysis.timing.activity_signal import count_before, inside
from rig.types import Floats

LEAST, MOST = 8, 64
"""Spans are taken in groups of neighbours: at least ``LEAST`` and at most ``MOST`` groups."""
SURE = 5.0
"""Power above gaps grows with the level of gaps if the slope is at least this many standard uncertainties."""
ALIKE = 0.25
"""Both levels are in proportion if the slope differs from their ratio by at most this part, or by noise."""
FEW = 4.0
"""The first window after the last span lasts at least this many periods of the readings."""
MOST_CHANGE = 0.5
"""Power is refused if the gain differs from its mean by more than this part of the mean."""


def gain_change(model: RailModel) -> float:
    """Return the largest relative difference of the gain from its mean, or 0 if levels do not change in proportion.

    If only idle power changes, the power of spans above gaps stays the same. If the meter's gain changes, this power
    and the level of gaps change by the same factor. Nothing shows which gain is right. A change within the declared
    accuracy counts as 0.
    """
    r, spans = model.readings, model.spans_s
    if len(spans) < LEAST:
        return 0.0
    span_w, seen = model.means(r.watts, model.held, inside(spans, r.start_s, r.end_s), len(spans))
    gap_w, many = model.means(r.watts, model.gap, count_before(spans[:, 0], r.start_s) - 1, len(spans))
    beside, count = (np.array([np.append(0.0, x[:-1]), x]) for x in (gap_w, many))
    near_w = beside.sum(axis=0) / np.maximum(np.count_nonzero(count, axis=0), 1)
    use = (seen > 0.0) & (count.sum(axis=0) > 0.0)
    if np.count_nonzero(use) < LEAST:
        return 0.0
    groups = np.array_split(np.flatnonzero(use), min(MOST, int(np.count_nonzero(use))))
    at, level = (np.array([x[g].mean() for g in groups]) for x in (span_w, near_w))
    n = np.array([count[:, g].sum() for g in groups])
    noise_w2 = float(np.mean(model.noise.white_w**2 / n))
    above, off = at - level, level - level.mean()
    spread = float(np.sum(off**2)) - len(off) * noise_w2
    if spread <= 0.0 or level.mean() <= 0.0:
        return 0.0
    slope = (float(off @ above) + len(off) * noise_w2) / spread
    u = float(np.std(above - slope * off)) * math.sqrt(float(np.sum(off**2))) / spread
    proportion = float(above.mean() / level.mean())
    if slope < SURE * u or abs(slope - proportion) > max(ALIKE * proportion, 2.0 * u):
        return 0.0
    gain = (at + level) / float(np.mean(at + level))
    change = float(np.max(np.abs(gain - 1.0)))
    return change if model.rail.accuracy is None or change > model.rail.accuracy.of_reading else 0.0


def doubts_of_idle(model: RailModel, windows_s: Floats, *, moved: bool) -> Iterator[tuple[float, str]]:
    """Yield by how many watts idle under the spans may differ from idle windows, and why, or "" if a margin says it.

    Spans may include power that swings, power at the begin of gaps (``moved``), or power that settles after the work.
    """
    if awake_w := unrested_w(model, windows_s):
        more = "mean power of idle windows between spans is above that at their ends, so the device may not be at rest"
        yield awake_w, f"{more} there. Begin these windows later"
    if model.swings:
        beside = "power changes within spans as it does between the gaps beside them, so a fan or another task may draw"
        yield gaps_above_w(model), f"{beside} it"
    elif moved:
        yield gaps_above_w(model), ""
    elif slow_w := model.once(settles_w):
        slowly = "power comes down slowly after the last span from where gaps are, so the work may have raised idle"
        yield slow_w, slowly


def gaps_above_w(model: RailModel) -> float:
    """Return the distance of the mean of the first halves of gaps from idle, in watts."""
    spans, at_s = model.spans_s, model.middle_s
    of = np.maximum(count_before(spans[:, 0], at_s) - 1, 0)
    first = model.gap & (at_s - spans[of, 1] < np.append(spans[1:, 0], np.inf)[of] - at_s)
    return abs(float(np.average(model.above_w[first], weights=model.weight[first]))) if first.any() else 0.0


def settles_w(model: RailModel) -> float:
    """Return the distance of gaps from idle in watts if power settles slowly after the last span; else 0.

    If power settles slowly, the work may have raised idle itself, as heat does. The level after the last span is
    averaged over windows of 1, 2, 4, ... lengths of a gap. If the device switches power off instead, at most one
    window has a level between gaps and idle.
    """
    if len(model.spans_s) < 2:
        return 0.0
    unit_s = max(float(np.median(model.spans_s[1:, 0] - model.spans_s[:-1, 1])), FEW * model.readings.period_s)
    since = (model.middle_s - model.spans_s[-1, 1]) / unit_s
    use = model.readings.ok & ~model.busy & (since > 0.0)
    if not np.any(use):
        return 0.0
    place = np.log2(1.0 + since[use]).astype(np.int64)
    total = np.bincount(place, model.weight[use])
    level_w = np.bincount(place, model.weight[use] * model.above_w[use]) / np.maximum(total, 1e-300)
    noise_w = max(model.noise.white_w, ROUNDED * float(np.max(np.abs(model.readings.watts[use]))))
    u_w = noise_w / np.sqrt(np.maximum(np.bincount(place, model.readings.many[use]), 1))
    part = np.abs(level_w) / max(abs(float(level_w[0])), 1e-300)
    slow = (np.abs(level_w) > SURE * u_w) & (part > 0.1) & (part < 0.9)
    if abs(level_w[0]) <= SURE * u_w[0] or np.count_nonzero(slow) < 2:
        return 0.0
    return min(abs(float(level_w[0])), gaps_above_w(model) or math.inf)
