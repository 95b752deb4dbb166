"""Estimates become quantities: every known source of error is a separate component."""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.coverage import hidden_w
from rig.analysis.power.estimators import Estimate
from rig.analysis.power.rail_model import RailModel
from rig.analysis.quantity import Component, Quantity
from rig.analysis.timing.activity_signal import in_step
from rig.analysis.timing.execution_time import BusyTime
from rig.analysis.timing.supply import Supply, covariance_w
from rig.types import Bools, Floats

SEEN = 1e-3
"""Part of the time between readings that an aperture may leave out."""
LOOKED_AT = 4096
LEAST_LEVELS = 4
"""Fewer may be the levels of a device whose power does not vary, not those of a converter."""
READINGS_PER_LEVEL = 8
"""Readings that must share each level before a meter is taken to round to it."""


def dynamic_power(model: RailModel, e: Estimate, busy: BusyTime, method: str) -> Quantity:
    """Return the dynamic power of one rail with its uncertainty budget."""
    parts = _noise_parts(model, e.dynamic)
    parts += _resolution_parts(model, e.dynamic, 2)
    parts.append(Component("clock rate, meter to device", e.value_w * model.rate_sigma, shared=f"rate:{model.clock}"))
    for phase, stamps in busy.stamps.items():
        parts += stamps.components(-e.value_w / busy.seconds, phase, shared=e.by_length)
    parts.append(Component("idle drift off a straight line", model.bend_w))
    parts.append(Component("unseen between apertures", _aperture_u(model, e)))
    parts += _gain_parts(model, e.value_w)
    if model.readings.supply is not None:
        parts += [*_offset_parts(model, e.dynamic), *_within_parts(model, model.readings.supply)]
    parts.append(_rounding(e))
    hidden = float(np.abs(e.dynamic) @ hidden_w(model)[0])
    return _quantity(e.value_w, parts, hidden, busy.n, method)


def idle_power(model: RailModel, e: Estimate) -> Quantity:
    """Return the idle power of one rail at the mean moment of activity; ``n`` is the number of readings."""
    parts = _noise_parts(model, e.idle)
    parts += _resolution_parts(model, e.idle, 1)
    parts.append(Component("idle drift off a straight line", -model.bend_w))
    parts += [*_gain_parts(model, e.idle_w), *_offset_parts(model, e.idle), _rounding(e)]
    return _quantity(e.idle_w, parts, 0.0, int(np.sum(model.idle)), "straight line through the idle windows")


def active_power(model: RailModel, e: Estimate, dynamic: Quantity) -> Quantity:
    """Return active power, which is dynamic plus idle power.

    The weights of both are added first, so that errors that they share cancel.
    """
    weight = e.dynamic + e.idle
    own = {
        "white noise",
        "1/f noise",
        "hum",
        "random walk",
        "counter jitter",
        "resolution",
        "idle drift off a straight line",
        "gain calibration",
        "offset calibration",
    }
    common = [c for c in dynamic.components if c.source not in own]
    parts = _noise_parts(model, weight) + _resolution_parts(model, weight, 1) + common
    value = e.value_w + e.idle_w
    parts += _gain_parts(model, value) + _offset_parts(model, weight)
    return _quantity(value, parts, dynamic.bias, dynamic.n, dynamic.method)


def _noise_parts(model: RailModel, weight: Floats) -> list[Component]:
    v = model.variances(weight)
    parts = [
        Component("white noise", math.sqrt(v["white"]), model.noise.dof),
        Component("1/f noise", math.sqrt(v["flicker"])),
        Component("hum", math.sqrt(v["lines"])),
        Component("random walk", math.sqrt(v["walk"])),
    ]
    if model.jitter is not None:
        parts.append(Component("counter jitter", math.sqrt(v["counter"]), model.jitter.dof))
    return parts


def _resolution_parts(model: RailModel, weight: Floats, levels: int) -> list[Component]:
    """Return the uncertainty from the step of the converter, for a figure that is made of ``levels`` levels.

    Noise acts as dither and reduces this uncertainty. The error of rounding is on average at most step/pi times the
    characteristic function of the dither at 2 pi/step (Widrow and Kollar, Quantization Noise, 2008, ch. 4). For white
    noise this function is exp(-2 pi^2 (sigma/step)^2). For hum of phase amplitude x = 2 pi a/step it is a Bessel
    function; its envelope sqrt(2/(pi x)) is used here.

    The step of a counter is in joules. It enters once for each end of a stretch of weights, because the next interval
    contains what one reading of the counter rounds away. A counter that keeps counting needs no other dither.
    """
    rail = model.rail
    if model.jitter is not None:
        return [Component("resolution", math.sqrt(model.variances(weight)["step"]))]
    resolution = rail.resolution or apparent_step(model.readings.raw[model.readings.ok])
    if not resolution:
        return []
    step = resolution * (rail.conversion.supply_v or 1.0 if rail.conversion.unit == "A" else 1.0)
    if (s := model.readings.supply) is not None:
        ok = model.readings.ok
        volts_step = (s.rail.resolution or 0.0) * abs(float(np.mean(s.amperes[ok])))
        step = math.hypot(step * abs(float(np.mean(s.volts[ok]))), volts_step)
    sigma2 = max(model.noise.white_w**2 - step**2 / 12.0, 0.0)
    left = math.exp(-2.0 * math.pi**2 * sigma2 / step**2)
    for _, amplitude, _ in model.noise.lines:
        left *= min(1.0, math.sqrt(step / (math.pi**2 * amplitude))) if amplitude > 0 else 1.0
    return [Component("resolution", step / math.sqrt(12.0) * left * math.sqrt(levels))]


def apparent_step(values: Floats) -> float:
    """Return the step of which all readings are multiples, in their own unit; 0 if they take too many values for one.

    A meter that declares no resolution may still round. At most ``LOOKED_AT`` readings are looked at, evenly spaced.
    """
    some = values[:: max(1, len(values) // LOOKED_AT)]
    levels = np.unique(some)
    if not LEAST_LEVELS <= len(levels) <= len(some) / READINGS_PER_LEVEL:
        return 0.0
    step = float(np.min(np.diff(levels)))
    multiples = (levels - levels[0]) / step
    return step if np.allclose(multiples, np.round(multiples), rtol=0.0, atol=0.02) else 0.0


def _gain_parts(model: RailModel, value: float) -> list[Component]:
    """Gain of the rail, and of the volts that its amperes are multiplied by."""
    supply = model.readings.supply
    rails = [model.rail] if supply is None else [model.rail, supply.rail]
    return [
        Component(
            "gain calibration", r.accuracy.of_reading * value / math.sqrt(3.0), shared=f"gain:{r.gain_id or r.name}"
        )
        for r in rails
        if r.accuracy is not None
    ]


def _offset_parts(model: RailModel, weight: Floats) -> list[Component]:
    """Return the uncertainty from the offset, which is the same in every reading.

    If volts were measured, the offset of one factor is weighted by the other factor. At constant volts, an offset of
    the amperes cancels in dynamic power. An offset of the volts does not cancel, because it is multiplied by the
    amperes.
    """
    rail = model.rail
    if (s := model.readings.supply) is not None:
        factors = ((rail, float(weight @ s.slope())), (s.rail, float(weight @ s.amperes)))
        return [
            Component(
                "offset calibration", r.accuracy.offset * k / math.sqrt(3.0), shared=f"offset:{r.gain_id or r.name}"
            )
            for r, k in factors
            if r.accuracy is not None
        ]
    if rail.accuracy is None:
        return []
    per_raw = rail.conversion.supply_v if rail.conversion.unit == "A" and rail.conversion.supply_v else 1.0
    u = rail.accuracy.offset * per_raw / math.sqrt(3.0)
    return [Component("offset calibration", u, shared=f"offset:{rail.gain_id or rail.name}")]


def _within_parts(model: RailModel, s: Supply) -> list[Component]:
    r = model.readings
    u = covariance_w(s, model.busy, model.held & r.ok, float(np.median(r.end_s - r.start_s)))
    return [Component("current and voltage within one aperture", u)]


def _aperture_u(model: RailModel, e: Estimate) -> float:
    """Return the uncertainty from what the meter does not measure of spans in which power changes.

    Between two apertures, a step of height h at a random moment causes an error of h * unseen / sqrt(12) readings, and
    sqrt(2) times as much if a step back always follows after the same time. Steps that come at the same place of all
    spans err alike, as far as the spans begin at the same place between two readings. For dropped readings, the error
    is the scatter inside the windows, weighted by the missing share.
    """
    r = model.readings
    if r.counter:  # a counter misses nothing between two reads
        return 0.0
    used = (e.dynamic != 0) & model.held
    n = int(np.count_nonzero(used))
    if n < 3:
        return 0.0
    noise = model.noise.busy_w**2
    pair = used[1:] & used[:-1]
    blind = max(1.0 - float(np.median(r.end_s - r.start_s)) / r.period_s, 0.0)
    steps = 0.0
    if blind > SEEN and np.any(pair):
        mean_square, alike = float(np.mean(np.diff(r.watts)[pair] ** 2)), _alike(model, pair)
        steps = max(mean_square - 2.0 * noise, 0.0) + alike * max(
            in_step(model.all_busy_s[:, 0], r.period_s) * len(model.all_busy_s) - 1.0, 0.0
        )
    scatter = max(float(np.var(r.watts[used])) - noise, 0.0)
    pace = np.diff(r.start_s) / r.period_s
    missing = 1.0 - len(pace) / max(float(np.sum(np.round(pace))), 1.0)
    return math.sqrt((steps * blind**2 / 6.0 + scatter * max(missing, 0.0)) / n)


def _alike(model: RailModel, pair: Bools) -> float:
    """Mean square of the steps between neighbouring readings that come at the same place of all spans."""
    r, first = model.readings, np.flatnonzero(pair)
    on_s = model.all_busy_s[np.searchsorted(model.all_busy_s[:, 0], model.middle_s[first]) - 1, 0]
    place = np.maximum((r.start_s[first] - on_s) / r.period_s, 0.0).astype(np.int64)
    step_w = r.watts[first + 1] - r.watts[first]
    count = np.bincount(place)
    mean_w = np.bincount(place, weights=step_w) / np.maximum(count, 1)
    several = count > 1
    # the mean of n steps keeps the n-th part of the variance of those that do not come at the same place
    square = np.bincount(place, weights=step_w**2)[several] / count[several]
    alike = (count[several] * mean_w[several] ** 2 - square) / (count[several] - 1.0)
    return max(float(count[several] @ alike) / max(float(count.sum()), 1.0), 0.0)


def _rounding(e: Estimate) -> Component:
    """Rounding of sums and differences of the levels in double precision."""
    return Component("rounding", 16.0 * float(np.finfo(float).eps) * (abs(e.idle_w) + abs(e.value_w)))


def _quantity(value: float, parts: list[Component], bias: float, n: int, method: str) -> Quantity:
    return Quantity(value, "W", tuple(p for p in parts if p.u != 0.0), bias, n, method)
