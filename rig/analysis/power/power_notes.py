"""What a reader of a power figure must know of its instrument and of the trace behind it."""

from __future__ import annotations

from collections.abc import Iterator

from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.power.coverage import missing_notes, missing_while_busy, overload_note
from rig.analysis.power.estimators import idle_moved_w, unseen_between
from rig.analysis.power.load_noise import load_noise_notes
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.range_floor import floor_note
from rig.analysis.power.unseen_spans import idle_notes
from rig.analysis.quantity import Quantity
from rig.analysis.timing.readings import Readings
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


def trace_notes(model: RailModel, activity: Activity, gap_w: float | None) -> Iterator[str]:
    """Yield notes on what the trace covers; ``gap_w`` is the level between spans above idle if it differs from idle."""
    name = model.rail.name
    yield from idle_notes(model, activity)
    yield from missing_notes(name, model.readings, activity.busy_windows_s())
    if (overload := overload_note(name, model)) is not None:
        yield overload
    if model.gap is not None:
        yield f"Rail {name}: idle wanders, so idle under the spans is taken from the gaps between them"
    if (floor := floor_note(model.readings)) is not None:
        yield floor
    yield from load_noise_notes(model)
    if gap_w is not None:
        yield (
            f"Rail {name}: between spans the device draws {gap_w:+.3g} W compared with the idle windows, "
            "so trimmed windows are used instead of integration into the gaps"
        )
    if lost := missing_while_busy(model.readings, activity.busy_windows_s()):
        yield (
            f"Rail {name}: {lost:.1%} of the readings in spans are missing, more than elsewhere. What they would have "
            "shown is stated as bias"
        )
    if moved_w := idle_moved_w(model):
        yield (
            f"Rail {name}: idle moved during the activity by {moved_w:.3g} W more than the idle windows show. This is "
            "stated as bias of idle and dynamic power. Warm up longer, or keep idle windows closer to the spans"
        )
    if unseen_between(model, activity.busy_windows_s()):
        yield (
            f"Rail {name}: most gaps between spans are too short for a reading, so energy drawn there counts as that "
            "of spans. The difference from trimmed windows is stated as bias. Leave more time between spans, or use a "
            "faster meter"
        )


def other_idle_notes(model: RailModel, dynamic: Quantity | None) -> Iterator[str]:
    """Yield what dynamic power of a rail would be with the level between spans as idle, where that is another one."""
    level_w = model.gaps.level_w
    if dynamic is None or not model.gaps.differs or idle_moved_w(model):
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
