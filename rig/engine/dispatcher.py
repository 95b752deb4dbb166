"""Issue samples to a device, and match the replies to them.

A step without a due time is played to its end: the next step begins after all its replies have arrived. A step with a
due time joins a queue when it is due. Queued samples are issued when the device can take them, in batches of at most
its largest size, while the schedule continues.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial

from rig.engine import device_errors
from rig.engine.acquisition import Acquisition, drain, housekeep, max_undrained_s, show, sleep
from rig.engine.pending import Pending, Query, check_executions
from rig.errors import DeviceError, Ended, RigError, SetupError
from rig.recording.columns.rows import json_of
from rig.recording.events import LIMIT
from rig.recording.validation import tick_of
from rig.types import Issue, Repeats, Reply, Sample

AHEAD_NS = 250_000_000
"""Until this time before a sample is due, the host sleeps and drains meters."""
QUIET_NS = 50_000_000
"""Within this time before a sample is due, no clock is read; a meter is drained only if it would overflow."""
WRITING_NS = 2_000_000
"""Within this time before a sample is due, rows are written only step by step."""
STEP_NS = 150_000
"""Within this time before a sample is due, no row is written unless the buffer is nearly full."""
LONG_NS = 1_000_000
"""Within this time before a sample is due, only rows of replies are written, unless very many other rows wait."""
NEARLY_FULL = 0.75
STAGE, SUBMIT, POLL = "stage() of the device", "submit() of the device", "poll() of the device"
OUTPUT, ACTIVITY = (f"reading the {part} of a reply of the device" for part in ("output", "activity"))
"""Names of parts that are read under the watch, because a driver may compute a part only when it is read."""


class Dispatcher:
    """Issues samples to one device: ``play`` issues a step, ``settle`` waits until all samples are completed."""

    __slots__ = (
        "_acquisition", "_batch", "_busy", "_clock", "_completed_ns", "_device", "_due", "_last_due_ns",
        "_max_pending", "_max_wait_s", "_now", "_origin_ns", "_pending", "_poll", "_put", "_recorder",
        "_seen", "_spin_ns", "_stage", "_submit", "_watch",
    )  # fmt: skip

    def __init__(self, acquisition: Acquisition) -> None:
        device = acquisition.bench.device
        self._busy = True
        """Whether a sample may still wait for its reply, or no sample has been issued yet."""
        self._acquisition, self._device, self._recorder = acquisition, device, acquisition.recorder
        self._now, self._clock = acquisition.bench.clock.now_ns, acquisition.bench.clock
        self._submit, self._poll, self._stage = device.submit, device.poll, device.stage
        self._put, self._seen = acquisition.recorder.replies.put, acquisition.recorder.seen
        acquisition.recorder.replies.encode = partial(acquisition.watch.read, OUTPUT, json_of)
        self._spin_ns: int = getattr(acquisition.bench.clock, "spin_ns", 0)
        self._max_pending = acquisition.device.max_pending
        self._watch = acquisition.watch
        self._watch.issued = lambda: acquisition.issues
        self._batch = min(acquisition.device.max_batch, self._max_pending or acquisition.device.max_batch)
        self._max_wait_s = 2.0
        self._origin_ns: int | None = None
        self._last_due_ns = 0
        self._due: deque[Query] = deque()
        self._pending = Pending(acquisition.device)
        self._completed_ns = 0

    # ---- one step -------------------------------------------------------------------------

    def play(self, step: Issue) -> None:  # noqa: PLR0912, PLR0915  every further call costs a tenth of the fast path
        """Issue a step.

        Raises a ``RigError`` if the device fails or does not reply in time. A step of one sample takes the fast path
        here, because single-stream runs make a million such steps.
        """
        samples, origin_ns, due_ns, wait_s = step.samples, self._origin_ns, step.due_ns, self._max_wait_s
        if (
            len(samples) != 1
            or step.repeat != 1
            or step.phase is not None
            or (self._busy if due_ns is None else not self._takes_fast_path(step.queue))
        ):
            self._play_any(step)
            return
        acquisition, sample, warmup, watch = self._acquisition, samples[0], step.warmup, self._watch
        if sample.id not in self._seen:
            self._recorder.sample(sample)
        replies: Sequence[Reply] = ()
        issued_ns = None
        issue = acquisition.issues
        try:
            watch.call = STAGE
            self._stage(samples)
            watch.call = None
            if due_ns is not None and origin_ns is not None:
                if due_ns.__class__ is not int or not self._last_due_ns <= due_ns < LIMIT:
                    due_ns = self._checked_due(due_ns)
                self._last_due_ns = due_ns
                due_ns, wait_s = due_ns + origin_ns, 0.0
                if not self._free_at(due_ns):
                    self._join(step, due_ns)
                    return
            elif self._completed_ns >= acquisition.next_work_ns or not self._spin_ns:
                housekeep(acquisition)
            acquisition.issues = issue + 1
            watch.call = SUBMIT
            issued_ns = self._now()
            self._submit(samples, step.budget)
            watch.call = POLL
            replies = self._poll(wait_s)
            self._completed_ns = completed_ns = self._now()
            watch.call = None
            if len(replies) == 1:
                reply = replies[0]
                if type(reply) is Reply and reply.sample_id == sample.id:
                    if self._put(issue, reply, due_ns, issued_ns, completed_ns, warmup):
                        check_executions(reply, 1)
                        self._recorder.remainder(issue, reply, (due_ns, issued_ns, completed_ns), warmup)
                    if warmup:
                        acquisition.uncounted += 1
                    if reply.activity is not None or reply.network is not None:
                        self._activity(issue, reply)
                    return
        except BaseException as error:
            watch.call = None
            if issued_ns is not None:
                self._pending.add(Query(issue, sample, step, due_ns, issued_ns), issued_ns)
                acquisition.uncounted += 1
            if isinstance(error, (RigError, KeyboardInterrupt)):
                raise
            raise device_errors.failed_on(sample.id, error) from error
        self._pending.add(Query(issue, sample, step, due_ns, issued_ns), issued_ns)
        acquisition.uncounted += 1
        self._take(replies, completed_ns)
        if due_ns is None:
            self.settle()

    def _takes_fast_path(self, queue: int | None) -> bool:
        """Return whether a single sample with a due time may take the fast path.

        It may if the schedule has begun, batches have one sample, and no ``queue`` drops samples. The function also
        sets ``_busy``, since the sample may have to wait.
        """
        self._busy = True
        return self._origin_ns is not None and self._batch == 1 and queue is None

    def _free_at(self, due_ns: int) -> bool:
        """Wait until ``due_ns``; return whether the device is free then. Otherwise the sample must join the queue."""
        self._wait_until(due_ns)
        if self._due:
            self._issue_due()
        return not (self._pending.count or self._due)

    def _play_any(self, step: Issue) -> None:
        if not (isinstance(step.repeat, int) and 1 <= step.repeat < 2**31):
            raise device_errors.bad_step("repeat", step.repeat, "it is not an integer of 1 or more")
        self._watch.times = step.repeat
        if step.due_ns is None or self._origin_ns is None:
            self._max_wait_s = min(max_undrained_s(self._acquisition), self._acquisition.device.timeout_s)
        if step.due_ns is not None:
            self._on_schedule(step)
            return
        self.settle()
        self._busy = False
        if step.repeat == 1 and step.phase is None and len(step.samples) == 1:
            self.play(step)
        else:
            self._as_batches(step)

    def _as_batches(self, step: Issue) -> None:
        """Play a step of several samples, or one that loops, in batches that the device takes, one after the other."""
        for sample in step.samples:
            self._recorder.sample(sample)
        self._load(step.samples)
        rounds = 1 if step.repeat == 1 or isinstance(self._device, Repeats) else step.repeat
        size = len(step.samples) if rounds == 1 else self._batch
        for at in range(0, len(step.samples), size):
            for _ in range(rounds):
                housekeep(self._acquisition)
                self._due.extend(self._query(sample, step, None) for sample in step.samples[at : at + size])
                self.settle()

    def _on_schedule(self, step: Issue) -> None:
        self._last_due_ns = after_ns = self._checked_due(step.due_ns)
        self._busy = True
        if step.repeat > 1 and not isinstance(self._device, Repeats):
            what = f"device {self._acquisition.device.name} cannot loop a sample by itself"
            remedy = "Leave repeat out when samples have due times, or implement submit_repeated in its driver"
            raise SetupError(what, field="repeat", value=step.repeat, remedy=remedy)
        if self._origin_ns is not None and self._now() < self._origin_ns + after_ns:
            self._issue_due()
        for sample in step.samples:
            self._recorder.sample(sample)
        self._load(step.samples)
        if self._origin_ns is None:
            self.settle()
            housekeep(self._acquisition)
            self._origin_ns = self._now() - after_ns
        due_ns = self._origin_ns + after_ns
        self._wait_until(due_ns)
        self._join(step, due_ns)

    def _checked_due(self, due_ns: object) -> int:
        """Return a due time (ns) as an integer. Raises ``SetupError`` if an earlier step was due later."""
        try:
            found = tick_of(due_ns)
        except (TypeError, ValueError) as error:
            raise device_errors.bad_step("due_ns", due_ns, str(error)) from None
        if found < self._last_due_ns:
            raise device_errors.bad_step("due_ns", due_ns, f"it is before {self._last_due_ns}, which was due earlier")
        return found

    def _join(self, step: Issue, due_ns: int) -> None:
        """Put the samples of a step that is due into the queue; drop samples for which the step's queue has no room."""
        for sample in step.samples:
            query = self._query(sample, step, due_ns)
            if step.queue is not None and self._pending.count + len(self._due) >= step.queue:
                self._recorder.unanswered(query.issue, sample.id, due_ns, None, step.warmup)
            else:
                self._due.append(query)
        if len(self._due) >= self._batch:
            self._issue_due()

    def _query(self, sample: Sample, step: Issue, due_ns: int | None) -> Query:
        issue = self._acquisition.issues
        self._acquisition.issues = issue + 1
        self._acquisition.uncounted += 1
        return Query(issue, sample, step, due_ns)

    def _load(self, samples: Sequence[Sample]) -> None:
        what, call = "the device failed to load samples", partial(self._stage, samples)
        self._watch.guard(call, DeviceError, what, STAGE)

    # ---- waiting --------------------------------------------------------------------------

    def settle(self) -> None:
        """Issue every sample that is due, and wait until all samples are completed."""
        while self._due or self._pending.count:
            self._issue_due()
            wait_s = min(self._max_wait_s, max(self._pending.left_s(self._now()), 0.0))
            self._take(self._polled(wait_s), self._now())
            self._pending.check_alive(self._now())
            undrained_s = (self._now() - self._acquisition.last_drain_ns) * 1e-9
            if (self._pending.count or self._due) and undrained_s >= self._max_wait_s:
                drain(self._acquisition)

    def _wait_until(self, due_ns: int) -> None:
        """Wait until ``due_ns``: take replies, issue what fits, and drain and write while the device is idle."""
        if self._now() >= due_ns:  # on a late schedule, nothing else drains and polls
            self._background_work(0)
            if self._pending.count:
                self._take(self._polled(0.0), self._now())
        while (left_ns := due_ns - self._now()) > 0:
            brief = STEP_NS < left_ns <= WRITING_NS and not self._pending.count
            if brief and self._recorder.write_some(left_ns > LONG_NS):
                continue
            self._background_work(left_ns)
            if not (self._pending.count or self._due):
                self._clock.sleep_until(due_ns)
                return
            self._issue_due()
            left_ns = due_ns - self._now()
            spin = left_ns <= self._spin_ns
            wait_s = 0.0 if spin else min(self._max_wait_s, (left_ns - self._spin_ns) * 1e-9)
            self._take(self._polled(wait_s), self._now())
            self._pending.check_alive(self._now())
            if spin and self._pending.count:
                self._clock.sleep_until(0)
            self._issue_due()

    def _background_work(self, left_ns: int) -> None:
        """Drain and write while there is time, or when a buffer would overflow."""
        acquisition = self._acquisition
        now_ns = self._now()
        if left_ns > AHEAD_NS and not self._pending.count:
            sleep(acquisition, (left_ns - AHEAD_NS) * 1e-9)
        elif acquisition.bench.meters and (now_ns - acquisition.last_drain_ns) * 1e-9 >= self._max_wait_s:
            drain(acquisition)
        elif left_ns > QUIET_NS and now_ns >= acquisition.next_work_ns and not self._pending.count:
            housekeep(acquisition)
        elif (left_ns > WRITING_NS and now_ns >= acquisition.next_work_ns) or self._recorder.waiting > NEARLY_FULL:
            acquisition.recorder.flush()
            self._shown(now_ns)
        elif left_ns > STEP_NS and now_ns >= acquisition.next_work_ns:
            self._shown(now_ns)

    def _shown(self, now_ns: int) -> None:
        self._acquisition.next_work_ns = now_ns + AHEAD_NS
        show(self._acquisition)

    # ---- issued and completed -------------------------------------------------------------

    def _issue_due(self) -> None:
        due = self._due
        while due and (most := min(self._capacity(), len(due))) > 0:
            step = due[0].step
            size = 1
            while size < most and _alike(due[size].step, step):
                size += 1
            batch = [due.popleft() for _ in range(size)]
            issued_ns = self._now()
            for query in batch:
                self._pending.add(Query(query.issue, query.sample, query.step, query.due_ns, issued_ns), issued_ns)
            samples = [query.sample for query in batch]
            what = f"the device failed on sample {samples[0].id}"
            self._watch.guard(partial(self._send, samples, step), DeviceError, what, SUBMIT)

    def _capacity(self) -> int:
        """Return how many samples the device takes now: at most a batch, and at most what its queue has room for."""
        if self._max_pending is None:
            return 0 if self._pending.count else self._batch
        return min(self._batch, self._max_pending - self._pending.count)

    def _send(self, samples: Sequence[Sample], step: Issue) -> None:
        if isinstance(self._device, Repeats) and (step.repeat > 1 or step.phase is not None):
            self._device.submit_repeated(samples, step.repeat, step.phase, step.budget)
        elif step.phase is not None:
            what = f"device {self._acquisition.device.name} cannot run the phase {step.phase!r} alone"
            remedy = "Measure the phases together, or implement submit_repeated in its driver"
            raise SetupError(what, field="phase", value=step.phase, remedy=remedy)
        else:
            self._submit(samples, step.budget)

    def _polled(self, wait_s: float) -> Sequence[Reply]:
        what = f"the device failed on sample {self._pending.first}"
        return self._watch.guard(partial(self._poll, wait_s), DeviceError, what, POLL)

    def _take(self, replies: Sequence[Reply], completed_ns: int) -> None:
        """Match replies to issued samples; for a sample that was issued twice, complete the oldest issue first."""
        acquisition = self._acquisition
        for reply in replies:
            query = self._pending.complete(reply, completed_ns)
            self._completed_ns = completed_ns
            assert query.issued_ns is not None
            warmup = query.step.warmup
            self._recorder.reply(query.issue, reply, query.due_ns, query.issued_ns, completed_ns, warmup)
            acquisition.uncounted -= not warmup
            if reply.activity is not None or reply.network is not None:
                self._activity(query.issue, reply)

    def _activity(self, issue: int, reply: Reply) -> None:
        call, what = partial(self._recorder.activity, issue, reply), "the activity of the device cannot be recorded"
        self._watch.guard(call, DeviceError, what, ACTIVITY)

    def abandon(self, error: Ended | None) -> Ended | None:
        """Record the samples that were not completed; return ``error``, or else the error of the recorder, if any."""
        queries = [*self._pending, *self._due]
        try:
            for q in sorted(queries, key=lambda q: q.issue):
                self._recorder.unanswered(q.issue, q.sample.id, q.due_ns, q.issued_ns, q.step.warmup)
        except RigError as caught:
            return error or caught
        return error


def _alike(one: Issue, other: Issue) -> bool:
    return one is other or (one.budget, one.repeat, one.phase) == (other.budget, other.repeat, other.phase)
