"""Map the clock of a meter by its brackets (clock readings), and find how late spans are from edges of a GPIO input.

An edge of the pin marks when a span began or ended, to a tick of the meter. The device's stamps tell which span it was.
Edges may be missing, extra or bouncing, and the brackets may be uncertain by several spans. So each edge counts as a
pulse in a trace, and the lag path of these pulses is also the lag path of the spans.
"""

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.timing.activity_signal import in_step, merged
from rig.analysis.timing.alignment.contrast import shown
from rig.analysis.timing.alignment.lag_path import Line, line, through
from rig.analysis.timing.clocks_and_tolerances import timebase_of
from rig.analysis.timing.counted_spans import Activity
from rig.analysis.timing.readings import Readings, readings_of, volts_of
from rig.analysis.timing.timebase import CERTAIN, RECTANGLE, SURE, Timebase
from rig.errors import DataError
from rig.recording.reader import Run
from rig.recording.traces.traces import Trace
from rig.types import Bools, Floats, Indices, Pin, Rail

LEAST = 6
"""At least this many edges must match.

If the edges are shifted by up to this many periods either way, within the limits of the brackets, at least this many
fewer edges must match. Otherwise the edges are not used, because the other shift may be the true one.
"""


class MeterClock(Struct, frozen=True):
    """The clock of a meter by its brackets, and what it is aligned with; the recording ended at ``end_s``."""

    run: Run
    bracketed: Timebase
    activity: Activity
    device: Timebase
    end_s: float

    @property
    def against_device(self) -> Timebase:
        """Return the bracketed map with its sigmas against the device's clock."""
        first, device = self.bracketed, self.device
        sigma_s = math.hypot(first.sigma_s, device.sigma_s)
        rate_sigma = math.hypot(first.rate_sigma, device.rate_sigma)
        found = replace(first, sigma_s=sigma_s, rate_sigma=rate_sigma, considered={"brackets": sigma_s})
        if self.stamps_spans and device.look_s > 0:
            # the device's spans are edges that this meter saw, so only the input's own errors remain
            sigma_s = math.hypot(device.look_s / RECTANGLE, device.lag_s / math.sqrt(3.0))
            found = replace(found, sigma_s=sigma_s, rate_sigma=0.0)
        elif self.stamps_spans:
            # readings and spans are on one clock, so an error of its rate matters only to joules over its seconds
            traces = (t for t in self.run.traces.values() if t.clock == first.clock.name)
            joules = any(t.rail.kind == "cumulative" for t in traces)
            rate_sigma = first.rate_sigma if joules else 0.0
            found = replace(first, rate_sigma=rate_sigma, considered={"brackets": first.sigma_s})
        return found

    @property
    def stamps_spans(self) -> bool:
        """Return whether the device stamps its spans on this clock."""
        return self.bracketed.clock.name == self.device.clock.name

    def reach_s(self, windows_s: Floats) -> float:
        """Return how far the brackets may misplace windows, shape (k, 2)."""
        return SURE * self.against_device.most_sigma(windows_s)

    def clock_of(self, volts: Trace, own: Timebase) -> Timebase:
        """Return the map of the clock of a trace of volts, which is ``own`` if the amperes have the same clock."""
        return own if volts.clock == own.clock.name else timebase_of(self.run, volts.clock, volts.rail.name)

    def supply(self, trace: Trace) -> Trace | None:
        """Return the volts that a rail of amperes names; raise ``DataError`` if the recording does not hold them."""
        name = trace.rail.conversion.supply_rail
        if name is None:
            return None
        found = self.run.traces.get(name)
        if found is None or found.rail.conversion.unit != "V" or not len(found.value):
            lacks = "is not in the recording" if found is None else "holds no volts"
            what = f"rail {name}, which rail {trace.rail.name} names as its supply, {lacks}"
            remedy = "Record the voltage as a rail in V, or state it as supply_v"
            raise DataError(what, field="supply_rail", value=name, remedy=remedy)
        return found

    def readings_of(self, trace: Trace, own: Timebase) -> Readings:
        """Return the readings of a rail, with the volts that it names; ``own`` maps its clock."""
        volts = self.supply(trace)
        known = None if volts is None else volts_of(volts, self.clock_of(volts, own))
        return readings_of(trace, own, known)


# ---- edges of a pin ---------------------------------------------------------------------------


class Train(Struct, frozen=True):
    """Edges in order of time, with arrays of shape (n,).

    The arrays are seconds, the level after each edge (-1: either), and whether the edge ends a span.
    """

    at_s: Floats
    level: Indices
    ends: Bools

    def __len__(self) -> int:
        return len(self.at_s)


def expected(windows_s: Floats, pin: Pin) -> Train:
    """Return the edges that spans, shape (k, 2) on the device's clock, must have caused on the pin."""
    spans = merged(windows_s) if pin == "level" else windows_s
    at = spans.reshape(-1)
    ends = np.tile([False, True], len(spans))
    level = np.where(ends, 0, 1) if pin == "level" else np.full(len(at), 0 if pin == "stamp" else -1)
    order = np.argsort(at, kind="stable")
    return Train(at[order], level[order].astype(np.int64), ends[order])


def observed(at_s: Floats, level: Floats, pin: Pin, step_s: float, quiet_s: float) -> Train:
    """Return the edges that the meter saw, in the meter's seconds and without bounces.

    Of edges closer than ``quiet_s``, only the first counts, or none if the pin ended at the level where it began. An
    edge is seen half a sampling interval late on average.
    """
    use = level == 0 if pin == "stamp" else np.ones(len(level), bool)
    at, after = at_s[use] - 0.5 * step_s, level[use].astype(np.int64)
    first = np.flatnonzero(np.diff(at, prepend=-math.inf) >= quiet_s)
    last = np.append(first[1:], len(at)) - 1
    moved = np.ones(len(first), bool) if pin == "stamp" else (last - first) % 2 == 0
    after = np.full(len(first), -1) if pin == "toggle" else after[last]
    return Train(at[first][moved], after[moved], np.zeros(np.count_nonzero(moved), bool))


def quiet_s(train: Train) -> float:
    """Return the distance in seconds below which two edges are bounces: a quarter of the 5 % quantile of distances."""
    gaps = np.diff(train.at_s)
    return float(np.quantile(gaps[gaps > 0], 0.05)) / 4.0 if np.any(gaps > 0) else 0.0


def match(
    wanted: Train, found: Train, reach_s: float, rate_sigma: float, step_s: float, shared_s: float = 0.0
) -> Line | str:
    """Return how late the observed edges are, within about +-``reach_s``, or why the edges do not decide.

    The input is sampled at intervals of ``step_s``, and all edges may be off by ``shared_s`` together.
    """
    if min(len(wanted), len(found)) < LEAST:
        return f"edges are too few: {len(wanted)} are expected, {len(found)} seen, and {LEAST} of each needed"
    wide_s = max(quiet_s(wanted), step_s)
    # for a level, only rising edges are compared
    rises = [t.at_s[t.level == wanted.level.max()] for t in (wanted, found)]
    s = shown(_pulses(rises[1], wide_s), _about(rises[0], wide_s))
    at = None if s is None else line(s, reach_s, 2.0 * rate_sigma)
    if at is None or abs(at.late_s) > reach_s:
        return "no shift that the brackets allow fits the edges to the spans clearly better than all others"
    for _ in range(2):
        due, late_s = _pairs(wanted, found, at, wide_s)
        if len(due) < LEAST:
            return f"only {len(due)} edges fit the spans"
        at = through(late_s + wanted.at_s[due], late_s, 0.0, rate_sigma)
    n, left_s, ends = len(due), late_s - at.at(late_s + wanted.at_s[due]), wanted.ends[due]
    near_s = min(4.0 * CERTAIN * max(float(np.median(np.abs(left_s))), step_s), wide_s)
    if rival := _rival(wanted, found, at, reach_s, near_s):
        return rival
    split_s = 0.5 * float(np.median(left_s[ends]) - np.median(left_s[~ends])) if 0 < np.sum(ends) < n else 0.0
    look_s = step_s / RECTANGLE
    alike_s = look_s * math.sqrt(max(in_step(wanted.at_s[due] + late_s - left_s, step_s) - 1.0 / n, 0.0))
    sigma_s = math.hypot(max(at.sigma_s, abs(split_s)), alike_s, shared_s)
    slope_sigma = max(at.slope_sigma, look_s / max(math.sqrt(n) * float(np.std(wanted.at_s[due])), 1e-300))
    return replace(at, sigma_s=sigma_s, slope_sigma=min(slope_sigma, rate_sigma))


def _rival(wanted: Train, found: Train, at: Line, reach_s: float, near_s: float) -> str:
    """Describe a place some periods away that fits about as many edges; "" if there is none."""
    best = len(_pairs(wanted, found, at, near_s)[0])
    for k in range(1, min(LEAST + 1, len(wanted))):
        period_s = float(np.median(wanted.at_s[k:] - wanted.at_s[:-k]))
        for by_s in (-period_s, period_s):
            other = replace(at, late_s=at.late_s + by_s)
            count = len(_pairs(wanted, found, other, near_s)[0])
            # a shift beyond the brackets is a rival only if it fits better
            if best - count < (LEAST if abs(other.late_s) <= reach_s else -(LEAST // 2)):
                return f"a shift {by_s:.6g} s away fits {count} edges, and the best shift fits {best}"
    return ""


def _about(at_s: Floats, wide_s: float) -> Floats:
    """Return pulses about edges, as disjoint sorted windows."""
    return merged(at_s[:, None] + wide_s * np.array([-0.5, 0.5]))


def _pulses(at_s: Floats, wide_s: float) -> Readings:
    """Return a trace of pulses of 1 W about edges; each pulse is one reading that lasts two periods."""
    at = _about(at_s, wide_s).ravel()
    at = np.concatenate([at[:1] - wide_s, at, at[-1:] + wide_s])
    watts, ok = np.arange(len(at) - 1) % 2.0, np.ones(len(at) - 1, bool)
    return Readings(Rail("pin"), at[:-1], at[1:], watts, watts, ok, ~ok, wide_s / 2.0, 0.0)


def _pairs(wanted: Train, found: Train, at: Line, wide_s: float) -> tuple[Indices, Floats]:
    """Return the indices of the expected edges that are seen, and how late each is; each edge counts once."""
    seen_s = found.at_s - at.at(found.at_s)
    near = np.clip(np.searchsorted(seen_s, wanted.at_s - 0.5 * wide_s), 0, len(found) - 1)
    alike = (np.abs(seen_s[near] - wanted.at_s) <= 0.5 * wide_s) & (found.level[near] == wanted.level)
    due = np.flatnonzero(alike)
    due = due[np.diff(near[due], prepend=-1) > 0]
    return due, found.at_s[near[due]] - wanted.at_s[due]


def by_pins(meter: MeterClock) -> tuple[Line | None, list[str]]:
    """Return how late the spans are by the edges of a GPIO input, or None, and notes on inputs that are not used."""
    activity, first, every = meter.activity, meter.bracketed, meter.run.traces.values()
    spans = np.concatenate([activity.busy_windows_s(), activity.warmup_s, activity.marks_s])
    own = meter.against_device
    reach_s = SURE * own.sigma_s + (own.rate_sigma * float(np.ptp(spans)) if len(spans) else 0.0)
    found, notes = list[Line](), list[str]()
    for trace in every:
        rail, pin = trace.rail, trace.rail.pin
        if trace.clock != first.clock.name or rail.kind != "edges" or not pin or not len(trace.value) or not len(spans):
            continue
        look_s = first.rate / rail.rate_hz if rail.rate_hz > 0 else 1.0 / first.clock.tick_hz
        wanted = expected(spans, pin)
        seen = observed(first.seconds(trace.end_tick), trace.value, pin, look_s, quiet_s(wanted))
        shared_s = math.hypot(rail.pin_lag_s / math.sqrt(3.0), meter.device.step_s / RECTANGLE)
        fit = match(wanted, seen, reach_s, own.rate_sigma, look_s, shared_s)
        if isinstance(fit, str):
            notes.append(f"Input {rail.name}: its edges are not used for alignment: {fit}")
        else:
            found.append(fit)
    return min(found, key=lambda x: x.sigma_s, default=None), notes
