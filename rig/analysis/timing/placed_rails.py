"""Readings of the rails of one clock on the device's time, and whether they fit the spans there."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rig.analysis.timing.consistency import after_end, displaced
from rig.analysis.timing.following import Followed, followed
from rig.analysis.timing.meter_clock import MeterClock, by_edges, by_trace
from rig.analysis.timing.readings import Readings, readings_of
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity
from rig.analysis.verdict import Check
from rig.recording.traces import Trace


@dataclass(frozen=True)
class AlignedRail:
    """One rail's readings on the device's time, in run seconds, and the map from the meter's ticks.

    ``sigma_s`` is the uncertainty between the meter's clock and the device's. ``host_sigma_s`` is the uncertainty
    between the meter's clock and the host's. Both hold over the whole activity. ``notes`` say how GPIO edges were used,
    and which readings were moved. ``contradictions`` are what of the readings does not fit the recorded time or the
    recorded spans; ``bridged`` are those that the recording itself resolves. Each of these checks fails.
    """

    readings: Readings
    timebase: Timebase
    sigma_s: float
    host_sigma_s: float
    notes: tuple[str, ...] = ()
    contradictions: tuple[Check, ...] = ()
    bridged: tuple[Check, ...] = ()
    followed: Followed | None = None
    """How the readings were moved along the run to where the spans are, if they were."""
    single: Readings | None = None
    """For a long trace: some single readings, on the same time; ``readings`` are means of all. Else None."""

    def noted(self, check: Check, note: str) -> AlignedRail:
        """Return the same with one more contradiction that the recording itself resolves."""
        return replace(self, notes=(*self.notes, note), bridged=(*self.bridged, check))


def placed(meter: MeterClock, traces: list[Trace]) -> list[AlignedRail]:
    """Return the rails of one clock, aligned together by the rail that shows the spans best."""
    activity, first = meter.activity, meter.bracketed
    bracketed = [readings_of(t, first, meter.volts(t, first)) for t in traces]
    final, notes = by_edges(meter, by_trace(meter, bracketed))
    sigma_s = _sigma_over(final, activity)
    host_sigma_s = max(final.considered.get("brackets", 0.0), sigma_s)
    rails = []
    for trace in traces:
        readings = readings_of(trace, final, meter.volts(trace, final))
        phases_s = [p.windows_s for p in activity.phases.values()]
        aligned = AlignedRail(readings, final, sigma_s, host_sigma_s, notes)
        aligned = _with_followed(aligned, activity, meter.device)
        checks = (*after_end(readings, meter.end_s), *displaced(aligned.readings, phases_s))
        rails.append(replace(aligned, contradictions=checks))
    return rails


def _with_followed(placed: AlignedRail, activity: Activity, device: Timebase) -> AlignedRail:
    """The rail with its readings where the edges of the spans are, if the clocks miss them."""
    r = placed.readings
    found = followed(r, activity.active_s())
    if found is None:
        return placed
    low_s, high_s = found.shift_s
    text = f"{low_s:.3g} to {high_s:.3g} s"
    checks = placed.bridged
    if found.steepest > placed.timebase.clock.tolerance + device.clock.tolerance:
        rule = f"spans of rail {r.rail.name} against the clocks, along the run"
        checks = (*checks, Check(rule, text, "a change within the tolerances of both clocks", False))
    far_s = max(abs(low_s), abs(high_s))
    return replace(
        placed,
        readings=found.readings,
        sigma_s=found.sigma_s,
        host_sigma_s=math.hypot(placed.host_sigma_s, far_s),
        notes=(*placed.notes, f"Rail {r.rail.name}: {_how(found, text)}"),
        bridged=checks,
        followed=found,
    )


def _how(found: Followed, shift: str) -> str:
    """What the edges of the spans show."""
    if found.tau_s is not None:
        return (
            f"begins and ends of spans are smooth alike, as behind a filter of {found.tau_s:.3g} s that is not "
            "declared (filter_tau_s). Power is computed as if it were"
        )
    if found.knots_s is None:
        by_s = found.shift_s[0]
        return (
            f"all spans lie {abs(by_s):.3g} s {'later' if by_s > 0.0 else 'earlier'} in the trace than the clocks say. "
            "Where they are is uncertain by as much"
        )
    return (
        f"along the run the spans lie {shift} later in the trace than the clocks say. The readings are moved to where "
        "the edges of the spans are"
    )


def _sigma_over(meter: Timebase, activity: Activity) -> float:
    """Uncertainty of the map at the far end of the activity, in seconds."""
    windows = activity.busy_windows_s()
    if not len(windows):
        return meter.sigma_s
    return max(meter.sigma_at(float(windows.min())), meter.sigma_at(float(windows.max())))
