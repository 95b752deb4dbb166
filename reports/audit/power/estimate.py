"""Power of a run by plain methods: the idle level, the area above it, and the mean of readings inside spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reports.audit.figures import Figures, Plain, Table, device_line, length_s, spans
from reports.audit.folder.reading import Run, traces
from reports.audit.power.placing import PAD, clearest, drift_s, looked_at, misplaced_s, open_s
from reports.audit.power.windows import TINY, Facts, Sums, facts_of, sums
from reports.audit.tolerances import STEADY
from rig.recording.traces.traces import Trace
from rig.types import Floats

APART = 0.03
"""If the gaps differ from idle by more than this part of dynamic power, the device sleeps or works in the gaps."""
RESTS = 0.25
"""A device that does not sleep in idle is at the level of idle in the middle of at least this share of its gaps."""
MET = 0.35
"""Next to other activity, at most this part of a reading is on the wrong side of a span's end."""
EDGE_NOISE = 1.5
"""Two correct methods may differ at the ends of a span by this many standard deviations of the readings' noise."""
BLIND = 2.0
"""The bound allows for this many standard deviations of the energy between readings, which no reading saw."""


@dataclass(frozen=True)
class Level:
    """A power in W, and how far the result of a correct method may be from it."""

    w: float
    bound_w: float

    def __add__(self, other: Level) -> Level:
        return Level(self.w + other.w, self.bound_w + other.bound_w)


@dataclass(frozen=True)
class RailPower:
    """The power of one rail from its readings."""

    idle: Level
    area: Level
    """The area above idle over the length of the spans."""
    active: Level
    """``area`` plus the idle level; in this sum, an error of the idle level under the spans cancels."""
    inner: Level
    """The mean above idle of whole readings inside spans, NaN if fewer than three; ``gap_w`` is the same for gaps."""
    average: Level
    """The mean power from the first request to the last answer; NaN without readings there."""
    gap_w: float
    rests: bool
    """Whether the middle of some gaps is at idle or below. In other gaps, and near spans, the device may still work."""
    apart: bool
    """Whether gaps are at another level than idle, so that gaps too change the area above idle."""
    ends_w: float
    """The error in W from half a reading at each end of a span, plus the change of the mean when readings shift."""
    differ_w: float
    """The difference of the mean inside spans from ``area``; 0 without readings in gaps: the bounds then contain it."""
    facts: Facts
    clock_bound_s: float
    readings_per_span: float
    misplaced_s: float
    """How many seconds the spans in the trace are later than their stamps; 0 if they are not clearly elsewhere."""
    unseen: float
    """The share of the spans' time for which there are no readings."""


def power_rails(run: Run) -> dict[str, Trace]:
    """Return the rails from which power can be computed, by name."""
    return {n: t for n, t in traces(run).items() if t.rail.kind != "edges" and t.rail.conversion.unit != "V"}


def idle_windows(run: Run) -> Floats:
    """Return the idle windows in seconds of the run: float64 of shape (k, 2)."""
    return (run.whole.idle_windows_ns().reshape(-1, 2) - int(run.start["t0_ns"])) * 1e-9


def power(run: Run) -> tuple[Figures, dict[str, RailPower]]:
    """Return the figures of power of a run, and the power of each rail; both are empty without spans, rails or idle."""
    stamped, rails, idle = spans(run), power_rails(run), idle_windows(run)
    if not (~stamped.warmup).any() or not rails or not len(idle):
        return {}, {}
    facts = {name: facts_of(run, trace) for name, trace in rails.items()}
    late = {
        of: max(clearest(run, t, stamped, idle, facts[name]) for name, t in rails.items() if t.clock == of)[1]
        for of in {t.clock for t in rails.values() if open_s(run, t.clock) > 0}
    }
    each = {name: _rail(run, t, stamped, idle, late.get(t.clock, 0.0), facts[name]) for name, t in rails.items()}
    return _figures(each), each


def _rail(run: Run, trace: Trace, stamped: Table, idle: Floats, shift: float, facts: Facts) -> RailPower:
    """Compute the power of one rail, in one pass for all windows."""
    at, met = looked_at(run, trace, stamped, idle, shift, facts)
    found = sums(run, trace, at, whole=("inner", "gap", "middle"))
    length, widened = max(length_s(at["spans"]), TINY), length_s(at["region"])
    about_s = float(np.average(at["spans"].mean(axis=1), weights=np.maximum(np.diff(at["spans"])[:, 0], TINY)))
    rest, rest_bound = _idle(at["eighth"], found["eighth"], facts, about_s)
    area = _area(at["region"], found["region"], rest) / length
    active = area + rest
    inner, inner_noise = _above(found["inner"], rest, facts)
    gap, gap_noise = _above(found["gap"], rest, facts)
    apart = bool(abs(gap) - 4 * gap_noise > APART * abs(area))
    (middle, middle_noise), between = _above(found["middle"], rest, facts), found["middle"]
    if not np.isnan(middle):
        seen = between.seen_s > 0
        middle = float(np.quantile(between.energy_j[seen] / between.seen_s[seen], RESTS)) - rest
    if not apart:  # anything else in the gaps is an error of the idle level
        rest_bound += float(np.fmax(0.0, abs(gap) - 2 * gap_noise))
    drift = drift_s(run, trace, at["unplaced"], shift, facts.period_s)
    unknown = _unknown_w(area, active, at["spans"], met, drift, facts)
    edges = unknown + _edges_w(area, rest, at, found, facts)
    differ = _differ_w(area, inner, gap, at["spans"], facts)
    edges += differ if np.isnan(gap) else 0.0
    wider = max(widened / length, 1.0)
    per_span = float(np.median(np.diff(at["spans"]))) / facts.period_s if facts.period_s else 0.0
    average, late_s = found["asked"].mean_w, device_line(run).bound_s + 2 * facts.period_s
    late = late_s * abs(area) / max(length_s(at["asked"]), TINY)
    return RailPower(
        idle=Level(rest, rest_bound + (STEADY + facts.volts_step) * abs(rest)),
        area=Level(area, STEADY * abs(area) + edges + rest_bound * wider),
        active=Level(active, STEADY * abs(active) + edges + rest_bound * (wider - 1.0)),
        inner=Level(inner, STEADY * abs(inner) + 2 * inner_noise + rest_bound + unknown + differ),
        average=Level(average, STEADY * abs(average) + late + unknown),
        gap_w=gap,
        rests=not middle - 4 * middle_noise > APART * abs(area),
        apart=apart,
        ends_w=abs(area) / max(per_span, 1.0) + abs(found["spans"].mean_w - found["unplaced"].mean_w),
        differ_w=0.0 if np.isnan(gap) else differ,
        facts=facts,
        clock_bound_s=open_s(run, trace.clock),
        readings_per_span=per_span,
        misplaced_s=misplaced_s(run, trace, stamped, idle, facts),
        unseen=max(0.0, 1.0 - float(found["region"].seen_s.sum()) / max(widened, TINY)),
    )


def _unknown_w(area: float, active: float, window: Floats, met: int, drift: float, facts: Facts) -> float:
    """Return how far voltage steps, overloads, other activity and clock drift may change a rail's power."""
    length, period = max(length_s(window), TINY), facts.period_s
    of_active = facts.volts_step + facts.overload * period / length
    misplaced = min(1.0, max(0.0, drift - 2 * period) * len(window) / length)
    return of_active * abs(active) + (MET * met * period / length + misplaced) * abs(area)


def _differ_w(area: float, inner: float, gap: float, window: Floats, facts: Facts) -> float:
    """Return how far the mean inside spans is from the area above idle, without the part that gaps beside spans add.

    It is not 0 if power varies in gaps, or differs at the ends of spans, such as where the device works later than
    stamped. Gaps without readings are treated as idle. If no reading is inside spans, gaps are assumed to draw at most
    as much as spans.
    """
    gaps = float(np.clip(window[1:, 0] - window[:-1, 1], 0.0, 2 * PAD * facts.period_s).sum())
    if np.isnan(inner):
        return abs(area) * gaps / (gaps + length_s(window) + TINY)
    return float(abs(area - np.nan_to_num(gap) * gaps / length_s(window) - inner))


def _edges_w(area: float, idle_w: float, at: Mapping[str, Floats], found: Mapping[str, Sums], facts: Facts) -> float:
    """Return the uncertainty from the ends of spans: the change if windows widen, their noise, and unseen time."""
    length = max(length_s(at["spans"]), TINY)
    count = max(2.0 * len(at["spans"]), (length_s(at["wide"]) - length) / max(facts.period_s, TINY))
    noise_j = EDGE_NOISE * facts.noise_w * np.sqrt(count) * facts.period_s
    blind_j = BLIND * np.sqrt(found["region"].blind_j2.sum())
    wider_j = abs(_area(at["wide"], found["wide"], idle_w) - area * length)
    return float((wider_j + noise_j + blind_j) / length)


def _area(window: Floats, found: Sums, idle_w: float) -> float:
    """Return joules above idle in windows. Unseen parts of a window are assumed to be like the rest of it."""
    level = found.energy_j / np.where(found.seen_s > 0, found.seen_s, np.nan)
    return float(np.sum((level - idle_w) * (window[:, 1] - window[:, 0])))


def _above(found: Sums, idle_w: float, facts: Facts) -> tuple[float, float]:
    """Return the mean above idle in windows, and its noise; NaN and 0 for fewer than three readings."""
    count = float(found.seen_s.sum()) / max(facts.period_s, TINY)
    return (found.mean_w - idle_w, facts.noise_w / count**0.5) if count >= 3 else (np.nan, 0.0)


def _idle(part: Floats, found: Sums, facts: Facts, when: float) -> tuple[float, float]:
    """Return the level at ``when`` on a straight line through the parts of the idle windows, and its bound.

    Windows that are neither on both sides of the spans nor far apart get a level line. Without two parts, both are NaN.

    The bound is the noise of the mean of all readings, plus the scatter of the parts about the line beyond their noise.
    """
    good = found.seen_s > 0
    if good.sum() < 2:
        return np.nan, np.nan
    level, at, weight = found.energy_j[good] / found.seen_s[good], part[good].mean(axis=1), found.seen_s[good]
    count = weight / max(facts.period_s, TINY)
    if np.ptp(at) > 0 and np.ptp(part) > 2 * weight.sum():  # windows on both sides, or far apart
        slope, start = np.polyfit(at, level, 1, w=np.sqrt(weight))
    else:
        slope, start = 0.0, float(np.average(level, weights=weight))
    scatter = np.average((level - start - slope * at) ** 2, weights=weight)
    noise = facts.noise_w / np.sqrt(max(count.sum(), 1.0))
    slow = np.sqrt(max(0.0, scatter - 2 * facts.noise_w**2 / max(float(count.mean()), 1.0)))
    return float(start + slope * when), float(noise + slow)


def _figures(each: dict[str, RailPower]) -> Figures:
    found: Figures = {}
    why = "noise at the edges, the idle level, and 0.12 % for the method"
    for prefix, rails in [*((f"rail.{n}.", [r]) for n, r in each.items()), ("", list(each.values()))]:
        idle, dynamic, active, inner, average = (
            sum((getattr(rail, key) for rail in rails), Level(0.0, 0.0))
            for key in ("idle", "area", "active", "inner", "average")
        )
        apart, how = any(r.apart for r in rails), "area above idle over the length of the spans"
        if apart:
            dynamic, active, how = inner, inner + idle, "mean of whole readings inside spans"
            if np.isnan(dynamic.w):
                continue
        besides = 0.0 if apart else sum(r.differ_w for r in rails)
        own = {"dynamic_power_w": (dynamic, how, besides), "active_power_w": (active, f"{how}, and idle", besides)}
        if not apart:  # the mean over spans equals this area except for half a reading at each end
            ends, at_ends = sum(r.ends_w for r in rails), f"{why}, and half a reading at each end"
            for key, (level, method, _) in own.items():
                found[f"literal.{prefix}{key}"] = Plain(level.w, level.bound_w + ends, method, at_ends)
        own["idle_power_w"] = (idle, "line through the means of the idle windows", 0.0)
        if not np.isnan(average.w):
            own["average_power_w"] = (average, "area / duration", 0.0)
        found |= {prefix + k: Plain(level.w, level.bound_w, method, why, at) for k, (level, method, at) in own.items()}
    return found
