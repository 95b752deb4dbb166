"""What an importer yields, and the rules that it must meet before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rig.errors import DataError
from rig.recording.lines import LIMIT
from rig.types import Bracket, Chunk, ClockInfo, DeviceInfo, Indices, MeterInfo, Rail

PLAUSIBLE = 1e12
"""W, A or J. What exceeds it is a mistaken unit or a damaged file."""
MAX_COUNT = 2**31 - 1
CRYSTAL = 1e-4
"""Relative; how far the rate of an instrument's own oscillator may be off where nobody states it."""


@dataclass(frozen=True)
class ImportedTrace:
    """Readings of one rail of one of the run's meters, in chunks, in order.

    Without ticks in the chunks, the readings are a uniform grid from ``t0_tick`` on at the rail's ``rate_hz``.
    """

    rail: str
    chunks: Iterable[Chunk]
    t0_tick: int = 0


@dataclass(frozen=True)
class ImportedSpan:
    """One window of activity, in ticks of the device's clock (host ns without one).

    It stands for ``executions`` runs of a sample of ``inferences`` inferences. ``warmup`` enters no figure.
    """

    phase: str
    on_tick: int
    off_tick: int
    executions: int = 1
    inferences: int = 1
    sample_id: str | None = None
    warmup: bool = False


@dataclass(frozen=True)
class ImportedRun:
    """One recording. Host time is whatever axis its files share, in ns; ``t0_ns`` is the run's zero on it.

    ``brackets`` place every other clock on it, by name; how wide they are is how far the placing is doubted.
    ``idle_ns`` are the declared idle windows, host time. ``peers`` are the run's ``peer`` lines, from which
    ``reference_methods`` computes
    the figures of the program that made the recording. ``originals`` are the files, by the
    name they are kept under. ``notes`` are sentences on what the files lacked; they go into the run.
    """

    name: str
    device: DeviceInfo
    meters: tuple[MeterInfo, ...]
    traces: tuple[ImportedTrace, ...]
    spans: tuple[ImportedSpan, ...]
    brackets: Mapping[str, tuple[Bracket, ...]]
    originals: Mapping[str, Path]
    idle_ns: tuple[tuple[int, int], ...] = ()
    t0_ns: int = 0
    task: str = ""
    peers: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def clocks(self) -> dict[str, ClockInfo]:
        """Every clock by name, the host's among them."""
        own = [self.device.clock] if self.device.clock else []
        return {c.name: c for c in (ClockInfo("host", 1e9, 0.0), *own, *(m.clock for m in self.meters))}

    def placing(self, clock: str) -> Callable[[int], int]:
        """The map from a clock's ticks to host ns, by its first bracket and nominal rate."""
        if clock == "host":
            return int
        bracket = self.brackets[clock][0]
        middle, hz = (bracket.before_ns + bracket.after_ns) // 2, self.clocks()[clock].tick_hz
        return lambda tick: middle + round((tick - bracket.tick) * (1e9 / hz))

    def rail(self, name: str) -> tuple[MeterInfo, Rail]:
        """A rail and the meter that saw it."""
        return next((meter, rail) for meter in self.meters for rail in meter.rails if rail.name == name)

    @property
    def span_clock(self) -> str:
        """The name of the clock that stamped the windows."""
        return self.device.clock.name if self.device.clock else "host"


def check_windows(run: ImportedRun) -> None:
    """Refuse windows that no run directory can hold. Raises ``DataError``."""
    for span in run.spans:
        if not (abs(span.on_tick) < LIMIT and abs(span.off_tick) < LIMIT):
            raise wild("windows", "a window lies at tick", max(span.on_tick, span.off_tick, key=abs))
        if span.off_tick < span.on_tick:
            raise DataError(
                f"a window ends {span.on_tick - span.off_tick} ticks before it begins",
                field="windows",
                value=span.off_tick,
                remedy="Check the stamps of its begin and end",
            )
        if not (1 <= span.executions <= MAX_COUNT and 1 <= span.inferences <= MAX_COUNT):
            raise wild("inferences", "a window's count of inferences is", span.executions * span.inferences)
    for on, off in run.idle_ns:
        if not -LIMIT < on <= off < LIMIT:
            raise wild("idle", "an idle window runs from and to", (on, off))
    _check_idle(run)


def _check_idle(run: ImportedRun) -> None:
    """Refuse idle windows in which the device was at work, but for one tick in which its stamps are rounded."""
    if not run.spans or not run.idle_ns:
        return
    place, tick_ns = run.placing(run.span_clock), 1e9 / run.clocks()[run.span_clock].tick_hz
    spans = np.array([(place(s.on_tick), place(s.off_tick)) for s in run.spans], dtype=np.float64)
    for on, off in run.idle_ns:
        within = np.flatnonzero((spans[:, 0] < off - tick_ns) & (spans[:, 1] > on + tick_ns))
        if len(within):
            k = int(within[0])
            begin, end = spans[k] * 1e-9
            name = run.spans[k].sample_id or f"window {k + 1}"
            raise DataError(
                f"the idle window from {on * 1e-9:.9g} s to {off * 1e-9:.9g} s overlaps "
                f"{name}, {run.spans[k].phase} from {begin:.9g} s to {end:.9g} s",
                field="idle",
                value=f"{on * 1e-9:.9g}:{off * 1e-9:.9g}",
                remedy=f"Declare as idle only what lies between or beside windows; in this one: {len(within)}",
            )


def idle_within(run: ImportedRun, extents: Mapping[str, tuple[int, int]]) -> tuple[list[tuple[int, int]], list[str]]:
    """The idle windows as far as the traces reach, host ns, and a note for each that was cut.

    ``extents`` holds the first and the last tick of each rail. Raises ``DataError`` for one that lies outside.
    """
    placed = [(run.placing(run.rail(rail)[0].clock.name), ends) for rail, ends in extents.items()]
    if not placed:
        return list(run.idle_ns), []
    first, last = min(place(a) for place, (a, _) in placed), max(place(b) for place, (_, b) in placed)
    kept, notes = [], []
    for on, off in run.idle_ns:
        a, b = max(on, first), min(off, last)
        window = f"from {on * 1e-9:.9g} s to {off * 1e-9:.9g} s"
        if a > b:
            raise DataError(
                f"the idle window {window} lies outside the trace, which runs from {first * 1e-9:.9g} s to "
                f"{last * 1e-9:.9g} s",
                field="idle",
                value=f"{on * 1e-9:.9g}:{off * 1e-9:.9g}",
                remedy="Check its unit of time, and that it belongs to this trace",
            )
        kept.append((a, b))
        if (b - a) < 0.999 * (off - on):
            notes.append(f"The idle window {window} was cut to the trace: from {a * 1e-9:.9g} s to {b * 1e-9:.9g} s")
    return kept, notes


def checked(trace: ImportedTrace, rail: Rail) -> Iterator[Chunk]:
    """The chunks that hold anything. Raises ``DataError`` for readings and stamps that no run can hold."""
    before: int | None = None
    for chunk in trace.chunks:
        if not len(chunk.value):
            continue
        with np.errstate(all="ignore"):
            worst = np.flatnonzero(np.isfinite(chunk.value) & (np.abs(chunk.value) > PLAUSIBLE))
        if len(worst):
            raise wild("value", f"a reading of rail {rail.name} is", float(chunk.value[worst[0]]))
        if chunk.start_tick is not None and chunk.end_tick is not None:
            _check_ticks(rail.name, chunk.start_tick, chunk.end_tick, before)
            before = int(chunk.start_tick[-1])
        elif rail.rate_hz <= 0:
            raise DataError(
                f"rail {rail.name} has neither stamps nor a rate", field="rate_hz", remedy="State its sampling rate"
            )
        yield chunk


def _check_ticks(rail: str, start: Indices, end: Indices, before: int | None) -> None:
    farthest = max(int(start.max()), int(end.max()), -int(start.min()), -int(end.min()))
    if farthest >= LIMIT:
        raise wild("time", f"a time stamp of rail {rail} is", farthest)
    back = np.flatnonzero(np.diff(start) <= 0)
    if len(back) or (before is not None and start[0] <= before):
        row = int(back[0]) + 1 if len(back) else 0
        raise DataError(
            f"the readings of rail {rail} do not move forward in time: reading {row + 1} is at tick {start[row]}",
            field="time",
            value=int(start[row]),
            remedy="Remove repeated and backward stamps, or import the stretches one by one",
        )
    if np.any(end < start):
        raise DataError(
            f"a reading of rail {rail} ends before it begins", field="time", remedy="Check the stamps of the trace"
        )


def check_overlap(run: ImportedRun, extents: Mapping[str, tuple[int, int]]) -> list[str]:
    """Refuse windows that all lie outside a trace: a mistaken unit, zone or file. Raises ``DataError``.

    ``extents`` holds the first and the last tick of each rail. Gives a note where some lie outside.
    """
    notes = []
    device = run.placing(run.span_clock)
    spans = [(device(s.on_tick), device(s.off_tick)) for s in run.spans]
    for rail, (first, last) in extents.items():
        place = run.placing(run.rail(rail)[0].clock.name)
        begin, end = place(first), place(last)
        if spans and not any(on < end and off > begin for on, off in spans):
            raise DataError(
                f"no window overlaps the trace of rail {rail}, which runs from {begin * 1e-9:.9g} s "
                f"to {end * 1e-9:.9g} s; the first window begins at {spans[0][0] * 1e-9:.9g} s",
                field="windows",
                value=spans[0][0],
                remedy="Check their unit of time and their zone, and that they belong to this trace",
            )
        if outside := sum(on < begin or off > end for on, off in spans):
            notes.append(f"Rail {rail}: {outside} of {len(spans)} windows lie outside the trace, in part or wholly")
    return notes


def wild(field_: str, what: str, value: object) -> DataError:
    """The error for a number that cannot be meant."""
    return DataError(
        f"{what} {value}, which cannot be",
        field=field_,
        value=str(value),
        remedy="Check units and the file; it may be damaged",
    )
