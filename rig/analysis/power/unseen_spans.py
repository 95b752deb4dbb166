"""Spans before or after the trace of a rail: what the spans that were seen say of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rig.analysis.figure_key import Figures
from rig.analysis.power.coverage import UNSEEN, covered
from rig.analysis.power.rail_model import RailModel
from rig.analysis.quantity import Component, Quantity
from rig.analysis.timing.activity_signal import inside, merged
from rig.analysis.timing.timeline import Activity
from rig.types import Floats, Indices

BESIDE = 3
"""The spans beside those that were not seen are one in so many of those that were."""


def with_unseen_spans(figures: Figures, model: RailModel, windows_s: Floats) -> Figures:
    """Return the figures of spans, shape (k, 2), with what spans outside of the trace may change in them.

    Spans that were not seen may differ from the others as spans differ from each other, and twice as much as those
    beside them do on average.
    """
    spans = merged(windows_s)
    seen = covered(model.readings, spans)
    if seen.all() or not seen.any():
        return figures
    length = spans[:, 1] - spans[:, 0]
    watts, weight = span_watts(model, spans[seen]), length[seen]
    part = float(length[~seen].sum() / length.sum())
    mean = float(np.average(watts, weights=weight))
    few = max(len(watts) // BESIDE, 1)
    ends = [watts[:few] for _ in range(not seen[0])] + [watts[-few:] for _ in range(not seen[-1])]
    bias = UNSEEN * part * max(abs(float(np.mean(end)) - mean) for end in ends)
    spread = float(np.std(watts, ddof=1)) if len(watts) > 1 else abs(mean)
    u = part * spread * math.sqrt(1.0 / len(watts) + 1.0 / np.count_nonzero(~seen))

    def changed(q: Quantity) -> Quantity:
        parts = (*q.components, Component("spans outside the trace", u, max(len(watts) - 1.0, 1.0)))
        return replace(q, components=parts, bias=q.bias + bias, n=round(q.n * float(np.mean(seen))))

    return Figures({key: q if key.quantity == "idle_power_w" else changed(q) for key, q in figures.items()})


def missing_w(model: RailModel, windows_s: Floats, dynamic_w: float, missing: float) -> float:
    """Return how far dynamic power may be off, in watts, if readings are missing while the device works.

    ``missing`` is the share of the readings of the windows, shape (k, 2), that is missing there and not elsewhere. A
    span without any reading draws nothing to twice the mean, or is as far off as any span that was seen. Inside
    a span, what no reading shows may be far from what readings show.
    """
    if not missing:
        return 0.0
    spans, r = merged(windows_s), model.readings
    middle_s = model.middle_s[r.ok]
    of = inside(spans, middle_s, middle_s)
    shown = np.bincount(of[of >= 0], minlength=len(spans)) > 0
    length = spans[:, 1] - spans[:, 0]
    whole = min(float(length[~shown].sum() / length.sum()), missing)
    if not whole:
        return UNSEEN * missing * abs(dynamic_w)
    farthest_w = float(np.max(np.abs(span_watts(model, spans)[shown] - dynamic_w)))
    return UNSEEN * (missing - whole) * abs(dynamic_w) + whole * max(abs(dynamic_w), farthest_w)


def span_watts(model: RailModel, spans: Floats) -> Floats:
    """Return the energy above idle around each of the disjoint sorted spans over its length, in watts, shape (k,)."""
    r = model.readings
    above = np.where(r.ok, model.above_w, 0.0)
    each_s = r.end_s - r.start_s if r.counter else r.many * r.period_s
    energy = np.concatenate([[0.0], np.cumsum(above * each_s)])
    first, last = around(model, spans)
    return np.asarray((energy[last] - energy[first]) / (spans[:, 1] - spans[:, 0]))


def around(model: RailModel, spans: Floats) -> Indices:
    """Return the first reading of each of the disjoint sorted spans with half of the gaps beside it, and that after."""
    half = 0.5 * (spans[1:, 0] - spans[:-1, 1])
    margin = float(np.median(half)) if len(half) else model.readings.period_s
    cells = np.array([spans[:, 0] - np.append(margin, half), spans[:, 1] + np.append(half, margin)])
    return np.searchsorted(model.middle_s, cells)


def idle_notes(model: RailModel, activity: Activity) -> Iterator[str]:
    """Yield a note for each idle window in which the rail has no reading."""
    for on_s, off_s in activity.idle_s.tolist():
        if not np.any(model.idle & (model.middle_s > on_s) & (model.middle_s < off_s)):
            yield (
                f"Rail {model.rail.name}: the idle window at {on_s:.6g} to {off_s:.6g} s holds no reading, so a "
                "drift of idle is not known"
            )
