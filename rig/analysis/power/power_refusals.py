"""When a trace does not show the power of a phase, and what to change."""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.power.coverage import covered_share, hidden_w
from rig.analysis.power.estimators import MIN_SHARE, Estimate, TooShort
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.scope import Scope
from rig.analysis.refusal import Refusal
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timeline import Activity
from rig.recording.reader import Run

MAX_CLIPPED = 0.1
"""Power is refused if more than this share of the busy readings is at the end of the range."""
MAX_HIDDEN = 0.01
"""Power is refused if clipped readings that noise does not explain may hide more than this part of dynamic power."""
MAX_MISSING = 0.25
"""Share of readings missing in spans, and not elsewhere, above which power is refused."""


def without_idle(r: Readings, activity: Activity) -> tuple[str, str]:
    """Return why a rail has no reading in an idle window, and what to change."""
    if not np.any(r.ok):
        return "no reading is a number", "Check the range and the wires of the meter, and what its driver delivers"
    first_s, last_s = float(r.start_s[0]), float(r.end_s[-1])
    windows = np.concatenate([activity.idle_s, activity.busy_windows_s()])
    if len(windows) and (last_s < windows.min() or first_s > windows.max()):
        until = f"{windows.min():.3g} to {windows.max():.3g} s"
        reason = f"its readings lie at {first_s:.6g} to {last_s:.6g} s, but the run at {until}"
        remedy = "Stamp readings by the clock that the meter's factory is given. A meter on real time needs a device"
        return reason, f"{remedy} on real time, which the device mock is not"
    return "no reading lies in an idle window", "Lengthen the idle windows (--option idle_s=SECONDS)"


def beyond_range(model: RailModel, e: Estimate) -> Refusal | None:
    """Return a refusal if clipped readings are too many, or hide too much that noise does not explain."""
    r = model.readings
    clipped = r.count(r.overload & model.busy) / max(r.count(model.busy), 1)
    hidden, unexplained = hidden_w(model)
    lost = float(np.abs(e.dynamic[unexplained]) @ hidden[unexplained]) / max(abs(e.value_w), 1e-300)
    if clipped <= MAX_CLIPPED and lost <= MAX_HIDDEN:
        return None
    reason = f"{clipped:.1%} of the readings while busy are at the end of the meter's range"
    if lost > MAX_HIDDEN:
        reason += f"; noise does not explain them, and they may hide {lost:.1%} of dynamic power"
    return Refusal(f"power on rail {model.rail.name}", reason, "Choose a higher range and measure again")


def too_short(model: RailModel, scope: Scope, short: TooShort) -> Refusal:
    """Return the refusal of a scope whose windows hold too few whole readings."""
    share = covered_share(model.readings, scope.windows_s)
    if share < MIN_SHARE or short.window_s > short.needed_s:
        share = min(share, short.share)
        return Refusal(
            f"power of {scope.words} on rail {model.rail.name}",
            f"the trace holds {share:.0%} of the spans: the meter started, stopped or lost readings during the work",
            "See in the log of the recording why readings are missing, and measure again",
        )
    longer = short.needed_s / max(short.window_s, 1e-12)
    repeat, times = math.ceil(longer * scope.executions), math.ceil(longer)
    others = f"with sequences {times} times as long (--amortise), or with a faster meter"
    return Refusal(
        f"power of {scope.words} on rail {model.rail.name}",
        f"a window lasts {short.window_s:.3g} s, but it must last {short.needed_s:.3g} s; after trimming, "
        f"{short.share:.0%} of the windows hold a whole reading",
        "--repeat made no span longer: each holds one execution. Let the driver stamp one span around the loop "
        f"(submit_repeated) or, as a function of one phase, return outputs without stamps. Or measure {others}"
        if scope.unlooped
        else f"Measure with --repeat {repeat} or more, {others}",
    )


def readings_lost(model: RailModel, scope: Scope, lost: float) -> Refusal:
    """Return the refusal of a scope of whose readings the share ``lost`` is missing."""
    return Refusal(
        f"power of {scope.words} on rail {model.rail.name}",
        f"{lost:.1%} of the readings of {scope.words} are missing, more than elsewhere",
        "See why the meter loses readings while the device works, and measure again",
    )


def no_power(run: Run) -> Refusal:
    """Return why a run with a meter has no rail of power."""
    volts = [name for name, trace in run.traces.items() if trace.rail.conversion.unit == "V"]
    if not volts:
        return Refusal("power", "no trace was recorded", "Check the meter and measure again")
    reason = f"only volts were recorded ({', '.join(volts)}), and volts alone are no power"
    remedy = "Measure the current of this supply too, and declare the volts as its voltage, or measure watts"
    return Refusal("power", reason, remedy)
