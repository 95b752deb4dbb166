"""What a reader of a power figure must know of its instrument and of the trace behind it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.power.coverage import missing_notes, missing_while_busy, overload_note
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.range_floor import floor_note
from rig.analysis.power.residuals import Margin
from rig.analysis.power.scope import Scope
from rig.analysis.quantity import Quantity
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.states import ALLOWANCE, CONTRAST
from rig.analysis.timing.timeline import Activity
from rig.analysis.verdict import Check

BELOW_IDLE = (
    "Dynamic power is negative: the device drew less power while it worked than in the idle windows, so it was "
    "not at rest there or sleeps between its spans"
)
NO_STEP = (
    "Dynamic power is not above zero by its interval: the readings show no step at the spans. The meter may watch "
    "another rail, or the spans stand at other times than the work; check both before this figure is used"
)
DRAWN = (
    "active_power_w", "average_power_w", "runtime_power_w",
    "energy_per_inference_j", "energy_per_inference_integrated_j",
)  # fmt: skip
"""Figures of what the whole device draws while it works."""
ON_FIGURE = "Dynamic power "
"""The first words of notes that stand beside the figure itself, which is read wrongly without them."""


def instrument_notes(readings: Readings) -> Iterator[str]:
    """Yield notes on undeclared accuracy, and on the voltage that turns a rail's current into power."""
    supply = readings.supply
    for rail in (readings.rail, *([supply.rail] if supply is not None else [])):
        if rail.accuracy is None:
            yield f"Rail {rail.name}: instrument uncertainty not stated (no calibration was declared)"
    if supply is not None:
        sag = supply.sag
        how = (
            ""
            if sag is None
            else f". Within a reading of this voltage it follows the current, by {sag.ohm:.3g} +- {sag.ohm_u:.2g} ohm"
        )
        yield (
            f"Rail {readings.rail.name}: power is its current times the voltage of {supply.rail.name}, reading by "
            f"reading{how}"
        )


def trace_notes(model: RailModel, activity: Activity) -> Iterator[str]:
    """Yield notes on what the trace covers, and on the level between spans."""
    name = model.rail.name
    for on_s, off_s in activity.idle_s.tolist():
        if not np.any(model.idle & (model.middle_s > on_s) & (model.middle_s < off_s)):
            yield (
                f"Rail {name}: the idle window at {on_s:.6g} to {off_s:.6g} s holds no reading, so a drift of idle is "
                "not known"
            )
    yield from missing_notes(name, model.readings, activity.busy_windows_s())
    if (overload := overload_note(name, model)) is not None:
        yield overload
    if (floor := floor_note(model.readings)) is not None:
        yield floor
    if lost := missing_while_busy(model.readings, activity.busy_windows_s()):
        yield (
            f"Rail {name}: {lost:.1%} of the readings in spans are missing, more than elsewhere. What they would have "
            "shown is stated as bias"
        )


def ends_note(model: RailModel, scope: Scope, margin: Margin) -> str:
    """Return a note on readings at the ends of spans that differ from those within."""
    return (
        f"Rail {model.rail.name}: readings at the ends of spans of {scope.words} differ from those within by "
        f"{2.0 * margin.bias_w:.2g} W of mean power. Nothing tells whether this is drawn just inside or just outside "
        "of the spans, so the figure is the middle of both, and half of the difference is stated as bias"
    )


def moved_note(model: RailModel, scope: Scope, margin: Margin) -> str:
    """Return a note on energy that gaps have and spans lack."""
    return (
        f"Rail {model.rail.name}: gaps begin with what spans of {scope.words} lack at their begin. This may be a "
        "filter that is not declared (filter_tau_s) or a capacitor behind the meter, or the device itself. Spans may "
        f"draw {2.0 * margin.bias_w:.2g} W of mean power more or less by this; the figure is the middle of both, and "
        "half of this is stated as bias"
    )


def other_idle_notes(model: RailModel, dynamic: Quantity | None) -> Iterator[str]:
    """Yield what dynamic power of a rail would be with the level between spans as idle, where that is another one."""
    level_w, u_w = model.trace.gaps_w
    if dynamic is None or abs(level_w) < CONTRAST * u_w + ALLOWANCE * abs(dynamic.value):
        return
    why = (
        "The device sleeps between its spans, or it was not at rest in the idle windows"
        if level_w < 0.0
        else "The device is not at rest between its spans, or it slept in the idle windows"
    )
    yield (
        f"{ON_FIGURE}of rail {model.rail.name} depends on what idle is: it is {dynamic.value:.4g} W above the idle "
        f"windows, which is the figure, and {dynamic.value - level_w:.4g} W above the level between spans. {why}"
    )


def no_step_notes(figures: Figures) -> Iterator[str]:
    """Yield a sentence on dynamic power below zero, or on one that cannot be told from zero."""
    dynamic = figures.get(FigureKey("dynamic_power_w"))
    if dynamic is not None and dynamic.interval()[0] <= 0.0:
        yield BELOW_IDLE if dynamic.interval()[1] < 0.0 else NO_STEP


def sign_checks(figures: Figures) -> Iterator[Check]:
    """Yield a failed check if power or energy of work is below zero beyond its interval.

    A device at work gives nothing back, so the current was read with the wrong sign.
    """
    below = {
        str(key): q
        for key, q in figures.items()
        if key.quantity in DRAWN and not (key.phase or key.method or key.sample) and q.interval()[1] < 0.0
    }
    if below:
        name, q = next(iter(below.items()))
        more = f", and {len(below) - 1} more" if len(below) > 1 else ""
        allowed = "0 or more; the sign of a current clamp or shunt is reversed: turn it round, and measure again"
        yield Check("sign of power and energy at work", f"{name} is {q.value:.4g} {q.unit}{more}", allowed, False)
