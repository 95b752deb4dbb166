"""``collect``: plays a scenario's steps to a device while meters watch. Records; computes nothing.

Between spans is the time to write, drain and read clocks. Inside a span only the device's answer is
awaited, except that a meter whose buffer would overflow is drained.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rig.errors import DeviceError, DeviceTimeoutError, Interrupted, RigError, SetupError
from rig.store import Recorder
from rig.types import MARK_PHASE, Device, Idle, Inspects, Issue, Mark, Marks, Rail, Repeats, Reply, Sample, Span, Step
from rig.watch import Bench, Watch, between, drain, finish, guard, patience_s, read_clocks, sleep, start_meter

BRACKETS_PER_MARK = 16
PULSES = 12
AHEAD_NS = 250_000_000
"""Before an issue is due, within which no clock is read and no meter drained."""
NOMINAL_CHIP_S = 2e-3

Answer = tuple[int, int, Reply]
"""Issue, host time of completion, reply."""
Progress = Callable[[int, dict[str, float]], None]


def collect(steps: Iterable[Step], bench: Bench, recorder: Recorder, progress: Progress | None = None) -> None:
    """Play ``steps`` to the end, or to the first error; the stop line is written either way.

    Raises a ``RigError``: what a device or meter throws is translated here, once.
    """
    w = Watch(bench, recorder)
    error: RigError | None = None
    try:
        for meter in w.bench.meters:
            start_meter(meter, w)
        for step in steps:
            if isinstance(step, Mark):
                _mark(w)
            elif isinstance(step, Idle):
                _idle(step, w)
            else:
                _issue(step, w)
            if progress is not None:
                progress(w.done, w.watts)
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
        error = finish(w, error)
    if error is not None:
        raise error


def _mark(w: Watch) -> None:
    read_clocks(w, BRACKETS_PER_MARK, "mark")
    if w.bench.meters and isinstance(w.bench.device, Marks):
        _pulses(w.bench.device, w)
    between(w, force=True)


def _pulses(device: Marks, w: Watch) -> None:
    """A pseudo-random train of pulses, wide enough for the slowest rail to resolve."""
    chip_s = max([NOMINAL_CHIP_S, *(_chip_s(rail) for info in w.infos.values() for rail in info.rails)])
    order = random.Random(127)
    spans = []
    for _ in range(PULSES):
        width_s = chip_s * order.randint(1, 3)
        span = guard(partial(device.pulse, width_s), DeviceError, "the device failed to pulse")
        spans.append([span.on_tick, span.off_tick])
        sleep(w, chip_s * order.randint(1, 3))
    info = w.bench.device.info()
    w.recorder.event("marks", clock=info.clock.name if info.clock else "host", phase=MARK_PHASE, spans=spans)


def _chip_s(rail: Rail) -> float:
    period_s = 1.0 / rail.rate_hz if rail.rate_hz > 0 else 0.0
    return 2.0 * period_s + 5.0 * rail.filter_tau_s


def _idle(step: Idle, w: Watch) -> None:
    if not (step.seconds >= 0 and math.isfinite(step.seconds)):
        raise SetupError(
            f"an idle window of {step.seconds} s", field="seconds", value=step.seconds, remedy="Give a positive number"
        )
    between(w, force=True)
    on_ns = w.bench.clock.now_ns()
    sleep(w, step.seconds)
    w.recorder.event("idle", on_ns=on_ns, off_ns=w.bench.clock.now_ns())


def _issue(step: Issue, w: Watch) -> None:
    info = w.bench.device.info()
    send, rounds = _sender(step, w.bench.device)
    allowed_s = info.timeout_s * (step.repeat if rounds == 1 else 1)
    for at in range(0, len(step.samples), info.max_batch):
        batch = step.samples[at : at + info.max_batch]
        for sample in batch:
            w.recorder.sample(sample)
        guard(partial(w.bench.device.stage, batch), DeviceError, "the device failed to load samples")
        due_ns = _wait_for_turn(step, w)
        for number in range(rounds):
            if number:
                between(w)
            _exchange(_Exchange(step, batch, due_ns, allowed_s), partial(send, batch), w)


def _wait_for_turn(step: Issue, w: Watch) -> int | None:
    """Use the time until an issue is due; the last stretch of it is left alone. Returns when it is due."""
    clock = w.bench.clock
    if step.due_ns is None or w.first_issue_ns is None:
        between(w)
    if w.first_issue_ns is None:
        w.first_issue_ns = clock.now_ns() - (step.due_ns or 0)
    if step.due_ns is None:
        return None
    due_ns = w.first_issue_ns + step.due_ns
    sleep(w, (due_ns - AHEAD_NS - clock.now_ns()) * 1e-9)
    clock.sleep_until(due_ns)
    return due_ns


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


def _exchange(x: _Exchange, send: Callable[[], None], w: Watch) -> None:
    """One hand-over: submit, wait for every reply, then write."""
    first = w.issues
    w.issues += len(x.batch)
    waiting = {sample.id: first + k for k, sample in enumerate(x.batch)}
    issued_ns = w.bench.clock.now_ns()
    replies: list[Answer] = []
    try:
        guard(send, DeviceError, f"the device failed on sample {x.batch[0].id}")
        _await(waiting, issued_ns + round(x.allowed_s * 1e9), x.allowed_s, w, replies)
    except (RigError, KeyboardInterrupt):
        _record_all(x, issued_ns, replies, w)
        for sample_id, issue in waiting.items():
            row = (issue, sample_id, None, x.due_ns, issued_ns, None, None, None, None, None, x.step.warmup)
            w.recorder.reply_row(row)
        raise
    _record_all(x, issued_ns, replies, w)
    if isinstance(w.bench.device, Inspects):
        counters = guard(w.bench.device.activity, DeviceError, "the device failed to say what was active")
        w.recorder.activity(first + len(x.batch) - 1, x.batch[-1].id, counters)
    w.done += 0 if x.step.warmup else len(x.batch)


def _await(waiting: dict[str, int], deadline_ns: int, allowed_s: float, w: Watch, got: list[Answer]) -> None:
    """Poll until every sample is answered, into ``got``; the caller writes it, outside the span."""
    clock = w.bench.clock
    slice_s = patience_s(w)
    while waiting:
        left_s = (deadline_ns - clock.now_ns()) * 1e-9
        if left_s <= 0:
            raise DeviceTimeoutError(
                f"device {w.bench.device.info().name} gave no answer to {next(iter(waiting))} within {allowed_s:g} s",
                field="timeout_s",
                value=allowed_s,
                remedy="Check its power and link; the recording up to here is kept (`rig report`)",
            )
        wait_s = min(left_s, slice_s)
        what = f"the device failed on sample {next(iter(waiting))}"
        replies = guard(partial(_polled, w.bench.device, wait_s), DeviceError, what)
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
        if waiting and (completed_ns - w.last_drain_ns) * 1e-9 >= slice_s:
            drain(w)


def _polled(device: Device, wait_s: float) -> list[Reply]:
    replies = list(device.poll(wait_s))
    for reply in replies:
        if not isinstance(reply, Reply):
            raise TypeError(f"poll() gave a {type(reply).__name__}, not a Reply")
        for span in reply.spans:
            if not isinstance(span, Span):
                raise TypeError(f"a reply's spans hold a {type(span).__name__}, not a Span")
    return replies


def _record_all(x: _Exchange, issued_ns: int, replies: Iterable[Answer], w: Watch) -> None:
    for issue, completed_ns, reply in replies:
        _record(w.recorder, issue, (x.due_ns, issued_ns, completed_ns), reply, x.step.warmup)


def _record(recorder: Recorder, issue: int, times_ns: tuple[int | None, int, int], reply: Reply, warmup: bool) -> None:
    """``times_ns``: due, issued, completed. The output stands in the first row of the reply."""
    output = guard(partial(json.dumps, reply.output, default=_json), DeviceError, "the output is no JSON")
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
