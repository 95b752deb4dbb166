"""Start, drain and stop the meters of a bench, and read every clock."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from rig.engine.device_errors import failed, guard
from rig.engine.watchdog import Watch
from rig.errors import DataError, DeviceError, Ended, Interrupted, MeterError, MeterSilentError, RigError, StoreError
from rig.recording.columns.packing import columns_of
from rig.recording.events import HostGap
from rig.recording.traces.conversion import to_watts
from rig.recording.traces.trace_validation import check_chunk
from rig.recording.validation import check_bracket
from rig.recording.writer import Recorder
from rig.types import Bracket, Chunk, Clock, Clocked, Device, DeviceInfo, Meter, MeterInfo, Rail

BRACKET_EVERY_NS = 5_000_000_000
DRAIN_EVERY_NS = 250_000_000
SILENT_S = 5.0
SILENT_AT_STOP_S = 1.0
SILENT_READINGS = 20
LIVE_READINGS = 10_000
"""The live display averages at most this many readings."""

Progress = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class Bench:
    """One opened device, its meters, and the clock that both use."""

    device: Device
    meters: tuple[Meter, ...]
    clock: Clock


@dataclass(slots=True)
class Acquisition:
    """A bench, its recorder, and the state between two steps."""

    bench: Bench
    recorder: Recorder
    device: DeviceInfo
    progress: Progress | None = None
    watch: Watch = field(default_factory=Watch)
    infos: dict[int, MeterInfo] = field(default_factory=dict)
    last_reading_ns: dict[tuple[int, str], int] = field(default_factory=dict)
    last_bracket: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    started: list[Meter] = field(default_factory=list)
    last_bracket_ns: int = 0
    last_drain_ns: int = 0
    next_work_ns: int = 0
    """Host time (ns) at which meters are drained or clocks are read next, between spans."""
    issues: int = 0
    uncounted: int = 0
    """Issued samples that do not count: warm-up, dropped, or without a reply yet."""
    live_w: dict[str, float] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Return the number of completed samples that count."""
        return self.issues - self.uncounted


def start(acquisition: Acquisition) -> None:
    """Start each meter, record the bracket of its first tick, and declare its rails in the recording."""
    for meter in acquisition.bench.meters:
        info = acquisition.infos[id(meter)] = meter.info()
        name = f"start() of meter {info.name}"
        bracket = acquisition.watch.guard(meter.start, MeterError, f"meter {info.name} failed to start", name)
        acquisition.started.append(meter)
        acquisition.last_reading_ns |= {(id(meter), rail.name): acquisition.bench.clock.now_ns() for rail in info.rails}
        _record_brackets(acquisition, info.clock.name, [bracket], "trigger", MeterError)
        for rail in info.rails:
            acquisition.recorder.open_trace(info, rail, bracket.tick, partial(_check_usable, info.name, rail))
            if rail.kind == "edges":  # a pin that never changes still gets a trace
                none = np.zeros(0, np.int64)
                _record_chunks([_edges(Chunk(rail.name, none, none, none))], meter, acquisition)


def sleep(acquisition: Acquisition, seconds: float) -> None:
    """Wait for ``seconds``; meanwhile drain the meters and read the clocks when due."""
    until_ns = acquisition.bench.clock.now_ns() + round(seconds * 1e9)
    while (now_ns := acquisition.bench.clock.now_ns()) < until_ns:
        acquisition.bench.clock.sleep_until(min(until_ns, now_ns + DRAIN_EVERY_NS))
        housekeep(acquisition)


def housekeep(acquisition: Acquisition, force: bool = False) -> None:
    """Drain the meters to disk if due or with ``force``, and read the clocks if due."""
    now_ns = acquisition.bench.clock.now_ns()
    if force or now_ns - acquisition.last_drain_ns >= DRAIN_EVERY_NS:
        drain(acquisition)
        show(acquisition)
    if now_ns - acquisition.last_bracket_ns >= BRACKET_EVERY_NS:
        read_clocks(acquisition, 2, "periodic")
    drain_ns, bracket_ns = acquisition.last_drain_ns + DRAIN_EVERY_NS, acquisition.last_bracket_ns + BRACKET_EVERY_NS
    acquisition.next_work_ns = min(drain_ns, bracket_ns)


def show(acquisition: Acquisition) -> None:
    """Show the progress; a display that fails is not called again, and the run continues."""
    if acquisition.progress is not None:
        try:
            acquisition.progress(acquisition.done, acquisition.live_w)
        except Exception:
            acquisition.progress = None


def drain(acquisition: Acquisition) -> None:
    """Record the readings that every meter has ready, and write all waiting rows, so that none pile up.

    Raises ``MeterSilentError`` for a rail that has given no reading for too long.
    """
    for meter in acquisition.bench.meters:
        info = acquisition.infos[id(meter)]
        take, what = partial(_chunks_of, meter.read, info), f"meter {info.name} failed while it was read"
        chunks = acquisition.watch.guard(take, MeterError, what, f"read() of meter {info.name}")
        _record_chunks(chunks, meter, acquisition)
        _check_silence(meter, SILENT_S, acquisition)
    acquisition.recorder.flush()
    acquisition.last_drain_ns = acquisition.bench.clock.now_ns()


def _chunks_of(take: Callable[[], Iterable[Chunk]], info: MeterInfo) -> list[Chunk]:
    """Copy a driver's chunks, and convert edges to a trace's types. Raises ``TypeError`` if one is no chunk or edge."""
    inputs = _edge_rails(info)
    chunks = map(_copied, take())  # one by one, because a generator may reuse its buffer for the next
    return [_edges(chunk) if chunk.rail in inputs else chunk for chunk in chunks]


def _copied(chunk: Chunk) -> Chunk:
    """Copy the readings, because they are checked and written later and the driver may refill its arrays."""
    if not isinstance(chunk, Chunk):
        raise TypeError(f"it gave a {type(chunk).__name__}, not a Chunk")
    given = columns_of(chunk).items()
    copies: dict[str, Any] = {name: np.array(column) for name, column in given if isinstance(column, np.ndarray)}
    return replace(chunk, **copies)


def _record_chunks(chunks: Sequence[Chunk], meter: Meter, acquisition: Acquisition) -> None:
    """Hand the readings to the recorder, which checks and writes them later. Raises what ``Recorder.chunk`` raises."""
    info, last = acquisition.infos[id(meter)], {chunk.rail: chunk for chunk in chunks if np.size(chunk.value)}
    now_ns = acquisition.bench.clock.now_ns()
    for chunk in chunks:
        acquisition.recorder.chunk(chunk, now_ns)
    for rail, chunk in last.items():
        acquisition.last_reading_ns[id(meter), rail] = now_ns
        if rail not in _edge_rails(info):
            acquisition.live_w[rail] = _mean_w(info, chunk)


def _check_usable(name: str, rail: Rail, chunk: Chunk, last: Chunk | None) -> None:
    """Refuse readings that a reader cannot use; ``last`` is the rail's previous chunk.

    Refused readings end the run. Later readings of the rail are not recorded, because the position of a reading without
    ticks depends on the readings before it. Raises ``MeterError``.
    """
    try:
        check_chunk(rail, chunk, last)
    except (TypeError, ValueError, DataError) as error:
        raise failed(f"meter {name} gave readings that cannot be used", error, MeterError) from error


def _record_brackets(
    acquisition: Acquisition, name: str, brackets: Sequence[Bracket], why: str, kind: type[RigError]
) -> None:
    """Record readings of one clock. Raises ``kind`` for a reading that a reader cannot use."""
    for bracket in brackets:
        check = partial(check_bracket, bracket, acquisition.last_bracket.get(name))
        acquisition.last_bracket[name] = guard(check, kind, f"the clock {name} cannot be used")
    acquisition.recorder.brackets(name, brackets, why)


def _edge_rails(info: MeterInfo) -> set[str]:
    """Return the names of the rails that are logic inputs."""
    return {rail.name for rail in info.rails if rail.kind == "edges"}


def _edges(chunk: Chunk) -> Chunk:
    """Convert the edges of a driver to the types of a trace. Raises ``TypeError`` for values that are not edges."""
    if chunk.start_tick is None or chunk.end_tick is None:
        raise TypeError(f"edges of {chunk.rail} came without their ticks")
    if np.any((chunk.value != 0) & (chunk.value != 1)):
        raise TypeError(f"an edge of {chunk.rail} has a level that is neither 0 nor 1")
    ticks = (np.asarray(chunk.start_tick, np.int64), np.asarray(chunk.end_tick, np.int64))
    return Chunk(chunk.rail, np.asarray(chunk.value, np.uint8), *ticks)


def _check_silence(meter: Meter, at_least_s: float, acquisition: Acquisition) -> None:
    info, now_ns = acquisition.infos[id(meter)], acquisition.bench.clock.now_ns()
    for rail in info.rails:
        if rail.kind == "edges":
            continue
        silent_s = (now_ns - acquisition.last_reading_ns[id(meter), rail.name]) * 1e-9
        if silent_s > max(at_least_s, SILENT_READINGS / rail.rate_hz if rail.rate_hz > 0 else 0.0):
            what = f"meter {info.name} gave no reading of rail {rail.name} for {silent_s:.1f} s"
            remedy = "Check its trigger and cable; the recording up to here is kept (`rig report`)"
            raise MeterSilentError(what, field="meter", value=info.name, remedy=remedy)


def max_undrained_s(acquisition: Acquisition) -> float:
    """Return how long (s) the meters may stay undrained while the device is busy.

    This is half of the time that the smallest buffer can hold, but at least 1 ms and at most 2 s.
    """
    buffers = [info.buffer_s for info in acquisition.infos.values() if info.buffer_s]
    return max(min([2.0, *(0.5 * b for b in buffers)]), 1e-3)


def _mean_w(info: MeterInfo, chunk: Chunk) -> float:
    """Return the mean power at the end of a chunk (W) for the live display; NaN if the chunk alone does not give it."""
    rail = next((r for r in info.rails if r.name == chunk.rail), None)
    if rail is None or rail.kind == "cumulative" or rail.conversion.unit == "V" or rail.conversion.supply_rail:
        return math.nan
    if not isinstance(chunk.value, np.ndarray) or chunk.value.ndim != 1 or chunk.value.dtype.kind not in "iuf":
        return math.nan  # the check of the chunk reports the error
    return float(to_watts(chunk.value[-LIVE_READINGS:], rail.conversion).mean())


def read_clocks(acquisition: Acquisition, rounds: int, why: str) -> None:
    """Read the clocks of the device and of every meter ``rounds`` times, each between two reads of the host clock."""
    sources: list[tuple[str, Clocked, type[RigError]]] = []
    clock, meters = acquisition.device.clock, acquisition.bench.meters
    if clock is not None and isinstance(acquisition.bench.device, Clocked):
        sources.append((clock.name, acquisition.bench.device, DeviceError))
    sources += [(acquisition.infos[id(m)].clock.name, m, MeterError) for m in meters if isinstance(m, Clocked)]
    for name, source, kind in sources:
        rows, noun = [], "meter" if kind is MeterError else "the device"
        for _ in range(rounds):
            before_ns = acquisition.bench.clock.now_ns()
            what, call = f"clock {name} failed to answer", f"timer() of {noun} (clock {name})"
            tick = acquisition.watch.guard(source.timer, kind, what, call)
            rows.append(Bracket(before_ns, tick, acquisition.bench.clock.now_ns()))
        _record_brackets(acquisition, name, rows, why, kind)
    acquisition.last_bracket_ns = acquisition.bench.clock.now_ns()


def finish(acquisition: Acquisition, error: Ended | None) -> Ended | None:
    """Stop the meters, record their last readings, and always write the stop line; return the first error, if any."""
    for meter in acquisition.started:
        info = acquisition.infos[id(meter)]
        take = partial(_chunks_of, meter.stop, info)
        what = f"meter {info.name} failed to stop, and its last readings are lost"
        try:
            chunks = acquisition.watch.guard(take, MeterError, what, f"stop() of meter {info.name}")
            _record_chunks(chunks, meter, acquisition)
            acquisition.recorder.settle()
            _check_silence(meter, SILENT_AT_STOP_S, acquisition)
        except RigError as caught:
            error = error or caught
        except KeyboardInterrupt:
            error = error or Interrupted("interrupted", remedy="What was recorded until now is kept")
    close(acquisition, error)
    return error


def close(acquisition: Acquisition, error: Ended | None) -> None:
    """Record gaps in which the process was stopped, and write the stop line."""
    with suppress(StoreError):  # even a full disk has room for the stop line
        for on_ns, off_ns in acquisition.watch.gaps_ns:
            acquisition.recorder.event(HostGap(on_ns=on_ns, off_ns=off_ns))
    acquisition.recorder.stop(error, issues=acquisition.issues, replies=acquisition.done)
