"""The model of one rail: its idle level, its noise, and the uncertainty of the idle level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.counter import Jitter
from rig.analysis.power.counter import variances as counter_variances
from rig.analysis.power.idle_level import counted_drift_w, drift_w, gap_weights, idle_line, idle_weights, idle_window_of
from rig.analysis.power.noise import Noise, variances
from rig.analysis.power.rail_noise import rail_noise, slow_residual
from rig.analysis.power.range_floor import lift_w, lifted
from rig.analysis.timing.activity_signal import edges_of, inside, mean_signal, merged, touches
from rig.analysis.timing.placed_rails import AlignedRail
from rig.analysis.timing.pooling import span_sigma_s
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timeline import Activity
from rig.types import Bools, Floats, Indices, Rail

DIFFERENCE = 1e-6
"""Sum of weights, of the sum of their sizes, below which a sum of readings is a difference of levels."""
BEND_PRIOR = 0.12
"""The share of the idle drift that counts as uncertainty of dynamic power if noise hides the bend."""


@dataclass(frozen=True)
class Single:
    """Single readings of a rail, shapes (n,): which of them are in idle windows, touch a span, and are within one.

    ``beside`` says which follow the one before without a pause, shape (n - 1,), or that all do.
    """

    readings: Readings
    idle: Bools
    busy: Bools
    held: Bools
    beside: Bools | np.bool_


@dataclass(frozen=True)
class RailModel:
    """One rail with everything that the estimators share; arrays have the shape of the readings, (n,).

    ``sigma_s`` is the uncertainty of the ends of spans on the meter's clock, the step of their stamps included, and
    ``rate_sigma`` the uncertainty of the rate between the meter's clock and the device's. ``idle`` marks the
    readings in the idle windows, ``busy`` the readings that touch a span, and ``held`` the readings wholly inside one.
    ``weight`` is the length of a reading, or 1 if all readings have the same length. It is 0 where a reading is not a
    number.
    """

    readings: Readings
    clock: str
    sigma_s: float
    rate_sigma: float
    idle: Bools
    middle_s: Floats
    weight: Floats
    all_busy_s: Floats
    busy: Bools
    held: Bools
    noise: Noise
    drift_w: float
    drift_u_w: float
    bend_w: float
    """Uncertainty of dynamic power from a bend in the drift of idle; see ``_bend``."""
    jitter: Jitter | None = None
    """The errors of a counter's readings; None for a rail that is not cumulative."""
    at_looks: Floats | None = None
    """For a counter: how busy the device was at each read, 0 to 1, shape (n + 1,)."""
    gap: Bools | None = None
    """Readings between spans, if idle under the spans is taken from them; shape (n,)."""
    beside: Floats | None = None
    """Weights of idle over the gaps beside the idle windows, shape (n,), with ``gap``."""
    looked_at: Single | None = None
    """For a long trace: some single readings; None if ``readings`` are single themselves."""

    @property
    def single(self) -> Single:
        """Return single readings, for what means of several do not show: all of a short trace, some of a long one."""
        return self.looked_at or Single(self.readings, self.idle, self.busy, self.held, np.True_)

    @property
    def rail(self) -> Rail:
        """Return what the meter declared of the rail."""
        return self.readings.rail

    def variances(self, weight: Floats) -> dict[str, float]:
        """Return the variance of ``sum(weight * watts)`` by source; ``weight`` has shape (n,)."""
        noise = self.noise
        # a difference of spans and the gaps beside them owes nothing to the idle windows, but a level does
        if (
            self.beside is not None
            and not np.any(self.beside)
            and abs(weight.sum()) < DIFFERENCE * np.abs(weight).sum()
        ):
            noise = noise.between_spans()
        pool = self.readings.pool
        found = variances(noise, weight, self.middle_s, self.busy, None if pool is None else pool.many)
        if self.jitter is None or self.at_looks is None:
            return found
        length = self.readings.end_s - self.readings.start_s
        return found | counter_variances(self.jitter, weight, length, self.at_looks)

    def noise_u_w(self, weight: Floats) -> float:
        """Standard uncertainty of ``sum(weight * watts)`` from noise alone, in watts."""
        return math.sqrt(sum(self.variances(weight).values()))

    def white_u_w(self, weight: Floats) -> float:
        """Standard uncertainty of ``sum(weight * watts)`` from white noise at idle alone, in watts."""
        pool = self.readings.pool
        each = weight if pool is None else weight / np.sqrt(np.maximum(pool.many, 1.0))
        return self.noise.white_w * math.sqrt(float(each @ each))

    def reading_u_w(self, busy: bool) -> float:
        """Return the standard deviation of one reading from noise, in watts."""
        own = self.noise.busy_w if busy else self.noise.white_w
        return own if self.jitter is None else math.hypot(own, self.jitter.watts(self.noise.period_s, busy))

    def idle_weights(self, at_s: float) -> Floats:
        """Return weights that make of the readings the idle level at a moment, by a straight line, shape (n,)."""
        return idle_weights(self.idle, self.weight, self.middle_s, at_s, straight=self.drift_u_w != math.inf)

    def base_weights(self, windows_s: Floats, at_s: float) -> Floats:
        """Return weights that make of the readings the idle level under spans, whose mean moment is ``at_s``.

        It is ``idle_weights``, or the gaps beside each span and what idle is above gaps.
        """
        if self.gap is None or self.beside is None:
            return self.idle_weights(at_s)
        return gap_weights(self.gap, self.readings.many, self.middle_s, windows_s) + self.beside

    def idle_level_w(self, at_s: float) -> float:
        """Return idle power at a moment, in watts."""
        return float(self.idle_weights(at_s) @ self.readings.watts)


def rail_model(rail: AlignedRail, activity: Activity) -> RailModel | None:
    """Return the model of an aligned rail, or None if no reading lies in an idle window."""
    timebase = rail.timebase
    clock, rate_sigma = timebase.clock.name, timebase.rate_sigma
    return model_of(rail.readings, activity, clock, rail.sigma_s, rail.host_sigma_s, rate_sigma, rail.single)


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
    busy_s = merged(everything)
    sigma_s = span_sigma_s(r, activity, sigma_s)

    def at_idle(some: Readings) -> Indices:
        return idle_window_of(some, activity.idle_s, everything, sigma_s, host_sigma_s)

    where = at_idle(r)
    idle = where >= 0
    one = r if looked_at is None else looked_at
    of_one = where if looked_at is None else at_idle(one)
    if np.count_nonzero(idle) < 2 or np.count_nonzero(of_one >= 0) < 2:
        return None
    moved_w = lift_w(one, of_one >= 0)
    r, one = lifted(r, moved_w), lifted(one, moved_w)
    weight = _weight(r)
    middle = 0.5 * (r.start_s + r.end_s)
    drift, drift_u = counted_drift_w(r, idle, where) if r.counter else drift_w(r, idle, where)
    held = inside(busy_s, r.start_s, r.end_s)
    residual = r.watts - idle_line(r, middle, idle, drift_u)
    fill = mean_signal(edges_of(busy_s), r.start_s, r.end_s, r.tau_s)
    level = _level(residual, fill, weight if r.uneven else r.ok.astype(float))
    slow = slow_residual(r, _left(r, residual, fill, level), busy_s)
    single = None
    if looked_at is None:
        noise, jitter = rail_noise(r, residual, idle, where, held, True, slow)
    else:
        within, beside = inside(busy_s, one.start_s, one.end_s), one.adjacent()
        noise, jitter = rail_noise(one, one.watts, of_one >= 0, of_one, within, beside, slow)
        touched = touches(busy_s, one.start_s, one.end_s)
        single = Single(one, of_one >= 0, touched, within >= 0, beside)
    steady = held >= 0
    del held
    model = RailModel(
        readings=r,
        clock=clock,
        sigma_s=sigma_s,
        rate_sigma=rate_sigma,
        idle=idle,
        middle_s=middle,
        weight=weight,
        all_busy_s=busy_s,
        busy=touches(busy_s, r.start_s, r.end_s),
        held=steady,
        noise=noise,
        drift_w=drift,
        drift_u_w=drift_u,
        bend_w=0.0,
        jitter=jitter,
        at_looks=_at_looks(r, busy_s) if r.counter else None,
        looked_at=single,
    )
    bend_w = _bend(model, _left(r, residual, fill, level), fill)
    del fill
    return replace(model, bend_w=math.hypot(bend_w, _unsettled(model, residual, where)))


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


def _left(r: Readings, residual: Floats, fill: Floats, level: float) -> Floats:
    """What the fitted levels leave of the readings; computed twice to save memory."""
    left = fill * level
    np.subtract(residual, left, out=left)
    left[~r.ok] = 0.0
    return left


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
