"""``collect``: plays a scenario's steps to a device while meters watch. Records; computes nothing.

Between spans is the time to write, drain and read clocks. Inside a span only the device's answer is
awaited, except that a meter whose buffer would overflow is drained.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from rig.convert import to_watts
from rig.errors import (
    DeviceError,
    DeviceTimeoutError,
    Interrupted,
    MeterError,
    MeterSilentError,
    RigError,
    SetupError,
)
from rig.store import Recorder
from rig.types import (
    MARK_PHASE,
    Bracket,
    Chunk,
    Clock,
    Clocked,
    Device,
    Idle,
    Issue,
    Mark,
    Marks,
    Meter,
    MeterInfo,
    Rail,
    Repeats,
    Reply,
    Sample,
    Step,
)

BRACKETS_PER_MARK = 16
BRACKET_EVERY_NS = 5_000_000_000
DRAIN_EVERY_NS = 250_000_000
SILENT_S = 5.0
SILENT_READINGS = 20
PULSES = 12
NOMINAL_CHIP_S = 2e-3

T = TypeVar("T")
Progress = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class Bench:
    """What is opened: one device, its meters, the clock they live by."""

    device: Device
    meters: tuple[Meter, ...]
    clock: Clock


@dataclass
class _State:
    """What the engine must remember between steps."""

    infos: dict[int, MeterInfo] = field(default_factory=dict)
    last_reading_ns: dict[int, int] = field(default_factory=dict)
    started: list[Meter] = field(default_factory=list)
    last_bracket_ns: int = 0
    last_drain_ns: int = 0
    first_issue_ns: int | None = None
    issues: int = 0
    done: int = 0
    watts: dict[str, float] = field(default_factory=dict)


def collect(steps: Iterable[Step], bench: Bench, recorder: Recorder, progress: Progress | None = None) -> None:
    """Play ``steps`` to the end, or to the first error; the stop line is written either way.

    Raises a ``RigError``: what a device or meter throws is translated here, once.
    """
    state = _State()
    error: RigError | None = None
    try:
        for meter in bench.meters:
            _start_meter(meter, bench, recorder, state)
        for step in steps:
            if isinstance(step, Mark):
                _mark(bench, recorder, state)
            elif isinstance(step, Idle):
                _idle(step, bench, recorder, state)
            else:
                _issue(step, bench, recorder, state)
            if progress is not None:
                progress(state.done, state.watts)
    except KeyboardInterrupt:
        error = Interrupted("interrupted", remedy="What was recorded until now is kept; `rig report` reads it")
    except RigError as caught:
        error = caught
    except Exception as caught:
        error = SetupError(
            f"the scenario failed: {caught!r}", remedy="This is a defect of the scenario or its workload"
        )
        error.__cause__ = caught
    finally:
        error = _finish(bench, recorder, state, error)
    if error is not None:
        raise error


def _start_meter(meter: Meter, bench: Bench, recorder: Recorder, state: _State) -> None:
    info = meter.info()
    key = id(meter)
    state.infos[key] = info
    bracket = _guard(meter.start, MeterError, f"meter {info.name} failed to start")
    state.started.append(meter)
    state.last_reading_ns[key] = bench.clock.now_ns()
    recorder.brackets(info.clock.name, [bracket], "trigger")
    for rail in info.rails:
        recorder.open_trace(info, rail, bracket.tick)


def _mark(bench: Bench, recorder: Recorder, state: _State) -> None:
    _brackets(bench, recorder, state, BRACKETS_PER_MARK, "mark")
    if bench.meters and isinstance(bench.device, Marks):
        _pulses(bench.device, bench, recorder, state)
    _between(bench, recorder, state, force=True)


def _pulses(device: Marks, bench: Bench, recorder: Recorder, state: _State) -> None:
    """A pseudo-random train of pulses, wide enough for the slowest rail to resolve."""
    chip_s = max([NOMINAL_CHIP_S, *(_chip_s(rail) for info in state.infos.values() for rail in info.rails)])
    order = random.Random(127)
    spans = []
    for _ in range(PULSES):
        width_s = chip_s * order.randint(1, 3)
        span = _guard(partial(device.pulse, width_s), DeviceError, "the device failed to pulse")
        spans.append([span.on_tick, span.off_tick])
        _sleep(bench, recorder, state, chip_s * order.randint(1, 3))
    info = bench.device.info()
    recorder.event("marks", clock=info.clock.name if info.clock else "host", phase=MARK_PHASE, spans=spans)


def _chip_s(rail: Rail) -> float:
    period_s = 1.0 / rail.rate_hz if rail.rate_hz > 0 else 0.0
    return 2.0 * period_s + 5.0 * rail.filter_tau_s


def _idle(step: Idle, bench: Bench, recorder: Recorder, state: _State) -> None:
    if not (step.seconds >= 0 and math.isfinite(step.seconds)):
        raise SetupError(
            f"an idle window of {step.seconds} s", field="seconds", value=step.seconds, remedy="Give a positive number"
        )
    _between(bench, recorder, state, force=True)
    on_ns = bench.clock.now_ns()
    _sleep(bench, recorder, state, step.seconds)
    recorder.event("idle", on_ns=on_ns, off_ns=bench.clock.now_ns())


def _sleep(bench: Bench, recorder: Recorder, state: _State, seconds: float) -> None:
    """Pass time in slices, draining the meters."""
    until_ns = bench.clock.now_ns() + round(seconds * 1e9)
    while (now_ns := bench.clock.now_ns()) < until_ns:
        bench.clock.sleep_until(min(until_ns, now_ns + DRAIN_EVERY_NS))
        _between(bench, recorder, state)


def _issue(step: Issue, bench: Bench, recorder: Recorder, state: _State) -> None:
    info = bench.device.info()
    send, rounds = _sender(step, bench.device)
    if state.first_issue_ns is None:
        state.first_issue_ns = bench.clock.now_ns()
    due_ns = None if step.due_ns is None else state.first_issue_ns + step.due_ns
    allowed_s = info.timeout_s * (step.repeat if rounds == 1 else 1)
    for at in range(0, len(step.samples), info.max_batch):
        batch = step.samples[at : at + info.max_batch]
        for sample in batch:
            recorder.sample(sample)
        _guard(partial(bench.device.stage, batch), DeviceError, "the device failed to load samples")
        _between(bench, recorder, state)
        if due_ns is not None:
            _sleep(bench, recorder, state, (due_ns - bench.clock.now_ns()) * 1e-9)
        for _ in range(rounds):
            _exchange(_Exchange(step, batch, due_ns, allowed_s), partial(send, batch), bench, recorder, state)


def _sender(step: Issue, device: Device) -> tuple[Callable[[Sequence[Sample]], None], int]:
    """How to hand a batch over, and how often: once when the device can loop it by itself."""
    if step.repeat == 1 and step.phase is None:
        return lambda batch: device.submit(batch, step.budget), 1
    if isinstance(device, Repeats):
        return lambda batch: device.submit_repeated(batch, step.repeat, step.phase, step.budget), 1
    if step.phase is not None:
        raise SetupError(
            f"device {device.info().name} cannot run the phase {step.phase!r} alone",
            field="phase",
            value=step.phase,
            remedy="Measure the phases together, or implement submit_repeated in its driver",
        )
    return lambda batch: device.submit(batch, step.budget), step.repeat


@dataclass(frozen=True)
class _Exchange:
    step: Issue
    batch: Sequence[Sample]
    due_ns: int | None
    allowed_s: float


def _exchange(x: _Exchange, send: Callable[[], None], bench: Bench, recorder: Recorder, state: _State) -> None:
    """One hand-over: submit, wait for every reply, then write."""
    first = state.issues
    state.issues += len(x.batch)
    waiting = {sample.id: first + k for k, sample in enumerate(x.batch)}
    issued_ns = bench.clock.now_ns()
    try:
        _guard(send, DeviceError, f"the device failed on sample {x.batch[0].id}")
        replies = _await(waiting, issued_ns, x.allowed_s, bench, recorder, state)
    except (RigError, KeyboardInterrupt):
        for sample_id, issue in waiting.items():
            row = (issue, sample_id, None, x.due_ns, issued_ns, None, None, None, None, None, x.step.warmup)
            recorder.reply_row(row)
        raise
    for issue, completed_ns, reply in replies:
        _record(recorder, issue, (x.due_ns, issued_ns, completed_ns), reply, x.step.warmup)
    state.done += 0 if x.step.warmup else len(x.batch)


def _await(
    waiting: dict[str, int], issued_ns: int, allowed_s: float, bench: Bench, recorder: Recorder, state: _State
) -> list[tuple[int, int, Reply]]:
    """Poll until every sample is answered; what arrives is written by the caller, outside the span."""
    clock = bench.clock
    deadline_ns = issued_ns + round(allowed_s * 1e9)
    got: list[tuple[int, int, Reply]] = []
    slice_s = _patience_s(state)
    while waiting:
        left_s = (deadline_ns - clock.now_ns()) * 1e-9
        if left_s <= 0:
            raise DeviceTimeoutError(
                f"device {bench.device.info().name} gave no answer to {next(iter(waiting))} within {allowed_s:g} s",
                field="timeout_s",
                value=allowed_s,
                remedy="Check its power and link; the recording up to here is kept (`rig report`)",
            )
        wait_s = min(left_s, slice_s)
        replies = _guard(partial(bench.device.poll, wait_s), DeviceError, "the device failed while it was polled")
        completed_ns = clock.now_ns()
        for reply in replies:
            issue = waiting.pop(reply.sample_id, None)
            if issue is None:
                raise DeviceError(
                    f"the device answered {reply.sample_id!r}, which was not asked",
                    field="sample_id",
                    value=reply.sample_id,
                    remedy="Its driver must answer each submitted sample once",
                )
            got.append((issue, completed_ns, reply))
        if waiting and (completed_ns - state.last_drain_ns) * 1e-9 >= slice_s:
            _drain(bench, recorder, state)
    return got


def _patience_s(state: _State) -> float:
    """How long meters may go undrained: half of the smallest buffer."""
    buffers = [info.buffer_s for info in state.infos.values() if info.buffer_s]
    return max(min([2.0, *(0.5 * b for b in buffers)]), 1e-3)


def _record(recorder: Recorder, issue: int, times_ns: tuple[int | None, int, int], reply: Reply, warmup: bool) -> None:
    """``times_ns``: due, issued, completed. The output stands in the first row of the reply."""
    output = _guard(partial(json.dumps, reply.output, default=_json), DeviceError, "the output is no JSON")
    head = (issue, reply.sample_id)
    if not reply.spans:
        recorder.reply_row((*head, None, *times_ns, None, None, None, output, warmup))
    for k, s in enumerate(reply.spans):
        said = output if k == 0 else None
        recorder.reply_row((*head, s.phase, *times_ns, s.on_tick, s.off_tick, s.executions, said, warmup))
    if reply.progress:
        recorder.progress(issue, reply.sample_id, reply.progress)


def _json(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a reply's output holds a {type(value).__name__}, which JSON cannot")


def _between(bench: Bench, recorder: Recorder, state: _State, force: bool = False) -> None:
    """Between spans: drain, write, and read the clocks now and then."""
    now_ns = bench.clock.now_ns()
    if force or now_ns - state.last_drain_ns >= DRAIN_EVERY_NS:
        _drain(bench, recorder, state)
        recorder.flush()
    if now_ns - state.last_bracket_ns >= BRACKET_EVERY_NS:
        _brackets(bench, recorder, state, 2, "periodic")


def _drain(bench: Bench, recorder: Recorder, state: _State) -> None:
    for meter in bench.meters:
        info = state.infos[id(meter)]
        chunks = _guard(meter.read, MeterError, f"meter {info.name} failed while it was read")
        now_ns = bench.clock.now_ns()
        for chunk in chunks:
            recorder.chunk(chunk, now_ns)
            if len(chunk.value):
                state.last_reading_ns[id(meter)] = now_ns
                state.watts[chunk.rail] = _live_w(info, chunk)
        silent_s = (now_ns - state.last_reading_ns[id(meter)]) * 1e-9
        slowest = min((r.rate_hz for r in info.rails if r.rate_hz > 0), default=0.0)
        limit_s = max(SILENT_S, SILENT_READINGS / slowest if slowest else 0.0)
        if silent_s > limit_s:
            raise MeterSilentError(
                f"meter {info.name} gave no reading for {silent_s:.1f} s",
                field="meter",
                value=info.name,
                remedy="Check its trigger and cable; the recording up to here is kept (`rig report`)",
            )
    state.last_drain_ns = bench.clock.now_ns()


def _live_w(info: MeterInfo, chunk: Chunk) -> float:
    """For the person who watches; nan where raw readings are no power by themselves."""
    rail = next((r for r in info.rails if r.name == chunk.rail), None)
    if rail is None or rail.kind == "cumulative":
        return math.nan
    return float(to_watts(chunk.value, rail.conversion).mean())


def _brackets(bench: Bench, recorder: Recorder, state: _State, rounds: int, why: str) -> None:
    sources: list[tuple[str, Clocked]] = []
    clock = bench.device.info().clock
    if clock is not None and isinstance(bench.device, Clocked):
        sources.append((clock.name, bench.device))
    sources += [(state.infos[id(m)].clock.name, m) for m in bench.meters if isinstance(m, Clocked)]
    for name, source in sources:
        rows = []
        for _ in range(rounds):
            before_ns = bench.clock.now_ns()
            tick = _guard(source.timer, DeviceError, f"clock {name} failed to answer")
            rows.append(Bracket(before_ns, tick, bench.clock.now_ns()))
        recorder.brackets(name, rows, why)
    state.last_bracket_ns = bench.clock.now_ns()


def _guard(call: Callable[[], T], kind: type[RigError], what: str) -> T:
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


def _finish(bench: Bench, recorder: Recorder, state: _State, error: RigError | None) -> RigError | None:
    """Stop the meters, keep what they still held, and write the stop line whatever happens."""
    for meter in state.started:
        try:
            for chunk in meter.stop():
                recorder.chunk(chunk, bench.clock.now_ns())
        except Exception as caught:
            if error is None:
                error = MeterError(
                    f"meter {state.infos[id(meter)].name} failed to stop: {caught!r}",
                    remedy="Its last readings are lost",
                )
    recorder.stop(None if error is None else error.to_json(), issues=state.issues, replies=state.done)
    return error
