"""The line between host and device: what is due, what was handed over, what came back.

Two ways to hand over. Without a due time a step is played to its end: the next is not begun before its
answers are there. With one, samples join a queue at the moment they are due and are handed over as the
device can take them, together up to its batch, while the schedule goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

import msgspec

from rig.engine import device_errors as answers
from rig.engine.acquisition import Watch, between, drain, guard, patience_s, sleep
from rig.errors import DeviceError, RigError
from rig.types import Inspects, Issue, Repeats, Reply, Sample

AHEAD_NS = 250_000_000
"""Before an issue is due, up to which time is slept away while meters are drained."""
QUIET_NS = 50_000_000
"""Before an issue is due, within which no meter is drained and no clock read, unless one would overflow."""
ROOM_NS = 2_000_000
"""Before an issue is due, within which nothing is written unless the buffer is nearly full."""
NEARLY_FULL = 0.75


class Order(msgspec.Struct, frozen=True):
    """One sample on its way: due and issued in host nanoseconds, None for as soon as possible."""

    issue: int
    sample: Sample
    step: Issue
    due_ns: int | None
    issued_ns: int | None = None


class Line:
    """One device's line. ``play`` hands a step over, ``settle`` waits for what is under way."""

    __slots__ = (
        "_alive_ns", "_batch", "_busy", "_clock", "_completed_ns", "_device", "_due", "_inspects", "_now",
        "_origin_ns", "_out", "_patience_s", "_pending", "_poll", "_put", "_recorder", "_room", "_seen", "_spin_ns",
        "_stage", "_submit", "_w",
    )  # fmt: skip

    def __init__(self, w: Watch) -> None:
        device = w.bench.device
        self._busy = True
        """Something may be under way, or nothing was issued yet."""
        self._w, self._device, self._recorder = w, device, w.recorder
        self._now, self._clock = w.bench.clock.now_ns, w.bench.clock
        self._submit, self._poll, self._stage = device.submit, device.poll, device.stage
        self._put, self._seen = w.recorder.replies.put, w.recorder.seen
        self._inspects = device if isinstance(device, Inspects) else None
        self._spin_ns: int = getattr(w.bench.clock, "spin_ns", 0)
        self._room = w.device.max_pending
        self._batch = min(w.device.max_batch, self._room or w.device.max_batch)
        self._patience_s = 2.0
        self._origin_ns: int | None = None
        self._due: deque[Order] = deque()
        self._out: dict[str, deque[Order]] = {}
        self._pending = 0
        self._alive_ns = 0
        self._completed_ns = 0

    # ---- one step -------------------------------------------------------------------------

    def play(self, step: Issue) -> None:  # noqa: PLR0912  one path, a call less is a tenth of it
        """Hand a step over. Raises a ``RigError`` when the device fails or does not answer in time.

        One sample and one answer is the path that single queries take, a million times in a row.
        """
        samples, origin_ns, due_ns, wait_s = step.samples, self._origin_ns, step.due_ns, self._patience_s
        if len(samples) != 1 or step.repeat != 1 or step.phase is not None or not self._at_ease(due_ns, step.queue):
            self._play_slowly(step)
            return
        w, sample, warmup = self._w, samples[0], step.warmup
        if sample.id not in self._seen:
            self._recorder.sample(sample)
        replies: Sequence[Reply] = ()
        issued_ns = None
        issue = w.issues
        try:
            self._stage(samples)
            if due_ns is not None and origin_ns is not None:
                due_ns, wait_s = due_ns + origin_ns, 0.0
                if not self._free_at(due_ns):
                    self._join(step, due_ns)
                    return
            elif self._completed_ns >= w.next_work_ns or not self._spin_ns:
                between(w)
            w.issues = issue + 1
            issued_ns = self._now()
            self._submit(samples, step.budget)
            replies = self._poll(wait_s)
            self._completed_ns = completed_ns = self._now()
            if len(replies) == 1:
                reply = replies[0]
                if type(reply) is Reply and reply.sample_id == sample.id:
                    if self._put(issue, reply, due_ns, issued_ns, completed_ns, warmup):
                        self._recorder.remainder(issue, reply, (due_ns, issued_ns, completed_ns), warmup)
                    if warmup:
                        w.aside += 1
                    if self._inspects is not None:
                        self._count(issue, sample)
                    return
        except (KeyboardInterrupt, Exception) as error:
            if issued_ns is not None:
                self._register(Order(issue, sample, step, due_ns, issued_ns))
                w.aside += 1
            if isinstance(error, (RigError, KeyboardInterrupt)):
                raise
            raise answers.failed(sample.id, error) from error
        self._register(Order(issue, sample, step, due_ns, issued_ns))
        w.aside += 1
        self._take(replies, completed_ns)
        if due_ns is None:
            self.settle()

    def _at_ease(self, due_ns: int | None, queue: int | None) -> bool:
        """Whether a single sample can take the short way."""
        if due_ns is None:
            return not self._busy
        self._busy = True
        return self._origin_ns is not None and self._batch == 1 and queue is None

    def _free_at(self, due_ns: int) -> bool:
        """Wait until then. False when the device has something else to do then, and what is due must queue."""
        if self._now() < due_ns:
            self._until(due_ns)
        else:  # behind its schedule the line drains and polls here, and nowhere else
            self._work(0)
            if self._pending:
                self._take(self._polled(0.0), self._now())
        if self._due:
            self._hand_over()
        return not (self._pending or self._due)

    def _play_slowly(self, step: Issue) -> None:
        if step.due_ns is not None:
            self._on_schedule(step)
            return
        self.settle()
        self._patience_s = min(patience_s(self._w), self._w.device.timeout_s)
        self._busy = False
        if step.repeat == 1 and step.phase is None and len(step.samples) == 1:
            self.play(step)
        else:
            self._at_once(step)

    def _at_once(self, step: Issue) -> None:
        """Many samples, or loops: as many batches as the device takes, one after the other."""
        for sample in step.samples:
            self._recorder.sample(sample)
        self._staged(step.samples)
        rounds = 1 if step.repeat == 1 or isinstance(self._device, Repeats) else step.repeat
        size = len(step.samples) if rounds == 1 else self._batch
        for at in range(0, len(step.samples), size):
            for _ in range(rounds):
                between(self._w)
                self._due.extend(self._order(sample, step, None) for sample in step.samples[at : at + size])
                self.settle()

    def _on_schedule(self, step: Issue) -> None:
        assert step.due_ns is not None
        self._busy = True
        if step.repeat > 1 and not isinstance(self._device, Repeats):
            raise answers.no_loop(self._w.device.name, step.repeat)
        if self._origin_ns is not None and self._now() < self._origin_ns + step.due_ns:
            self._hand_over()
        for sample in step.samples:
            self._recorder.sample(sample)
        self._staged(step.samples)
        if self._origin_ns is None:
            self.settle()
            self._patience_s = min(patience_s(self._w), self._w.device.timeout_s)
            between(self._w)
            self._origin_ns = self._now() - step.due_ns
        due_ns = self._origin_ns + step.due_ns
        self._until(due_ns)
        self._join(step, due_ns)

    def _join(self, step: Issue, due_ns: int) -> None:
        """What is due now joins the queue."""
        for sample in step.samples:
            order = self._order(sample, step, due_ns)
            if step.queue is not None and self._pending + len(self._due) >= step.queue:
                self._recorder.unanswered(order.issue, sample.id, due_ns, None, step.warmup)
            else:
                self._due.append(order)
        if len(self._due) >= self._batch:
            self._hand_over()

    def _order(self, sample: Sample, step: Issue, due_ns: int | None) -> Order:
        issue = self._w.issues
        self._w.issues = issue + 1
        self._w.aside += 1
        return Order(issue, sample, step, due_ns)

    def _staged(self, samples: Sequence[Sample]) -> None:
        try:
            self._stage(samples)
        except RigError:
            raise
        except Exception as error:
            raise answers.not_loaded(error) from error

    # ---- waiting --------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until everything due was handed over and answered."""
        while self._due or self._pending:
            self._hand_over()
            wait_s = min(self._patience_s, max(self._left_s(), 0.0))
            self._take(self._polled(wait_s), self._now())
            self._check_alive()
            if (self._pending or self._due) and (self._now() - self._w.last_drain_ns) * 1e-9 >= self._patience_s:
                drain(self._w)

    def _until(self, due_ns: int) -> None:
        """Pass the time until ``due_ns``: take answers, hand over what fits, and use a quiet line to work."""
        if self._now() > due_ns:  # a host that is late must not keep meters and answers waiting too
            self._work(0)
            if self._pending:
                self._take(self._polled(0.0), self._now())
        while (left_ns := due_ns - self._now()) > 0:
            self._work(left_ns)
            if not (self._pending or self._due):
                self._clock.sleep_until(due_ns)
                return
            self._hand_over()
            left_ns = due_ns - self._now()
            spin = left_ns <= self._spin_ns
            wait_s = 0.0 if spin else min(self._patience_s, (left_ns - self._spin_ns) * 1e-9)
            self._take(self._polled(wait_s), self._now())
            self._check_alive()
            if spin and self._pending:
                self._clock.sleep_until(0)
            self._hand_over()

    def _work(self, left_ns: int) -> None:
        """Drain and write while there is time, or when there is no choice."""
        w = self._w
        now_ns = self._now()
        if left_ns > AHEAD_NS and not self._pending:
            sleep(w, (left_ns - AHEAD_NS) * 1e-9)
        elif w.bench.meters and (now_ns - w.last_drain_ns) * 1e-9 >= self._patience_s:
            drain(w)
        elif left_ns > QUIET_NS and now_ns >= w.next_work_ns and not self._pending:
            between(w)
        elif (left_ns > ROOM_NS and now_ns >= w.next_work_ns) or self._recorder.waiting > NEARLY_FULL:
            w.recorder.flush()
            w.next_work_ns = now_ns + AHEAD_NS
            if w.progress is not None:
                w.progress(w.done, w.watts)

    def _left_s(self) -> float:
        return self._allowed_s() - (self._now() - self._alive_ns) * 1e-9

    def _allowed_s(self) -> float:
        steps = [orders[0].step for orders in self._out.values()]
        return self._w.device.timeout_s * max((s.repeat for s in steps), default=1)

    def _check_alive(self) -> None:
        if self._pending and self._left_s() <= 0:
            raise answers.silent(self._w.device.name, next(iter(self._out)), self._allowed_s())

    # ---- to the device and back -----------------------------------------------------------

    def _hand_over(self) -> None:
        due = self._due
        while due and (most := min(self._room_left(), len(due))) > 0:
            step = due[0].step
            size = 1
            while size < most and _alike(due[size].step, step):
                size += 1
            batch = [due.popleft() for _ in range(size)]
            if not self._pending:
                self._alive_ns = self._now()
            issued_ns = self._now()
            for order in batch:
                self._register(Order(order.issue, order.sample, order.step, order.due_ns, issued_ns))
            samples = [order.sample for order in batch]
            guard(partial(self._send, samples, step), DeviceError, f"the device failed on sample {samples[0].id}")

    def _room_left(self) -> int:
        """How many samples the device takes now: a batch when it is free, or what it declares it can hold."""
        if self._room is None:
            return 0 if self._pending else self._batch
        return min(self._batch, self._room - self._pending)

    def _send(self, samples: Sequence[Sample], step: Issue) -> None:
        if step.repeat == 1 and step.phase is None:
            self._submit(samples, step.budget)
        elif isinstance(self._device, Repeats):
            self._device.submit_repeated(samples, step.repeat, step.phase, step.budget)
        elif step.phase is not None:
            raise answers.no_phase(self._w.device.name, step.phase)
        else:
            self._submit(samples, step.budget)

    def _register(self, order: Order) -> None:
        if not self._pending:
            self._alive_ns = order.issued_ns or self._now()
        self._out.setdefault(order.sample.id, deque()).append(order)
        self._pending += 1

    def _polled(self, wait_s: float) -> Sequence[Reply]:
        first = next(iter(self._out), "none")
        return guard(partial(self._poll, wait_s), DeviceError, f"the device failed on sample {first}")

    def _take(self, replies: Sequence[Reply], completed_ns: int) -> None:
        """Match answers to what was asked, the oldest first where one sample was asked twice."""
        w = self._w
        last: Order | None = None
        for reply in replies:
            answers.checked(reply, next(iter(self._out), "none"))
            orders = self._out.get(reply.sample_id)
            if not orders:
                raise answers.not_asked(reply.sample_id)
            last = orders.popleft()
            if not orders:
                del self._out[reply.sample_id]
            self._pending -= 1
            self._alive_ns = self._completed_ns = completed_ns
            assert last.issued_ns is not None
            warmup = last.step.warmup
            self._recorder.reply(last.issue, reply, last.due_ns, last.issued_ns, completed_ns, warmup)
            w.aside -= not warmup
        if last is not None and self._inspects is not None:
            self._count(last.issue, last.sample)

    def _count(self, issue: int, sample: Sample) -> None:
        assert self._inspects is not None
        counters = guard(self._inspects.activity, DeviceError, "the device failed to say what was active")
        self._recorder.activity(issue, sample.id, counters)

    def abandon(self, error: RigError | None) -> RigError | None:
        """Record what was asked and not answered; gives back the error that ended the run."""
        orders = [order for same in self._out.values() for order in same] + list(self._due)
        try:
            for order in sorted(orders, key=lambda o: o.issue):
                self._recorder.unanswered(
                    order.issue, order.sample.id, order.due_ns, order.issued_ns, order.step.warmup
                )
        except RigError as caught:
            return error or caught
        return error


def _alike(one: Issue, other: Issue) -> bool:
    return one is other or (one.budget, one.repeat, one.phase) == (other.budget, other.repeat, other.phase)
