"""Noise that is there only at idle, such as that of a regulator which draws packets of energy at light load.

White noise of readings moves spans against each other. If readings inside spans are quieter than those at idle, spans
show by their scatter how uncertain their mean is: with their ends, where noise of idle begins again.
"""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.spans_scatter import LEAST, mean_u
from rig.analysis.power.unseen_spans import around
from rig.analysis.quantity import Component
from rig.analysis.timing.activity_signal import edges_of, inside, margin_s, mean_signal, merged, touches
from rig.types import Floats, Indices

SURE = 5.0
"""Standard errors by which readings must vary less inside spans than at idle, or be alike in gaps."""


def white_parts(model: RailModel, weight: Floats, white_u_w: float) -> list[Component]:
    """Return the components of ``sum(weight * watts)`` by noise that is independent from reading to reading.

    ``weight`` has shape (n,). ``white_u_w`` is the standard uncertainty by white noise as idle shows it.
    """
    whole = [Component("white noise", white_u_w, model.noise.dof)]
    if not model.quiet_spans:
        return whole
    moved, beside = _moved(model, weight)
    u_w, dof = mean_u(moved)
    rest_w = model.white_u_w(beside)
    if not math.isfinite(dof) or math.hypot(u_w, rest_w) >= white_u_w:
        return whole
    return [Component("white noise", rest_w, model.noise.dof), Component("scatter of spans", u_w, dof)]


def _moved(model: RailModel, weight: Floats) -> tuple[Floats, Floats]:
    """Return how far each span with its gaps moves the mean off that of all, and the weights that are in none."""
    r, spans = model.readings, model.all_busy_s
    cells = np.array(around(model, spans))
    above = np.where(r.ok, model.above_w, 0.0)
    fill = mean_signal(edges_of(spans), r.start_s, r.end_s, r.tau_s)
    sums = (np.append(0.0, np.cumsum(weight * each))[cells] for each in (above, fill))
    watts, share = (last - first for first, last in sums)
    used = share > 0.0
    if not np.any(used):
        return share[used], weight
    inside_cell = np.zeros(len(weight) + 1, dtype=np.int64)
    for at, step in zip(cells, (1, -1), strict=True):
        np.add.at(inside_cell, at[used], step)
    moved = watts[used] - share[used] * (watts[used].sum() / share[used].sum())
    return moved * len(moved), np.where(np.cumsum(inside_cell)[:-1] > 0, 0.0, weight)


def has_quiet_spans(model: RailModel) -> bool:
    """Return whether spans are quieter than idle, and noise of idle is not in step with them."""
    return not model.readings.counter and _spans_are_quieter(model) and not _gaps_are_alike(model)


def _spans_are_quieter(model: RailModel) -> bool:
    """Return whether readings vary less inside spans than in stretches of idle that hold as many."""
    one, r = model.single, model.single.readings
    idle, held = np.flatnonzero(one.idle & r.ok), np.flatnonzero(one.held & r.ok)
    span = inside(model.all_busy_s, r.start_s[held], r.end_s[held])
    count = np.bincount(span)
    many = int(np.median(count[count > 0])) if len(held) else 0
    if many < 2 or np.any(r.overload[held]):  # the end of a range cuts noise off
        return False
    run = np.cumsum(np.diff(idle, prepend=idle[0]) > 1)
    place = np.arange(len(idle)) - np.searchsorted(run, run)
    at_idle = _variances(r.watts[idle], run * len(idle) + place // many, many)
    return quieter(_variances(r.watts[held], span, 2), at_idle)


def _gaps_are_alike(model: RailModel) -> bool:
    """Return whether readings at the same place of all gaps between spans are alike, or no gap tells.

    Noise in step with the spans moves all of them alike, so their scatter does not show it.
    """
    one, spans = model.single, model.all_busy_s
    r = one.readings
    guard = merged(spans + margin_s(model.sigma_s, r.tau_s))
    between = (r.start_s > guard[0, 1]) & (r.end_s < guard[-1, 0])
    gap = np.flatnonzero(between & r.ok & ~one.idle & ~touches(guard, r.start_s, r.end_s))
    if not len(gap):
        return True
    since_s = r.start_s[gap] - spans[np.searchsorted(spans[:, 0], r.start_s[gap]) - 1, 1]
    place, off = (since_s / r.period_s).astype(np.int64), r.watts[gap] - np.mean(r.watts[gap])
    count = np.bincount(place)
    several = count >= LEAST
    # the mean of n independent readings has the n-th part of their variance
    alike = np.bincount(place, off)[several] ** 2 / count[several]
    return not len(alike) or float(np.mean(alike)) > (1.0 + SURE * math.sqrt(2.0 / len(alike))) * float(np.mean(off**2))


def quieter(some: Floats, others: Floats) -> bool:
    """Return whether some variances of readings, shape (k,), are less than others, shape (n,).

    Pulses that come back rarely may miss all of some by chance, so the others must be alike.
    """
    if min(len(some), len(others)) < LEAST:
        return False
    u = float(np.std(others)) * math.hypot(len(others) ** -0.5, len(some) ** -0.5)
    return float(np.mean(others) - np.mean(some)) > SURE * u


def _variances(watts: Floats, stretch: Indices, least: int) -> Floats:
    """Return the variance of readings in each stretch of at least so many; ``stretch`` is its number, shape (n,)."""
    _, which, count = np.unique(stretch, return_inverse=True, return_counts=True)
    off = watts - (np.bincount(which, watts) / count)[which]
    full = count >= least
    return np.asarray(np.bincount(which, off**2)[full] / (count[full] - 1.0))
