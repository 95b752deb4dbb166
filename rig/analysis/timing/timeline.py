"""A recording placed on one time axis: when the device was busy, and what the meter read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.supply import Supply, Volts, mean_volts
from rig.analysis.timing.timebase import Timebase, fit_brackets, host_timebase
from rig.errors import DataError
from rig.recording.conversion import to_watts
from rig.recording.reader import Run, Trace
from rig.types import MARK_PHASE, Bools, Floats

OVERLAP_S = 1e-9
"""Below which two spans that follow each other do not overlap: rounding of ticks to seconds."""
FARTHEST = 10.0
"""Tolerances that a clock's rate may be off before its declaration is taken for wrong."""


@dataclass(frozen=True)
class Phase:
    """All spans of one phase that count. ``windows_s`` has shape (k, 2), the rest shape (k,)."""

    windows_s: Floats
    inferences: NDArray[np.int64]
    executions: NDArray[np.int64]
    issue: NDArray[np.int64]

    @property
    def busy_s(self) -> float:
        """Total time in this phase."""
        return float(np.sum(self.windows_s[:, 1] - self.windows_s[:, 0]))

    @property
    def n(self) -> int:
        """Inferences (executions times inferences of the sample) in all spans."""
        return int(self.inferences.sum())


@dataclass(frozen=True)
class Activity:
    """What the device did, in run seconds by its own clock; idle windows by the host's."""

    phases: Mapping[str, Phase]
    warmup_s: Floats
    marks_s: Floats
    idle_s: Floats
    apart: bool
    """Phases were issued one at a time, so that no issue holds a whole inference."""
    joined: bool = False
    """Spans of one phase overlapped (a batch, two cores) and were taken together."""

    def excluded_s(self) -> Floats:
        """Windows in which the device was busy with something that does not count."""
        return np.concatenate([self.warmup_s, self.marks_s])

    def busy_windows_s(self) -> Floats:
        """The windows of every phase that counts, unsorted, shape (k, 2); their union where phases overlap."""
        every = np.concatenate([p.windows_s for p in self.phases.values()] or [np.zeros((0, 2))])
        if len(self.phases) < 2:
            return every
        union = merged(every)
        overlap_s = float(np.sum(every[:, 1] - every[:, 0]) - np.sum(union[:, 1] - union[:, 0]))
        return union if overlap_s > OVERLAP_S * len(every) else every


@dataclass(frozen=True)
class Readings:
    """One rail in watts on the run's axis, shapes (n,). ``ok`` is False where a reading is no number;

    ``overload`` where it only says that the truth was at or above it.
    """

    rail: str
    start_s: Floats
    end_s: Floats
    watts: Floats
    raw: Floats
    ok: Bools
    overload: Bools
    period_s: float
    tau_s: float
    burden_per_w: float = 0.0
    """Of a shunt: p = x - x**2 * burden_per_w for x = current times supply voltage."""
    counter: bool = False
    """Each reading is the mean between two readings of a counter, whose errors it shares with its neighbours."""
    step_j: float = 0.0
    """Of a counter; 0 where nobody stated it."""
    supply: Supply | None = None
    """Of amperes whose volts were measured."""

    def moved(self, start_s: Floats, end_s: Floats) -> Readings:
        """The same readings at other times."""
        return replace(self, start_s=start_s, end_s=end_s)


def timebase_of(run: Run, clock: str, rail: str | None = None) -> Timebase:
    """Fit one clock's brackets; ``rail`` names a trace whose arrivals may bound the clock's rate."""
    t0_ns = run.start.t0_ns
    if clock in ("host", ""):
        return host_timebase(t0_ns)
    clocks = run.clocks()
    brackets = run.brackets(clock)
    if clock not in clocks or not brackets:
        raise DataError(
            f"the recording never read the clock {clock!r}",
            field="brackets",
            value=clock,
            remedy="At least one bracket per clock is needed; see docs/reference/run-directory.md",
        )
    arrivals = None
    if rail is not None and len(brackets) == 1:
        table = run.arrivals(rail)
        trace = run.traces[rail]
        table = table[(table[:, 0] > 0) & (table[:, 0] <= len(trace.end_tick))]
        arrivals = np.column_stack([trace.end_tick[table[:, 0] - 1], (table[:, 1] - t0_ns) * 1e-9])
    found = fit_brackets(clocks[clock], brackets, t0_ns, arrivals)
    if abs(found.rate - 1.0) > FARTHEST * clocks[clock].tolerance + 5.0 * found.rate_sigma:
        raise DataError(
            f"the clock {clock!r} ran at {1.0 / found.rate:.6g} of its declared rate",
            field="tick_hz",
            value=clocks[clock].tick_hz,
            remedy="Correct its tick_hz, or declare a wider tolerance",
        )
    return found


def activity_of(run: Run, device: Timebase) -> Activity:
    """Spans and idle windows of a run."""
    t = run.replies
    done = np.asarray(t["phase"].is_valid()) & np.asarray(t["on_tick"].is_valid())
    table = t.filter(done)
    columns = {name: table[name].to_numpy() for name in ("issue", "phase", "on_tick", "off_tick", "warmup")}
    windows = np.column_stack([device.seconds(columns["on_tick"]), device.seconds(columns["off_tick"])])
    backward = windows[:, 1] < windows[:, 0]
    if np.any(backward):
        raise DataError(
            "a span ends before it begins",
            field="off_tick",
            value=int(columns["off_tick"][np.argmax(backward)]),
            remedy="Check the device's timer for wrap-around",
        )
    warm = columns["warmup"].astype(bool)
    size = dict(zip(run.samples["id"].to_pylist(), run.samples["inferences"].to_pylist(), strict=True))
    each = np.array([size.get(i) or 1 for i in table["sample_id"].to_pylist()], dtype=np.int64)
    times = np.array([e or 1 for e in table["executions"].to_pylist()], dtype=np.int64)
    phases: dict[str, Phase] = {}
    joined = False
    for name in dict.fromkeys(columns["phase"].tolist()):
        use = (columns["phase"] == name) & ~warm
        if np.any(use):
            spans = Phase(windows[use], (each * times)[use], times[use], columns["issue"][use].astype(np.int64))
            phases[name] = _joined(spans)
            joined = joined or len(phases[name].windows_s) < len(spans.windows_s)
    marked = run.marks()
    phases.pop(MARK_PHASE, None)
    t0_ns = run.start.t0_ns
    rows = columns["issue"][~warm]
    issues = [set(rows[columns["phase"][~warm] == name].tolist()) for name in phases]
    return Activity(
        phases=phases,
        warmup_s=windows[warm],
        marks_s=np.column_stack([device.seconds(marked[:, 0]), device.seconds(marked[:, 1])]),
        idle_s=(run.idle_windows_ns() - t0_ns) * 1e-9,
        apart=any(i != issues[0] for i in issues),
        joined=joined,
    )


def _joined(phase: Phase) -> Phase:
    """Spans that overlap, as those of one batch do, as one window that stands for all their inferences."""
    order = np.argsort(phase.windows_s[:, 0], kind="stable")
    on, off = phase.windows_s[order].T
    reach = np.maximum.accumulate(off)
    first = np.concatenate([[True], on[1:] >= reach[:-1] - OVERLAP_S])
    if np.all(first):
        return phase
    at = np.flatnonzero(first)
    windows = np.column_stack([on[at], np.maximum.reduceat(off, at)])
    return Phase(
        windows,
        np.add.reduceat(phase.inferences[order], at),
        np.maximum.reduceat(phase.executions[order], at),
        np.minimum.reduceat(phase.issue[order], at),
    )


def volts_of(trace: Trace, timebase: Timebase) -> Volts:
    """Place a trace of volts on the run's axis."""
    start, end = timebase.seconds(trace.start_tick), timebase.seconds(trace.end_tick)
    start = end if trace.rail.kind == "point" else start
    over = trace.overload | (trace.value >= trace.rail.range_max if trace.rail.range_max is not None else False)
    return Volts(trace.rail, start, end, trace.value, np.isfinite(trace.value), over)


def readings_of(trace: Trace, timebase: Timebase, volts: Volts | None = None) -> Readings:
    """Place a trace on the run's axis. A cumulative counter becomes means between its readings.

    ``volts`` are those of the rail that its conversion names as ``supply_rail``.
    """
    start, end = timebase.seconds(trace.start_tick), timebase.seconds(trace.end_tick)
    raw, ok, overload = trace.value, np.isfinite(trace.value), trace.overload
    if trace.rail.range_max is not None:
        overload = overload | (raw >= trace.rail.range_max)
    counter = trace.rail.kind == "cumulative"
    if counter:
        start, end = end[:-1], end[1:]
        rise = np.diff(np.where(ok, raw, 0.0))
        held = raw[ok]
        if len(held) > 1 and float(np.max(-np.diff(held))) > 0.5 * float(np.ptp(held)) > 0.0:
            raise DataError(
                f"the counter of rail {trace.rail.name} falls back: it wrapped or was reset",
                field="value",
                value=trace.rail.name,
                remedy="Unwrap it before it is written, or record it as means",
            )
        raw, ok = rise / np.where(end > start, end - start, np.inf), ok[1:] & ok[:-1]
        overload = overload[1:]
    elif trace.rail.kind == "point":
        start = end
    if len(start) > 1 and np.any(np.diff(start) <= 0):
        raise DataError(
            f"the readings of rail {trace.rail.name} do not move forward in time",
            field="start_tick",
            value=trace.rail.name,
            remedy="Check the trace for wrapped or repeated time stamps",
        )
    rate_hz = 0.0 if counter else trace.rail.rate_hz  # a counter that is polled is looked at when there is time
    period = timebase.rate / rate_hz if rate_hz > 0 else float(np.median(np.diff(start))) if len(start) > 1 else 0.0
    c, supply, v = trace.rail.conversion, None, None
    if volts is not None:
        v, known, over = mean_volts(volts, start, end)
        ok, overload = ok & known, overload | over
        window_s = float(np.median(volts.end_s - volts.start_s))
        supply = Supply(volts.rail, np.where(ok, raw, 0.0), np.where(ok, v, 0.0), window_s, c.burden_ohm)
    watts = to_watts(raw if ok.all() else np.where(ok, raw, 0.0), c, v)
    burden = c.burden_ohm / c.supply_v**2 if c.unit == "A" and c.supply_v else 0.0
    tau_s, step_j = trace.rail.filter_tau_s, (trace.rail.resolution or 0.0) if counter else 0.0
    return Readings(
        trace.rail.name, start, end, watts, raw, ok, overload, period, tau_s, burden, counter, step_j, supply
    )
