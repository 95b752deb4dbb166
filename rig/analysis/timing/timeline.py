"""The timeline puts a recording on one axis of seconds: when the device was busy, and what the meters read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.range_end import apparent_ends
from rig.analysis.timing.supply import Supply, Volts, mean_volts, sagging
from rig.analysis.timing.timebase import Timebase, fit_brackets, host_timebase
from rig.errors import DataError
from rig.recording.columns import array_of
from rig.recording.conversion import PLAUSIBLE, to_watts
from rig.recording.reader import Run, Trace
from rig.types import MARK_PHASE, Bools, Floats, Rail

OVERLAP_S = 1e-9
"""An overlap of two successive spans below this time counts as rounding of ticks to seconds."""
FARTHEST = 10.0
"""A clock's rate that is off by more than this many tolerances counts as a wrong declaration."""


@dataclass(frozen=True)
class Phase:
    """All spans of one phase without warm-up.

    ``windows_s`` has shape (k, 2), the other arrays shape (k,).
    """

    windows_s: Floats
    inferences: NDArray[np.int64]
    executions: NDArray[np.int64]
    issue: NDArray[np.int64]

    @property
    def busy_s(self) -> float:
        """Return the total time in this phase."""
        return float(np.sum(self.windows_s[:, 1] - self.windows_s[:, 0]))

    @property
    def n(self) -> int:
        """Return the inferences in all spans: executions times inferences of the sample."""
        return int(self.inferences.sum())


@dataclass(frozen=True)
class Activity:
    """What the device did, in run seconds: spans by the device's clock, idle windows by the host's clock."""

    phases: Mapping[str, Phase]
    warmup_s: Floats
    marks_s: Floats
    idle_s: Floats
    per_phase: bool
    """Whether phases were issued one at a time, so that no issue holds a whole inference."""
    joined: bool = False
    """Whether spans of one phase overlapped (a batch, two cores) and were joined."""
    step_s: float = 0.0
    """The step of the stamps of spans: either end of a span may be off by as much."""

    def excluded_s(self) -> Floats:
        """Return the windows of warm-up and marks, in which the device was busy but nothing counts."""
        return np.concatenate([self.warmup_s, self.marks_s])

    def busy_windows_s(self) -> Floats:
        """Return the windows of all phases, unsorted, shape (k, 2), or their union if phases overlap."""
        every = np.concatenate([p.windows_s for p in self.phases.values()] or [np.zeros((0, 2))])
        if len(self.phases) < 2:
            return every
        union = merged(every)
        overlap_s = float(np.sum(every[:, 1] - every[:, 0]) - np.sum(union[:, 1] - union[:, 0]))
        return union if overlap_s > OVERLAP_S * len(every) else every

    def active_s(self) -> Floats:
        """Return when the device is active in any way, as disjoint sorted windows, shape (k, 2)."""
        return merged(np.concatenate([self.busy_windows_s(), self.excluded_s()]))


@dataclass(frozen=True)
class Pool:
    """What stands behind readings of a long trace, each of which is the mean of successive single ones; shapes (n,).

    ``of`` is the number of single readings, ``many`` of those that are numbers, and ``weight`` is the length of these
    over that of one, which is ``aperture_s``.
    """

    of: Floats
    many: Floats
    weight: Floats
    aperture_s: float


@dataclass(frozen=True)
class Readings:
    """One rail in watts on the run's axis, shapes (n,).

    ``ok`` is False where a reading is not a number. ``overload`` is True where a reading is only a lower bound. A
    reading of a long trace is the mean of successive ones (``pool``); ``period_s`` and ``aperture_s`` are of single
    ones in any case.
    """

    rail: Rail
    start_s: Floats
    end_s: Floats
    watts: Floats
    raw: Floats
    ok: Bools
    overload: Bools
    period_s: float
    tau_s: float
    burden_per_w: float = 0.0
    """For a shunt: p = x - x**2 * burden_per_w, where x is current times supply voltage."""
    counter: bool = False
    """Whether each reading is the mean between two values of a counter.

    The errors of these values are then shared with the neighbouring readings.
    """
    step_j: float = 0.0
    """The step of a counter in joules; 0 if it is not stated."""
    supply: Supply | None = None
    """For a rail of amperes: the volts that were measured beside it."""
    floor: Bools | Floats = field(default_factory=lambda: np.zeros(0, bool))
    """True where a reading is only an upper bound, or the share of single ones that are, shape (n,), or empty."""
    lifted_w: Floats = field(default_factory=lambda: np.zeros(0))
    """How far such readings were moved to what they hide on average, shape (n,), or empty."""
    pool: Pool | None = None
    """For a long trace: the single readings behind each; None if each stands for itself."""

    @property
    def aperture_s(self) -> float:
        """Return the median length of a single reading."""
        return float(np.median(self.end_s - self.start_s)) if self.pool is None else self.pool.aperture_s

    @property
    def uneven(self) -> bool:
        """Return whether readings count by their length: the intervals of a counter, and means of single readings."""
        return self.counter or self.pool is not None

    @property
    def many(self) -> Floats:
        """Return the single readings behind each, shape (n,)."""
        return np.ones(len(self.watts)) if self.pool is None else self.pool.many

    def count(self, which: Bools) -> int:
        """Return the number of single readings behind those that are marked, shape (n,)."""
        return int(np.count_nonzero(which)) if self.pool is None else round(float(self.pool.many[which].sum()))

    def pace(self) -> Floats:
        """Return the time from each reading to the next in periods, less the single ones behind it but one."""
        of = 1.0 if self.pool is None else self.pool.of[:-1]
        return np.asarray(np.diff(self.start_s) / self.period_s - (of - 1.0))

    def shares(self, which: Bools) -> Floats:
        """Return weights that make the mean of the readings that are marked, shape (n,)."""
        if self.pool is None:
            return np.asarray(which / np.count_nonzero(which))
        return np.asarray(np.where(which, self.pool.many, 0.0) / self.pool.many[which].sum())

    def adjacent(self) -> Bools:
        """Return which readings follow the one before without a pause, shape (n - 1,)."""
        return np.asarray(np.diff(self.start_s) < 1.5 * self.period_s)


def timebase_of(run: Run, clock: str, rail: str | None = None) -> Timebase:
    """Fit the brackets of one clock; ``rail`` names a trace whose arrivals may bound its rate."""
    t0_ns = run.start.t0_ns
    if clock in ("host", ""):
        return host_timebase(t0_ns)
    clocks = run.clocks()
    brackets = run.brackets(clock)
    if clock not in clocks or not brackets:
        raise DataError(
            f"the recording holds no reading of the clock {clock!r}",
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
    far = abs(found.rate - 1.0) > FARTHEST * clocks[clock].tolerance + 5.0 * found.rate_sigma
    if far and arrivals is not None:  # a check of the arrivals says so, and refuses power alone
        return fit_brackets(clocks[clock], brackets, t0_ns)
    if far:
        raise DataError(
            f"the clock {clock!r} ran at {1.0 / found.rate:.6g} of its declared rate",
            field="tick_hz",
            value=clocks[clock].tick_hz,
            remedy="Correct its tick_hz, or declare a wider tolerance",
        )
    return found


def activity_of(run: Run, device: Timebase) -> Activity:
    """Return the spans and idle windows of a run.

    Raises ``DataError`` for a span that ends before it begins.
    """
    table = run.replies
    table = table.filter(pc.and_(table["phase"].is_valid(), table["on_tick"].is_valid()))
    phase, issue, on, off, warm = (array_of(table[c]) for c in ("phase", "issue", "on_tick", "off_tick", "warmup"))
    windows = _spans_s(on, off, device)
    size = dict(zip(run.samples["id"].to_pylist(), run.samples["inferences"].to_pylist(), strict=True))
    each = np.array([size.get(i) or 1 for i in table["sample_id"].to_pylist()], dtype=np.int64)
    times = np.array([e or 1 for e in table["executions"].to_pylist()], dtype=np.int64)
    phases: dict[str, Phase] = {}
    joined = False
    for name in dict.fromkeys(phase.tolist()):
        use = (phase == name) & ~warm
        if np.any(use):
            spans = Phase(windows[use], (each * times)[use], times[use], issue[use].astype(np.int64))
            phases[name] = _joined(spans)
            joined = joined or len(phases[name].windows_s) < len(spans.windows_s)
    marked = run.marks()
    phases.pop(MARK_PHASE, None)
    t0_ns = run.start.t0_ns
    issues = [set(issue[~warm][phase[~warm] == name].tolist()) for name in phases]
    return Activity(
        phases=phases,
        warmup_s=windows[warm],
        marks_s=np.column_stack([device.seconds(marked[:, 0]), device.seconds(marked[:, 1])]),
        idle_s=(run.idle_windows_ns() - t0_ns) * 1e-9,
        per_phase=any(i != issues[0] for i in issues),
        joined=joined,
        step_s=device.step_s,
    )


def _spans_s(on_tick: Floats, off_tick: Floats, device: Timebase) -> Floats:
    windows = np.column_stack([device.seconds(on_tick), device.seconds(off_tick)])
    backward = windows[:, 1] < windows[:, 0]
    if np.any(backward):
        raise DataError(
            "a span ends before it begins",
            field="off_tick",
            value=int(off_tick[np.argmax(backward)]),
            remedy="Check the device's timer for wrap-around",
        )
    return windows


def _joined(phase: Phase) -> Phase:
    """Join spans that overlap, as those of one batch do, into windows that hold all their inferences."""
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
    """Return a trace of volts on the run's axis."""
    start, end = timebase.seconds(trace.start_tick), timebase.seconds(trace.end_tick)
    start = end if trace.rail.kind == "point" else start
    over = trace.overload | (trace.value >= trace.rail.range_max if trace.rail.range_max is not None else False)
    return Volts(trace.rail, start, end, trace.value, numbers(trace.value), over)


def readings_of(trace: Trace, timebase: Timebase, volts: Volts | None = None) -> Readings:
    """Return a trace in watts on the run's axis; a cumulative counter becomes the means between its readings.

    ``volts`` are those of the rail that its conversion names as ``supply_rail``. Raises ``DataError`` for a counter
    that goes back and for readings that are not in order of time.
    """
    rail, c = trace.rail, trace.rail.conversion
    start, end = timebase.seconds(trace.start_tick), timebase.seconds(trace.end_tick)
    raw, ok, overload = trace.value, numbers(trace.value), trace.overload
    counter = rail.kind == "cumulative"
    floor = np.zeros(len(raw), bool)
    if not counter:
        ended, floor = apparent_ends(raw).clipped(raw)
        overload = overload | ended
    if rail.range_max is not None:
        overload = overload | (raw >= rail.range_max)
    if counter:
        start, end, overload, floor = end[:-1], end[1:], overload[1:], floor[1:]
        raw, ok = _rate_of(trace, ok, end - start), ok[1:] & ok[:-1]
    elif rail.kind == "point":
        start = end
    _check_order(rail.name, start)
    if not np.all(lasting := end > start) and np.any(lasting):
        ok = ok & lasting  # a mean over no time, among others, is none
    # a counter that is polled has no fixed rate
    rate_hz = 0.0 if counter else rail.rate_hz
    period = timebase.rate / rate_hz if rate_hz > 0 else float(np.median(np.diff(start))) if len(start) > 1 else 0.0
    supply, v = None, None
    if volts is not None:
        v, known, over = mean_volts(volts, start, end)
        ok, overload = ok & known, overload | over
        v, sag = sagging(volts, v, Volts(rail, start, end, raw, ok, overload))
        window_s = float(np.median(volts.end_s - volts.start_s))
        supply = Supply(volts.rail, np.where(ok, raw, 0.0), np.where(ok, v, 0.0), window_s, c.burden_ohm, sag)
    return Readings(
        rail=rail,
        start_s=start,
        end_s=end,
        watts=to_watts(raw if ok.all() else np.where(ok, raw, 0.0), c, v),
        raw=raw,
        ok=ok,
        overload=overload,
        period_s=period,
        tau_s=rail.filter_tau_s,
        burden_per_w=c.burden_ohm / c.supply_v**2 if c.unit == "A" and c.supply_v else 0.0,
        counter=counter,
        step_j=(rail.resolution or 0.0) if counter else 0.0,
        supply=supply,
        floor=floor,
    )


def numbers(values: Floats) -> Bools:
    """Return which readings are numbers that an instrument can mean; shape (n,)."""
    return np.asarray(np.abs(values) <= PLAUSIBLE)


def _rate_of(trace: Trace, ok: Bools, length_s: Floats) -> Floats:
    """Mean rate of a counter between its readings, shape (n - 1,)."""
    held = trace.value[ok]
    if len(held) > 1 and float(np.max(-np.diff(held))) > 0.5 * float(np.ptp(held)) > 0.0:
        raise DataError(
            f"the counter of rail {trace.rail.name} falls back: it wrapped or was reset",
            field="value",
            value=trace.rail.name,
            remedy="Unwrap it before it is written, or record it as means",
        )
    rise = np.diff(np.where(ok, trace.value, 0.0))
    return np.asarray(rise / np.where(length_s > 0, length_s, np.inf))


def _check_order(rail: str, start_s: Floats) -> None:
    if len(start_s) > 1 and np.any(np.diff(start_s) <= 0):
        raise DataError(
            f"the readings of rail {rail} do not move forward in time",
            field="start_tick",
            value=rail,
            remedy="Check the trace for wrapped or repeated time stamps",
        )
