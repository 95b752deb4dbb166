"""Align each meter's clock with the device's, by its brackets (clock readings), then by the trace or GPIO edges."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rig.analysis.result.finding import note
from rig.analysis.timing import long_traces
from rig.analysis.timing.alignment.breaks import LAST, Bridged, bridged, once, strays
from rig.analysis.timing.alignment.meter_clock import MeterClock
from rig.analysis.timing.alignment.placement import LEAST_SPANS, AlignedRail, placed
from rig.analysis.timing.alignment.shown import shown
from rig.analysis.timing.counted_spans import Activity
from rig.analysis.timing.profile import ends_of
from rig.analysis.timing.readings import readings_of
from rig.analysis.timing.recorded_clocks import arrivals_of, host_bend, timebase_of
from rig.analysis.timing.screen import Screened, screened
from rig.analysis.timing.timebase import RECTANGLE, Timebase
from rig.recording.reader import Run
from rig.recording.traces.traces import AT_ONCE, Trace
from rig.types import Floats

RISELESS = 0.8
"""Above this median share of variance unexplained by levels, most spans have no visible rise."""


def aligned_rails(
    run: Run, activity: Activity, device: Timebase, end_s: float = math.inf, at_once: int = AT_ONCE
) -> list[AlignedRail]:
    """Return every rail of power, sorted by name; the recording ended at ``end_s``.

    Rails on one clock are aligned together, by the rail in which spans are clearest. If readings contradict the spans,
    they get the times at which the spans fit, if these are certain. If a trace has more than ``at_once`` readings,
    about this many are examined one by one. All readings enter its rail as means (``rig.analysis.timing.long_traces``).
    """
    held = [t for t in run.traces.values() if len(t.value) >= 2 and t.rail.kind != "edges"]
    traces = [t for t in held if t.rail.conversion.unit != "V"]
    supplies = {t.rail.conversion.supply_rail for t in traces}
    clocks = {t.rail.name: timebase_of(run, t.clock, t.rail.name)
              for t in held if t in traces or t.rail.name in supplies}  # fmt: skip
    told = {t.rail.name: once(long_traces.thinned(t, at_once), clocks[t.rail.name], end_s, at_once)
            for t in held if t.rail.name in clocks}  # fmt: skip
    seen = {name: _screened(run, trace, clocks[name], activity, end_s) for name, (trace, _) in told.items()}
    volts = {t.rail.name: s.trace for t in held if t.rail.name in supplies
             and len((s := seen[t.rail.name]).trace.value) == len(t.value)}  # fmt: skip
    rails, bend_s = list[AlignedRail](), host_bend(run)[0]
    for clock in dict.fromkeys(t.clock for t in traces):
        mine = [seen[t.rail.name] for t in traces if t.clock == clock]
        own, first = [s.trace for s in mine], clocks[mine[0].trace.rail.name]
        late_s = max(s.late_ticks for s in mine) / first.clock.tick_hz
        first = replace(first, sigma_s=math.hypot(first.sigma_s, late_s))
        meter = MeterClock(replace(run, traces={**run.traces, **volts}), first, activity, device, end_s)
        long = any(len(t.value) > at_once for t in (*own, *meter.volts_beside(own)))
        found = _looked_into(meter, own, at_once) if long else _as_a_whole(meter, own)
        for rail, s in zip(found, mine, strict=True):
            beside = seen.get(s.trace.rail.conversion.supply_rail or "")
            rails.append(_with_findings(rail.found(*told[s.trace.rail.name][1]), s, beside, bend_s))
    return sorted(rails, key=lambda r: r.readings.rail.name)


def _screened(run: Run, trace: Trace, clock: Timebase, activity: Activity, end_s: float) -> Screened:
    name, imported = trace.rail.name, run.start.imported is not None  # an import does not hold the arrivals
    arrived = np.zeros((0, 2)) if imported else arrivals_of(run, name)
    return screened(trace, clock, activity.idle_s, end_s, arrived)


def _with_findings(rail: AlignedRail, seen: Screened, volts: Screened | None, bend_s: float) -> AlignedRail:
    """Return the rail with the screen's findings on it and its volts; the host's clock was corrected by ``bend_s``."""
    both = [seen] if volts is None else [seen, volts]
    late = tuple(check for s in both for check in s.late)
    checks = tuple(check for s in both for check in s.checks)
    noted = tuple(note(text) for s in both for text in s.notes)
    return replace(
        rail,
        readings=replace(rail.readings, idle_bias_w=seen.bias * rail.readings.watts_per_raw),
        host_sigma_s=math.hypot(rail.host_sigma_s, bend_s),
        findings=(*noted, *rail.findings, *(late if rail.mended else ())),
        contradictions=(*rail.contradictions, *checks, *(() if rail.mended else late)),
        seen=None,
    )


def _as_a_whole(meter: MeterClock, own: list[Trace], step_s: float = 0.0) -> list[AlignedRail]:
    """Align the rails of one clock by all their readings; if these contradict the spans, correct their times.

    ``step_s`` is the length of readings that are means; these are placed only to within a part of it.
    """
    first, recorded = meter.bracketed, placed(meter, own)
    told = [_bridged(meter, t, p) for t, p in zip(own, recorded, strict=True)]
    refused = [
        p if b is None or p.contradictions else replace(p, contradictions=(b.check,))
        for p, b in zip(recorded, told, strict=True)
    ]
    proven = [b if b is not None and b.note is not None else None for b in told]
    if not any(proven):
        return refused
    mended = replace(first, sigma_s=math.hypot(first.sigma_s, step_s / RECTANGLE))
    for at in [b.line for b in proven if b is not None and b.line is not None][:1]:  # rails share a clock
        late_s, rate_sigma = float(at.at(np.array(first.ref_s))), math.hypot(first.rate_sigma, at.slope_sigma)
        mended = mended.adjusted(-late_s, -at.slope, math.hypot(mended.sigma_s, at.sigma_s), rate_sigma, first.method)
    own = [t if b is None else b.trace for t, b in zip(own, proven, strict=True)]
    again = placed(replace(meter, bracketed=mended), own)
    if any(p.contradictions or _strays(p) for p in again):
        return refused
    return [p if b is None or b.note is None else p.found(b.check, b.note) for p, b in zip(again, proven, strict=True)]


def _strays(found: AlignedRail) -> bool:
    """Return whether at least ``LAST`` spans are not where the stamps place them in the trace."""
    s = found.seen
    return s is not None and not found.readings.counter and int(np.count_nonzero(strays(s))) >= LAST


def _doubtful(found: AlignedRail) -> bool:
    """Return whether spans of a rail may be at other places of its trace than stated.

    This is so if some spans are elsewhere, if most have no visible rise, or if a check contradicts its readings.
    """
    s = found.seen
    if s is None or found.readings.counter:
        return False
    contradicted = bool(found.contradictions) or found.mended
    return contradicted or _strays(found) or float(np.median(s.left(np.zeros(1)))) > RISELESS


def _bridged(meter: MeterClock, trace: Trace, found: AlignedRail) -> Bridged | None:
    """Return the trace with times at which its spans fit, or a failed check, or None if spans fit recorded times."""
    windows_s, at = meter.activity.active_s(), found.timebase
    if len(windows_s) < LEAST_SPANS or not _doubtful(found):
        return None
    s, wandered = found.seen, None
    if found.path is not None:
        s, wandered = shown(readings_of(trace, at, meter.volts(trace, at)), windows_s), s
    return None if s is None else bridged(trace, s, wandered, meter.reach_s(windows_s), meter.end_s)


# ---- long traces --------------------------------------------------------------------------


def _looked_into(meter: MeterClock, own: list[Trace], at_once: int) -> list[AlignedRail]:
    """Align the rails of one clock by single readings in stretches of their traces, and sum all readings.

    If it is doubtful whether readings and spans fit, and power is proportional to a reading, means of successive
    readings of the whole trace are examined. From these means, lost readings can be found.
    """
    first, activity = meter.bracketed, meter.activity
    looked_at_s, part = long_traces.stretches(max(own, key=lambda t: len(t.value)), first, activity, at_once)
    near = [long_traces.single(t, first, looked_at_s) for t in own]
    volts = meter.volts_beside(own)
    beside = {t.rail.name: long_traces.single(t, meter.clock_of(t, first), looked_at_s) for t in volts}
    some = replace(meter.run, traces={**meter.run.traces, **beside})
    looked_at = placed(replace(meter, run=some, activity=part), near)
    found = [_summed(meter, t, p, at_once // 4) for t, p in zip(own, looked_at, strict=True)]
    sure = not any(p.contradictions or _doubtful(p) for p in found)
    if sure or not all(map(_proportional, own)):
        return found
    means = [long_traces.in_means(t, at_once) for t in own]
    whole = _as_a_whole(meter, means, max(first.rate / t.rail.rate_hz for t in means))
    return whole if any(p.contradictions or p.mended for p in (*whole, *found)) else found


def _proportional(t: Trace) -> bool:
    """Return whether readings are on a grid and their mean gives mean power."""
    supply, burden_ohm = t.rail.conversion.supply_rail, t.rail.conversion.burden_ohm
    return t.uniform and t.rail.rate_hz > 0.0 and supply is None and burden_ohm == 0.0


def _summed(meter: MeterClock, trace: Trace, looked_at: AlignedRail, evenly: int) -> AlignedRail:
    """Return the rail with all readings as means, and with the single readings by which it was placed."""
    r, timebase, path = looked_at.readings, looked_at.timebase, looked_at.path

    def seconds(ticks: NDArray[np.int64]) -> Floats:
        at_s = timebase.seconds(ticks)
        return at_s if path is None else path.moved(at_s)

    sigma_s = long_traces.span_sigma_s(r, meter.activity, looked_at.sigma_s)
    moments = long_traces.moments_s(r, meter.activity, sigma_s, looked_at.host_sigma_s)
    cuts = long_traces.cuts_of(trace, seconds, moments, evenly)
    volts = next(iter(meter.volts_beside([trace])), None)
    beside = None if volts is None else long_traces.Beside(volts, meter.clock_of(volts, timebase), timebase)
    means = long_traces.pooled(trace, r, ends_of(r.raw), seconds, cuts, beside)
    return replace(looked_at, readings=means, single=r, seen=shown(means, meter.activity.active_s()))
