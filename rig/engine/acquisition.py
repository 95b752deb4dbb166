"""A bench under recording: its meters drained, its clocks read, its faults translated, once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from rig.errors import DeviceError, MeterError, MeterSilentError, RigError
from rig.recording.conversion import to_watts
from rig.recording.writer import Recorder
from rig.types import Bracket, Chunk, Clock, Clocked, Device, DeviceInfo, Meter, MeterInfo

BRACKET_EVERY_NS = 5_000_000_000
DRAIN_EVERY_NS = 250_000_000
SILENT_S = 5.0
SILENT_AT_STOP_S = 1.0
SILENT_READINGS = 20

T = TypeVar("T")
Progress = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class Bench:
    """What is opened: one device, its meters, the clock they live by."""

    device: Device
    meters: tuple[Meter, ...]
    clock: Clock


@dataclass(slots=True)
class Watch:
    """A bench and its recorder, with what must be remembered between steps."""

    bench: Bench
    recorder: Recorder
    device: DeviceInfo
    progress: Progress | None = None
    infos: dict[int, MeterInfo] = field(default_factory=dict)
    last_reading_ns: dict[tuple[int, str], int] = field(default_factory=dict)
    started: list[Meter] = field(default_factory=list)
    last_bracket_ns: int = 0
    last_drain_ns: int = 0
    next_work_ns: int = 0
    """When something is to be done between spans: a drain, or a look at the clocks."""
    issues: int = 0
    aside: int = 0
    """Issues that are warm-up, were dropped, or wait for their answer."""
    watts: dict[str, float] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Samples answered that count."""
        return self.issues - self.aside


def start_meter(meter: Meter, w: Watch) -> None:
    """Trigger a meter and declare its rails in the recording."""
    info = meter.info()
    key = id(meter)
    w.infos[key] = info
    bracket = guard(meter.start, MeterError, f"meter {info.name} failed to start")
    w.started.append(meter)
    w.last_reading_ns |= {(key, rail.name): w.bench.clock.now_ns() for rail in info.rails}
    w.recorder.brackets(info.clock.name, [bracket], "trigger")
    for rail in info.rails:
        w.recorder.open_trace(info, rail, bracket.tick)
        if rail.kind == "edges":  # a pin that never moves is a trace too
            none = np.zeros(0, np.int64)
            w.recorder.chunk(_edges(Chunk(rail.name, none, none, none)), w.bench.clock.now_ns())


def sleep(w: Watch, seconds: float) -> None:
    """Pass time in slices, draining the meters."""
    until_ns = w.bench.clock.now_ns() + round(seconds * 1e9)
    while (now_ns := w.bench.clock.now_ns()) < until_ns:
        w.bench.clock.sleep_until(min(until_ns, now_ns + DRAIN_EVERY_NS))
        between(w)


def between(w: Watch, force: bool = False) -> None:
    """Between spans: drain, write, and read the clocks now and then."""
    now_ns = w.bench.clock.now_ns()
    if force or now_ns - w.last_drain_ns >= DRAIN_EVERY_NS:
        drain(w)
        w.recorder.flush()
        if w.progress is not None:
            w.progress(w.done, w.watts)
    if now_ns - w.last_bracket_ns >= BRACKET_EVERY_NS:
        read_clocks(w, 2, "periodic")
    w.next_work_ns = min(w.last_drain_ns + DRAIN_EVERY_NS, w.last_bracket_ns + BRACKET_EVERY_NS)


def drain(w: Watch) -> None:
    """Take what every meter has ready. Raises ``MeterSilentError`` for a rail that says nothing."""
    for meter in w.bench.meters:
        info = w.infos[id(meter)]
        chunks = guard(partial(_taken, meter.read, info), MeterError, f"meter {info.name} failed while it was read")
        now_ns = w.bench.clock.now_ns()
        for chunk in chunks:
            w.recorder.chunk(chunk, now_ns)
            if len(chunk.value):
                w.last_reading_ns[id(meter), chunk.rail] = now_ns
                if chunk.rail not in _inputs(info):
                    w.watts[chunk.rail] = _live_w(info, chunk)
        _check_silence(meter, now_ns, SILENT_S, w)
    w.last_drain_ns = w.bench.clock.now_ns()


def _taken(take: Callable[[], Sequence[Chunk]], info: MeterInfo) -> list[Chunk]:
    chunks = list(take())
    for chunk in chunks:
        if not isinstance(chunk, Chunk):
            raise TypeError(f"it gave a {type(chunk).__name__}, not a Chunk")
        if not isinstance(chunk.value, np.ndarray):
            raise TypeError(f"Chunk.value is a {type(chunk.value).__name__}, not an array")
    inputs = _inputs(info)
    return [_edges(chunk) if chunk.rail in inputs else chunk for chunk in chunks]


def _inputs(info: MeterInfo) -> set[str]:
    """The rails that are logic inputs."""
    return {rail.name for rail in info.rails if rail.kind == "edges"}


def _edges(chunk: Chunk) -> Chunk:
    """Edges in the types that a trace of them has, whatever the driver gave. Raises ``TypeError`` for what is none."""
    if chunk.start_tick is None or chunk.end_tick is None:
        raise TypeError(f"edges of {chunk.rail} came without their ticks")
    if np.any((chunk.value != 0) & (chunk.value != 1)):
        raise TypeError(f"an edge of {chunk.rail} has a level that is neither 0 nor 1")
    ticks = (np.asarray(chunk.start_tick, np.int64), np.asarray(chunk.end_tick, np.int64))
    return Chunk(chunk.rail, np.asarray(chunk.value, np.uint8), *ticks)


def _check_silence(meter: Meter, now_ns: int, at_least_s: float, w: Watch) -> None:
    info = w.infos[id(meter)]
    for rail in info.rails:
        if rail.kind == "edges":
            continue
        silent_s = (now_ns - w.last_reading_ns[id(meter), rail.name]) * 1e-9
        if silent_s > max(at_least_s, SILENT_READINGS / rail.rate_hz if rail.rate_hz > 0 else 0.0):
            raise MeterSilentError(
                f"meter {info.name} gave no reading of rail {rail.name} for {silent_s:.1f} s",
                field="meter",
                value=info.name,
                remedy="Check its trigger and cable; the recording up to here is kept (`rig report`)",
            )


def patience_s(w: Watch) -> float:
    """How long meters may go undrained while the device is busy: half of the smallest buffer."""
    buffers = [info.buffer_s for info in w.infos.values() if info.buffer_s]
    return max(min([2.0, *(0.5 * b for b in buffers)]), 1e-3)


def _live_w(info: MeterInfo, chunk: Chunk) -> float:
    """For the person who watches; nan where raw readings are no power by themselves."""
    rail = next((r for r in info.rails if r.name == chunk.rail), None)
    if rail is None or rail.kind == "cumulative" or rail.conversion.unit == "V" or rail.conversion.supply_rail:
        return math.nan
    return float(to_watts(chunk.value, rail.conversion).mean())


def read_clocks(w: Watch, rounds: int, why: str) -> None:
    """Bracket the device's and every meter's clock ``rounds`` times."""
    sources: list[tuple[str, Clocked]] = []
    clock = w.device.clock
    if clock is not None and isinstance(w.bench.device, Clocked):
        sources.append((clock.name, w.bench.device))
    sources += [(w.infos[id(m)].clock.name, m) for m in w.bench.meters if isinstance(m, Clocked)]
    for name, source in sources:
        rows = []
        for _ in range(rounds):
            before_ns = w.bench.clock.now_ns()
            tick = guard(source.timer, DeviceError, f"clock {name} failed to answer")
            rows.append(Bracket(before_ns, tick, w.bench.clock.now_ns()))
        w.recorder.brackets(name, rows, why)
    w.last_bracket_ns = w.bench.clock.now_ns()


def finish(w: Watch, error: RigError | None) -> RigError | None:
    """Stop the meters, keep what they still held, and write the stop line whatever happens."""
    for meter in w.started:
        try:
            for chunk in _taken(meter.stop, w.infos[id(meter)]):
                w.recorder.chunk(chunk, w.bench.clock.now_ns())
                if len(chunk.value):
                    w.last_reading_ns[id(meter), chunk.rail] = w.bench.clock.now_ns()
            _check_silence(meter, w.bench.clock.now_ns(), SILENT_AT_STOP_S, w)
        except MeterSilentError as caught:
            error = error or caught
        except Exception as caught:
            if error is None:
                error = MeterError(
                    f"meter {w.infos[id(meter)].name} failed to stop: {caught!r}",
                    remedy="Its last readings are lost",
                )
    w.recorder.stop(error, issues=w.issues, replies=w.done)
    return error


def guard(call: Callable[[], T], kind: type[RigError], what: str) -> T:
    """Run a driver's call; whatever it throws becomes one of our errors."""
    try:
        return call()
    except RigError:
        raise
    except Exception as error:
        raise kind(
            f"{what}: {type(error).__name__}: {error}",
            value=repr(error),
            remedy="The recording up to here is kept; `rig report` reads it",
        ) from error
