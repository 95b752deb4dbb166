"""Align the readings of the rails of one clock with the device's time, by finding the spans in their traces.

The brackets (clock readings) of the meter set a first alignment. Spans found in a trace, or edges on a pin, refine it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.result.finding import Finding, note
from rig.analysis.timing.activity_signal import edges_of, mean_signal
from rig.analysis.timing.alignment import lag_path
from rig.analysis.timing.alignment.contrast import Edges, Shown, shown
from rig.analysis.timing.alignment.gpio_edges import MeterClock, by_pins
from rig.analysis.timing.alignment.misplaced_spans import STRAYS, absent, after_end
from rig.analysis.timing.profile import FEW
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timebase import CERTAIN, SURE, Timebase
from rig.recording.traces.traces import Trace
from rig.types import Floats

LEAST_SPANS = 8
"""At least this many spans are needed to show that they are elsewhere than the clocks say."""
MOST_LATE = 4.0
"""A meter is late by less than this many readings, the delay of a mean over eight. Later power has another cause."""


class AlignedRail(Struct, frozen=True):
    """One rail's readings on the device's time, in run seconds, and the map from the meter's ticks.

    ``sigma_s`` is the uncertainty between the meter's clock and the device's. ``host_sigma_s`` is the uncertainty
    between the meter's clock and the host's. Both apply to the whole activity. ``findings`` are notes, such as which
    readings were moved, and failed checks that the recording itself resolves. ``contradictions`` are the failed checks
    that it does not resolve: readings that do not fit the recorded time or the recorded spans.
    """

    readings: Readings
    timebase: Timebase
    sigma_s: float
    host_sigma_s: float
    findings: tuple[Finding, ...] = ()
    contradictions: tuple[Finding, ...] = ()
    turn: float = 0.0
    """How much faster or slower the spans run in the trace than the clocks say (a relative rate, never negative)."""
    single: Readings | None = None
    """For a long trace, whose ``readings`` are means: some single readings, on the same time scale. Else None."""
    seen: Shown | None = None
    """The sums of ``readings`` over the spans, kept only during alignment."""

    def found(self, *more: Finding) -> AlignedRail:
        """Return the same with further findings."""
        return replace(self, findings=(*self.findings, *more))


def placed(meter: MeterClock, traces: list[Trace]) -> list[AlignedRail]:
    """Return the rails of one clock, aligned together by the rail that shows the spans best."""
    activity, first = meter.activity, meter.bracketed
    spans_s = activity.active_s()
    rails = [meter.readings_of(t, first) for t in traces]
    seen = [shown(r, spans_s) for r in rails]
    final, notes = by_trace(meter, rails, seen)
    if final.method != first.method:  # the map was moved
        rails = [meter.readings_of(t, final) for t in traces]
        seen = [shown(r, spans_s) for r in rails]
    sigma_s = final.most_sigma(activity.busy_windows_s())
    host_sigma_s = max(final.considered.get("brackets", 0.0), sigma_s)
    found = []
    for r, s in zip(rails, seen, strict=True):
        rail = AlignedRail(r, final, sigma_s, host_sigma_s, tuple(map(note, notes)), seen=s)
        rail = _as_seen(rail, spans_s, meter.device.clock.tolerance)
        found.append(replace(rail, contradictions=(*rail.contradictions, *after_end(rail.readings, meter.end_s))))
    return found


# ---- the shift and the rate of a clock --------------------------------------------------------


def by_trace(meter: MeterClock, rails: list[Readings], all_shown: list[Shown | None]) -> tuple[Timebase, list[str]]:
    """Return the least uncertain map, by brackets, marks or all activity in a trace, or edges of a pin, and notes.

    ``all_shown`` has the sums of each rail over the spans, with times by the brackets.
    """
    best, activity = meter.against_device, meter.activity
    if meter.stamps_spans:
        return best, []
    half_run_s = 0.5 * max(float(r.end_s[-1] - r.start_s[0]) for r in rails)
    reach_s = SURE * best.sigma_s + 2.0 * best.rate_sigma * half_run_s
    found = dict[str, lag_path.Line]()
    for s in filter(None, all_shown):
        at = lag_path.line(s, reach_s, 2.0 * best.rate_sigma)
        if at is None or abs(at.late_s) > reach_s:
            continue
        marks = np.flatnonzero(np.isin(s.cells.on_s, activity.marks_s[:, 0]))
        for method, part in (("marks", s.some(marks)), ("activity", s)):
            seen = lag_path.along(part, at.at(part.cells.on_s), best.rate_sigma) if len(part.cells) > 2 else None
            if seen is not None and abs(seen.line.late_s) <= reach_s:
                at = seen.line
                # a group of spans has one level for all phases, which may cause the shift: the shift adds uncertainty
                if seen.edges is None and part is s and len(activity.phases) > 1:
                    at = replace(at, sigma_s=math.hypot(at.sigma_s, at.late_s))
                found[method] = min(found.get(method, at), at, key=lambda x: x.sigma_s)
    by_pin, notes = by_pins(meter)
    if by_pin is not None:
        found["edges"] = by_pin
    considered = dict(best.considered) | {method: at.sigma_s for method, at in found.items()}
    late_s = 0.0
    for method, at in found.items():
        # placements that disagree beyond their sigmas are all in doubt, even the least uncertain one
        apart_s = abs(at.late_s - late_s)
        u_s = math.hypot(at.sigma_s, best.sigma_at(at.ref_s))
        doubt_s = 0.5 * apart_s if apart_s > lag_path.APART * u_s else 0.0
        if doubt_s and method == "edges" and late_s:
            notes.append(
                f"Edges of a pin and the {best.method} in the trace are {apart_s:.3g} s apart, and their combined "
                f"uncertainty is {u_s:.2g} s"
            )
        if at.sigma_s >= best.sigma_at(at.ref_s):
            best = replace(best, sigma_s=math.hypot(best.sigma_s, doubt_s))
        else:
            late_s, first = at.late_s, meter.against_device
            rate_sigma = min(at.slope_sigma or np.inf, first.rate_sigma)
            best = first.adjusted(
                -float(at.at(np.array(first.ref_s))), -at.slope, math.hypot(at.sigma_s, doubt_s), rate_sigma, method
            )
    return replace(best, considered=considered), notes


# ---- spans beside the clocks ------------------------------------------------------------------


def _as_seen(rail: AlignedRail, windows_s: Floats, tolerance: float) -> AlignedRail:
    """Return the rail with what the edges of its spans show: a filter, other lengths, and clocks that disagree."""
    r, s = rail.readings, rail.seen
    if s is None or len(windows_s) < LEAST_SPANS:
        return rail
    seen = _edges(s)
    if seen is None:
        return _late(rail, s)
    tau_s = None if r.tau_s or seen.whole is None else undeclared_tau_s(s, seen.whole)
    if tau_s is not None:
        told = note(
            f"Rail {r.rail.name}: begins and ends of spans are equally smooth, as behind a filter of {tau_s:.3g} s "
            "that is not declared (filter_tau_s). The device itself may also be slow: power is stated halfway between "
            "the two cases. If there is a filter, declare it"
        )
        r = replace(r, tau_s=tau_s)
        smooth = replace(rail.found(told), readings=r, sigma_s=max(rail.sigma_s, r.period_s), seen=shown(r, windows_s))
        return _as_seen(smooth, windows_s, tolerance)
    if seen.edges is not None:
        rail = rail.found(*_other_lengths(r.rail.name, s, seen.edges))
    return _apart(rail, s, seen, tolerance)


def _other_lengths(name: str, s: Shown, edges: Edges) -> Iterator[Finding]:
    """Yield a note if spans are certainly longer or shorter in the trace than by their stamps."""
    longer_s, lasts_s = edges.end_s - edges.begin_s, float(np.mean(s.cells.off_s - s.cells.on_s))
    longer_s = longer_s[np.isfinite(longer_s)]
    if not len(longer_s):
        return
    more_s, u_s = float(np.mean(longer_s)), float(np.std(longer_s)) / math.sqrt(len(longer_s))
    if abs(more_s) > max(CERTAIN * math.hypot(u_s, edges.shape_s), FEW * lasts_s):
        how, why = ("longer", "works outside of them") if more_s > 0.0 else ("shorter", "rests within them")
        yield note(
            f"Rail {name}: spans are {abs(more_s):.3g} s ({abs(more_s) / lasts_s:.1%}) {how} in the trace than by "
            f"their stamps. Either the device {why}, or stamps are early or late. Time and energy are by the stamps"
        )


def _edges(s: Shown) -> lag_path.Seen | None:
    """Return the edges of nearly all spans, where they fit best, or None if spans do not stand out."""
    late_s, places_s = 0.0, s.places_s
    if float(np.median(s.left(np.zeros(1)))) > lag_path.STANDS_OUT:
        left = np.median(s.left(places_s), axis=0)
        late_s = float(places_s[np.argmin(left)])
        if left.min() > lag_path.STANDS_OUT:
            return None
    if np.mean(absent(s, late_s)) > STRAYS:
        return None
    seen = lag_path.along(s, np.full(len(s.cells), late_s), np.inf)
    return seen if seen is not None and (seen.edges is None or seen.edges.share >= 1.0 - STRAYS) else None


def _late(rail: AlignedRail, s: Shown) -> AlignedRail:
    """Return the rail with more uncertainty if all its spans together fit certainly later than the clocks say.

    A meter is late, never early: spans that seem early have more power at their begins, or work before them.
    """
    at = lag_path.line(s, float(np.ptp(s.places_s)) / 2.0, 0.0)
    if at is None or not lag_path.LEAST_SHIFT < at.late_s / s.period_s < MOST_LATE:
        return rail
    certain = np.subtract(*s.doubt(np.array([0.0, at.late_s]))) >= CERTAIN**2
    return _uncertain(rail, np.array([at.late_s])) if certain else rail


def _uncertain(rail: AlignedRail, late_s: Floats, sigma_s: float = 0.0) -> AlignedRail:
    """Return the rail with the lateness of its spans, known to ``sigma_s``, in its uncertainty.

    Either the clocks are off, or the device works less at begins and more after ends.
    """
    how = "earlier" if late_s.max() < 0.0 else "later"
    told = note(
        f"Rail {rail.readings.rail.name}: the spans lie {_range(np.abs(late_s) if how == 'earlier' else late_s)} {how} "
        "in the trace than the clocks say. This is added to their uncertainty"
    )
    return replace(rail.found(told), sigma_s=math.hypot(rail.sigma_s, sigma_s, float(np.max(np.abs(late_s)))))


def _range(late_s: Floats) -> str:
    return " to ".join(dict.fromkeys(f"{t:.3g}" for t in (late_s.min(), late_s.max()))) + " s"


def _apart(rail: AlignedRail, s: Shown, seen: lag_path.Seen, tolerance: float) -> AlignedRail:
    """Return the rail with more uncertainty if its edges are certainly earlier or later than the clocks say.

    An inferred filter delays all edges, so the readings are moved. Power is refused if the spans run faster or slower
    than the tolerances of both clocks allow.
    """
    r, at, ends_s = rail.readings, seen.line, seen.at_s[[0, -1]]
    least_s = lag_path.LEAST_SHIFT * r.period_s
    turns = abs(at.slope) * float(np.ptp(ends_s)) > CERTAIN * max(least_s, at.sigma_s)
    turns &= abs(at.slope) > CERTAIN * at.slope_sigma
    if not turns and abs(at.late_s) < max(CERTAIN * at.sigma_s, least_s):
        lates_s = () if seen.edges is None else (seen.edges.begin_s, seen.edges.end_s)
        # a meter delays begins and ends alike
        return _late(rail, s) if all(np.nanmean(x) >= least_s for x in lates_s) else rail
    if r.inferred:
        timebase = replace(rail.timebase, ref_s=rail.timebase.ref_s - at.late_s)
        r = replace(r, start_s=r.start_s - at.late_s, end_s=r.end_s - at.late_s)
        host_sigma_s = math.hypot(rail.host_sigma_s, at.late_s)
        moved = replace(rail, readings=r, timebase=timebase, sigma_s=at.sigma_s, host_sigma_s=host_sigma_s)
        return replace(moved, seen=None if rail.seen is None else shown(r, rail.seen.windows_s))
    late_s = at.at(ends_s) if turns else np.array([at.late_s])
    rail = _uncertain(rail, late_s, at.sigma_s)
    if not turns:
        return rail
    rule = f"spans of rail {r.rail.name} against the clocks, along the run"
    check = Finding(rule, _range(late_s), "a change within the tolerances of both clocks", False)
    beyond = abs(at.slope) > rail.timebase.clock.tolerance + tolerance
    return replace(rail, turn=abs(at.slope), contradictions=(check,) if beyond else ())


# ---- a filter that nobody declared -----------------------------------------------------------


SMOOTHER, UNLIKE = 1.5, 0.05
"""A filter is found if the misfit without it is at least ``SMOOTHER`` times the misfit with it.

Begins and ends, compared with the fitted curve, may differ by the share ``UNLIKE`` of the step's height, and by noise.
"""
OF_MEDIAN = 1.8582
"""The standard uncertainty of a median is this times the median distance from it, over the root of the count."""
NEIGHBOURS = 12
"""A filter is looked for in at most this many readings on either side of an edge."""


def undeclared_tau_s(shown: Shown, edges: Edges) -> float | None:
    """Return the time constant of a filter that smooths begins and ends alike, or None without one.

    A moving mean counts as the filter that is most like it. The power of a device itself changes differently at begins
    and at ends, but a filter gives both the same curve.
    """
    r, c = shown.readings, shown.cells
    # an edge between two apertures is found in the middle, so a sharp edge looks as wide as a whole interval
    aperture_s = max(float(np.median(r.end_s - r.start_s)), r.period_s)
    room_s = (0.5 * (c.off_s - c.on_s), c.on_s - c.begin_s, c.end_s - c.off_s)
    count = int(min(NEIGHBOURS, *(float(np.median(x)) / r.period_s for x in room_s)))
    if count < 3:
        return None
    tried_s = r.period_s * np.array([1e-3, *0.2 * 1.25 ** np.arange(lag_path.GROUPS)])  # the first: no filter
    taus = []
    for stamp, lag in ((c.on_s, edges.begin_s), (c.off_s, edges.end_s)):
        x, y = _curve(r, (stamp + lag)[np.isfinite(lag)], count)
        if not len(y):
            return None
        misfit = [float(np.mean(np.minimum((y - _step(x, aperture_s, t)) ** 2, 1.0 / 4.0))) for t in tried_s]
        best = int(np.argmin(misfit))
        if best == 0 or misfit[0] < SMOOTHER * misfit[best]:
            return None
        taus.append(float(tried_s[best]))
    # A filter delays both edges equally, so both are moved by their mean lag. Readings lie at other times after begins
    # than after ends, so begins and ends are compared by their distances from the fitted curve.
    tau_s, both_s = float(np.mean(taus)), 0.5 * (edges.begin_s + edges.end_s)
    curves = [_curve(r, (stamp + both_s)[np.isfinite(both_s)], count) for stamp in (c.on_s, c.off_s)]
    if not all(len(y) for _, y in curves):
        return None
    off = [y - _step(x, aperture_s, tau_s) for x, y in curves]
    apart = np.abs(np.median(off[0], axis=0) - np.median(off[1], axis=0))
    u2 = sum(np.median(np.abs(y - np.median(y, axis=0)), axis=0) ** 2 / len(y) for y in off)
    return None if np.any(apart > UNLIKE + CERTAIN * OF_MEDIAN * np.sqrt(u2)) else tau_s


def _curve(r: Readings, at_s: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the times from edges at ``at_s`` to the middles of readings beside them, and the readings; shapes (k, m).

    A reading is 0 at the level before the edge, and 1 at the level after it.
    """
    middle_s = 0.5 * (r.start_s + r.end_s)
    number = np.searchsorted(middle_s, at_s)[:, None] + np.arange(-count, count)
    inside = (number[:, 0] >= 0) & (number[:, -1] < len(middle_s))
    number = number[inside]
    low, high = (np.median(r.watts[number][:, part], axis=1)[:, None] for part in (slice(0, 2), slice(-2, None)))
    y = (r.watts[number] - low) / np.where(high == low, 1.0, high - low)
    return middle_s[number] - at_s[inside][:, None], y


def _step(x_s: Floats, aperture_s: float, tau_s: float) -> Floats:
    """Return means over an aperture around times ``x_s`` after the centre of a step behind a filter."""
    at_s, step = x_s.ravel() + tau_s, edges_of(np.array([[0.0, np.inf]]))
    return mean_signal(step, at_s - 0.5 * aperture_s, at_s + 0.5 * aperture_s, tau_s).reshape(x_s.shape)
