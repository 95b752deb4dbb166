"""The spans and idle windows of a recording that count in figures, in seconds of one axis; spans of warm-up do not."""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.timebase import Timebase
from rig.analysis.warmup import counted_replies, is_warmup
from rig.errors import DataError
from rig.recording.columns.buffers import array_of, kept, valid, without_null
from rig.recording.events import Start
from rig.recording.reader import Run
from rig.types import MARK_PHASE, Bools, Floats

LEARNING = "learning"
"""The phase in which a device learns; one execution learns one class."""
OVERLAP_S = 1e-9
"""An overlap of two successive spans below this time counts as rounding of ticks to seconds."""


class Phase(Struct, frozen=True):
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


class Activity(Struct, frozen=True):
    """The device's activity, in run seconds: spans by the device's clock, idle windows by the host's clock."""

    phases: Mapping[str, Phase]
    """The windows in which each phase ran; a window has all inferences of the spans that it joins."""
    spans: Mapping[str, Phase]
    """The spans of each phase, each with its own inferences. Samples of a batch share one span, which has all their
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
    inferences: int = 0
    """The inferences of all issues; an issue may lack phases, as in a cascade.

    If phases were issued one at a time, these are the inferences of the phase that has most of them.
    """

    @property
    def overlaps(self) -> bool:
        """Return whether spans of different samples overlap, as on two cores, so that a window holds several."""
        return any(len(p.windows_s) > len(self.phases[name].windows_s) for name, p in self.spans.items())

    def excluded_s(self) -> Floats:
        """Return the windows of warm-up, marks and work without spans: the device was busy, but nothing is counted."""
        return np.concatenate([self.warmup_s, self.marks_s, self.outside_s])

    def other_s(self, name: str) -> Floats:
        """Return the windows of all activity except the phase ``name``, unsorted, shape (k, 2)."""
        return np.concatenate([self.excluded_s(), *(p.windows_s for n, p in self.phases.items() if n != name)])

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


def activity_of(run: Run, device: Timebase) -> Activity:
    """Return the spans and idle windows of a run.

    Raises ``DataError`` for a span that ends before it begins.
    """
    table = kept(run.replies, valid(run.replies["phase"]) & valid(run.replies["on_tick"]))
    phase, issue, on, off = (array_of(table[c]) for c in ("phase", "issue", "on_tick", "off_tick"))
    warm = is_warmup(table)
    windows = np.column_stack([device.seconds(on), device.seconds(off)])
    if np.any(backward := windows[:, 1] < windows[:, 0]):
        tick, remedy = int(off[np.argmax(backward)]), "Check the device's timer for wrap-around"
        raise DataError("a span ends before it begins", field="off_tick", value=tick, remedy=remedy)
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
    counted = ~warm & (phase != MARK_PHASE)
    of, at = np.unique(issue[counted], return_inverse=True)
    held = [np.bincount(at, (each * times * (phase == name))[counted], len(of)) for name in phases]
    return Activity(
        phases=phases,
        spans=spans,
        warmup_s=windows[warm],
        marks_s=np.column_stack([device.seconds(marked[:, 0]), device.seconds(marked[:, 1])]),
        idle_s=(run.idle_windows_ns() - t0_ns) * 1e-9,
        per_phase=(alone := one_at_a_time(run)),
        step_s=device.step_s,
        unlooped=(run.start.scenario.repeat or 1) > 1 and all(np.all(p.executions == 1) for p in phases.values()),
        inferences=int(np.max(np.sum(held, axis=1)) if alone else np.sum(np.max(held, axis=0))) if held else 0,
    )


def one_at_a_time(run: Run) -> bool:
    """Return whether several phases were issued one at a time.

    They were not if an issue has two phases, or if each sample chose one phase, as with a small and a large network for
    easy and hard samples. With a phase ``learning``, phases always count as issued one at a time.
    """
    rows = without_null(counted_replies(run, "phase", "issue", "sample_id"))
    phase, issue, sample = map(array_of, rows.columns)
    phases = [name for name in dict.fromkeys(phase.tolist()) if name != MARK_PHASE]
    if len(phases) < 2 or LEARNING in phases:
        return len(phases) > 1
    issues = [np.unique(issue[phase == name]) for name in phases]
    alone = sum(map(len, issues)) == len(np.unique(np.concatenate(issues)))
    if not alone or run.start.scenario.per_phase or run.start.imported is not None:
        return alone
    samples = [sorted(sample[phase == name]) for name in phases]
    return all(own == samples[0] for own in samples)


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
