"""The samples that a device holds, in the order of issue, and how long the device has been silent."""

from collections import deque
from collections.abc import Iterator

import msgspec

from rig.engine.device_errors import failed_on
from rig.errors import DeviceError, DeviceTimeoutError
from rig.types import DeviceInfo, Issue, Reply, Sample, Span


class Query(msgspec.Struct, frozen=True):
    """One sample that waits for its reply.

    ``due_ns`` and ``issued_ns`` are host nanoseconds. Without ``due_ns``, the sample is issued as soon as possible.
    """

    issue: int
    sample: Sample
    step: Issue
    due_ns: int | None
    issued_ns: int | None = None


class Pending:
    """The issued samples without a reply.

    ``alive_ns`` is the last time at which the device was known to work (host ns).
    """

    __slots__ = ("_by_sample", "_device", "alive_ns", "count")

    def __init__(self, device: DeviceInfo) -> None:
        self._device = device
        self._by_sample: dict[str, deque[Query]] = {}
        self.count = 0
        self.alive_ns = 0

    def __iter__(self) -> Iterator[Query]:
        return (query for same in self._by_sample.values() for query in same)

    @property
    def first(self) -> str:
        """Return the id of a sample that has waited long, for an error message; "none" without a sample."""
        return next(iter(self._by_sample), "none")

    def add(self, query: Query, now_ns: int) -> None:
        if not self.count:
            self.alive_ns = now_ns
        self._by_sample.setdefault(query.sample.id, deque()).append(query)
        self.count += 1

    def complete(self, reply: Reply, completed_ns: int) -> Query:
        """Remove and return the oldest query for the reply's sample.

        Raises ``DeviceError`` for an object that is no ``Reply``, for a span that is no ``Span``, for a reply without a
        query, and as ``check_executions`` does.
        """
        if type(reply) is not Reply:
            raise failed_on(self.first, TypeError(f"poll() gave a {type(reply).__name__}, not a Reply"))
        for span in reply.spans:
            if type(span) is not Span:
                raise failed_on(self.first, TypeError(f"a reply's spans hold a {type(span).__name__}, not a Span"))
        queries = self._by_sample.get(reply.sample_id)
        if not queries:
            what = f"the device replied to {reply.sample_id!r}, which was not issued"
            remedy = "Its driver must reply once to each submitted sample"
            raise DeviceError(what, field="sample_id", value=reply.sample_id, remedy=remedy)
        query = queries.popleft()
        if not queries:
            del self._by_sample[reply.sample_id]
        self.count -= 1
        self.alive_ns = completed_ns
        check_executions(reply, query.step.repeat)
        return query

    def left_s(self, now_ns: int) -> float:
        """Return how much longer the device may stay silent (s)."""
        return self._allowed_s() - (now_ns - self.alive_ns) * 1e-9

    def check_alive(self, now_ns: int) -> None:
        """Raise ``DeviceTimeoutError`` if the device has been silent for too long."""
        if self.count and self.left_s(now_ns) <= 0:
            allowed_s = self._allowed_s()
            what = f"device {self._device.name} gave no answer to {self.first} within {allowed_s:g} s"
            remedy = "Check its power and link; the recording up to here is kept (`rig report`)"
            raise DeviceTimeoutError(what, field="timeout_s", value=allowed_s, remedy=remedy)

    def _allowed_s(self) -> float:
        steps = [queries[0].step for queries in self._by_sample.values()]
        return self._device.timeout_s * max((s.repeat for s in steps), default=1)


def check_executions(reply: Reply, asked: int) -> None:
    """Raise ``DeviceError`` if a phase has more executions than were asked for. The first span alone is not checked."""
    for phase in (span.phase for span in reply.spans[1:]):
        total = sum(s.executions for s in reply.spans if s.phase == phase and isinstance(s.executions, int))
        if total > asked:
            what = f"the device gave sample {reply.sample_id} spans of {total} executions of {phase}, not of {asked}"
            remedy = "Its driver must give one span for each execution, from its begin to its end"
            raise DeviceError(what, field="spans", value=total, remedy=remedy)
