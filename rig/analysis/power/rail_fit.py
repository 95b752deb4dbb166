"""Fits the model of one rail: its idle line, its noise, and how uncertain idle is between its windows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.counter import Jitter
from rig.analysis.power.idle_level import counted_drift_w, drift_w, idle_line, idle_window_of
from rig.analysis.power.idle_noise import has_quiet_spans
from rig.analysis.power.load_noise import load_noise_w
from rig.analysis.power.noise import Noise
from rig.analysis.power.rail_model import RailModel, Single
from rig.analysis.power.rail_noise import rail_noise, slow_residual
from rig.analysis.power.range_floor import lift_w, lifted
from rig.analysis.timing.activity_signal import edges_of, inside, mean_signal, merged, touches
from rig.analysis.timing.placed_rails import AlignedRail
from rig.analysis.timing.pooling import span_sigma_s
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timeline import Activity
from rig.types import Bools, Floats, Indices

BEND_PRIOR = 0.12
"""The share of the idle drift that counts as uncertainty of dynamic power if noise hides the bend."""


def rail_model(rail: AlignedRail, activity: Activity) -> RailModel | None:
    """Return the model of an aligned rail, or None if no reading lies in an idle window."""
    timebase = rail.timebase
    clock, rate_sigma = timebase.clock.name, timebase.rate_sigma
    model = model_of(rail.readings, activity, clock, rail.sigma_s, rail.host_sigma_s, rate_sigma, rail.single)
    if model is None:
        return None
    return replace(model, load_noise=load_noise_w(model), quiet_spans=has_quiet_spans(model))


def baseline(readings: Readings, activity: Activity, clock: str, sigma_s: float) -> RailModel | None:
    """Return the model of a rail whose clock is known only by its brackets.

    Alignment uses the idle line and the noise of this model.
    """
    return model_of(readings, activity, clock, sigma_s, sigma_s)


def model_of(
    r: Readings,
    activity: Activity,
    clock: str,
    sigma_s: float,
    host_sigma_s: float,
    rate_sigma: float = 0.0,
    looked_at: Readings | None = None,
) -> RailModel | None:
    """Return the model of readings on the device's time, or None if no reading lies in an idle window.

    ``clock`` is the name of the meter's clock. ``host_sigma_s`` is the uncertainty between this clock and the host's
    clock, on which the idle windows are known. If the readings are means, ``looked_at`` are single ones.
    """
    everything = np.concatenate([activity.busy_windows_s(), activity.excluded_s()])
    sigma_s = span_sigma_s(r, activity, sigma_s)

    def at_idle(some: Readings) -> Indices:
        return idle_window_of(some, activity.idle_s, everything, sigma_s, host_sigma_s)

    where = at_idle(r)
    one = r if looked_at is None else looked_at
    of_one = where if looked_at is None else at_idle(one)
    if np.count_nonzero(where >= 0) < 2 or np.count_nonzero(of_one >= 0) < 2:
        return None
    moved_w = lift_w(one, of_one >= 0)
    r, single = lifted(r, moved_w), None if looked_at is None else lifted(looked_at, moved_w)
    x = _explained(r, where, merged(everything))
    model = _assembled(r, x, _seen(r, x, single, of_one), clock, sigma_s, rate_sigma)
    bend_w = math.hypot(_bend(model, x.left(r.ok), x.fill), _unsettled(model, x.residual_w, where))
    return replace(model, bend_w=bend_w)


@dataclass(frozen=True)
class _Explained:
    """What the idle line and one level of all activity explain of readings; arrays have the shape of these, (n,).

    ``where`` is the number of the idle window that holds a reading and ``held`` that of the merged windows ``busy_s``,
    or -1. ``residual_w`` is in watts above the idle line, and ``fill`` the part of a reading that is busy.
    """

    where: Indices
    held: Indices
    busy_s: Floats
    drift_w: float
    drift_u_w: float
    middle_s: Floats
    weight: Floats
    residual_w: Floats
    fill: Floats
    level_w: float

    def left(self, ok: Bools) -> Floats:
        """Return what the fitted levels leave of the readings; computed anew to save memory."""
        left = self.fill * self.level_w
        np.subtract(self.residual_w, left, out=left)
        left[~ok] = 0.0
        return left


@dataclass(frozen=True)
class _Seen:
    """The noise that readings show, the jitter of a counter, and single readings of a long trace."""

    noise: Noise
    jitter: Jitter | None
    single: Single | None = None


def _explained(r: Readings, where: Indices, busy_s: Floats) -> _Explained:
    weight, middle, idle = _weight(r), 0.5 * (r.start_s + r.end_s), where >= 0
    drift, drift_u = counted_drift_w(r, idle, where) if r.counter else drift_w(r, idle, where)
    held = inside(busy_s, r.start_s, r.end_s)
    residual = r.watts - idle_line(r, middle, idle, drift_u)
    fill = mean_signal(edges_of(busy_s), r.start_s, r.end_s, r.tau_s)
    level = _level(residual, fill, weight if r.uneven else r.ok.astype(float))
    return _Explained(where, held, busy_s, drift, drift_u, middle, weight, residual, fill, level)


def _seen(r: Readings, x: _Explained, one: Readings | None, of_one: Indices) -> _Seen:
    """What readings show of noise; if they are means, that of some single ones, ``one``, and slow noise of all."""
    slow = slow_residual(r, x.left(r.ok), x.busy_s)
    if one is None:
        return _Seen(*rail_noise(r, x.residual_w, x.where >= 0, x.where, x.held, True, slow))
    within, beside = inside(x.busy_s, one.start_s, one.end_s), one.adjacent()
    noise, jitter = rail_noise(one, one.watts, of_one >= 0, of_one, within, beside, slow)
    touched = touches(x.busy_s, one.start_s, one.end_s)
    return _Seen(noise, jitter, Single(one, of_one >= 0, touched, within >= 0, beside))


def _assembled(r: Readings, x: _Explained, seen: _Seen, clock: str, sigma_s: float, rate_sigma: float) -> RailModel:
    return RailModel(
        readings=r,
        clock=clock,
        sigma_s=sigma_s,
        rate_sigma=rate_sigma,
        idle=x.where >= 0,
        middle_s=x.middle_s,
        weight=x.weight,
        all_busy_s=x.busy_s,
        busy=touches(x.busy_s, r.start_s, r.end_s),
        held=x.held >= 0,
        noise=seen.noise,
        drift_w=x.drift_w,
        drift_u_w=x.drift_u_w,
        bend_w=0.0,
        jitter=seen.jitter,
        at_looks=_at_looks(r, x.busy_s) if r.counter else None,
        looked_at=seen.single,
    )


def _weight(r: Readings) -> Floats:
    """How much each reading counts in a mean, shape (n,); one shared number if all count alike, to save memory."""
    if r.pool is not None:
        return r.pool.weight
    length = r.end_s - r.start_s
    # the intervals of a counter differ, so each counts by its length
    uneven = r.counter or (len(length) > 1 and float(length.max()) > 1.5 * float(length.min()))
    if not uneven and r.ok.all():
        return np.broadcast_to(1.0, len(length))
    return np.where(r.ok, length if uneven else 1.0, 0.0)


def _level(residual: Floats, fill: Floats, weight: Floats) -> float:
    used = (weight > 0) & (fill > 0)
    total = float((weight * fill)[used].sum())
    return float((weight * residual)[used].sum()) / total if total > 0 else 0.0


def _bend(model: RailModel, left: Floats, fill: Floats) -> float:
    """Return the uncertainty of dynamic power because idle may not drift along a straight line between its windows.

    If idle bends, the level of the spans bends too. A parabola that is zero at both idle ends is fitted to the
    residuals, over twelve stretches of the busy time. It is not subtracted, because the device may really have used
    more power in the middle. Its size is the standard uncertainty. If noise hides it, 12 % of the drift is used instead
    (an exponential leaves 8 % over its time constant, and 20 % over three).
    """
    if not math.isfinite(model.drift_u_w):
        return 0.0
    prior = BEND_PRIOR * max(abs(model.drift_w) - model.drift_u_w, 0.0)
    used = np.flatnonzero((fill > 0.01) & model.readings.ok)  # a filter leaves endless tails
    if prior == 0.0 or len(used) < 24:
        return prior
    t = model.middle_s
    first, last = float(t[model.idle].min()), float(t[model.idle].max())
    t = (t - first) / (last - first)
    parts = np.array_split(used, 12)
    length = model.weight if model.readings.uneven else np.ones(len(fill))
    weight = np.array([float((length * fill)[p].sum()) for p in parts])
    level = np.array([float((length * left)[p].sum()) for p in parts]) / weight
    bow = np.array([float(np.mean(t[p] * (t[p] - 1.0))) for p in parts])
    lever = np.array([float(np.mean(t[p])) for p in parts])
    design = np.column_stack([np.ones(12), lever - lever.mean(), bow])
    solution, *_ = np.linalg.lstsq(design, level, rcond=None)
    scatter = float(np.sum((level - design @ solution) ** 2)) / 9.0
    u = math.sqrt(max(scatter * float(np.linalg.pinv(design.T @ design)[2, 2]), 0.0))
    mean_bow = abs(float(np.average(bow, weights=weight)))
    bow_w, u_w = float(solution[2]) * mean_bow, u * mean_bow
    share = (prior / math.hypot(prior, u_w)) ** 2
    return math.sqrt((share * bow_w) ** 2 + share * u_w**2)


def _unsettled(model: RailModel, residual: Floats, where: Indices) -> float:
    """How far idle next to the activity is from the line, if noise does not explain it; else 0."""
    numbers = np.unique(where[model.idle])
    if len(numbers) < 2:
        return 0.0
    first = np.flatnonzero(model.idle & (where == numbers[0]))
    last = np.flatnonzero(model.idle & (where == numbers[-1]))
    near = np.concatenate([first[-max(len(first) // 4, 1) :], last[: max(len(last) // 4, 1)]])
    weight = np.zeros(len(residual))
    weight[near] = model.weight[near] / model.weight[near].sum() if model.readings.uneven else 1.0 / len(near)
    off = float(weight @ residual)
    weight = weight - model.idle_weights(float(model.middle_s[near].mean()))
    u = model.noise_u_w(weight)
    return abs(off) if abs(off) > 2.5 * u else 0.0


def _at_looks(r: Readings, busy_s: Floats) -> Floats:
    at = np.append(r.start_s[0], r.end_s)
    return np.clip(mean_signal(edges_of(busy_s), at, at, r.tau_s), 0.0, 1.0)
