"""Power of a run by plain methods: the level at idle, the area above it, and the mean inside shortened spans."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from reports.audit.clocks import line
from reports.audit.figures import Figures, Plain, Spans, batches, device_line, issues, requested, spans
from reports.audit.reading import Run, Trace, traces
from reports.audit.windows import Facts, Sums, sums
from rig.types import Bools, Floats

TINY = 1e-300
"""Stands for nothing where it is divided by."""
SEARCHED, SHIFTS = 300, 4000
"""How many spans place the readings, and at most how many shifts are tried for each.

A coarser step could take a neighbour of the true place, a whole span away, for the better one.
"""
SETTLED = 5.0
"""After so many time constants a filter has settled within 1 %."""
PAD = 2.0
"""By so many readings a span is widened on either side, so that its edges lie inside."""
SHARP = 2e-3
"""The relative bound of a figure that decides by itself; above it, the interval of the claim is added."""
GAP = 1.5
"""So many readings at both ends of a gap between spans may hold power of the spans."""
PARTS = np.linspace(0.0, 1.0, 9)
APART = 0.03
"""Where the gaps differ from idle by more than this part of dynamic power, the device sleeps or works in them."""
MET = 0.35
"""So much of a reading, at most, lies on the wrong side where a span meets other activity."""
EDGE_NOISE = 1.5
"""Two right methods may differ by the readings at the ends of a span; so many deviations of their noise are allowed."""
BLIND = 2.0
"""So many deviations of what was not looked at between readings are allowed."""
STEADY = 1.2e-3
"""The relative bound of the plain method itself: edges, filters and straight lines that are not quite straight."""


@dataclass(frozen=True)
class RailPower:
    """What one rail's readings say: levels in W, their bounds, and how they were found."""

    idle_w: float
    idle_bound_w: float
    area_w: float
    area_bound_w: float
    active_bound_w: float
    """Of the area with idle added, in which an error of the idle level under the spans cancels."""
    trimmed_w: float
    """The mean inside shortened spans above idle; NaN for fewer than three readings, as ``gap_w`` between spans."""
    trimmed_bound_w: float
    average_w: float
    """NaN where nothing was answered while there were readings."""
    average_bound_w: float
    gap_w: float
    apart: bool
    """The gaps are at another level than idle, so that the area above idle is not that of the spans alone."""
    facts: Facts
    clock_bound_s: float
    misplaced_w: float
    """By how much the mean over the spans changes where the clocks alone place them."""
    readings_per_span: float
    unseen: float
    """The share of the spans' time for which there are no readings."""


def power_rails(run: Run) -> dict[str, Trace]:
    """The rails of which power can be made, by name."""
    found = traces(run)
    units = {name: trace.rail.get("conversion", {}).get("unit", "W") for name, trace in found.items()}
    return {n: t for n, t in found.items() if t.rail.get("kind", "mean") != "edges" and units[n] != "V"}


def idle_windows(run: Run) -> Floats:
    """The idle windows in seconds of the run: float64 of shape (k, 2)."""
    t0 = int(run.start["t0_ns"])
    rows = [[(e["on_ns"] - t0) * 1e-9, (e["off_ns"] - t0) * 1e-9] for e in run.events["idle"]]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def power(run: Run) -> tuple[Figures, dict[str, RailPower]]:
    """The figures of power of a run, and what each rail says. Without spans, rails or idle windows: none."""
    stamped, rails, idle = spans(run), power_rails(run), idle_windows(run)
    counted = stamped.of(~stamped.warmup)
    if not len(counted.on) or not rails or not len(idle):
        return {}, {}
    shifts = {clock: _shift(run, rails, clock, stamped, idle) for clock in {t.clock for t in rails.values()}}
    each = {name: _rail(run, trace, stamped, idle, *shifts[trace.clock]) for name, trace in rails.items()}
    return _figures(each), each


def _shift(run: Run, rails: dict[str, Trace], clock: str, stamped: Spans, quiet: Floats) -> tuple[float, float]:
    """By how much the readings of a clock lie late on the device's time, and by how much they may."""
    device, meter = device_line(run), line(run, clock)
    same = (run.start["device"].get("clock") or {}).get("name", "host") == clock
    most = device.bound_s + meter.bound_s
    if same or most == 0.0:
        return 0.0, most
    chosen = np.unique(np.linspace(0, len(stamped.on) - 1, SEARCHED).astype(int))
    window = np.stack([stamped.on[chosen], stamped.off[chosen]], axis=1)
    best = (-1.0, 0.0, 0.0)
    for trace in (t for t in rails.values() if t.clock == clock):
        rest, facts = sums(run, trace, quiet)
        step = max(facts.period_s / 4, 2 * most / SHIFTS)
        tried = np.arange(-most - step, most + 2 * step, step)
        level = _levels(run, trace, window, tried)
        clear = float(np.ptp(level) / (facts.noise_w + 1e-3 * abs(float(level.mean())) + TINY))
        if clear > best[0]:
            at_rest = rest.energy_j.sum() / max(float(rest.seen_s.sum()), TINY)
            upwards = 1.0 if level.mean() >= at_rest else -1.0
            top = float(tried[np.argmax(upwards * level)])
            best = (clear, _middle(run, trace, window, top, upwards, facts.period_s, step), most)
    return best[1], most


def _drift(run: Run, trace: Trace, stamped: Spans, shift: float, period: float) -> float:
    """By how much the first and the last third of the spans lie apart in the trace, within the rates of the clocks."""
    device, meter = device_line(run), line(run, trace.clock)
    slack = (device.rate_bound + meter.rate_bound) * float(stamped.off.max() - stamped.on.min())
    if slack <= period or len(stamped.on) < 6:
        return 0.0
    window = np.stack([stamped.on, stamped.off], axis=1)
    tried = shift + np.arange(-slack, slack, max(period / 2, slack / SEARCHED))
    ends = (window[: len(window) // 3], window[-(len(window) // 3) :])
    level = [_levels(run, trace, end, tried) for end in ends]
    sign = 1.0 if level[0].mean() + level[1].mean() <= level[0].max() + level[1].max() else -1.0
    return float(abs(tried[np.argmax(sign * level[0])] - tried[np.argmax(sign * level[1])]))


def _levels(run: Run, trace: Trace, window: Floats, tried: Floats) -> Floats:
    """The mean power inside the windows, for each shift that is tried."""
    found, _ = sums(run, trace, (window[None] + tried[:, None, None]).reshape(-1, 2))
    shape = (len(tried), len(window))
    seen = found.seen_s.reshape(shape).sum(axis=1)
    return np.where(seen > 0, found.energy_j.reshape(shape).sum(axis=1) / np.maximum(seen, TINY), 0.0)


def _middle(run: Run, trace: Trace, window: Floats, top: float, upwards: float, period: float, step: float) -> float:
    """The shift about ``top`` from which one and a half readings to either side lose as much."""
    tried = top + np.linspace(-2, 2, 41) * max(period, step)
    both = _levels(run, trace, window, np.concatenate([tried + 1.5 * period, tried - 1.5 * period]))
    left_over = upwards * (both[: len(tried)] - both[len(tried) :])
    falls = np.flatnonzero((left_over[:-1] > 0) & (left_over[1:] <= 0))
    if not len(falls):
        return top
    k = falls[np.argmin(np.abs(tried[falls] - top))]
    part = left_over[k] / (left_over[k] - left_over[k + 1])
    return float(tried[k] + part * (tried[k + 1] - tried[k]))


@dataclass(frozen=True)
class _Looked:
    """The windows of one rail that are summed, in seconds, shapes (k, 2)."""

    window: Floats
    """Spans that the trace holds."""
    region: Floats
    """They with their edges; ``met`` counts where they meet other activity."""
    wide: Floats
    """They with all that the clocks leave open, as one who places them by the clocks alone would look at."""
    met: float
    busy: Floats
    gap: Floats
    eighth: Floats
    """Eighths of each idle window."""

    @property
    def length_s(self) -> float:
        """The length of all spans, never quite nothing."""
        return max(float(np.sum(np.diff(self.window))), TINY)


def _looked_at(run: Run, trace: Trace, stamped: Spans, idle: Floats, shift: float, facts: Facts) -> _Looked:
    """The windows that a rail is summed over: they are widened or shortened by readings, clocks and filters."""
    period, settle = facts.period_s, SETTLED * float(trace.rail.get("filter_tau_s", 0.0))
    bound = line(run, trace.clock).bound_s
    window, _, _ = batches(stamped.of(~stamped.warmup))
    other, _, _ = batches(stamped.of(stamped.warmup)) if stamped.warmup.any() else (window[:0], None, None)
    other = np.concatenate([other, _marks(run), _unstamped(run, stamped)])
    window, other = window + shift, other[np.argsort(other[:, 0])] + shift
    seen = (window[:, 0] - PAD * period > facts.first_s) & (window[:, 1] + PAD * period + settle < facts.last_s)
    if seen.any():
        window, other = window[seen], np.concatenate([other, window[~seen]])
        other = other[np.argsort(other[:, 0])]
    regions, met = _regions(window, other, PAD * period, PAD * period + settle)
    reach = PAD * period + device_line(run).bound_s + bound
    wide, _ = _regions(window, other, reach, reach + settle)
    quiet = _shortened(idle, bound + period + settle, bound + period)
    eighths = quiet[:, :1, None] + (quiet[:, 1:, None] - quiet[:, :1, None]) * PARTS
    eighths = np.concatenate([eighths[:, :, :-1], eighths[:, :, 1:]], axis=1).transpose(0, 2, 1).reshape(-1, 2)
    gaps = _shortened(np.stack([window[:-1, 1], window[1:, 0]], axis=1), GAP * period + settle, GAP * period)
    busy, gaps = _shortened(window, period + settle, period), gaps[~_touch(gaps, other)]
    return _Looked(window, regions, wide, met, busy, gaps, eighths)


def _unknown_w(area: float, active: float, looked: _Looked, facts: Facts, apart_s: float) -> float:
    """What steps of the volts, overloads, other activity and drifting clocks may add to a rail's power."""
    in_reading, drift = facts.period_s / looked.length_s, apart_s * len(looked.window) / looked.length_s
    of_active = facts.volts_step + facts.overload * in_reading
    return of_active * active + (MET * looked.met * in_reading + min(1.0, drift)) * abs(area)


def _edges_w(area: float, idle_w: float, looked: _Looked, wide: Sums, region: Sums, facts: Facts) -> float:
    """What the ends of the spans leave open: where wider windows lead, the noise in them, and what no reading saw."""
    wider = float(np.sum(np.diff(looked.wide))) - looked.length_s
    count = max(2.0 * len(looked.window), wider / max(facts.period_s, TINY))
    noise_j = EDGE_NOISE * facts.noise_w * np.sqrt(count) * facts.period_s
    blind_j = BLIND * np.sqrt(region.blind_j2.sum())
    return float(abs(_area(looked.wide, wide, idle_w) / looked.length_s - area) + (noise_j + blind_j) / looked.length_s)


def _rail(run: Run, trace: Trace, stamped: Spans, idle: Floats, shift: float, most: float) -> RailPower:
    """What one rail says, in one pass for its facts and one for all windows."""
    _, facts = sums(run, trace, idle[:0])
    period, looked = facts.period_s, _looked_at(run, trace, stamped, idle, shift, facts)
    window, region, length, whole = looked.window, looked.region, looked.length_s, requested(run) + shift
    parts = (looked.eighth, region, looked.busy, looked.gap, whole, looked.wide, window, window - shift)
    found, _ = sums(run, trace, np.concatenate(parts))
    at_rest, regions, busy, between, over_all, wide, own, placed = _split(found, [len(p) for p in parts])
    when = float(np.average(window.mean(axis=1), weights=np.maximum(np.diff(window)[:, 0], TINY)))
    idle_w, idle_bound = _idle(looked.eighth, at_rest, facts, when)
    area = _area(region, regions, idle_w) / length
    active = abs(area + idle_w)
    trimmed, trimmed_noise = _inside(busy, idle_w, facts)
    gap, gap_noise = _inside(between, idle_w, facts)
    apart = bool(abs(gap) - 4 * gap_noise > APART * abs(area))
    if not apart:  # whatever else the gaps show is an error of the idle level
        idle_bound += float(np.fmax(0.0, abs(gap) - 2 * gap_noise))
    drift_s = max(0.0, _drift(run, trace, stamped, shift, period) - 2 * period)
    unknown = _unknown_w(area, active, looked, facts, drift_s)
    edges = unknown + _edges_w(area, idle_w, looked, wide, regions, facts)
    widened = float(np.sum(np.diff(region)))
    wider = max(widened / length, 1.0)
    average = _mean(over_all) if over_all.seen_s.sum() > 0 else np.nan
    late = (
        (device_line(run).bound_s + 2 * period) * abs(area) / (max(float(np.ptp(whole)), TINY) if whole.size else 1.0)
    )
    return RailPower(
        idle_w=idle_w,
        idle_bound_w=idle_bound + (STEADY + facts.volts_step) * abs(idle_w),
        area_w=area,
        area_bound_w=STEADY * abs(area) + edges + idle_bound * wider,
        active_bound_w=STEADY * active + edges + idle_bound * (wider - 1.0),
        trimmed_w=trimmed,
        trimmed_bound_w=STEADY * abs(trimmed) + 2 * trimmed_noise + idle_bound + unknown,
        average_w=average,
        average_bound_w=STEADY * abs(average) + late + unknown,
        gap_w=gap,
        apart=apart,
        facts=facts,
        clock_bound_s=most,
        misplaced_w=abs(_mean(own) - _mean(placed)),
        unseen=max(0.0, 1.0 - float(regions.seen_s.sum()) / max(widened, TINY)),
        readings_per_span=float(np.median(np.diff(window))) / period if period else 0.0,
    )


def _mean(found: Sums) -> float:
    """The mean power in all windows together."""
    return float(found.energy_j.sum()) / max(float(found.seen_s.sum()), TINY)


def _area(window: Floats, found: Sums, idle_w: float) -> float:
    """Joules above idle in windows; what was not seen of a window is taken for as busy as the rest of it."""
    level = found.energy_j / np.where(found.seen_s > 0, found.seen_s, np.nan)
    return float(np.sum((level - idle_w) * (window[:, 1] - window[:, 0])))


def _inside(found: Sums, idle_w: float, facts: Facts) -> tuple[float, float]:
    """The mean above idle of the readings that lie wholly inside, and its noise; NaN for fewer than three."""
    count = float(found.inside.sum())
    if count < 3:
        return np.nan, 0.0
    return float(found.inside_w.sum()) / count - idle_w, facts.noise_w / float(np.sqrt(count))


def _idle(part: Floats, found: Sums, facts: Facts, when: float) -> tuple[float, float]:
    """The level at ``when`` on a straight line through the parts of the idle windows, and its bound.

    The bound is the noise of the mean of all readings, and what the parts scatter about the line beyond their noise.
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


def _marks(run: Run) -> Floats:
    clock = device_line(run)
    rows = np.array([pair for event in run.events["marks"] for pair in event["spans"]], dtype=np.int64).reshape(-1, 2)
    return np.stack([clock.seconds(rows[:, 0]), clock.seconds(rows[:, 1])], axis=1)


def _unstamped(run: Run, stamped: Spans) -> Floats:
    """Work that was asked for and has no stamps: of issues without an answer, and after the end of a broken-off run."""
    last = float(stamped.off.max())
    begins = [i.issued_s for i in issues(run) if i.issued_s is not None and i.answered_s is None]
    broken = run.stop is None or run.stop.get("error") is not None
    return np.array([[s, s + 1.0] for s in begins] + ([[last, last + 1e9]] if broken else [])).reshape(-1, 2)


def _shortened(window: Floats, head: float, tail: float) -> Floats:
    cut: Floats = window + np.array([head, -tail])
    return cut[cut[:, 1] > cut[:, 0]]


def _touch(window: Floats, other: Floats) -> Bools:
    """Whether each window touches one of the others, which are in order of their begin."""
    if not len(other):
        return np.zeros(len(window), dtype=bool)
    before = np.searchsorted(other[:, 0], window[:, 1])
    ends = np.concatenate([[-np.inf], np.maximum.accumulate(other[:, 1])])
    return np.asarray(ends[before] > window[:, 0], dtype=bool)


def _regions(window: Floats, other: Floats, head: float, tail: float) -> tuple[Floats, int]:
    """Widened windows, united where they meet; towards other activity no further than half of the way.

    How many ends met other activity, whose readings may hold some of its power, is the second part.
    """
    on, off = window[:, 0] - head, window[:, 1] + tail
    met = 0
    if len(other):
        before = np.searchsorted(np.sort(other[:, 1]), window[:, 0], "right")
        after = np.searchsorted(other[:, 0], window[:, 1])
        ends = np.concatenate([[-np.inf], np.sort(other[:, 1])])[before]
        begins = np.concatenate([other[:, 0], [np.inf]])[after]
        met = int(np.sum(on < (ends + window[:, 0]) / 2) + np.sum(off > (begins + window[:, 1]) / 2))
        on = np.maximum(on, (ends + window[:, 0]) / 2)
        off = np.minimum(off, (begins + window[:, 1]) / 2)
    first = np.flatnonzero(np.concatenate([[True], on[1:] > np.maximum.accumulate(off)[:-1]]))
    return np.stack([on[first], np.maximum.reduceat(off, first)], axis=1), met


def _split(found: Sums, counts: list[int]) -> list[Sums]:
    at = np.cumsum(counts)[:-1]
    split = [np.split(getattr(found, part.name), at) for part in fields(Sums)]
    return [Sums(*parts) for parts in zip(*split, strict=True)]


def _figures(each: dict[str, RailPower]) -> Figures:
    """The figures of each rail, and their sums over rails."""
    found: Figures = {}
    why = "noise at the edges, the idle level, and 0.12 % of the method"
    for prefix, rails in [*((f"rail.{n}.", [r]) for n, r in each.items()), ("", list(each.values()))]:
        total = {key: sum(getattr(r, key) for r in rails) for key in vars(rails[0]) if key.endswith("_w")}
        idle, idle_bound, apart = total["idle_w"], total["idle_bound_w"], any(r.apart for r in rails)
        dynamic, bound, active_bound = total["area_w"], total["area_bound_w"], total["active_bound_w"]
        how = "area above idle over the length of the spans"
        if apart:
            dynamic, bound = total["trimmed_w"], total["trimmed_bound_w"]
            active_bound, how = bound + idle_bound, "mean inside shortened spans"
            if np.isnan(dynamic):
                continue
        own = {
            "idle_power_w": Plain(idle, idle_bound, "line through the means of the idle windows", why),
            "dynamic_power_w": Plain(dynamic, bound, how, why),
            "active_power_w": Plain(dynamic + idle, active_bound, f"{how}, and idle", why),
        }
        found |= {prefix + key: one for key, one in own.items()}
        if not apart:  # the mean over the spans themselves is the same area, but for half a reading at each end
            ends = sum(abs(r.area_w) / max(r.readings_per_span, 1.0) + r.misplaced_w for r in rails)
            for key in ("active_power_w", "dynamic_power_w"):
                wider = replace(own[key], bound=own[key].bound + ends, why=f"{why}, and half a reading at each end")
                found[f"literal.{prefix}{key}"] = wider
        if not np.isnan(total["average_w"]):
            average = Plain(total["average_w"], total["average_bound_w"], "area over the time", why)
            found[f"{prefix}average_power_w"] = average
    return found
