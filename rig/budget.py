"""Estimates to Quantities: every source of error that we know, as a component of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rig.noise import variances
from rig.power import Estimate
from rig.quantity import Component, Quantity
from rig.types import Floats, Rail
from rig.view import View


@dataclass(frozen=True)
class BusyTime:
    """Total busy time of the windows that count, and its doubt from jittering stamps, by phase."""

    seconds: float
    jitter_u_s: Mapping[str, float]
    n: int


def dynamic_power(view: View, rail: Rail, e: Estimate, busy: BusyTime, rate_sigma: float, method: str) -> Quantity:
    """Dynamic power of one rail with its budget. ``rate_sigma``: meter clock against device clock."""
    parts = _noise_parts(view, e.dynamic)
    parts += _resolution_parts(view, rail, 2)
    parts.append(Component("clock rate, meter to device", e.value_w * rate_sigma, shared=f"rate:{view.clock}"))
    for phase, jitter_s in busy.jitter_u_s.items():
        parts.append(Component("stamp jitter", -e.value_w * jitter_s / busy.seconds, shared=f"stamps:{phase}"))
    parts.append(Component("idle drift off a straight line", view.bend_w))
    parts.append(Component("unseen between apertures", _aperture_u(view, e)))
    parts += _gain_parts(rail, e.value_w)
    parts.append(_rounding(e))
    return _quantity(e.value_w, parts, _clip_bias(view, e), busy.n, method)


def idle_power(view: View, rail: Rail, e: Estimate) -> Quantity:
    """Idle power of one rail, taken at the mean moment of activity; n counts readings."""
    parts = _noise_parts(view, e.idle)
    parts += _resolution_parts(view, rail, 1)
    parts.append(Component("idle drift off a straight line", -view.bend_w))
    parts += [*_gain_parts(rail, e.idle_w), *_offset_parts(rail), _rounding(e)]
    return _quantity(e.idle_w, parts, 0.0, int(np.sum(view.idle)), "straight line through the idle windows")


def active_power(view: View, rail: Rail, e: Estimate, dynamic: Quantity) -> Quantity:
    """Active power: the same weights as dynamic plus idle, so that what they share cancels."""
    weight = e.dynamic + e.idle
    own = {
        "white noise",
        "1/f noise",
        "hum",
        "resolution",
        "idle drift off a straight line",
        "gain calibration",
    }
    kept = [c for c in dynamic.components if c.source not in own]
    parts = _noise_parts(view, weight) + _resolution_parts(view, rail, 1) + kept
    value = e.value_w + e.idle_w
    parts += _gain_parts(rail, value) + _offset_parts(rail)
    return _quantity(value, parts, dynamic.bias, dynamic.n, dynamic.method)


def noise_u(view: View, weight: Floats) -> float:
    """Standard uncertainty of a weighted sum from noise alone."""
    return math.sqrt(sum(variances(view.noise, weight, view.middle_s, view.busy).values()))


def _noise_parts(view: View, weight: Floats) -> list[Component]:
    v = variances(view.noise, weight, view.middle_s, view.busy)
    return [
        Component("white noise", math.sqrt(v["white"]), view.noise.dof),
        Component("1/f noise", math.sqrt(v["flicker"])),
        Component("hum", math.sqrt(v["lines"])),
    ]


def _resolution_parts(view: View, rail: Rail, levels: int) -> list[Component]:
    """A step of the converter where nothing dithers it away, for a figure made of ``levels`` levels.

    Rounding errs on average by at most step/pi times the dither's characteristic function at 2 pi/step
    (Widrow and Kollar, Quantization Noise, 2008, ch. 4): exp(-2 pi^2 (sigma/step)^2) for white noise,
    a Bessel function, here by its envelope sqrt(2/(pi x)), for hum of phase amplitude x = 2 pi a/step.
    """
    if not rail.resolution:
        return []
    step = rail.resolution * (rail.conversion.supply_v or 1.0 if rail.conversion.unit == "A" else 1.0)
    sigma2 = max(view.noise.white_w**2 - step**2 / 12.0, 0.0)
    left = math.exp(-2.0 * math.pi**2 * sigma2 / step**2)
    for _, amplitude, _ in view.noise.lines:
        left *= min(1.0, math.sqrt(step / (math.pi**2 * amplitude))) if amplitude > 0 else 1.0
    return [Component("resolution", step / math.sqrt(12.0) * left * math.sqrt(levels))]


def _gain_parts(rail: Rail, value: float) -> list[Component]:
    if rail.accuracy is None:
        return []
    u = rail.accuracy.of_reading * value / math.sqrt(3.0)
    return [Component("gain calibration", u, shared=f"gain:{rail.gain_id or rail.name}")]


def _offset_parts(rail: Rail) -> list[Component]:
    if rail.accuracy is None:
        return []
    per_raw = rail.conversion.supply_v if rail.conversion.unit == "A" and rail.conversion.supply_v else 1.0
    u = rail.accuracy.offset * per_raw / math.sqrt(3.0)
    return [Component("offset calibration", u, shared=f"offset:{rail.gain_id or rail.name}")]


def _aperture_u(view: View, e: Estimate) -> float:
    """What the meter did not look at, if spans are not flat.

    Between apertures: a step of height h at a random moment errs by h * unseen / sqrt(12) readings.
    Dropped readings: the scatter inside windows, for the share that is missing.
    """
    r = view.readings
    used = (e.dynamic != 0) & view.held
    n = int(np.count_nonzero(used))
    if n < 3:
        return 0.0
    noise = view.noise.busy_w**2
    pair = used[1:] & used[:-1]
    steps = max(float(np.mean(np.diff(r.watts)[pair] ** 2)) - 2.0 * noise, 0.0) if np.any(pair) else 0.0
    scatter = max(float(np.var(r.watts[used])) - noise, 0.0)
    blind = max(1.0 - float(np.median(r.end_s - r.start_s)) / r.period_s, 0.0)
    pace = np.diff(r.start_s) / r.period_s
    missing = 1.0 - len(pace) / max(float(np.sum(np.round(pace))), 1.0)
    return math.sqrt((steps * blind**2 / 12.0 + scatter * max(missing, 0.0)) / n)


def _clip_bias(view: View, e: Estimate) -> float:
    """Clipped readings hide at most about one noise width each, once they are rare."""
    clipped = view.readings.overload
    if not np.any(clipped):
        return 0.0
    share = float(np.sum(np.abs(e.dynamic[clipped])))
    return share * view.noise.busy_w


def _rounding(e: Estimate) -> Component:
    """What double precision leaves of sums and differences of the levels."""
    return Component("rounding", 16.0 * float(np.finfo(float).eps) * (abs(e.idle_w) + abs(e.value_w)))


def _quantity(value: float, parts: list[Component], bias: float, n: int, method: str) -> Quantity:
    return Quantity(value, "W", tuple(p for p in parts if p.u != 0.0), bias, n, method)
