"""The mean power over the spans themselves: active power as NeuroBench's text defines it.

"Active power is the average power consumed during processing" (NeuroBench, system track, ASC, metrics). Readings that
lie across an end of a span are divided there. Outside the span, the device is taken to be at idle, or if the gaps are
at another level, at that of the next reading outside. What the device draws outside of its spans does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rig.analysis.figure_key import LITERAL, FigureKey, Figures
from rig.analysis.power.budget import active_power, dynamic_power
from rig.analysis.power.estimators import Estimate, estimate_of
from rig.analysis.power.rail_model import RailModel
from rig.analysis.quantity import Component, Quantity
from rig.analysis.timing.activity_signal import edges_of, margin_s, mean_signal, merged, touches
from rig.analysis.timing.execution_time import BusyTime
from rig.types import Floats

METHOD = "mean over the spans"


def span_mean(model: RailModel, windows_s: Floats, other_s: Floats, differ: bool) -> Estimate | None:
    """Return the mean power over ``windows_s``, shape (k, 2), or None if no reading shows it.

    ``differ`` says that the gaps between spans are not at idle. A reading that other activity touches, at ``other_s``,
    is left out.
    """
    r = model.readings
    settles = margin_s(0.0, r.tau_s)
    spans = merged(windows_s)
    mine = touches(merged(windows_s + settles), r.start_s, r.end_s)
    z = np.where(mine & ~touches(merged(other_s + settles), r.start_s, r.end_s), model.weight, 0.0)
    fill = mean_signal(edges_of(spans), r.start_s, r.end_s, r.tau_s)
    busy = float(z @ fill)
    if busy <= 0.0:
        return None
    at = float(z @ model.middle_s) / float(z.sum())
    counted = z - _beside(model, spans, z * (1.0 - fill)) if differ else z
    dynamic = (counted - model.base_weights(windows_s, at) * float(counted.sum())) / busy
    uneven = float(np.sum(z * fill * (1.0 - fill))) / busy
    start, end = r.start_s[z > 0], r.end_s[z > 0]
    first = np.minimum(np.searchsorted(end, spans[:, 0], side="right"), len(start) - 1)
    share = float(np.mean((start[first] < spans[:, 1]) & (end[first] > spans[:, 0])))
    return replace(estimate_of(model, dynamic, windows_s, share, uneven), by_length=True)


def _beside(model: RailModel, spans: Floats, outside: Floats) -> Floats:
    """The weight that each reading outside gives to its neighbours across the end of a span, shape (n,).

    ``outside`` is the part of each reading that lies outside its span.
    """
    r = model.readings
    busy = touches(merged(model.all_busy_s + margin_s(0.0, r.tau_s)), r.start_s, r.end_s)
    free, edge = np.flatnonzero(r.ok & ~busy), np.flatnonzero(outside > 0.0)
    after = np.searchsorted(free, edge)
    middles = spans.mean(axis=1)
    nearest = np.searchsorted(0.5 * (middles[1:] + middles[:-1]), model.middle_s[edge])
    late = model.middle_s[edge] > middles[nearest]
    neighbour = free[np.clip(np.where(late, after, after - 1), 0, len(free) - 1)]
    return np.bincount(neighbour, weights=outside[edge], minlength=len(outside)).astype(float)


def literal_figures(
    model: RailModel, found: Estimate, windows_s: Floats, busy: BusyTime, key: FigureKey, least_w: float
) -> Figures:
    """Return active and dynamic power of one rail by the text, with a bias of at least ``least_w``.

    If the spans are placed wrongly by less than the time of a reading, energy is lost only where a reading ends within
    the error.
    """
    dynamic = dynamic_power(model, found, busy, METHOD)
    sigma_s, length_s = model.sigma_s, float(np.mean(windows_s[:, 1] - windows_s[:, 0]))
    lost_w = abs(found.value_w) * sigma_s / length_s * min(1.0, sigma_s / model.readings.period_s)
    parts = (*dynamic.components, *([Component("placement of the spans", lost_w)] if lost_w else []))
    dynamic = replace(dynamic, components=parts, bias=max(dynamic.bias, least_w))
    return Figures({
        replace(key, quantity="dynamic_power_w", method=LITERAL): dynamic,
        replace(key, quantity="active_power_w", method=LITERAL): active_power(model, found, dynamic),
    })  # fmt: skip


def difference_notes(figures: Figures) -> Iterator[str]:
    """Yield a sentence if active power by the text differs from the headline by more than both uncertainties."""
    headline, literal = (figures.get(FigureKey("active_power_w", method=method)) for method in ("", LITERAL))
    if headline is None or literal is None:
        return
    above_w = headline.value - literal.value
    if abs(above_w) <= max(headline.half_width(), literal.half_width()):
        return
    yield (
        f"Active power ({headline.method}) is {headline.value:.4g} W, but the mean over the spans is "
        f"{literal.value:.4g} W. {_why(headline, above_w)}"
    )


def _why(headline: Quantity, above_w: float) -> str:
    if "trimmed" in headline.method:
        return f"At the ends of its spans, the device draws {'less' if above_w > 0.0 else 'more'} than within them"
    where = "just before or after its spans, which the headline counts as theirs"
    return f"The device draws {'more' if above_w > 0.0 else 'less'} than its idle power {where}"
