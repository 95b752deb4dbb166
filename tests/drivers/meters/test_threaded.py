"""A threaded meter never waits in ``read``, joins what it fetched, and raises an error once, after the readings."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from drivers.meters.threaded import Batch, ThreadedMeter, sampled_meter
from fixtures.bench.true_power import VirtualClock
from rig.engine.clock import HostClock
from rig.errors import MeterError, SetupError
from rig.types import Bracket, Chunk, Clock, ClockInfo, MeterInfo, Rail
from tests.support.meters import error_of
from tests.support.raised import raised
from tests.support.waiting import until, within

pytestmark = pytest.mark.real_time


@dataclass
class Tape:
    """A source that replays this many readings at each fetch; the last fetch ends with the error, if there is one."""

    counts: Sequence[int]
    began_s: float = 0.0
    error: Exception | None = None
    rest: int = 0
    hold: threading.Event | None = None
    closed: int = 0
    played: threading.Event = field(default_factory=threading.Event)

    def begin(self, clock: Clock) -> Bracket:
        at_ns = clock.now_ns() - round(self.began_s * 1e9)
        self._left = list(self.counts)
        return Bracket(at_ns, 0, at_ns)

    def fetch(self) -> Iterator[Batch]:
        count = self._left.pop(0) if self._left else 0
        if self.hold is not None:
            self.hold.wait(60.0)
        yield readings(count)
        if not self._left:
            self.played.set()
            if self.error is not None:
                raise self.error

    def finish(self) -> list[Batch]:
        return [readings(self.rest)]

    def close(self) -> None:
        self.closed += 1


INFO = MeterInfo("tape", "simulator", ClockInfo("tape", 1e9), (Rail("core", rate_hz=1000.0),), buffer_s=0.01)


def readings(n: int) -> Batch:
    return [Chunk("core", np.arange(float(n)), flags=np.zeros(n, np.uint8))]


def threaded(tape: Tape, clock: Clock | None = None, **options: float) -> ThreadedMeter:
    return ThreadedMeter(INFO, tape, clock, every_s=1e-3, **options)  # type: ignore[arg-type]


def until_played(tape: Tape, clock: Clock | None = None) -> ThreadedMeter:
    meter = threaded(tape, clock)
    meter.start()
    assert tape.played.wait(60.0)
    return meter


def total(chunks: Sequence[Chunk]) -> int:
    return sum(len(chunk.value) for chunk in chunks)


def test_readings_of_many_fetches_come_as_one_chunk_in_order_and_stop_gives_the_rest() -> None:
    meter = until_played(Tape([2, 0, 3], began_s=0.4, rest=7))
    chunks = meter.read()

    assert [c.value.tolist() for c in chunks] == [[0.0, 1.0, 0.0, 1.0, 2.0]]
    assert meter.read() == []
    assert total(meter.stop()) == 7
    assert total(meter.read()) == total(meter.stop()) == 0


def test_an_error_is_raised_once_after_its_readings() -> None:
    meter = until_played(Tape([5], began_s=0.4, error=MeterError("the cable is out")))

    assert total(meter.read()) == 5
    assert error_of(meter).message == "the cable is out"
    assert total(meter.stop()) == 0


def test_an_unread_error_is_raised_at_stop() -> None:
    meter = until_played(Tape([], began_s=0.4, error=MeterError("the cable is out")))

    raised(MeterError, meter.stop, says="cable")


def test_a_defect_of_a_driver_is_a_meter_error() -> None:
    meter = until_played(Tape([], began_s=0.4, error=ZeroDivisionError("oh")))

    found = error_of(meter)
    assert "ZeroDivisionError: oh" in found.message and "test_threaded.py, line " in found.remedy
    meter.close()


def test_read_does_not_wait_for_an_exchange() -> None:
    held = threading.Event()
    tape = Tape([1], began_s=0.1, hold=held)
    meter = threaded(tape, patience_s=0.05)
    meter.start()
    until(lambda: not tape._left)
    with within(30.0):
        assert meter.read() == []
        raised(MeterError, meter.stop, says="did not end its last exchange")
    held.set()


def test_a_real_time_meter_refuses_simulated_time() -> None:
    raised(SetupError, threaded, Tape([]), VirtualClock(), says="simulated time")


def test_starting_twice_is_refused() -> None:
    meter = until_played(Tape([], began_s=0.1))
    raised(MeterError, meter.start, says="started twice")
    meter.close()
    meter.close()


def test_unread_readings_are_bounded() -> None:
    meter = threaded(Tape([3, 3, 3, 3]), most=5)
    meter.start()
    until(lambda: bool(meter._running and meter._running.error))

    assert total(meter.read()) == 6
    assert "6 readings of meter tape were waiting to be read" in error_of(meter).message
    meter.close()


# ---- the count of readings ---------------------------------------------------------------


def test_no_readings_are_expected_after_stop() -> None:
    class Leaping(HostClock):
        ahead_ns = 0

        def now_ns(self) -> int:
            return begun_ns + self.ahead_ns

    class Late(Tape):
        def finish(self) -> list[Batch]:
            clock.ahead_ns = 2_000_000_000
            return [readings(2), readings(0)]

    clock, begun_ns = Leaping(), time.monotonic_ns()
    tape = Late([395], began_s=0.4)
    meter = sampled_meter(INFO, tape, clock)
    meter.start()
    assert tape.played.wait(60.0)
    meter.read()

    assert total(meter.stop()) == 2


@pytest.mark.parametrize(("count", "began_s"), [(900, 2.0), (90_000, 30.0)], ids=["lost", "too many"])
def test_a_count_that_contradicts_the_time_is_an_error(count: int, began_s: float) -> None:
    meter = sampled_meter(INFO, Tape([count], began_s=began_s))
    meter.start()

    assert f"{count} readings" in error_of(meter).message
    meter.close()
