"""The Device protocol over a link to a worker in another interpreter, on this computer or over ssh.

Spans are stamped in the worker, by its computer's monotonic clock: a round trip is never part of one. On this computer
that clock is the host's own (Linux: one CLOCK_MONOTONIC for all processes); over ssh it is a clock of its own, which
the rig brackets through ``timer``.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from drivers.links.remote_link import WorkerLink
from drivers.links.remote_start import Worker
from rig.errors import DeviceError, RigError
from rig.types import Budget, ClockInfo, DeviceInfo, Mode, Progress, Reply, Sample, Span

TICK_HZ = 1e9
_TIMER_S = 10.0
_ABOUT = ("name", "mode", "description", "phases", "timeout_s", "versions", "artifacts", "details")

Keep = Callable[[Budget | None], Budget | None]
Check = Callable[[Sample], None]


def open_remote(
    worker: Worker, *, keep: Keep | None = None, check: Check | None = None, load_s: float = 60.0
) -> RemoteDevice:
    """Start a worker and make a device of it, as the worker's hello describes it.

    ``keep`` turns a budget into the one that is kept, or raises ``UsageError``; ``check`` raises for a sample that the
    worker cannot take. One ``stage`` may take ``load_s``, and so may a run beyond its budget.
    Raises as ``WorkerLink`` does, and ``DeviceError`` for a hello that describes no device.
    """
    link = WorkerLink(worker)
    try:
        return RemoteDevice(
            link, described(link), keep or (lambda budget: budget), check or (lambda sample: None), load_s
        )
    except BaseException:
        link.close(0.0)
        raise


def described(link: WorkerLink) -> DeviceInfo:
    """The device that a hello's ``about`` describes. Raises ``DeviceError`` when it describes none."""
    about, worker = dict(link.hello["about"]), link.worker
    clock = ClockInfo(f"{worker.name}-host", TICK_HZ) if worker.host else None
    link_details = {"host": worker.host, "python": link.hello.get("python"), "protocol": link.hello["protocol"]}
    try:
        info = DeviceInfo(**{"name": worker.name, "mode": "hardware"} | {k: about.pop(k) for k in _ABOUT if k in about})
        info = replace(info, clock=clock, phases=tuple(info.phases), details={**info.details, "worker": link_details})
        sane = isinstance(info.name, str) and info.mode in get_args(Mode) and 0 < info.timeout_s < math.inf
    except (TypeError, ValueError):
        sane = False
    if not sane or about:
        raise DeviceError(
            f"the worker of {worker.name} does not describe a device: {link.hello['about']!r:.200}",
            field="about",
            value=worker.name,
            remedy=f"Its about may hold {', '.join(_ABOUT)}, as in rig.types.DeviceInfo",
        )
    return info


class RemoteDevice:
    """A device whose work is done by a worker, one sample at a time in the order of submission."""

    def __init__(self, link: WorkerLink, info: DeviceInfo, keep: Keep, check: Check, load_s: float) -> None:
        self._link, self._info, self._keep, self._check, self._load_s = link, info, keep, check, load_s
        self._staged: frozenset[str] = frozenset()
        self._pending: deque[tuple[str, float]] = deque()
        """Sample ids that wait for an answer, each with the seconds that it may take."""
        self._ready: deque[Reply | RigError] = deque()
        self._since_s = 0.0
        """When the oldest of them began, at the latest: at its submission, or with the answer before."""

    def info(self) -> DeviceInfo:
        """What the worker's hello describes; ``details["worker"]`` holds where it runs."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Send the samples over and wait until they are loaded.

        Raises what ``check`` raises, what the worker raises, ``DeviceTimeoutError`` after ``load_s``.
        """
        for sample in samples:
            self._check(sample)
        self._link.send({"do": "stage", "samples": [_encoded(sample) for sample in samples]})
        self._drained("stage")
        self._link.expect("staged", self._load_s, "loading samples")
        self._staged = frozenset(sample.id for sample in samples)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Hand the samples over. Raises ``DeviceError`` unless staged, and what ``keep`` raises for the budget."""
        kept = self._keep(budget)
        for sample in samples:
            if sample.id not in self._staged:
                raise DeviceError(
                    f"sample {sample.id} was not staged", field="sample_id", value=sample.id, remedy="Stage it first"
                )
        allowed_s = self._info.timeout_s
        if kept is not None and kept.timeout_s is not None:
            allowed_s = min(allowed_s, 1.1 * kept.timeout_s + self._load_s)
        terms = None if kept is None else [kept.timeout_s, kept.stop_at_cost]
        for sample in samples:
            with suppress(DeviceError):  # ``poll`` raises for a worker that is gone, after its answers
                self._link.send({"do": "run", "id": sample.id, "budget": terms})
            if not self._pending:
                self._since_s = time.monotonic()
            self._pending.append((sample.id, allowed_s))

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Wait up to ``timeout_s`` for an answer, and take what else is ready.

        Raises what the worker raised, ``DeviceError`` when it is gone or answers in another form, and
        ``DeviceTimeoutError`` when it hangs; each after the answers before it were handed out.
        """
        if not self._ready and self._pending:
            self._receive(timeout_s)
        elif not self._ready and timeout_s > 0:
            time.sleep(timeout_s)
        replies: list[Reply] = []
        while self._ready or self._receive(0.0):
            item = self._ready[0]
            if isinstance(item, RigError):
                if replies:
                    break
                self._ready.popleft()
                raise item
            self._ready.popleft()
            replies.append(item)
        return replies

    def timer(self) -> int:
        """The worker's monotonic clock, in nanoseconds; to be read between spans."""
        self._drained("read the clock")
        self._link.send({"do": "timer"})
        message = self._link.expect("tick", _TIMER_S, "reading its clock")
        return _whole("tick", message.get("tick"), self._info.name)

    def close(self) -> None:
        """End the worker: at once if it is at work, else in good order. May be called twice."""
        self._link.close(0.0 if self._pending else 2.0)

    def _receive(self, timeout_s: float) -> bool:
        """Whether an answer, or the error in its place, was put where ``poll`` takes it from."""
        if not self._pending:
            return False
        sample_id, allowed_s = self._pending[0]
        left_s = self._since_s + allowed_s - time.monotonic()
        try:
            message = self._link.next(min(timeout_s, left_s))
            if message is None and timeout_s < left_s:
                return False
            if message is None:
                raise self._link.given_up(allowed_s, f"working on {sample_id}")
            answer: Reply | RigError = _reply(message, sample_id, self._info)
        except RigError as error:
            answer = error
        self._pending.popleft()
        self._since_s = time.monotonic()
        self._ready.append(answer)
        return True

    def _drained(self, why: str) -> None:
        """Take the answers that must come before the next one can, without handing them out."""
        while self._pending:
            self._receive(math.inf if self._pending[0][1] == math.inf else self._pending[0][1] + 1.0)


def _encoded(sample: Sample) -> dict[str, Any]:
    payload = np.asarray(sample.payload)
    return {
        "id": sample.id,
        "payload": {"dtype": payload.dtype.str, "shape": list(payload.shape), "data": payload.tobytes()},
        "rate_hz": None if sample.rate_hz is None else float(sample.rate_hz),
        "duration_s": float(sample.duration_s),
        "seed": None if sample.seed is None else int(sample.seed),
    }


def _reply(message: Mapping[str, Any], sample_id: str, info: DeviceInfo) -> Reply:
    """A worker's answer as a ``Reply``. Raises ``DeviceError`` for one of another shape."""
    if message["say"] != "reply" or message.get("id") != sample_id:
        raise _wrong("id", message.get("id", message["say"]), f"an answer to {sample_id}", info.name)
    spans = tuple(_span(row, info) for row in _rows("spans", message, 4, info))
    progress = tuple(_claim(row, info) for row in _rows("progress", message, 3, info))
    if "output" not in message:
        raise _wrong("output", None, "an output", info.name)
    return Reply(sample_id, message["output"], spans, progress)


def _rows(name: str, message: Mapping[str, Any], width: int, info: DeviceInfo) -> Sequence[Sequence[Any]]:
    rows = message.get(name, [])
    if not isinstance(rows, (list, tuple)) or not all(isinstance(r, (list, tuple)) and len(r) == width for r in rows):
        raise _wrong(name, rows, f"a list of rows of {width}", info.name)
    return rows


def _span(row: Sequence[Any], info: DeviceInfo) -> Span:
    phase, on, off, executions = row
    if phase not in info.phases:
        raise _wrong("phase", phase, " or ".join(info.phases), info.name)
    on_tick, off_tick = _whole("on_tick", on, info.name), _whole("off_tick", off, info.name)
    if off_tick < on_tick or _whole("executions", executions, info.name) < 1:
        raise _wrong("span", row, "off >= on, and one execution or more", info.name)
    return Span(phase, on_tick, off_tick, executions)


def _claim(row: Sequence[Any], info: DeviceInfo) -> Progress:
    tick, cost, solution = row
    if not isinstance(cost, (int, float)) or not math.isfinite(cost) or not isinstance(solution, bytes):
        raise _wrong("progress", row, "a tick, a finite cost and a packed solution", info.name)
    return Progress(_whole("tick", tick, info.name), float(cost), solution)


def _whole(field: str, value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise _wrong(field, value, "nanoseconds as a whole number", name)
    return value


def _wrong(field: str, value: Any, wanted: str, name: str) -> DeviceError:
    return DeviceError(
        f"the worker of {name} answered with {field} {value!r:.80}",
        field=field,
        value=repr(value)[:200],
        remedy=f"It must be {wanted}",
    )
