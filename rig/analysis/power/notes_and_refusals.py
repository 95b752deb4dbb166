"""Findings on power: notes beside a figure, failed checks, and refusals with a reason and a remedy.

A span is a time in which the device works, by its stamps, and a gap is the time between two spans.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rig.analysis.power import clipped_and_missing as coverage
from rig.analysis.power.estimators import MIN_SHARE, Scope, TooShort, covered_share
from rig.analysis.power.model.rail_model import ROUNDED, RailModel
from rig.analysis.power.span_ends_and_idle_doubts import gain_change
from rig.analysis.result.finding import Finding, note, refusal
from rig.analysis.result.quantity import FigureKey, Figures, Quantity
from rig.analysis.timing.counted_spans import Activity
from rig.analysis.timing.profile import LEVELS
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timebase import SURE
from rig.recording.reader import Run

BELOW_IDLE = (
    "Dynamic power is negative: the device drew less power while it worked than in the idle windows, so it was "
    "not at rest there or sleeps between its spans"
)
NO_STEP = "not above zero by its interval: the meter may watch another rail, or the spans are not where the work is"
DRAWN = (
    "idle_power_w", "active_power_w", "average_power_w", "runtime_power_w",
    "energy_per_inference_j", "energy_per_inference_integrated_j",
)  # fmt: skip
"""Figures of power or energy that a rail delivers, which is never below zero."""
ON_FIGURE = "Dynamic power "
"""Notes that begin with these words are shown beside the figure itself, because it is misread without them."""
ALLOWANCE = 1e-3
"""The level of gaps differs from idle if the difference exceeds its error by this part of dynamic power."""
BEYOND = 10.0
"""One reading is far beyond all others if it is more than this many times as large."""
MOST_CHANGE = 0.5
"""Power is refused if the gain differs from its mean by more than this part of the mean."""


# ---- notes and checks ---------------------------------------------------------------------


def instrument_notes(readings: Readings) -> Iterator[Finding]:
    """Yield notes on undeclared accuracy and resolution, and on the voltage that turns a rail's current into power.

    Yield a failed check if too few readings show how this voltage follows the current.
    """
    supply = readings.supply
    for rail in (readings.rail, *([supply.rail] if supply is not None else [])):
        if rail.accuracy is None:
            yield note(f"Rail {rail.name}: instrument uncertainty not stated (no calibration was declared)")
    raw = readings.raw[readings.ok]
    few = not readings.rail.resolution and len(np.unique(raw[: LEVELS**2])) < LEVELS  # to sort all takes longer
    if few and (values := len(np.unique(raw))) < LEVELS:
        why = "declare its resolution: so few values do not show the step, and no interval includes rounding"
        yield note(f"Rail {readings.rail.name}: all readings have one of {values} values: {why}")
    if (volts := readings.rail.conversion.supply_v) is not None and supply is None:
        why = "whose error is in no interval unless the limit of error in per cent of reading includes it"
        yield note(f"Rail {readings.rail.name}: power is its current times a constant {volts:g} V, {why}")
    if supply is not None:
        sag, apart_s = supply.sag, float(np.median(readings.end_s - readings.start_s))
        if sag is None and supply.window_s > 2.0 * apart_s:
            where, allowed = f"{supply.rail.name} at different currents of {readings.rail.name}", "2 or more"
            remedy = f"Measure for several of these readings, which take {supply.window_s:.3g} s each, or shorten them"
            yield Finding("readings of the voltage of " + where, "fewer than 2", allowed, remedy=remedy)
        how = (
            ""
            if sag is None
            else f". Within one reading, this voltage follows the current by {sag.ohm:.3g} +- {sag.ohm_u:.2g} ohm"
        )
        yield note(
            f"Rail {readings.rail.name}: power is its current times the voltage of {supply.rail.name}, reading by "
            f"reading{how}"
        )


def trace_notes(model: RailModel, activity: Activity) -> Iterator[Finding]:
    """Yield notes on missing and clipped readings, and a failed check if one reading is far beyond all others.

    Idle windows without a reading also get a note.
    """
    name = model.rail.name
    on_s, off_s = activity.idle_s.T
    middle_s = model.middle_s[model.idle]
    blind = np.flatnonzero(np.searchsorted(middle_s, off_s) <= np.searchsorted(middle_s, on_s, "right"))
    if len(blind):
        first, others = blind[0], f", as do {len(blind) - 1} more" if len(blind) > 1 else ""
        yield note(
            f"Rail {name}: the idle window at {on_s[first]:.6g} to {off_s[first]:.6g} s holds no reading{others}, so a "
            "drift of idle is not known"
        )
    yield from coverage.missing_notes(name, model.readings, activity.busy_windows_s())
    yield from coverage.overload_notes(name, model)
    yield from lone_check(model)
    if lost := coverage.missing_while_busy(model.readings, activity.busy_windows_s()):
        yield note(
            f"Rail {name}: {lost:.1%} of the readings in spans are missing, more than elsewhere. Their possible "
            "effect is stated as bias"
        )


def lone_check(model: RailModel) -> Iterator[Finding]:
    """Yield a failed check if a reading in a span, a gap or an idle window is far beyond all others of its rail.

    Nothing shows whether the device drew this power or the link damaged the reading. Figures include the reading.
    """
    r = model.readings
    size_w = np.where(r.ok, np.abs(r.watts), 0.0)
    top = int(np.argmax(size_w))
    times = size_w[top] / max(float(np.delete(size_w, top).max(initial=0.0)), ROUNDED * size_w[top], 1e-300)
    if (model.busy | model.idle | model.gap)[top] and BEYOND < times < 1.0 / ROUNDED:
        found = f"{r.watts[top]:.4g} W at {model.middle_s[top]:.6g} s, {times:.3g} times as large"
        yield Finding(f"readings of rail {r.rail.name} far beyond all others", found, "none", False)


def late_stamps_note(rests_s: float) -> Finding:
    """Return a note on spans at whose end the device is at rest."""
    return note(
        f"The device draws no more than at rest in the last {rests_s:.3g} s of a span, so it may have ended its work "
        "before the stamp, as when a host polls for the answer. Execution time and energy include this wait. Stamp the "
        "end on the device, or poll more often"
    )


def other_idle_notes(model: RailModel, dynamic: Quantity | None) -> Iterator[Finding]:
    """Yield a note on the dynamic power with the level between spans as idle, if this level differs from idle."""
    level_w, u_w = model.trace.gaps_w
    if dynamic is None or abs(level_w) < SURE * u_w + ALLOWANCE * abs(dynamic.value):
        return
    why = (
        "The device sleeps between its spans, or it was not at rest in the idle windows"
        if level_w < 0.0
        else "The device is not at rest between its spans, or it slept in the idle windows"
    )
    yield note(
        f"{ON_FIGURE}of rail {model.rail.name} depends on what idle is: it is {dynamic.value:.4g} W above the idle "
        f"windows, which is the figure, and {dynamic.value - level_w:.4g} W above the level between spans. {why}"
    )


def sign_checks(figures: Figures) -> Iterator[Finding]:
    """Yield a failed check if power or energy has an impossible sign or size, or if dynamic power may be zero.

    Power or energy below zero by its whole interval shows a wrong sign or a wrong zero of the current, because no
    device delivers energy. Idle power of exactly 0 W comes from a meter that reads nothing below its starting current.
    Dynamic power whose interval includes zero fails too. Dynamic power below zero by its whole interval is a note,
    because one part of a device may rest while another part works.
    """
    below = {
        str(key): q
        for key, q in figures.items()
        if key.quantity in DRAWN and not (key.phase or key.method or key.sample) and q.interval()[1] < 0.0
    }
    if below:
        name, q = next(iter(below.items()))
        more = f", and {len(below) - 1} more" if len(below) > 1 else ""
        allowed = "0 or more: zero the meter, or turn a reversed clamp or shunt round, and measure again"
        yield Finding("sign of power and energy", f"{name} is {q.value:.4g} {q.unit}{more}", allowed, False, told=True)
    idle, dynamic = (figures.get(FigureKey(name)) for name in ("idle_power_w", "dynamic_power_w"))
    if idle is not None and dynamic is not None and abs(idle.value) < ROUNDED * abs(dynamic.value):
        yield Finding(
            "Idle power above zero", "exactly 0 W in every reading", "not 0: a device at rest draws some", False
        )
    if dynamic is not None and dynamic.interval()[1] < 0.0:
        yield note(BELOW_IDLE)
    elif dynamic is not None and dynamic.interval()[0] <= 0.0:
        found = f"{dynamic.value:.4g} W, {NO_STEP}"
        yield Finding("Dynamic power above idle", found, "above zero by its interval", False, told=True)


# ---- refusals -----------------------------------------------------------------------------


def contradicted(rail: str, checks: Sequence[Finding]) -> Finding:
    """Return the refusal of a rail whose readings contradict the recording, by failed checks."""
    reason = "; ".join(f"{check.rule}: {check.found}" for check in checks)
    remedy = "Check that the driver delivers every reading once and at the declared rate (rate_hz, tick_hz), and "
    remedy += "measure again. For an import, check stamp, sync_s and rate_hz"
    return refusal(f"power on rail {rail}", reason, remedy)


def not_of_every_rail(key: FigureKey) -> Finding:
    """Return the refusal of a sum over rails of which some lack the figure."""
    return refusal(key, "not every rail has this figure", "See the refusals by rail")


def without_idle(r: Readings, activity: Activity) -> Finding:
    """Return the refusal of a rail that has no reading in an idle window."""
    scope = f"rail {r.rail.name}"
    if not np.any(r.ok):
        remedy = "Check the range and the wires of the meter, and what its driver delivers"
        return refusal(scope, "no reading is a number", remedy)
    first_s, last_s = float(r.start_s[0]), float(r.end_s[-1])
    windows = np.concatenate([activity.idle_s, activity.busy_windows_s()])
    if len(windows) and (last_s < windows.min() or first_s > windows.max()):
        until = f"{windows.min():.3g} to {windows.max():.3g} s"
        reason = f"its readings lie at {first_s:.6g} to {last_s:.6g} s, but the run at {until}"
        remedy = "Stamp readings by the clock that the meter's factory is given. A meter on real time needs a device"
        return refusal(scope, reason, f"{remedy} on real time, which the device mock is not")
    return refusal(scope, "no reading lies in an idle window", "Lengthen the idle windows (--option idle_s=SECONDS)")


def gain_findings(model: RailModel) -> Iterator[Finding]:
    """Yield a note if the gain of the meter changes, or a refusal if it changes by more than ``MOST_CHANGE``."""
    if not (change := model.once(gain_change)):
        return
    name = model.rail.name
    words = f"spans and the gaps beside them change by the same factor, by up to {change:.2g} of their mean"
    remedy = "Check ranges, shunts, jumpers and voltage of the rail, and measure again"
    if change > MOST_CHANGE:
        yield refusal(f"power on rail {name}", f"{words}: readings have more than one scale", remedy)
    else:
        yield note(f"Rail {name}: {words}. This change is part of the uncertainty. {remedy}")


def too_short(model: RailModel, scope: Scope, short: TooShort) -> Finding:
    """Return the refusal of a scope in which too few windows have a whole reading."""
    share = covered_share(model.readings, scope.windows_s)
    if share < MIN_SHARE or short.window_s > short.needed_s:
        share = min(share, short.share)
        return refusal(
            f"power of {scope.words} on rail {model.rail.name}",
            f"the trace holds {share:.0%} of the spans: the meter started, stopped or lost readings during the work",
            "See in the log of the recording why readings are missing, and measure again",
        )
    longer = short.needed_s / max(short.window_s, 1e-12)
    executions = float(np.median(np.concatenate([p.executions for p in scope.phases])))
    repeat, times = math.ceil(longer * executions), math.ceil(longer)
    others = f"with sequences {times} times as long (--amortise), or with a faster meter"
    return refusal(
        f"power of {scope.words} on rail {model.rail.name}",
        f"a window lasts {short.window_s:.3g} s, but it must last {short.needed_s:.3g} s; after trimming, "
        f"{short.share:.0%} of the windows hold a whole reading",
        "--repeat made no span longer: each holds one execution. Let the driver stamp one span around the loop "
        f"(submit_repeated). A function with one phase may return outputs without spans instead. Or measure {others}"
        if scope.unlooped
        else f"Measure with --repeat {repeat} or more, {others}",
    )


def readings_lost(model: RailModel, scope: Scope, lost: float) -> Finding:
    """Return the refusal of a scope if the share ``lost`` of its readings is missing."""
    return refusal(
        f"power of {scope.words} on rail {model.rail.name}",
        f"{lost:.1%} of the readings of {scope.words} are missing, more than elsewhere",
        "See why the meter loses readings while the device works, and measure again",
    )


def no_power(run: Run) -> Finding:
    """Return the refusal of power in a run that recorded no trace of power."""
    volts = [name for name, trace in run.traces.items() if trace.rail.conversion.unit == "V"]
    if not volts:
        return refusal("power", "no trace was recorded", "Check the meter and measure again")
    reason = f"only volts were recorded ({', '.join(volts)}), and volts alone are no power"
    remedy = "Measure the current of this supply too, and declare the volts as its voltage, or measure watts"
    return refusal("power", reason, remedy)
