"""Estimates to Quantities: every source of error that we know, as a component of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rig.noise import variances
from rig.power import Estimate, View
from rig.quantity import Component, Quantity
from rig.types import Floats, Rail

DRIFT_NONLINEAR = 0.1
"""Part of a drift of idle that a straight line may miss; an exponential over its own time constant
misses 8 % of its drop, over three 20 %."""


@dataclass(frozen=True)
class BusyTime:
    """Total busy time of the windows that count; ``jitter_u_s`` is the doubt from jittering stamps."""

    seconds: float
    jitter_u_s: float
    n: int
    tag: str


def dynamic_power(view: View, rail: Rail, e: Estimate, busy: BusyTime, rate_sigma: float, method: str) -> Quantity:
    """Dynamic power of one rail with its budget. ``rate_sigma``: meter clock against device clock."""
    parts = _noise_parts(view, e.dynamic)
    parts += _resolution_parts(view, rail, (e.dynamic, 2.0))
    parts.append(Component("clock rate, meter to device", e.value_w * rate_sigma))
    parts.append(Component("stamp jitter", -e.value_w * busy.jitter_u_s / busy.seconds, shared=busy.tag))
    parts.append(Component("idle drift off a straight line", _drift_u(view)))
    parts.append(Component("unseen between apertures", _aperture_u(view, e, busy)))
    parts += _gain_parts(rail, e.value_w)
    return _quantity(e.value_w, parts, _clip_bias(view, e), busy.n, method)


def idle_power(view: View, rail: Rail, e: Estimate, busy: BusyTime) -> Quantity:
    """Idle power of one rail, taken at the mean moment of activity."""
    parts = _noise_parts(view, e.idle)
    parts += _resolution_parts(view, rail, (e.idle, 1.0))
    parts.append(Component("idle drift off a straight line", -_drift_u(view)))
    parts += _gain_parts(rail, e.idle_w) + _offset_parts(rail)
    return _quantity(e.idle_w, parts, 0.0, busy.n, "straight line through the idle windows")


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
    parts = _noise_parts(view, weight) + _resolution_parts(view, rail, (weight, 1.0)) + kept
    value = e.value_w + e.idle_w
    parts += _gain_parts(rail, value) + _offset_parts(rail)
    return _quantity(value, parts, dynamic.bias, dynamic.n, dynamic.method)


def noise_u(view: View, weight: Floats) -> float:
    """Standard uncertainty of a weighted sum from noise alone."""
    return math.sqrt(sum(variances(view.noise, weight, view.middle_s, view.busy).values()))


def _noise_parts(view: View, weight: Floats) -> list[Component]:
    v = variances(view.noise, weight, view.middle_s, view.busy)
    relative = view.noise.flicker_spread / view.noise.flicker_w2 if view.noise.flicker_w2 > 0 else 0.0
    dof = max(2.0 / relative**2, 2.0) if relative > 0 else math.inf
    return [
        Component("white noise", math.sqrt(v["white"]), view.noise.dof),
        Component("1/f noise", math.sqrt(v["flicker"]), dof),
        Component("hum", math.sqrt(v["lines"])),
    ]


def _resolution_parts(view: View, rail: Rail, weighted: tuple[Floats, float]) -> list[Component]:
    """A step of the converter, dithered away by the noise: rounding's mean error falls off as

    exp(-2 pi^2 (sigma/step)^2) (Widrow and Kollar, Quantization Noise, 2008, ch. 4).
    """
    if not rail.resolution:
        return []
    weight, levels = weighted
    raw = view.readings.raw
    slope = float(np.median(view.readings.watts[view.idle]) / np.median(raw[view.idle])) if np.any(raw) else 1.0
    step = rail.resolution * abs(slope)
    sigma = math.sqrt(max(view.noise.white_w**2 - step**2 / 12.0, 0.0))
    left = math.exp(-2.0 * math.pi**2 * (sigma / step) ** 2)
    direct = step / math.sqrt(12.0) * math.sqrt(float(np.sum(weight**2)))
    return [Component("resolution", math.hypot(step / math.sqrt(12.0) * left * math.sqrt(levels), direct * left))]


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


def _drift_u(view: View) -> float:
    if not math.isfinite(view.drift_u_w):
        return 0.0
    return DRIFT_NONLINEAR * max(abs(view.drift_w) - 2.0 * view.drift_u_w, 0.0)


def _aperture_u(view: View, e: Estimate, busy: BusyTime) -> float:
    """What the meter did not look at (between apertures, dropped readings), if spans are not flat.

    The scatter of readings inside windows beyond the noise is the shape; the unseen part of it
    averages over the readings.
    """
    r = view.readings
    used = e.dynamic != 0
    used &= view.busy
    n = int(np.count_nonzero(used))
    if n < 3 or r.period_s <= 0:
        return 0.0
    length = float(np.mean(r.end_s[used] - r.start_s[used]))
    unseen = 1.0 - min(1.0, n * length / max(busy.seconds, 1e-30)) if length > 0 else 1.0
    if unseen <= 0.01:
        return 0.0
    pair = used[1:] & used[:-1]
    step = np.diff(r.watts)[pair]
    scatter = float(np.mean(step**2)) / 2.0 - view.noise.busy_w**2 if len(step) else 0.0
    return math.sqrt(max(scatter, 0.0) * unseen / n)


def _clip_bias(view: View, e: Estimate) -> float:
    """Clipped readings hide at most about one noise width each, once they are rare."""
    clipped = view.readings.overload
    if not np.any(clipped):
        return 0.0
    share = float(np.sum(np.abs(e.dynamic[clipped])))
    return share * view.noise.busy_w


def _quantity(value: float, parts: list[Component], bias: float, n: int, method: str) -> Quantity:
    return Quantity(value, "W", tuple(p for p in parts if p.u != 0.0), bias, n, method)
