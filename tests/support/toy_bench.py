"""A small bench for tests of the engine: a device that answers in time, and parts that log what is done when."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fixtures.bench.mock_meter import MockMeter
from rig.recording.columns.rows import ReplyRows
from rig.recording.events import Line
from rig.recording.writer import Recorder
from rig.types import Budget, Clock, Reply, Sample
from tests.support.ended_runs import before
from tests.support.serving import Log, Queue


class Toy(Queue):
    """A device without clock, mark or loop that logs its requests and when it answers."""

    def __init__(self, clock: Clock, noted: Log, seconds: float = 0.1, batch: int = 1) -> None:
        super().__init__(clock, seconds, batch=batch, timeout_s=60.0)
        self.noted = noted

    def stage(self, samples: Sequence[Sample]) -> None:
        self.noted.append(("stage", *(s.id for s in samples)))

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        self.noted.append(("submit", *(s.id for s in samples)))
        super().submit(samples, budget)

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        ready = super().poll(timeout_s)
        if ready:
            self.noted.append(("reply", *(r.sample_id for r in ready)))
        return ready


class Looping(Toy):
    """A ``Toy`` that repeats samples by itself."""

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        self.noted.append(("loop", times, phase))
        self.submit(samples, budget)


def watched(meter: MockMeter, clock: Clock, log: Log) -> MockMeter:
    """Let the meter note when it is started, read and stopped, each as ``read``."""
    for method in ("start", "read", "stop"):
        before(meter, method, lambda: log.append(("read", clock.now_ns())))
    return meter


class WitnessedRows(ReplyRows):
    """A buffer that notes that a row is put into it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        super().__init__()

    def put(self, *row: Any) -> bool:
        self.log.append(("row",))
        return super().put(*row)


class Witness(Recorder):
    """A recorder that notes what it writes, in order with the device's actions."""

    def __init__(self, path: Path, log: Log) -> None:
        self.log = log
        super().__init__(path)
        self.replies = WitnessedRows(log)
        before(self, "flush", lambda: log.append(("flush",)))

    def event(self, event: Line) -> None:
        self.log.append(("event", str(event.__struct_config__.tag)))
        super().event(event)
