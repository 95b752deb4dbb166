"""The Device protocol over a link to a worker: a process in another Python interpreter, here or over ssh.

The worker stamps spans with the monotonic clock of its computer, so a span never includes a round trip. On this
computer the host has the same clock (Linux: all processes share CLOCK_MONOTONIC). Over ssh the worker's clock is a
separate one. The rig compares it with the host's clock by calls of ``timer``.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from drivers.failures import released_on_error
from drivers.links.worker_link import Worker, WorkerLink
from rig.errors import DeviceError, RigError
from rig.network.description import Activity, Counts, NetworkInfo
from rig.recording.events import Count
from rig.types import Budget, ClockInfo, DeviceInfo, Number, Progress, Reply, Sample, Span

T = TypeVar("T")

TICK_HZ = 1e9
_TIMER_S = 10.0
_ABOUT = ("name", "mode", "description", "phases", "timeout_s", "versions", "artifacts", "details", "algorithm")

Keep = Callable[[Budget | None], Budget | None]
Check = Callable[[Sample], None]


def described(link: WorkerLink) -> DeviceInfo:
    """Return the device that ``about`` in a worker's hello describes. Raises ``DeviceError`` if it describes none."""
    about, worker = dict(link.hello["about"]), link.worker
    clock = ClockInfo(f"{worker.name}-host", TICK_HZ) if worker.host else None
    link_details = {"host": worker.host, "python": link.hello.get("python"), "protocol": link.hello["protocol"]}
    known = {"name": worker.name, "mode": "hardware"} | {k: about.pop(k) for k in _ABOUT if k in about}
    try:
        info = msgspec.convert(known, DeviceInfo)
    except msgspec.ValidationError:
        info = None
    if info is None or about or not 0 < info.timeout_s < math.inf:
        what = f"the worker of {worker.name} does not describe a device: {link.hello['about']!r:.200}"
        remedy = f"Its about may hold {', '.join(_ABOUT)}, as in rig.types.DeviceInfo"
        raise DeviceError(what, field="about", value=worker.name, remedy=remedy)
    return replace(info, clock=clock, details={**info.details, "worker": link_details})


class RemoteDevice:
    """A device whose samples a worker processes, one at a time in the order of submission.

    The worker's hello describes the device. ``keep`` returns the budget that the device keeps, or raises
    ``UsageError``. ``check`` raises for a sample that the worker cannot take. Each ``stage`` may take ``load_s``. A run
    may exceed 1.1 times its budget by ``load_s``. ``network`` describes the network that the device claims to run.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        keep: Keep = lambda budget: budget,
        check: Check = lambda sample: None,
        load_s: float = 60.0,
        network: NetworkInfo | None = None,
    ) -> None:
        """Start the worker. Raises as ``WorkerLink`` does, and ``DeviceError`` if its hello describes no device."""
        self._link, self._keep, self._check, self._load_s = WorkerLink(worker), keep, check, load_s
        with released_on_error(lambda: self._link.close(0.0)):
            self._info = replace(described(self._link), network=network)
        self._staged: frozenset[str] = frozenset()
        self._pending: deque[tuple[str, float]] = deque()
        """Ids of samples that wait for an answer, each with the longest time until its answer (s)."""
        self._ready: deque[Reply | RigError] = deque()
        self._since_s = 0.0
        """The monotonic time (s) when the worker could begin the oldest sample: its submission, or the last answer."""

    def info(self) -> DeviceInfo:
        """Return the device that the hello describes; ``details["worker"]`` says where the worker runs."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Send the samples to the worker and wait until it has loaded them.

        Raises what ``check`` and the worker raise, and ``DeviceTimeoutError`` after ``load_s``.
        """
        for sample in samples:
            self._check(sample)
        self._link.send({"do": "stage", "samples": [_encoded(sample) for sample in samples]})
        self._drained()
        self._link.expect("staged", self._load_s, "loading samples")
        self._staged = frozenset(sample.id for sample in samples)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Send samples to be run. Raises ``DeviceError`` for a sample that was not staged, and what ``keep`` raises."""
        kept = self._keep(budget)
        for sample in samples:
            if sample.id not in self._staged:
                what = f"sample {sample.id} was not staged"
                raise DeviceError(what, field="sample_id", value=sample.id, remedy="Stage it first")
        allowed_s = self._info.timeout_s
        if kept is not None and kept.timeout_s is not None:
            allowed_s = min(allowed_s, 1.1 * kept.timeout_s + self._load_s)
        terms = None if kept is None else [kept.timeout_s, kept.stop_at_cost]
        for sample in samples:
            with suppress(DeviceError):  # ``poll`` reports a worker that is gone, after its last answers
                self._link.send({"do": "run", "id": sample.id, "budget": terms})
            if not self._pending:
                self._since_s = time.monotonic()
            self._pending.append((sample.id, allowed_s))

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Wait up to ``timeout_s`` for an answer, and return all answers that are then ready.

        Raises what the worker raised, ``DeviceError`` if the worker is gone or its answer has the wrong form, and
        ``DeviceTimeoutError`` if it hangs. Earlier answers are returned first.
        """
        if not self._ready and self._pending:
            self._receive(timeout_s)
        elif not self._ready and timeout_s > 0:
            time.sleep(timeout_s)
        replies: list[Reply] = []
        while self._ready or self._receive(0.0):
            if replies and isinstance(self._ready[0], RigError):
                break
            item = self._ready.popleft()
            if isinstance(item, RigError):
                raise item
            replies.append(item)
        return replies

    def timer(self) -> int:
        """Return the worker's monotonic clock in nanoseconds, read between spans."""
        self._drained()
        self._link.send({"do": "timer"})
        return _as(Count, self._link.expect("tick", _TIMER_S, "reading its clock").get("tick"), self._info.name)

    def close(self) -> None:
        """End the worker: at once if it works, else when it has closed itself, or after 2 s. May be called twice."""
        self._link.close(0.0 if self._pending else 2.0)

    def _receive(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s``; return whether an answer, or an error in its place, is then ready for ``poll``."""
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

    def _drained(self) -> None:
        """Wait for all answers that are still due, and keep them for ``poll``."""
        while self._pending:
            self._receive(self._pending[0][1] + 1.0)


def _encoded(sample: Sample) -> dict[str, Any]:
    payload = np.asarray(sample.payload)
    return {
        "id": sample.id,
        "payload": {"dtype": payload.dtype.str, "shape": list(payload.shape), "data": payload.tobytes()},
        "rate_hz": None if sample.rate_hz is None else float(sample.rate_hz),
        "duration_s": float(sample.duration_s),
        "seed": None if sample.seed is None else int(sample.seed),
    }


class _Answer(msgspec.Struct):
    """The required form of a worker's answer on the link."""

    say: Literal["reply"]
    id: str
    output: Any
    spans: list[tuple[str, Count, Count, Annotated[int, Meta(ge=1)]]] = []
    progress: list[tuple[Count, Number, bytes]] = []
    network: NetworkInfo | None = None
    activity: dict[str, dict[str, bytes]] | None = None


def _reply(message: Mapping[str, Any], sample_id: str, info: DeviceInfo) -> Reply:
    """Return a worker's answer as a ``Reply``. Raises ``DeviceError`` if its form is wrong."""
    answer = _as(_Answer, message, info.name)
    if answer.id != sample_id:
        raise _wrong("id", answer.id, f"an answer to {sample_id}", info.name)
    spans = tuple(Span(*row) for row in answer.spans)
    for span in spans:
        if span.phase not in info.phases or span.off_tick < span.on_tick:
            raise _wrong("span", span, f"of {' or '.join(info.phases)}, with off >= on", info.name)
    progress = tuple(Progress(*row) for row in answer.progress)
    return Reply(sample_id, answer.output, spans, progress, _counted(answer.activity, info), answer.network)


def _counted(activity: dict[str, dict[str, bytes]] | None, info: DeviceInfo) -> Activity | None:
    """Return the counts of an answer, whose bytes are little-endian 64-bit integers."""
    if activity is None:
        return None
    found: dict[str, dict[str, Counts]] = {}
    for part, counters in activity.items():
        for counter, counts in counters.items():
            if len(counts) % 8:
                raise _wrong("activity", f"{len(counts)} bytes of {counter}", "of 8 bytes for each count", info.name)
            found.setdefault(part, {})[counter] = np.frombuffer(counts, "<i8")
    return found


def _as(type_: type[T], message: Any, name: str) -> T:
    try:
        return msgspec.convert(message, type_)
    except msgspec.ValidationError as error:
        raise _wrong("message", message, f"as the protocol says: {error}", name) from error


def _wrong(field: str, value: Any, wanted: str, name: str) -> DeviceError:
    what = f"the worker of {name} answered with {field} {value!r:.80}"
    return DeviceError(what, field=field, value=repr(value)[:200], remedy=f"It must be {wanted}")
