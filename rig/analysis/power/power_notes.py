"""What a reader of a power figure must know of its instrument and of the trace behind it."""

from __future__ import annotations

from collections.abc import Iterator

from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.power.coverage import missing_notes, missing_while_busy, overload_note
from rig.analysis.power.estimators import gaps_without_reading, idle_moved_w
from rig.analysis.power.load_noise import load_noise_notes
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.range_floor import floor_note
from rig.analysis.power.unseen_spans import idle_notes
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timeline import Activity

BELOW_IDLE = (
    "Dynamic power is negative: the device drew less power while it worked than in the idle windows, so it was "
    "not at rest there or sleeps between its spans"
)
"""Said beside the figure itself, which is read wrongly without it."""


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
    if gap_w is not None and gap_w < 0.0 and not idle_moved_w(model):
        yield (
            f"Rail {name}: the device sleeps between its spans. Idle power is that of the idle windows, in which it is "
            "configured and ready, not that of sleep; dynamic power is counted from there"
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
    if gaps_without_reading(model, activity.busy_windows_s()):
        yield (
            f"Rail {name}: no reading lies between spans, so energy drawn there counts as energy of the spans. The "
            "difference from trimmed windows is stated as bias. Leave more time between spans, or use a faster meter"
        )


def below_idle_notes(figures: Figures) -> Iterator[str]:
    """Yield a sentence on dynamic power below zero."""
    dynamic = figures.get(FigureKey("dynamic_power_w"))
    if dynamic is not None and dynamic.interval()[1] < 0.0:
        yield BELOW_IDLE
