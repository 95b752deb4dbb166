"""A sampled meter counts its readings against the host's clock."""

from __future__ import annotations

import time

import pytest

from drivers.meters.threaded import Batch, sampled_meter
from rig.engine.clock import HostClock
from tests.drivers.meters.test_threaded import INFO, Tape, error_of, readings, total

pytestmark = pytest.mark.real_time


def test_time_that_passes_while_it_is_stopped_holds_no_readings() -> None:
    class Leaping(HostClock):
        ahead_ns = 0

        def now_ns(self) -> int:
            return time.monotonic_ns() + self.ahead_ns

    class Late(Tape):
        def finish(self) -> list[Batch]:
            clock.ahead_ns = 2_000_000_000
            return [readings(2), readings(0)]

    clock = Leaping()
    tape = Late([395], began_s=0.4)
    meter = sampled_meter(INFO, tape, clock)
    meter.start()
    assert tape.played.wait(5.0)
    meter.read()

    assert total(meter.stop()) == 2


def test_fewer_readings_than_the_time_since_the_trigger_holds_were_lost() -> None:
    meter = sampled_meter(INFO, Tape([900], began_s=2.0))
    meter.start()

    error = error_of(meter)
    assert "900 readings" in error.message and "lost" in error.message
    meter.close()


def test_more_readings_than_the_time_holds_are_not_of_this_timer() -> None:
    meter = sampled_meter(INFO, Tape([3000], began_s=1.0))
    meter.start()

    assert "3000 readings" in error_of(meter).message
    meter.close()
