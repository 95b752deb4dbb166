"""Align each meter's clock with the device's, by its brackets (clock readings), then by the trace or GPIO edges."""

import math

from msgspec.structs import replace

from rig.analysis.result.finding import Finding, note
from rig.analysis.timing import long_traces
from rig.analysis.timing.alignment.contrast import shown
from rig.analysis.timing.alignment.gpio_edges import MeterClock
from rig.analysis.timing.alignment.misplaced_spans import astray
from rig.analysis.timing.alignment.placement import LEAST_SPANS, AlignedRail, placed
from rig.analysis.timing.clocks_and_tolerances import arrivals_of, host_bend, timebase_of
from rig.analysis.timing.counted_spans import Activity
from rig.analysis.timing.meter_faults import Screened, screened
from rig.analysis.timing.timebase import Timebase
from rig.recording.reader import Run
from rig.recording.traces.traces import AT_ONCE, Trace


def aligned_rails(
    run: Run, activity: Activity, device: Timebase, end_s: float = math.inf, at_once: int = AT_ONCE
) -> list[AlignedRail]:
    """Return every rail of power, sorted by name; the recording ended at ``end_s``.

    Rails on one clock are aligned together, by the rail in which spans are clearest. If a trace has more than
    ``at_once`` readings, about ``at_once`` of them at most are examined singly. All its readings enter the rail as
    means (``rig.analysis.timing.long_traces``).
    """
    held = [t for t in run.traces.values() if len(t.value) >= 2 and t.rail.kind != "edges"]
    supplies = {t.rail.conversion.supply_rail for t in held}
    held = [t for t in held if t.rail.conversion.unit != "V" or t.rail.name in supplies]
    traces = [t for t in held if t.rail.conversion.unit != "V"]
    clocks = {t.rail.name: timebase_of(run, t.clock, t.rail.name) for t in held}
    seen = dict[str, Screened]()
    for name, t in ((t.rail.name, long_traces.thinned(t, at_once)) for t in held):
        seen[name] = screened(t, clocks[name], activity.idle_s, arrivals_of(run, name))
    whole = (t.rail.name for t in held if len(seen[t.rail.name].trace.value) == len(t.value))
    volts = {name: seen[name].trace for name in whole if name in supplies}
    rails, bend_s = list[AlignedRail](), host_bend(run)[0]
    for clock in dict.fromkeys(t.clock for t in traces):
        mine = [seen[t.rail.name] for t in traces if t.clock == clock]
        own, first = [s.trace for s in mine], clocks[mine[0].trace.rail.name]
        late_s = max(s.late_ticks for s in mine) / first.clock.tick_hz
        first = replace(first, sigma_s=math.hypot(first.sigma_s, late_s))
        meter = MeterClock(replace(run, traces={**run.traces, **volts}), first, activity, device, end_s)
        long = any(len(t.value) > at_once for t in (*own, *filter(None, map(meter.supply, own))))
        found = _looked_into(meter, own, at_once) if long else placed(meter, own)
        for rail, s in zip(found, mine, strict=True):
            beside = seen.get(s.trace.rail.conversion.supply_rail or "")
            rails.append(_with_findings(_astray(rail), s, beside, bend_s))
    return sorted(rails, key=lambda r: r.readings.rail.name)


def _with_findings(rail: AlignedRail, seen: Screened, volts: Screened | None, bend_s: float) -> AlignedRail:
    """Return the rail with the screen's findings on it and its volts; the host's clock was corrected by ``bend_s``."""
    both = [seen] if volts is None else [seen, volts]
    checks = tuple(check for s in both for check in s.checks)
    noted = tuple(note(text) for s in both for text in s.notes)
    return replace(
        rail,
        readings=replace(rail.readings, idle_bias_w=seen.bias * rail.readings.watts_per_raw),
        host_sigma_s=math.hypot(rail.host_sigma_s, bend_s),
        findings=(*noted, *rail.findings),
        contradictions=(*rail.contradictions, *checks),
        seen=None,
    )


def _astray(found: AlignedRail) -> AlignedRail:
    """Return the rail, with a failed check if its readings show spans at other times than their stamps."""
    s, r = found.seen, found.readings
    if s is None or r.counter or len(s.windows_s) < LEAST_SPANS or not (count := astray(s)):
        return found
    rule = f"stretches of spans that rail {r.rail.name} shows at another time"
    check = Finding(rule, f"{count} of {len(s.cells)} spans", "0", False)
    return replace(found, contradictions=(*found.contradictions, check))


# ---- long traces --------------------------------------------------------------------------


def _looked_into(meter: MeterClock, own: list[Trace], at_once: int) -> list[AlignedRail]:
    """Align the rails of one clock by half of ``at_once`` readings, in stretches of traces, and sum all readings."""
    first, activity = meter.bracketed, meter.activity
    looked_at_s, part = long_traces.stretches(max(own, key=lambda t: len(t.value)), first, activity, at_once // 2)
    near = [long_traces.single(t, first, looked_at_s) for t in own]
    volts = filter(None, map(meter.supply, own))
    beside = {t.rail.name: long_traces.single(t, meter.clock_of(t, first), looked_at_s) for t in volts}
    some = replace(meter.run, traces={**meter.run.traces, **beside})
    looked_at = placed(replace(meter, run=some, activity=part), near)
    return [_summed(meter, t, p, at_once // 4) for t, p in zip(own, looked_at, strict=True)]


def _summed(meter: MeterClock, trace: Trace, looked_at: AlignedRail, evenly: int) -> AlignedRail:
    """Return the rail with all readings as means, and with the single readings by which it was placed."""
    r, timebase = looked_at.readings, looked_at.timebase
    sigma_s = long_traces.span_sigma_s(r, meter.activity, looked_at.sigma_s)
    moments = long_traces.moments_s(r, meter.activity, sigma_s, looked_at.host_sigma_s)
    cuts = long_traces.cuts_of(trace, timebase.seconds, moments, evenly)
    volts = meter.supply(trace)
    beside = None if volts is None else long_traces.Beside(volts, meter.clock_of(volts, timebase), timebase)
    means = long_traces.pooled(trace, r, timebase.seconds, cuts, beside)
    return replace(looked_at, readings=means, single=r, seen=shown(means, meter.activity.active_s()))
