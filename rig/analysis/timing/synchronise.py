"""Meters placed on the device's time axis: brackets first, then marks and spans seen in the trace or on a pin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.rail_model import View, view_of
from rig.analysis.timing.alignment import Excess, align
from rig.analysis.timing.gpio_alignment import Input, expected, match, observed, quiet_s
from rig.analysis.timing.supply import Volts
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Readings, readings_of, timebase_of, volts_of
from rig.errors import DataError
from rig.recording.reader import Run, Trace
from rig.types import Bools, Floats, Rail

DISAGREE = 4.0
"""Standard deviations between a pin and the trace beyond which it is said."""


@dataclass(frozen=True)
class Placed:
    """One rail's readings in run seconds, the map that put them there, and the estimators' view.

    ``view`` is None when no reading lies in an idle window. ``notes`` say what a pin's edges were good for.
    """

    rail: Rail
    readings: Readings
    timebase: Timebase
    view: View | None
    notes: tuple[str, ...] = ()


def place(run: Run, activity: Activity, device: Timebase) -> list[Placed]:
    """Place every trace that holds readings. A clock is fitted once, by the rail that shows the spans best."""
    first: dict[str, Timebase] = {}
    held = [t for t in run.traces.values() if len(t.value) >= 2 and t.rail.kind != "edges"]
    traces = [t for t in held if t.rail.conversion.unit != "V"]
    for trace in traces:
        if trace.clock not in first:
            first[trace.clock] = timebase_of(run, trace.clock, trace.rail.name)
    placed: list[Placed] = []
    for clock, timebase in first.items():
        own = [t for t in traces if t.clock == clock]
        volts = [_volts(run, t, timebase) for t in own]
        final = _aligned(
            [readings_of(t, timebase, v) for t, v in zip(own, volts, strict=True)], activity, device, timebase
        )
        final, notes = _by_pins(final, _pins(run, clock), activity, device, timebase)
        for trace in own:
            readings = readings_of(trace, final, _volts(run, trace, final))
            placed.append(Placed(trace.rail, readings, final, _view(readings, final, activity), notes))
    return sorted(placed, key=lambda p: p.rail.name)


def _volts(run: Run, trace: Trace, own: Timebase) -> Volts | None:
    """The volts of a rail of amperes that names them, by its own clock or, on another, by that clock's brackets."""
    name = trace.rail.conversion.supply_rail
    if name is None:
        return None
    found = run.traces.get(name)
    if found is None or found.rail.conversion.unit != "V" or not len(found.value):
        what = "is not in the recording" if found is None else "holds no volts"
        raise DataError(
            f"rail {name}, which rail {trace.rail.name} names as its supply, {what}",
            field="supply_rail",
            value=name,
            remedy="Record the voltage as a rail in V, or state it as supply_v",
        )
    return volts_of(found, own if found.clock == trace.clock else timebase_of(run, found.clock, name))


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
        if device.look_s > 0:  # its spans are edges that this meter saw: only how it looks stands between them
            sigma = math.hypot(device.look_s / math.sqrt(12.0), device.lag_s / math.sqrt(3.0))
            best = replace(best, sigma_s=sigma, rate_sigma=0.0)
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


def _pins(run: Run, clock: str) -> list[Trace]:
    """The logic inputs on a clock whose pin is said to mark spans."""
    rails = [t for t in run.traces.values() if t.clock == clock and t.rail.kind == "edges"]
    return [t for t in rails if t.rail.pin is not None and len(t.value)]


def _by_pins(
    best: Timebase, pins: list[Trace], activity: Activity, device: Timebase, first: Timebase
) -> tuple[Timebase, tuple[str, ...]]:
    """The map by the edges of a pin where that states less doubt than ``best``, and what is to be said of it."""
    spans = np.concatenate([activity.busy_windows_s(), activity.warmup_s, activity.marks_s])
    if not pins or not len(spans) or first.clock.name == device.clock.name:
        return best, ()
    sigma, rate_sigma = (
        math.hypot(a, b) for a, b in ((first.sigma_s, device.sigma_s), (first.rate_sigma, device.rate_sigma))
    )
    considered, traced, notes = dict(best.considered), best, []
    for pin in pins:
        name, rail = pin.rail.name, pin.rail
        look_s = first.rate / rail.rate_hz if rail.rate_hz > 0 else 1.0 / first.clock.tick_hz
        wanted = expected(spans, rail.pin or "level")
        found = observed(first.seconds(pin.end_tick), pin.value, rail.pin or "level", look_s, quiet_s(wanted))
        reach = 3.0 * sigma + rate_sigma * float(np.ptp(spans))
        fit = match(wanted, found, reach, 2.0 * rate_sigma, Input(look_s, rail.pin_lag_s, device.step_s))
        if isinstance(fit, str):
            notes.append(f"Input {name}: its edges place nothing: {fit}")
            continue
        considered["edges"] = min(fit.sigma_s, considered.get("edges", math.inf))
        if fit.missing or fit.extra:
            notes.append(
                f"Input {name}: {fit.matched} edges fit the spans, {fit.missing} are missing, {fit.extra} extra"
            )
        by_tick = round((fit.ref_s - first.ref_s) * first.clock.tick_hz / first.rate)
        middle = replace(
            first, ref_tick=first.ref_tick + by_tick, ref_s=first.ref_s + by_tick * first.rate / first.clock.tick_hz
        )
        moved = middle.adjusted(fit.shift_s, fit.rate, fit.sigma_s, min(fit.rate_sigma, rate_sigma), "edges")
        notes += _apart(moved, traced, name, float(spans.mean()))
        best = moved if moved.sigma_s < best.sigma_s else best
    return replace(best, considered=considered), tuple(notes)


def _apart(moved: Timebase, traced: Timebase, name: str, at_s: float) -> list[str]:
    """What to say where the pin and the trace put the activity at different times."""
    if traced.method == "brackets":
        return []
    tick = traced.ref_tick + round((at_s - traced.ref_s) * traced.clock.tick_hz / traced.rate)
    by_s = float(np.diff([float(t.seconds(np.array([tick]))[0]) for t in (moved, traced)])[0])
    doubt = math.hypot(moved.sigma_at(at_s), traced.sigma_at(at_s))
    if abs(by_s) <= DISAGREE * doubt:
        return []
    which = f"Input {name} and the {traced.method} in the trace"
    return [f"{which} are {abs(by_s):.3g} s apart, which doubts of {doubt:.2g} s do not explain"]


def _contrast(view: View) -> float:
    """How much the rail varies while the device is at work, over the noise of a reading.

    No shift between the clocks changes it, unlike a difference of busy and idle readings.
    """
    r, windows = view.readings, view.all_busy_s
    if not len(windows):
        return 0.0
    during = r.ok & (r.end_s > windows[0, 0]) & (r.start_s < windows[-1, 1])
    return float(np.std(r.watts[during])) / max(view.reading_u_w(False), 1e-300) if np.any(during) else 0.0


def _moved(r: Readings, shift_s: float, rate: float, ref_s: float) -> Readings:
    return r.moved(r.start_s + shift_s + rate * (r.start_s - ref_s), r.end_s + shift_s + rate * (r.end_s - ref_s))


def _excess(view: View, timebase: Timebase) -> Excess:
    r = view.readings
    first, last = float(r.start_s[0]), float(r.end_s[-1])
    low, high = float(view.idle_weights(first) @ r.watts), float(view.idle_weights(last) @ r.watts)
    line = low + (high - low) * (view.middle_s - first) / max(last - first, 1e-12)
    ok: Bools | slice = slice(None) if r.ok.all() else r.ok  # a mask would copy every array
    return Excess(r.start_s[ok], r.end_s[ok], (r.watts - line)[ok], view.reading_u_w(True), r.period_s, r.tau_s, low)
