"""Meters placed on the device's time axis: brackets first, then marks and spans seen in the trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rig.align import Excess, align
from rig.run import Run
from rig.sync import Timebase
from rig.timeline import Activity, Readings, readings_of, timebase_of
from rig.types import Floats, Rail
from rig.view import View, view_of


@dataclass(frozen=True)
class Placed:
    """One rail's readings in run seconds, the map that put them there, and the estimators' view.

    ``view`` is None when no reading lies in an idle window.
    """

    rail: Rail
    readings: Readings
    timebase: Timebase
    view: View | None


def place(run: Run, activity: Activity, device: Timebase) -> list[Placed]:
    """Place every trace that holds readings. A clock is fitted once, by the rail that shows the spans best."""
    first: dict[str, Timebase] = {}
    for name, trace in run.traces.items():
        if len(trace.value) >= 2 and trace.clock not in first:
            first[trace.clock] = timebase_of(run, trace.clock, name)
    traces = [t for t in run.traces.values() if len(t.value) >= 2]
    placed: list[Placed] = []
    for clock, timebase in first.items():
        own = [t for t in traces if t.clock == clock]
        final = _aligned([readings_of(t, timebase) for t in own], activity, device, timebase)
        for trace in own:
            readings = readings_of(trace, final)
            placed.append(Placed(trace.rail, readings, final, _view(readings, final, activity)))
    return sorted(placed, key=lambda p: p.rail.name)


def _view(readings: Readings, meter: Timebase, activity: Activity) -> View | None:
    sigma = _sigma_over(meter, activity)
    return view_of(readings, activity, meter.clock.name, sigma, max(meter.considered.get("brackets", 0.0), sigma))


def _sigma_over(meter: Timebase, activity: Activity) -> float:
    """Doubt of the map at the far end of the activity."""
    windows = activity.busy_windows_s()
    if not len(windows):
        return meter.sigma_s
    return max(meter.sigma_at(float(windows.min())), meter.sigma_at(float(windows.max())))


def _aligned(rails: list[Readings], activity: Activity, device: Timebase, first: Timebase) -> Timebase:
    """The bracketed map, or one moved onto the activity in the trace, whichever states less doubt."""
    sigma = math.hypot(first.sigma_s, device.sigma_s)
    rate_sigma = math.hypot(first.rate_sigma, device.rate_sigma)
    half_run = 0.5 * max(float(r.end_s[-1] - r.start_s[0]) for r in rails)
    best = replace(first, sigma_s=sigma, rate_sigma=rate_sigma, considered={"brackets": sigma})
    if first.clock.name == device.clock.name:
        return best
    views = [v for r in rails if (v := view_of(r, activity, first.clock.name, sigma, sigma)) is not None]
    if not views:
        return best
    view = max(views, key=_contrast)
    trains: dict[str, Mapping[str, Floats]] = {}
    spans = {name: p.windows_s for name, p in activity.phases.items()} | {"warmup": activity.warmup_s}
    if len(activity.marks_s):
        trains["marks"] = {"mark": activity.marks_s}
    trains["activity"] = spans | ({"mark": activity.marks_s} if len(activity.marks_s) else {})
    considered = dict(best.considered)
    for method, train in trains.items():
        excess = _excess(view, best)
        reach = 3.0 * best.sigma_s + 2.0 * best.rate_sigma * half_run
        found = align(excess, train, reach, 2.0 * best.rate_sigma)
        if found is None:
            continue
        considered[method] = found.sigma_s
        if found.sigma_s < best.sigma_s:
            rate_sigma = min(found.rate_sigma, best.rate_sigma) if found.rate_sigma else best.rate_sigma
            at_ref = found.shift_s + found.rate * (best.ref_s - found.ref_s)
            best = best.adjusted(at_ref, found.rate, found.sigma_s, rate_sigma, method)
            view = replace(view, readings=_moved(view.readings, found.shift_s, found.rate, found.ref_s))
    return replace(best, considered=considered)


def _contrast(view: View) -> float:
    """How much the rail varies while the device is at work, over the noise of a reading.

    No shift between the clocks changes it, unlike a difference of busy and idle readings.
    """
    r, windows = view.readings, view.all_busy_s
    if not len(windows):
        return 0.0
    during = r.ok & (r.end_s > windows[0, 0]) & (r.start_s < windows[-1, 1])
    return float(np.std(r.watts[during])) / max(view.noise.white_w, 1e-300) if np.any(during) else 0.0


def _moved(r: Readings, shift_s: float, rate: float, ref_s: float) -> Readings:
    return r.moved(r.start_s + shift_s + rate * (r.start_s - ref_s), r.end_s + shift_s + rate * (r.end_s - ref_s))


def _excess(view: View, timebase: Timebase) -> Excess:
    r = view.readings
    first, last = float(r.start_s[0]), float(r.end_s[-1])
    low, high = float(view.idle_weights(first) @ r.watts), float(view.idle_weights(last) @ r.watts)
    line = low + (high - low) * (view.middle_s - first) / max(last - first, 1e-12)
    ok = r.ok
    return Excess(r.start_s[ok], r.end_s[ok], (r.watts - line)[ok], view.noise.busy_w, r.period_s, r.tau_s, low)
