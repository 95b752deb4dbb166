"""Turn estimates into quantities: every known source of error is a separate component."""

import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from rig.analysis.power.clipped_and_missing import hidden_w as hidden_of
from rig.analysis.power.estimators import Estimate, Margin
from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.power.span_ends_and_idle_doubts import gain_change
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity
from rig.analysis.timing.execution_time import BusyTime
from rig.analysis.timing.profile import step_in, step_of, undithered
from rig.types import Floats, Rail

IDLE = "idle drift off a straight line"
"""This component is the uncertainty of idle power under spans, besides noise."""
SLOWER = "1/f noise slower than the run"
"""This component hardly changes between trials of a session."""
CHANGES = "gain that changes"
METHOD = "whole spans, less the level beside them"
CORE_METHOD = "mean of trimmed windows"
IDLE_METHOD = "idle under the spans, by the model of the trace"
LEVELS = {
    "idle_power_w": {"idle": 1.0},
    "active_power_w": {"busy": 1.0},
    "dynamic_power_w": {"busy": 1.0, "idle": -1.0},
}
"""A figure of power is a sum of the levels ``busy`` and ``idle`` times these factors."""


def powers(
    model: RailModel, e: Estimate, figure: str, busy: BusyTime, methods: Mapping[str, tuple[str, Margin]]
) -> Figures:
    """Return a figure of power of one rail with its uncertainty budget, by each of ``methods``.

    A method has a name, words and a margin. The margin's shift is added to the level ``busy``, its components to the
    budget, and its bias to the bias. Idle power has no margin, and its ``n`` counts the readings in idle windows.
    """
    levels = LEVELS[figure]
    weight = e.dynamic if len(levels) > 1 else e.level if "busy" in levels else e.idle
    noise = _noise_parts(model, weight) + _resolution_parts(model, weight, e, levels)
    drift = Component(IDLE, -levels.get("idle", 0.0) * e.idle_u_w)
    at_work, n, bias_w = "busy" in levels, model.readings.count(model.idle), model.readings.idle_bias_w
    if at_work:
        hidden_w = model.once(hidden_of)[0]
        n, bias_w = busy.n, bias_w + (float(np.abs(e.dynamic) @ hidden_w) if hidden_w.any() else 0.0)
    found = Figures()
    for name, (words, margin) in methods.items():
        shifted = replace(e, value_w=e.value_w + margin.shift_w)
        value_w = levels.get("busy", 0.0) * shifted.value_w + sum(levels.values()) * e.idle_w
        parts = [*noise, *(_clock_parts(model, shifted, busy, margin) if at_work else ()), drift, *margin.components]
        parts += _calibration_parts(model, shifted, levels)
        parts += _sag_parts(model, weight) if at_work else []
        eps = float(np.finfo(float).eps)
        parts.append(Component("rounding", 16.0 * eps * (abs(shifted.idle_w) + abs(shifted.value_w))))
        parts = [p for p in parts if p.u != 0.0]
        key = FigureKey(figure, rail=model.rail.name, method=name)
        found |= {key: Quantity(value_w, "W", tuple(parts), bias_w + margin.bias_w, n, words)}
    return found


def _clock_parts(model: RailModel, e: Estimate, busy: BusyTime, margin: Margin) -> Iterator[Component]:
    """Yield the uncertainty from the rate of the meter's clock, and from the stamped length of spans."""
    yield Component("clock rate, meter to device", e.value_w * model.rate_sigma, shared=f"rate:{model.clock}")
    # a large shift subtracts power outside of the stamped spans; power then no longer depends on the stamped length
    known_w = max(2.0 * math.hypot(*(c.u for c in margin.components)), margin.bias_w)
    apart = bool(margin.components) and abs(margin.shift_w) > known_w
    for phase, stamps in busy.stamps.items():
        yield from stamps.components(-e.value_w / busy.seconds, phase, shared=e.by_length and not apart)


def _noise_parts(model: RailModel, weight: Floats) -> list[Component]:
    v = model.variances(weight)
    parts = [
        Component("white noise", math.sqrt(v["white"]), model.noise.dof),
        Component("1/f noise", math.sqrt(v["flicker"])),
        Component(SLOWER, math.sqrt(v["level"]), shared=f"1/f:{model.rail.name}"),
        Component("hum", math.sqrt(v["lines"])),
        Component("slow wander", math.sqrt(v["wander"])),
    ]
    if model.at_looks is not None:
        parts.append(Component("counter jitter", math.sqrt(v["counter"]), max(0.5 * model.noise.dof, 1.0)))
    return parts


def _resolution_parts(model: RailModel, weight: Floats, e: Estimate, levels: Collection[str]) -> list[Component]:
    """Return the uncertainty from the step of the converter, for a figure that is a sum of ``levels``.

    At each level, the error has a rectangular distribution. Noise that dithers the step reduces it only in a difference
    of two levels with equal steps. The step of a counter is in joules. The next reading includes the energy that one
    reading of the counter rounds away. The step therefore counts only where the weight changes from one reading to the
    next.
    """
    rail = model.rail
    if model.at_looks is not None:
        return [Component("resolution", math.sqrt(model.variances(weight)["step"]))]
    at = model.once(_steps)
    (_, own, _), *volts = _instruments(model, e)
    parts = []
    for level in levels:
        of_level, resolution = at[level]
        # a converter may truncate: noise does not reduce this error, and it cancels only between equal steps
        alike = len(levels) > 1 and resolution and at["busy"][1] == at["idle"][1]
        left = undithered(of_level, resolution) if alike else 1.0
        steps = [(rail.name, resolution * left * own[level])]
        steps += [(v.name, (v.resolution or 0.0) * per_raw[level]) for v, per_raw, _ in volts]
        parts += [
            Component("resolution", w / math.sqrt(12.0), shared=f"resolution, {level} level:{name}")
            for name, w in steps
        ]
    return parts


def _steps(model: RailModel) -> dict[str, tuple[Floats, float]]:
    """Return for the levels ``busy`` and ``idle`` the raw readings that were rounded to a step, and the step."""
    one = model.single
    raw = one.readings.raw
    everywhere = max(model.rail.resolution or 0.0, step_of(raw[one.readings.ok]))
    held, busy, quiet = (raw[which & one.readings.ok] for which in (one.held, one.busy & ~one.held, one.idle))
    at = {"busy": (held, everywhere), "idle": (quiet, everywhere)}
    # if idle readings never change, there is no noise, and differences in spans do not show the converter's step
    if np.ptp(quiet) > 0.0:
        in_spans, recurring = step_in(raw[one.held & one.readings.ok & ~one.readings.overload], busy)
        if in_spans > everywhere:
            at["busy"] = (recurring, in_spans)
    return at


def _calibration_parts(model: RailModel, e: Estimate, levels: Mapping[str, float]) -> list[Component]:
    """Return the uncertainty from the calibration limits of the rail, and of the voltage that multiplies its current.

    The figure is the sum of the levels ``busy`` and ``idle`` times their factors in ``levels``. A limit applies to each
    reading. The two levels may be in different ranges of the instrument, or its response may be a curve. If linearity
    is not stated, the errors of the levels are therefore independent. If it is stated, the levels share one gain error
    and one offset error, and each level has its own error of linearity.
    """
    parts = []
    for rail, per_raw, whole_w in _instruments(model, e):
        if rail.accuracy is None:
            continue
        limits, name = rail.accuracy, rail.gain_id or rail.name
        gain_w, offset_w = (sum(factor * of[level] for level, factor in levels.items()) for of in (whole_w, per_raw))
        found = [("gain", limits.of_reading * gain_w), ("offset", limits.offset * offset_w)]
        each = {level: (limits.linearity or 0.0) * per_raw[level] for level in levels}
        if limits.linearity is None:
            found = []
            each = {k: limits.of_reading * abs(whole_w[k]) + limits.offset * abs(per_raw[k]) for k in levels}
        found += [(f"{level} level", factor * each[level]) for level, factor in levels.items()]
        parts += [Component(f"{what} calibration", w / math.sqrt(3.0), shared=f"{what}:{name}") for what, w in found]
    if change := model.once(gain_change):
        # gaps have the same gain as the spans beside them, but idle windows may have another gain
        beside = float(np.sum(e.idle[model.gap])) if len(levels) > 1 else 1.0
        w = levels.get("busy", 0.0) * (e.idle_w + e.value_w) + levels.get("idle", 0.0) * e.idle_w * beside
        parts.append(Component(CHANGES, change * w / math.sqrt(3.0), shared=f"change:{model.rail.name}"))
    return parts


def _instruments(model: RailModel, e: Estimate) -> list[tuple[Rail, dict[str, float], dict[str, float]]]:
    """Return each instrument of the rail, with the watts of one raw unit and of the whole reading at each level.

    Power is ``i * v - i**2 * r``. In the loss of a shunt, an error of the current counts twice, and an error of the
    volts does not count.
    """
    rail, s, ohm = model.rail, model.readings.supply, model.rail.conversion.burden_ohm
    level_w = {"busy": e.idle_w + e.value_w, "idle": e.idle_w}
    if s is None and ohm == 0.0:  # single readings are not needed
        return [(rail, dict.fromkeys(level_w, model.readings.watts_per_raw), level_w)]
    weights = {"busy": e.level, "idle": e.idle}
    volts, watts = model.readings.watts_per_raw, np.where(model.readings.ok, model.readings.watts, 0.0)
    solved = 2.0 * watts / (volts + np.sqrt(np.maximum(volts**2 - 4.0 * ohm * watts, 0.0)))  # also for means
    amperes = solved if s is None else s.amperes
    loss_w = {level: ohm * float(weight @ amperes**2) for level, weight in weights.items()}
    less_w, more_w = ({level: w + sign * loss_w[level] for level, w in level_w.items()} for sign in (-1.0, 1.0))
    if s is None:
        return [(rail, {k: volts - 2.0 * ohm * float(w @ amperes) for k, w in weights.items()}, less_w)]
    own, other = ({k: float(w @ factor) for k, w in weights.items()} for factor in (s.slope(), amperes))
    return [(rail, own, less_w), (s.rail, other, more_w)]


def _sag_parts(model: RailModel, weight: Floats) -> list[Component]:
    s = model.readings.supply
    if s is None or s.sag is None:
        return []
    u = s.sag.ohm_u * abs(float(weight @ s.sag.lever))
    return [Component("resistance of the supply", u, shared=f"sag:{s.rail.name}")]
