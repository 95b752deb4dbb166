"""Convert a recording to one axis of seconds: when the device was busy (its spans), and when it was idle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rig.analysis.result.finding import Finding
from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.timebase import CERTAIN, SURE, Timebase, fit_brackets, host_timebase, off_line, quick_reads
from rig.errors import DataError
from rig.recording.columns.buffers import array_of
from rig.recording.events import Start
from rig.recording.reader import Run
from rig.types import MARK_PHASE, Bools, Floats

OVERLAP_S = 1e-9
"""An overlap of two successive spans below this time counts as rounding of ticks to seconds."""


@dataclass(frozen=True)
class Phase:
    """All spans of one phase without warm-up, sorted by begin; a span is the stamped time of one execution or loop.

    ``windows_s`` has shape (k, 2), the other arrays shape (k,).
    """

    windows_s: Floats
    inferences: NDArray[np.int64]
    executions: NDArray[np.int64]
    issue: NDArray[np.int64]
    goes_on_s: float = 0.0
    """The total time for which traces show work right after the ends of spans; it may belong to the spans."""

    @property
    def busy_s(self) -> float:
        """Return the total time in this phase."""
        return float(np.sum(self.windows_s[:, 1] - self.windows_s[:, 0]))

    @property
    def each_s(self) -> Floats:
        """Return the time of each window per inference, shape (k,)."""
        return (self.windows_s[:, 1] - self.windows_s[:, 0]) / self.inferences

    @property
    def looped(self) -> bool:
        """Return whether a span holds several executions."""
        return bool(np.any(self.executions > 1))

    @property
    def n(self) -> int:
        """Return the inferences in all spans: executions times inferences of the sample."""
        return int(self.inferences.sum())


@dataclass(frozen=True)
class Activity:
    """The device's activity, in run seconds: spans by the device's clock, idle windows by the host's clock."""

    phases: Mapping[str, Phase]
    """The windows in which each phase ran, with all inferences of spans that overlap."""
    spans: Mapping[str, Phase]
    """The same by span, each with its own inferences. Samples of a batch share one span, which has all their
    inferences."""
    warmup_s: Floats
    marks_s: Floats
    idle_s: Floats
    per_phase: bool
    """Whether phases were issued one at a time, so that no issue holds a whole inference."""
    step_s: float = 0.0
    """The step of the stamps of spans: either end of a span may be off by one step."""
    outside_s: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    """Times at which a trace shows work that no span covers."""
    unlooped: bool = False
    """Whether the scenario asked for a loop inside one span (``repeat``), but each span holds one execution."""

    @property
    def overlaps(self) -> bool:
        """Return whether spans of different samples overlap, as on two cores, so that windows hold several."""
        return any(len(p.windows_s) > len(self.phases[name].windows_s) for name, p in self.spans.items())

    def excluded_s(self) -> Floats:
        """Return the windows of warm-up, marks and work without spans: the device was busy, but nothing is counted."""
        return np.concatenate([self.warmup_s, self.marks_s, self.outside_s])

    def busy_windows_s(self) -> Floats:
        """Return the windows of all phases, unsorted, shape (k, 2), or their union if phases overlap."""
        every = np.concatenate([p.windows_s for p in self.phases.values()] or [np.zeros((0, 2))])
        if len(self.phases) < 2:
            return every
        union = merged(every)
        overlap_s = float(np.sum(every[:, 1] - every[:, 0]) - np.sum(union[:, 1] - union[:, 0]))
        return union if overlap_s > OVERLAP_S * len(every) else every

    def every_s(self) -> Floats:
        """Return the windows in which the device is active in any way, unsorted, shape (k, 2)."""
        return np.concatenate([*(p.windows_s for p in self.phases.values()), self.excluded_s()])

    def active_s(self) -> Floats:
        """Return the windows of ``every_s``, disjoint and sorted."""
        return merged(self.every_s())


def host_bend(run: Run) -> tuple[float, tuple[str, ...]]:
    """Return by how many seconds the host's clock was corrected in the run, or 0, and the clocks that show it.

    A time service steps the clock of a host, or changes its rate. Two other clocks then deviate from a straight line in
    the same way, when plotted against the host's clock.
    """
    reads = {c.name: quick_reads(c, b, run.start.t0_ns) for c in run.start.clocks if len(b := run.brackets(c.name))}
    bent = {name: rows for name, rows in reads.items() if np.any(off_line(rows))}
    for carrier, rows in bent.items():
        late_s = off_line(rows)
        others = {name: r - [[0.0, 1.0, 0.0]] * np.interp(r[:, 1:2], rows[:, 1], late_s) for name, r in bent.items()}
        alike = tuple(name for name, r in others.items() if name != carrier and not np.any(off_line(r)))
        if alike:
            return float(np.ptp(late_s)), (carrier, *alike)
    return 0.0, ()


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
    arrivals = arrivals_of(run, rail) if rail is not None and len(brackets) == 1 else None
    bend_s = host_bend(run)[0]
    found = fit_brackets(clocks[clock], brackets, t0_ns, arrivals, bend_s)
    off = abs(found.rate - 1.0)
    far = off > 10.0 * clocks[clock].tolerance + CERTAIN * found.rate_sigma  # a wrong declaration
    if far and arrivals is not None:  # another check reports a wrong rate of arrivals, and refuses only power
        return fit_brackets(clocks[clock], brackets, t0_ns, None, bend_s)
    if far:
        raise DataError(
            f"a tick of the clock {clock!r} lasts {found.rate:.6g} of its declared time by the clock of the host",
            field="tick_hz",
            value=clocks[clock].tick_hz,
            remedy="Correct its tick_hz, see that nothing sets it during a run, or declare a wider tolerance",
        )
    if beyond_tolerance(found):  # nothing shows whether this clock or the host's is wrong
        return replace(found, rate_sigma=math.hypot(found.rate_sigma, off / math.sqrt(3.0)))
    return found


def arrivals_of(run: Run, rail: str) -> Floats:
    """Return the end of the last reading of each delivery, in ticks, and when the host received it, in run seconds.

    The shape is (k, 2). If several deliveries have the same time, only the last counts.
    """
    rows, ticks = run.arrivals(rail), run.traces[rail].end_tick
    last = np.append(rows[1:, 1] > rows[:-1, 1], True)[: len(rows)]
    number, at_ns = rows[last & (rows[:, 0] > 0) & (rows[:, 0] <= len(ticks))].T
    return np.column_stack([ticks[number - 1], (at_ns - run.start.t0_ns) * 1e-9])


def beyond_tolerance(found: Timebase) -> bool:
    """Return whether a clock's rate is beyond its declared tolerance."""
    return abs(found.rate - 1.0) > found.clock.tolerance + CERTAIN * found.rate_sigma


def rate_checks(run: Run) -> Iterator[Finding]:
    """Yield a failed check for each clock whose rate, by the host's clock, is beyond its declared tolerance."""
    for name, clock in run.clocks().items():
        brackets = run.brackets(name)
        if brackets and beyond_tolerance(found := fit_brackets(clock, brackets, run.start.t0_ns)):
            rule, off = f"rate of the clock {name} by that of the host", f"off by {1.0 / found.rate - 1.0:+.3g}"
            yield Finding(rule, off, f"within {clock.tolerance:.2g} of its own", False)


def off_line_checks(run: Run, timebase: Timebase) -> tuple[Timebase, tuple[Finding, ...]]:
    """Return the map of the device's clock; if its readings are not on a line, add uncertainty and a failed check.

    Such a clock may stop in sleep, so its rate within spans may be the declared one or the mean rate of its readings.
    If the host's clock was corrected, all clocks deviate alike, and there is no check.
    """
    clock, rows = timebase.clock, timebase.residuals(run.brackets(timebase.clock.name), run.start.t0_ns)
    beyond = np.abs(rows[:, 1]) > rows[:, 2] + SURE * timebase.sigma_s if len(rows) > 2 else np.zeros(0, bool)
    if not np.any(beyond) or host_bend(run)[1]:
        return timebase, ()
    doubt = 4.0 * float(np.ptp(rows[:, 1])) / float(np.ptp(rows[:, 0]))
    rule = f"readings of the clock {clock.name} off a straight line"
    check = Finding(rule, f"{np.max(np.abs(rows[beyond, 1])):.2g} s", "within their round trips", False)
    return replace(timebase, rate_sigma=math.hypot(timebase.rate_sigma, doubt / math.sqrt(3.0))), (check,)


def activity_of(run: Run, device: Timebase) -> Activity:
    """Return the spans and idle windows of a run.

    Raises ``DataError`` for a span that ends before it begins.
    """
    table = run.replies
    table = table.filter(pc.and_(table["phase"].is_valid(), table["on_tick"].is_valid()))
    phase, issue, on, off, warm = (array_of(table[c]) for c in ("phase", "issue", "on_tick", "off_tick", "warmup"))
    windows = np.column_stack([device.seconds(on), device.seconds(off)])
    if np.any(backward := windows[:, 1] < windows[:, 0]):
        raise DataError(
            "a span ends before it begins",
            field="off_tick",
            value=int(off[np.argmax(backward)]),
            remedy="Check the device's timer for wrap-around",
        )
    size = dict(zip(run.samples["id"].to_pylist(), run.samples["inferences"].to_pylist(), strict=True))
    each = np.array([size.get(i) or 1 for i in table["sample_id"].to_pylist()], dtype=np.int64)
    times = np.array([e or 1 for e in table["executions"].to_pylist()], dtype=np.int64)
    phases, spans = dict[str, Phase](), dict[str, Phase]()
    for name in dict.fromkeys(phase[~warm].tolist()):
        use = (phase == name) & ~warm
        if name != MARK_PHASE:
            stamped = Phase(windows[use], (each * times)[use], times[use], issue[use].astype(np.int64))
            phases[name], spans[name] = _joined(stamped, run.start)
    marked = run.marks()
    t0_ns = run.start.t0_ns
    issues = [set(issue[~warm][phase[~warm] == name].tolist()) for name in phases]
    return Activity(
        phases=phases,
        spans=spans,
        warmup_s=windows[warm],
        marks_s=np.column_stack([device.seconds(marked[:, 0]), device.seconds(marked[:, 1])]),
        idle_s=(run.idle_windows_ns() - t0_ns) * 1e-9,
        per_phase=any(i != issues[0] for i in issues),
        step_s=device.step_s,
        unlooped=(run.start.scenario.repeat or 1) > 1 and all(np.all(p.executions == 1) for p in phases.values()),
    )


def _joined(stamped: Phase, start: Start) -> tuple[Phase, Phase]:
    """Return the windows in which a phase ran, and its spans, both sorted and with their inferences.

    Spans that overlap are joined to one window. If a device takes batches, samples with the same span are one batch.
    Other spans stay separate. If the device holds one sample at a time, only spans of the same issue are joined. Stamps
    of successive samples may then overlap by jitter, and joining them would make the mean span too short.
    """
    device, order = start.device, np.lexsort(stamped.windows_s.T[::-1])
    windows_s, issue = stamped.windows_s[order], stamped.issue[order]
    apart = windows_s[1:, 0] >= np.maximum.accumulate(windows_s[:, 1])[:-1] - OVERLAP_S
    if device.holds_one and start.imported is None:
        apart |= np.diff(issue) != 0
    shared = device.holds_one | (device.max_batch > 1) & np.all(np.diff(windows_s, axis=0) == 0.0, axis=1)

    def of(begins: Bools) -> Phase:
        at = np.flatnonzero(np.append(True, begins))
        return Phase(
            np.column_stack([windows_s[at, 0], np.maximum.reduceat(windows_s[:, 1], at)]),
            np.add.reduceat(stamped.inferences[order], at),
            np.maximum.reduceat(stamped.executions[order], at),
            np.minimum.reduceat(issue, at),
        )

    return of(apart), of(apart | ~shared)
