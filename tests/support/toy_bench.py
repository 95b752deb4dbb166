"""A small bench for tests of the engine: a device that answers in time, and witnesses of what is done when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fixtures.bench.mock_meter import MockMeter
from rig.recording.columns.rows import ReplyRows
from rig.recording.events import Line
from rig.recording.writer import Recorder
from rig.types import Bracket, Budget, Chunk, Clock, DeviceInfo, Reply, Sample, Span
from tests.support.serving import Log, S


class Toy:
    """A device without clock, mark or loop: it takes ``seconds`` for each issue."""

    def __init__(self, clock: Clock, log: Log, seconds: float = 0.1, batch: int = 1, mute: int = 0) -> None:
        self.clock, self.log, self.seconds, self.batch, self.mute = clock, log, seconds, batch, mute
        self.pending: list[Reply] = []
        self.done_ns = 0

    def info(self) -> DeviceInfo:
        return DeviceInfo("toy", "simulator", max_batch=self.batch, timeout_s=60.0)

    def stage(self, samples: Sequence[Sample]) -> None:
        self.log.append(("stage", *(s.id for s in samples)))

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        now_ns = self.clock.now_ns()
        self.log.append(("submit", *(s.id for s in samples)))
        self.done_ns = now_ns + round(self.seconds * S)
        answered = samples[: len(samples) - self.mute]
        self.pending = [Reply(s.id, None, (Span("inference", now_ns, self.done_ns),)) for s in answered]

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        until_ns = self.clock.now_ns() + round(timeout_s * S)
        if not self.pending or until_ns < self.done_ns:
            self.clock.sleep_until(until_ns)
            return ()
        self.clock.sleep_until(self.done_ns)
        ready, self.pending = self.pending, []
        self.log.append(("reply", *(r.sample_id for r in ready)))
        return ready

    def close(self) -> None: ...


class Looping(Toy):
    """The same with its own loop."""

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        self.log.append(("loop", times, phase))
        self.submit(samples, budget)


class Watched:
    """A meter that notes when it is read."""

    def __init__(self, meter: MockMeter, clock: Clock, log: Log) -> None:
        self.meter, self.clock, self.log = meter, clock, log
        self.info, self.timer, self.close = meter.info, meter.timer, meter.close

    def start(self) -> Bracket:
        self.log.append(("read", self.clock.now_ns()))
        return self.meter.start()

    def read(self) -> Sequence[Chunk]:
        self.log.append(("read", self.clock.now_ns()))
        return self.meter.read()

    def stop(self) -> Sequence[Chunk]:
        self.log.append(("read", self.clock.now_ns()))
        return self.meter.stop()


class WitnessedRows(ReplyRows):
    """A buffer that notes what is put into it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        super().__init__()

    def put(
        self, issue: int, reply: Reply, due_ns: int | None, issued_ns: int, completed_ns: int, warmup: bool
    ) -> bool:
        self.log.append(("row", reply.sample_id))
        return super().put(issue, reply, due_ns, issued_ns, completed_ns, warmup)


class Witness(Recorder):
    """A recorder that notes what it writes, in order with the device's actions."""

    def __init__(self, path: Path, log: Log) -> None:
        self.log = log
        super().__init__(path)
        self.replies = WitnessedRows(log)

    def event(self, event: Line) -> None:
        self.log.append(("event", str(event.__struct_config__.tag)))
        super().event(event)

    def flush(self) -> None:
        self.log.append(("flush",))
        super().flush()
