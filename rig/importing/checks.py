"""The rules for an imported recording before it is written, and notes on its windows, readings and gaps."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rig.errors import DataError
from rig.importing.imported import ImportedRun, ImportedTrace
from rig.recording.events import LIMIT
from rig.recording.traces.trace_validation import check_chunk
from rig.types import Chunk, Rail

MAX_COUNT = 2**31 - 1
DATES_NS = 10**17
"""Times above this are dates, counted from 1970: no recording lasts for three years."""
GAP_PERIODS = 1.5
"""If two successive readings are more than this many periods apart, there is a gap."""
Extents = Mapping[str, tuple[int, int]]
"""By rail: begin and end of its readings in host ns."""


def _check_names(run: ImportedRun) -> None:
    """Refuse a clock without a bracket, and a trace of a rail that no meter declares. Raises ``DataError``."""
    clocks = {run.span_clock, *(meter.clock.name for meter in run.meters)} - {"host"}
    rails = {rail.name for meter in run.meters for rail in meter.rails}
    faults = [f"the clock {name!r} has no bracket" for name in sorted(clocks) if not run.brackets.get(name)]
    faults += [f"no meter declares the rail {t.rail!r} of a trace" for t in run.traces if t.rail not in rails]
    if faults:
        raise DataError(f"in the import, {faults[0]}", field="importer", value=run.name, remedy="Correct the importer")


def check_windows(run: ImportedRun) -> None:
    """Refuse windows, and names of clocks and rails, that no run directory can hold. Raises ``DataError``."""
    _check_names(run)
    for span in run.spans:
        if not (abs(span.on_tick) < LIMIT and abs(span.off_tick) < LIMIT):
            raise out_of_range("windows", "a window lies at tick", max(span.on_tick, span.off_tick, key=abs))
        if span.off_tick < span.on_tick:
            what = f"a window ends {span.on_tick - span.off_tick} ticks before it begins"
            raise DataError(what, field="windows", value=span.off_tick, remedy="Check the stamps of its begin and end")
        if not (1 <= span.executions <= MAX_COUNT and 1 <= span.inferences <= MAX_COUNT):
            raise out_of_range("inferences", "the inferences of a window are", span.executions * span.inferences)
    for on, off in run.idle_ns:
        if not -LIMIT < on <= off < LIMIT:
            raise out_of_range("idle", "an idle window has the begin and end", (on, off))
    _check_activity(run)
    _check_idle(run)


def undescribed(run: ImportedRun) -> Iterator[str]:
    """Yield a sentence for a device, and one for meters, without the description that a submission's audit requires."""
    for what, parts in (("device", (run.device,)), ("meter", run.meters)):
        if not all(part.description for part in parts):
            option = f"--option {what}_description=TEXT"
            yield f"The {what} has no description: a submission of this import fails its audit; import with {option}"


def _check_activity(run: ImportedRun) -> None:
    """Refuse windows of activity that overlap by more than one tick: the common time would count as busy only once."""
    spans = sorted(run.spans, key=lambda span: span.on_tick)
    for before, after in pairwise(spans):
        if after.on_tick < before.off_tick - 1 and after.off_tick > after.on_tick:
            host_ns = run.placing(run.span_clock)
            first, second = (
                f"the window of {s.phase} {from_to(host_ns(s.on_tick), host_ns(s.off_tick))}" for s in (before, after)
            )
            remedy = "State each stretch once, and how many inferences it holds"
            raise DataError(f"{second} overlaps {first}", field="windows", value=after.on_tick, remedy=remedy)


def _check_idle(run: ImportedRun) -> None:
    """Refuse idle windows that overlap windows of activity by more than the one tick to which stamps are rounded."""
    if not run.spans or not run.idle_ns:
        return
    host_ns, tick_ns = run.placing(run.span_clock), 1e9 / run.clocks()[run.span_clock].tick_hz
    spans = np.array([(host_ns(s.on_tick), host_ns(s.off_tick)) for s in run.spans], dtype=np.float64)
    for on, off in run.idle_ns:
        within = np.flatnonzero((spans[:, 0] < off - tick_ns) & (spans[:, 1] > on + tick_ns))
        if len(within):
            k = int(within[0])
            begin, end = spans[k]
            name = run.spans[k].sample_id or f"window {k + 1}"
            what = f"overlaps {name}, {run.spans[k].phase} {from_to(begin, end)}"
            remedy = f"Declare as idle only what lies between or beside windows; this one overlaps {len(within)}"
            raise _bad_idle(on, off, what, remedy)


def idle_within(run: ImportedRun, extents: Extents) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the idle windows in host ns, cut to the time of the traces, and notes.

    A window that loses more than a thousandth has a note. Raises ``DataError`` for a window outside the traces.
    """
    if not extents:
        return list(run.idle_ns), []
    first, last = min(begin for begin, _ in extents.values()), max(end for _, end in extents.values())
    idle, notes = [], []
    for on, off in run.idle_ns:
        begin, end = max(on, first), min(off, last)
        if begin > end:
            what = f"lies outside the trace, which runs {from_to(first, last)}"
            raise _bad_idle(on, off, what, "Check its unit of time, and whether it belongs to this trace")
        idle.append((begin, end))
        if (end - begin) < 0.999 * (off - on):
            notes.append(f"The idle window {from_to(on, off)} was cut to the trace: {from_to(begin, end)}")
    return idle, notes


def check_overlap(run: ImportedRun, extents: Extents) -> list[str]:
    """Return a note for each trace with some windows outside. Raises ``DataError`` for a trace with all outside."""
    notes = []
    host_ns = run.placing(run.span_clock)
    spans = [(host_ns(s.on_tick), host_ns(s.off_tick)) for s in run.spans]
    for rail, (begin, end) in extents.items():
        if spans and not any(on < end and off > begin for on, off in spans):
            first = f"the first window begins at {moment(spans[0][0])}"
            what = f"no window overlaps the trace of rail {rail}, which runs {from_to(begin, end)}; {first}"
            remedy = "Check their unit of time and their zone, and whether they belong to this trace"
            if begin >= DATES_NS > spans[0][0]:
                remedy = "The trace counts from 1970: count windows from 1970 too, or state the trace's time as dates"
            raise DataError(what, field="windows", value=spans[0][0], remedy=remedy)
        if outside := sum(on < begin or off > end for on, off in spans):
            notes.append(f"Rail {rail}: {outside} of {len(spans)} windows lie outside the trace, in part or wholly")
    return notes


def checked(trace: ImportedTrace, rail: Rail) -> Iterator[Chunk]:
    """Yield the chunks that are not empty, with each infinite reading flagged as an overload.

    An infinite reading is replaced by the largest magnitude before it, which is a lower bound. Raises ``DataError`` for
    readings and stamps that a run cannot hold.
    """
    last: Chunk | None = None
    largest = 0.0
    for chunk in trace.chunks:
        if not len(chunk.value):
            continue
        if chunk.start_tick is None and rail.rate_hz <= 0:
            what = f"rail {rail.name} has neither stamps nor a rate"
            raise DataError(what, field="rate_hz", value=rail.rate_hz, remedy="State its sampling rate")
        over = np.isinf(chunk.value)
        try:
            bounds = np.fmax.accumulate(np.append(largest, np.where(over, 0.0, np.abs(chunk.value))))[1:]
            value = np.where(over, np.copysign(bounds, chunk.value), chunk.value).astype(chunk.value.dtype)
            flags = np.maximum(over, 0 if chunk.flags is None else chunk.flags).astype(np.uint8)
            marked = replace(chunk, value=value, flags=flags)
            check_chunk(rail, marked, last)
        except (TypeError, ValueError) as error:
            remedy = "Check its units and stamps; it may be damaged, or hold several parts: import each by itself"
            raise DataError(str(error), field="trace", value=rail.name, remedy=remedy) from error
        last, largest = marked, float(bounds[-1])
        yield marked


@dataclass
class Gaps:
    """Counts the readings and the gaps of a trace while it is written; lengths are in ticks of the meter's clock.

    For a counter, it keeps the range of values, and the largest fall with the number and tick of the reading after it.
    """

    rail: Rail
    tick_hz: float
    t0_tick: int = 0
    readings: int = 0
    not_numbers: int = 0
    overloads: int = 0
    gaps: int = 0
    missing: float = 0.0
    longest: float = 0.0
    longest_at: int = 0
    last: int | None = None
    period: float = 0.0
    held: float = np.nan
    range: tuple[float, float] = (np.inf, -np.inf)
    fall: tuple[float, int, int] = (0.0, 0, 0)

    def count(self, chunk: Chunk) -> None:
        """Count the readings of one chunk, and the gaps between them and after the previous chunk."""
        if self.rail.kind == "cumulative":
            self._follow(chunk)
        self.readings += len(chunk.value)
        self.not_numbers += int(np.count_nonzero(~np.isfinite(chunk.value)))
        if chunk.flags is not None:
            self.overloads += int(np.count_nonzero(chunk.flags))
        if chunk.start_tick is None or self.rail.kind == "edges":
            return
        start = chunk.start_tick if self.last is None else np.concatenate([[self.last], chunk.start_tick])
        self.last = int(start[-1])
        steps = np.diff(start)
        if not len(steps):
            return
        if not self.period:
            self.period = self.tick_hz / self.rail.rate_hz if self.rail.rate_hz > 0 else float(np.median(steps))
        wide = np.flatnonzero(steps > GAP_PERIODS * self.period)
        self.gaps += len(wide)
        self.missing += float(np.sum(steps[wide] - self.period))
        if len(wide) and float(steps.max()) - self.period > self.longest:
            self.longest = float(steps.max()) - self.period
            self.longest_at = int(start[int(np.argmax(steps))] + round(self.period))

    def _follow(self, chunk: Chunk) -> None:
        at = np.flatnonzero(np.isfinite(chunk.value))
        values = chunk.value[at]
        falls = -np.diff(values, prepend=self.held)
        if len(values):
            self.range, self.held = (min(self.range[0], values.min()), max(self.range[1], values.max())), values[-1]
        if len(values) and np.fmax.reduce(falls) > self.fall[0]:
            k = int(np.nanargmax(falls))
            number = self.readings + int(at[k]) + 1
            on_grid = self.t0_tick + round(number * self.tick_hz / max(self.rail.rate_hz, 1e-300))
            tick = on_grid if chunk.end_tick is None else int(chunk.end_tick[at[k]])
            self.fall = float(falls[k]), number, tick

    def check_counter(self, host_ns: Callable[[int], int]) -> None:
        """Refuse a counter that falls by more than half its range, as the report does. Raises ``DataError``."""
        fall, number, tick = self.fall
        if fall > 0.5 * max(self.range[1] - self.range[0], 0.0):
            what = f"the counter of rail {self.rail.name} falls by {fall:.6g} J at {moment(host_ns(tick))}"
            remedy = "It wrapped or was reset: unwrap it, or import each part by itself"
            raise DataError(f"{what}, in reading {number}", field="value", value=number, remedy=remedy)

    def notes(self, host_ns: Callable[[int], int]) -> Iterator[str]:
        """Yield a sentence for each defect; ``host_ns`` maps a tick to host time."""
        name, hz = self.rail.name, self.tick_hz
        if self.not_numbers:
            yield f"Rail {name}: {self.not_numbers} of {self.readings} readings are not numbers; they are left out"
        if self.overloads:
            what = f"{self.overloads} of {self.readings} readings are overloads"
            yield f"Rail {name}: {what}; infinite ones were replaced by the largest value before them, a lower bound"
        if self.gaps:
            gaps = "gap" if self.gaps == 1 else "gaps"
            what = f"{self.gaps} {gaps} longer than {GAP_PERIODS:g} periods of {self.period / hz:.3g} s"
            longest = f"the longest, {self.longest / hz:.3g} s, begins at {moment(host_ns(self.longest_at))}"
            yield f"Rail {name}: {what}, {self.missing / hz:.3g} s in all; {longest}"


def _bad_idle(on: int, off: int, what: str, remedy: str) -> DataError:
    value = f"{on * 1e-9:.9g}:{off * 1e-9:.9g}"
    return DataError(f"the idle window {from_to(on, off)} {what}", field="idle", value=value, remedy=remedy)


def from_to(begin_ns: float, end_ns: float) -> str:
    """Return ``from 1 s to 2 s``: the words for a stretch of host time."""
    return f"from {moment(begin_ns)} to {moment(end_ns)}"


def moment(ns: float) -> str:
    """Return a host time as a date in UTC, or else in seconds."""
    if ns < DATES_NS:
        return f"{ns * 1e-9:.9g} s"
    return str(np.datetime_as_string(np.datetime64(round(ns), "ns"), unit="ms", timezone="UTC"))


def out_of_range(field: str, what: str, value: object) -> DataError:
    """Return the error for a number that a recording cannot hold."""
    remedy = "Check units and the file; it may be damaged"
    return DataError(f"{what} {value}, which is out of range", field=field, value=str(value), remedy=remedy)
