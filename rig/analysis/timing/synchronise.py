"""Readings on the device's time: each meter's clock is aligned by its brackets, then by the trace or by a GPIO edge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.bridging import Bridged, bridged, copies_of, delivered, fits
from rig.analysis.timing.consistency import after_end, displaced, doubtful
from rig.analysis.timing.following import Followed, followed
from rig.analysis.timing.gpio_alignment import match
from rig.analysis.timing.gpio_edges import GpioInput, expected, observed, quiet_s
from rig.analysis.timing.pooling import (
    Beside,
    cuts_of,
    in_means,
    moments_s,
    pooled,
    proportional,
    span_sigma_s,
    thinned,
)
from rig.analysis.timing.range_end import apparent_ends
from rig.analysis.timing.stamped_on_arrival import on_grid
from rig.analysis.timing.stretches import single, stretches
from rig.analysis.timing.supply import Volts
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Readings, readings_of, timebase_of, volts_of
from rig.analysis.timing.trace_alignment import Excess, align
from rig.analysis.verdict import Check
from rig.errors import DataError
from rig.recording.reader import AT_ONCE, Run, Trace
from rig.types import Bools, Floats

DISAGREE = 4.0
"""A note is made if a GPIO input and the trace differ by more than this many standard deviations."""

APART = 2.5
"""Standard deviations by which two placements of the same spans may differ before the figure's time covers both."""


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


class Baseline(Protocol):
    """The idle level of a rail over time, and the noise of a reading, as alignment needs them."""

    def idle_level_w(self, at_s: float) -> float:
        """Return idle power at a moment, in watts."""

    def reading_u_w(self, busy: bool) -> float:
        """Return the standard deviation of one reading from noise, in watts."""


FindBaseline = Callable[[Readings, Activity, str, float], Baseline | None]
"""A function of readings, activity, the meter's clock and its sigma; it returns None without readings at idle."""


def aligned_rails(
    run: Run,
    activity: Activity,
    device: Timebase,
    baseline: FindBaseline,
    end_s: float = math.inf,
    at_once: int = AT_ONCE,
) -> list[AlignedRail]:
    """Return every rail of power, sorted by name; the recording ended at ``end_s``.

    Rails on one clock are aligned together, by the rail that shows the spans best. Where readings contradict the spans,
    they get the times that the spans prove, if they prove any. Of a trace with more than ``at_once`` readings, that
    many are looked at one by one, and all enter the readings of its rail as means (``rig.analysis.timing.pooling``).
    """
    held = [t for t in run.traces.values() if len(t.value) >= 2 and t.rail.kind != "edges"]
    traces = [t for t in held if t.rail.conversion.unit != "V"]
    rails: list[AlignedRail] = []
    for clock in dict.fromkeys(t.clock for t in traces):
        own = [thinned(t, at_once) for t in traces if t.clock == clock]
        first = timebase_of(run, clock, own[0].rail.name)
        arrivals = on_grid(own, first.clock.tick_hz)
        own = list(arrivals.traces)
        first = replace(first, sigma_s=math.hypot(first.sigma_s, arrivals.late_ticks / first.clock.tick_hz))
        if any(len(t.value) > at_once for t in (*own, *_supplies(run, own))):
            placed = _looked_into(run, own, first, activity, device, baseline, end_s, at_once)
        else:
            placed = _as_a_whole(run, own, first, activity, device, baseline, end_s)
        rails += [replace(p, notes=(*arrivals.notes, *p.notes)) for p in placed]
    return sorted(rails, key=lambda r: r.readings.rail.name)


def _as_a_whole(
    run: Run,
    own: list[Trace],
    first: Timebase,
    activity: Activity,
    device: Timebase,
    baseline: FindBaseline,
    end_s: float,
    step_s: float = 0.0,
) -> list[AlignedRail]:
    """Align the rails of one clock by all their readings, with the times that the spans prove where they must.

    ``step_s`` is how long readings are that are means, which show to about a part of it where they stand.
    """
    placed = _on_one_clock(run, own, first, activity, device, baseline, end_s)
    bridges = {p.readings.rail.name: b for t, p in zip(own, placed, strict=True)
               if (b := _bridged(run, t, first, p, activity, device, end_s, step_s > 0.0)) is not None}  # fmt: skip
    if not bridges:
        return placed
    own = [bridges[t.rail.name].trace if t.rail.name in bridges else t for t in own]
    rate_sigma = max(b.rate_sigma for b in bridges.values())
    began_s = min(float(first.seconds(t.start_tick[:1])[0]) for t in own)
    first = replace(
        first,
        sigma_s=math.hypot(first.sigma_s, rate_sigma * (first.ref_s - began_s), step_s / math.sqrt(12.0)),
        rate_sigma=math.hypot(first.rate_sigma, rate_sigma),
    )
    again = _on_one_clock(run, own, first, activity, device, baseline, end_s)
    if any(p.contradictions for p in again):
        return placed
    found = [(p, bridges.get(p.readings.rail.name)) for p in again]
    return [p if b is None else _with(p, b.check, b.note) for p, b in found]


# ---- long traces --------------------------------------------------------------------------


def _looked_into(
    run: Run,
    own: list[Trace],
    first: Timebase,
    activity: Activity,
    device: Timebase,
    baseline: FindBaseline,
    end_s: float,
    at_once: int,
) -> list[AlignedRail]:
    """Align the rails of one clock by single readings in stretches of their traces, and sum all readings.

    If either leaves a doubt that readings and spans fit, means of successive readings are looked at as a whole, where
    power is proportional to a reading. What was lost, and where, shows in them too.
    """
    against = _against_device(first, device)
    windows_s = np.concatenate([activity.busy_windows_s(), activity.excluded_s(), activity.idle_s])
    reach_s = 3.0 * max((against.sigma_at(float(t)) for t in (windows_s.min(), windows_s.max())), default=0.0)
    looked_at_s, part = stretches(max(own, key=lambda t: len(t.value)), first, activity, reach_s, at_once)
    near = [single(t, first, looked_at_s) for t in own]
    beside = {t.rail.name: single(t, _clock_of(run, t, first), looked_at_s) for t in _supplies(run, own)}
    some = replace(run, traces={**run.traces, **beside})
    placed = _on_one_clock(some, near, first, part, device, baseline, end_s)
    found = [_summed(run, t, p, activity, at_once // 4) for t, p in zip(own, placed, strict=True)]
    against_s = np.concatenate([activity.busy_windows_s(), activity.excluded_s()])
    sure = not any(p.contradictions or doubtful(p.readings, against_s) for p in found)
    if sure or not all(t.uniform and t.rail.rate_hz > 0.0 and proportional(t.rail) for t in own):
        return found
    late = any(check for p in placed for check in after_end(p.readings, end_s))
    copies = copies_of(own[0].part(0, at_once).value) if late else 1
    means = [in_means(t, at_once, copies) for t in own]
    step_s = max(first.rate / t.rail.rate_hz for t in means)
    whole = _as_a_whole(run, means, first, activity, device, baseline, end_s, step_s)
    if copies > 1:
        whole = [_with(p, *delivered(p.readings.rail.name, copies)) for p in whole]
    return whole if any(p.contradictions or p.bridged for p in (*whole, *found)) else found


def _supplies(run: Run, own: list[Trace]) -> list[Trace]:
    """The traces of volts that these rails name and the recording holds."""
    names = dict.fromkeys(t.rail.conversion.supply_rail for t in own)
    return [run.traces[n] for n in names if n is not None and n in run.traces]


def _clock_of(run: Run, volts: Trace, own: Timebase) -> Timebase:
    return own if volts.clock == own.clock.name else timebase_of(run, volts.clock, volts.rail.name)


def _summed(run: Run, trace: Trace, placed: AlignedRail, activity: Activity, evenly: int) -> AlignedRail:
    """The rail with all readings as means, and those that it was placed by as single ones."""
    r, timebase, shift = placed.readings, placed.timebase, placed.followed

    def seconds(ticks: NDArray[np.int64]) -> Floats:
        at_s = timebase.seconds(ticks)
        return at_s if shift is None else shift.moved(at_s)

    sigma_s = span_sigma_s(r, activity, placed.sigma_s)
    cuts = cuts_of(trace, seconds, moments_s(activity, sigma_s, placed.host_sigma_s, r.tau_s), evenly)
    volts = next(iter(_supplies(run, [trace])), None)
    beside = None if volts is None else Beside(volts, _clock_of(run, volts, timebase), timebase)
    means = pooled(trace, r, apparent_ends(r.raw), seconds, cuts, beside)
    return replace(placed, readings=means, single=r)


def _on_one_clock(
    run: Run,
    own: list[Trace],
    first: Timebase,
    activity: Activity,
    device: Timebase,
    baseline: FindBaseline,
    end_s: float,
) -> list[AlignedRail]:
    """Align the rails of one clock, whose brackets make the map ``first``."""
    bracketed = [readings_of(t, first, _volts(run, t, first)) for t in own]
    by_trace = _by_trace(bracketed, activity, device, first, baseline)
    final, notes = _by_edges(by_trace, _inputs(run, first.clock.name), activity, device, first)
    sigma_s = _sigma_over(final, activity)
    host_sigma_s = max(final.considered.get("brackets", 0.0), sigma_s)
    rails = []
    for trace in own:
        readings = readings_of(trace, final, _volts(run, trace, final))
        phases_s = [p.windows_s for p in activity.phases.values()]
        aligned = AlignedRail(readings, final, sigma_s, host_sigma_s, notes)
        aligned = _with_followed(aligned, activity, device)
        checks = (*after_end(readings, end_s), *displaced(aligned.readings, phases_s))
        rails.append(replace(aligned, contradictions=checks))
    return rails


def _with_followed(placed: AlignedRail, activity: Activity, device: Timebase) -> AlignedRail:
    """The rail with its readings where the edges of the spans are, if the clocks miss them."""
    windows_s = merged(np.concatenate([activity.busy_windows_s(), activity.excluded_s()]))
    r = placed.readings
    found = followed(r, windows_s)
    if found is None:
        return placed
    low_s, high_s = found.shift_s
    text = f"{low_s:.3g} to {high_s:.3g} s"
    note = (
        f"Rail {r.rail.name}: along the run the spans lie {text} later in the trace than the clocks say. The readings "
        "are moved to where the edges of the spans are"
    )
    if found.tau_s is not None:
        note = (
            f"Rail {r.rail.name}: begins and ends of spans are smooth alike, as behind a filter of {found.tau_s:.3g} s "
            "that is not declared (filter_tau_s). Power is computed as if it were"
        )
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
        notes=(*placed.notes, note),
        bridged=checks,
        followed=found,
    )


def _bridged(
    run: Run,
    trace: Trace,
    first: Timebase,
    placed: AlignedRail,
    activity: Activity,
    device: Timebase,
    end_s: float,
    means: bool,
) -> Bridged | None:
    """The trace with the times that its spans prove, if they contradict those recorded.

    Spans that seem to wander along ``means`` by more than both clocks may stand elsewhere altogether.
    """
    windows_s = merged(np.concatenate([activity.busy_windows_s(), activity.excluded_s()]))
    if (
        not trace.uniform
        or len(windows_s) < 2
        or not np.any(placed.readings.ok)
        or not (
            placed.contradictions
            or (means and placed.bridged)
            or (placed.followed is None and not fits(placed.readings, windows_s).all())
        )
    ):
        return None
    against = _against_device(first, device)
    readings = readings_of(trace, first, _volts(run, trace, first))
    reach_s = 3.0 * max(against.sigma_at(float(t)) for t in (windows_s[0, 0], windows_s[-1, 1]))
    return bridged(trace, readings, windows_s, reach_s, end_s, bool(placed.contradictions))


def _with(placed: AlignedRail, check: Check, note: str) -> AlignedRail:
    return replace(placed, notes=(*placed.notes, note), bridged=(*placed.bridged, check))


def _volts(run: Run, trace: Trace, own: Timebase) -> Volts | None:
    """The volts of a rail of amperes that names them, on their own clock."""
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
    return volts_of(found, _clock_of(run, found, own))


def _sigma_over(meter: Timebase, activity: Activity) -> float:
    """Uncertainty of the map at the far end of the activity, in seconds."""
    windows = activity.busy_windows_s()
    if not len(windows):
        return meter.sigma_s
    return max(meter.sigma_at(float(windows.min())), meter.sigma_at(float(windows.max())))


# ---- by the activity in the trace ---------------------------------------------------------


def _by_trace(
    rails: list[Readings], activity: Activity, device: Timebase, first: Timebase, baseline: FindBaseline
) -> Timebase:
    """The bracketed map, or one moved onto the activity in the trace, whichever states less uncertainty."""
    bracketed = _against_device(first, device)
    if first.clock.name == device.clock.name:
        return bracketed
    clock, sigma_s = first.clock.name, bracketed.sigma_s
    found = [(r, b) for r in rails if (b := baseline(r, activity, clock, sigma_s)) is not None]
    if not found:
        return bracketed
    readings, level = max(found, key=lambda pair: _contrast(pair[0], pair[1], activity))
    half_run_s = 0.5 * max(float(r.end_s[-1] - r.start_s[0]) for r in rails)
    best, considered, moved = bracketed, dict(bracketed.considered), readings
    for method, train in _trains(activity).items():
        reach_s = 3.0 * best.sigma_s + 2.0 * best.rate_sigma * half_run_s
        fit = align(_excess(moved, readings, level), train, reach_s, 2.0 * best.rate_sigma)
        if fit is None:
            continue
        considered[method] = fit.sigma_s
        # placements that disagree beyond their sigmas are all in doubt, also the one that states the least
        apart_s = abs(fit.shift_s)
        doubt_s = 0.5 * apart_s if apart_s > APART * math.hypot(fit.sigma_s, best.sigma_at(fit.ref_s)) else 0.0
        if fit.sigma_s >= best.sigma_s:
            best = replace(best, sigma_s=math.hypot(best.sigma_s, doubt_s))
        else:
            rate_sigma = min(fit.rate_sigma, best.rate_sigma) if fit.rate_sigma else best.rate_sigma
            at_ref = fit.shift_s + fit.rate * (best.ref_s - fit.ref_s)
            best = best.adjusted(at_ref, fit.rate, math.hypot(fit.sigma_s, doubt_s), rate_sigma, method)
            start_s, end_s = (t + fit.shift_s + fit.rate * (t - fit.ref_s) for t in (moved.start_s, moved.end_s))
            moved = replace(moved, start_s=start_s, end_s=end_s)
    return replace(best, considered=considered)


def _against_device(first: Timebase, device: Timebase) -> Timebase:
    """The bracketed map of a meter with its sigmas against the device's clock."""
    sigma_s = math.hypot(first.sigma_s, device.sigma_s)
    rate_sigma = math.hypot(first.rate_sigma, device.rate_sigma)
    found = replace(first, sigma_s=sigma_s, rate_sigma=rate_sigma, considered={"brackets": sigma_s})
    if first.clock.name == device.clock.name and device.look_s > 0:
        # the device's spans are edges that this meter saw, so only the input's own errors remain
        sigma_s = math.hypot(device.look_s / math.sqrt(12.0), device.lag_s / math.sqrt(3.0))
        found = replace(found, sigma_s=sigma_s, rate_sigma=0.0)
    return found


def _trains(activity: Activity) -> dict[str, Mapping[str, Floats]]:
    """The windows to look for in a trace, by method and by phase: the marks alone, then all activity."""
    marks = {"mark": activity.marks_s} if len(activity.marks_s) else {}
    spans = {name: p.windows_s for name, p in activity.phases.items()} | {"warmup": activity.warmup_s}
    trains: dict[str, Mapping[str, Floats]] = {"marks": marks} if marks else {}
    return trains | {"activity": spans | marks}


def _contrast(r: Readings, level: Baseline, activity: Activity) -> float:
    """How much a rail varies while the device is active, over the noise of a reading.

    A shift between the clocks does not change it, unlike a difference of busy and idle readings.
    """
    windows = merged(np.concatenate([activity.busy_windows_s(), activity.excluded_s()]))
    if not len(windows):
        return 0.0
    during = r.ok & (r.end_s > windows[0, 0]) & (r.start_s < windows[-1, 1])
    return float(np.std(r.watts[during])) / max(level.reading_u_w(False), 1e-300) if np.any(during) else 0.0


def _excess(r: Readings, bracketed: Readings, level: Baseline) -> Excess:
    """Readings above the idle line; ``bracketed`` are the same readings where the idle line was fitted."""
    first, last = float(r.start_s[0]), float(r.end_s[-1])
    low, high = level.idle_level_w(first), level.idle_level_w(last)
    middle = 0.5 * (bracketed.start_s + bracketed.end_s)
    line = low + (high - low) * (middle - first) / max(last - first, 1e-12)
    ok: Bools | slice = slice(None) if r.ok.all() else r.ok  # a mask would copy every array
    return Excess(r.start_s[ok], r.end_s[ok], (r.watts - line)[ok], level.reading_u_w(True), r.period_s, r.tau_s, low)


# ---- by the edges of a GPIO input ---------------------------------------------------------


def _inputs(run: Run, clock: str) -> list[Trace]:
    """The GPIO inputs on a clock that are declared to mark spans."""
    rails = [t for t in run.traces.values() if t.clock == clock and t.rail.kind == "edges"]
    return [t for t in rails if t.rail.pin is not None and len(t.value)]


def _by_edges(
    traced: Timebase, inputs: list[Trace], activity: Activity, device: Timebase, first: Timebase
) -> tuple[Timebase, tuple[str, ...]]:
    """The map by GPIO edges if it states less uncertainty than ``traced``, and notes on how well the edges fit."""
    spans = np.concatenate([activity.busy_windows_s(), activity.warmup_s, activity.marks_s])
    if not inputs or not len(spans) or first.clock.name == device.clock.name:
        return traced, ()
    bracketed = _against_device(first, device)
    reach_s = 3.0 * bracketed.sigma_s + bracketed.rate_sigma * float(np.ptp(spans))
    best, considered, notes = traced, dict(traced.considered), list[str]()
    for trace in inputs:
        name, rail, pin = trace.rail.name, trace.rail, trace.rail.pin or "level"
        look_s = first.rate / rail.rate_hz if rail.rate_hz > 0 else 1.0 / first.clock.tick_hz
        wanted = expected(spans, pin)
        found = observed(first.seconds(trace.end_tick), trace.value, pin, look_s, quiet_s(wanted))
        input_ = GpioInput(look_s, rail.pin_lag_s, device.step_s)
        fit = match(wanted, found, reach_s, 2.0 * bracketed.rate_sigma, input_)
        if isinstance(fit, str):
            notes.append(f"Input {name}: its edges are not used for alignment: {fit}")
            continue
        considered["edges"] = min(fit.sigma_s, considered.get("edges", math.inf))
        if fit.missing or fit.extra:
            notes.append(
                f"Input {name}: {fit.matched} edges fit the spans, {fit.missing} are missing, {fit.extra} extra"
            )
        rate_sigma = min(fit.rate_sigma, bracketed.rate_sigma)
        moved = _at(first, fit.ref_s).adjusted(fit.shift_s, fit.rate, fit.sigma_s, rate_sigma, "edges")
        notes += _disagreement(moved, traced, name, float(spans.mean()))
        best = moved if moved.sigma_s < best.sigma_s else best
    return replace(best, considered=considered), tuple(notes)


def _at(timebase: Timebase, ref_s: float) -> Timebase:
    """The same map with its reference at the tick nearest to ``ref_s``."""
    ticks = round((ref_s - timebase.ref_s) * timebase.clock.tick_hz / timebase.rate)
    seconds = ticks * timebase.rate / timebase.clock.tick_hz
    return replace(timebase, ref_tick=timebase.ref_tick + ticks, ref_s=timebase.ref_s + seconds)


def _disagreement(moved: Timebase, traced: Timebase, name: str, at_s: float) -> list[str]:
    """A note if a GPIO input and the trace put the activity at different times."""
    if traced.method == "brackets":
        return []
    tick = traced.ref_tick + round((at_s - traced.ref_s) * traced.clock.tick_hz / traced.rate)
    by_s = float(np.diff([float(t.seconds(np.array([tick]))[0]) for t in (moved, traced)])[0])
    u_s = math.hypot(moved.sigma_at(at_s), traced.sigma_at(at_s))
    if abs(by_s) <= DISAGREE * u_s:
        return []
    return [
        f"Input {name} and the {traced.method} in the trace are {abs(by_s):.3g} s apart, and their combined "
        f"uncertainty is {u_s:.2g} s"
    ]
