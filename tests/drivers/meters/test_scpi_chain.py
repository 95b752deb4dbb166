"""A multimeter in real time: plant, instrument, link, engine, disk; and the failures of its link."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.bench.live_plant import live_plant
from fixtures.bench.mock_device import open_device
from fixtures.instruments.front_end import Wiring
from fixtures.worlds.random_draw import blank
from rig.analysis.evaluate import evaluate
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import MeterError, SetupError
from rig.recording.reader import open_run
from rig.types import Idle, Issue, Step
from tests.support.instruments import StandIn, live
from tests.support.meters import error_of, taken, values

pytestmark = pytest.mark.real_time


INSTRUMENT = "scpi-dmm"
EXACT = Wiring(noise=1e-5, gain_limit=0.0, offset_limit=0.0, resolution=1e-6)
PATIENT_S = 60.0
"""Only a broken meter makes a test wait this long; a busy machine may delay any thread for seconds."""


def test_an_unplugged_meter_ends_the_run_with_a_typed_error_and_a_whole_recording(it: StandIn, tmp_path: Path) -> None:
    def steps() -> Iterator[Step]:
        yield Idle(0.25)
        for k, sample in enumerate(blank(100).samples):
            if k == 4:
                it.sim.server.unplug()
            yield Issue([sample])

    device, began_s = open_device(it.plant, idle_w=0.02, inference_w=0.06, inference_s=0.03), time.monotonic()
    with closing(it.open(rate_hz=20_000, timeout_s=20.0)) as meter, pytest.raises(MeterError, match=r"hung up|is gone"):
        bench = Bench(device, (meter,), it.plant.clock)
        record(tmp_path / "run", bench, blank(8), steps(), scenario={"name": "x"}, argv=[])
    lasted_s, run = time.monotonic() - began_s, open_run(tmp_path / "run")

    assert lasted_s < 3.0  # less than the hundred samples take, and less than the timeout
    assert run.error is not None and run.error.error == "MeterError"
    assert run.truncated == () and run.sealed
    assert len(run.traces["core"].value) == run.arrivals("core")[-1, 0] > 0.25 * 20_000
    assert not evaluate(run).complete


def test_a_stall_loses_nothing_while_the_memory_lasts(it: StandIn) -> None:
    with closing(it.open(rate_hz=50_000)) as meter:
        meter.start()
        it.sim.server.stall(0.2)
        before_s = time.monotonic()
        assert meter.read() is not None and time.monotonic() - before_s < 0.2
        time.sleep(0.3)
        chunks = [*meter.read(), *meter.stop()]
    counts = it.sim.counts()

    assert len(values(chunks)) == counts["taken"] > 0.2 * 50_000
    assert counts["dropped"] == 0


@pytest.mark.parametrize("fault", [lambda server: server.stall(0.15), lambda server: server.slow(100_000)])
def test_a_link_that_outlasts_the_memory_is_told_and_not_averaged_over(fault: Callable[[Any], None]) -> None:
    with live("scpi-dmm", memory=1000) as it, closing(it.open(rate_hz=50_000)) as meter:
        threading.Timer(0.05, fault, (it.sim.server,)).start()
        meter.start()
        error = error_of(meter, PATIENT_S)

        assert "overflowed" in error.message and it.sim.counts()["dropped"] > 0
        assert "MEM" in error.remedy


@pytest.mark.parametrize(
    ("wiring", "options", "range_max", "amperes", "says"),
    [
        (EXACT, {"range_max": 1e-3}, 1.2e-3, 1.2e-3, "3 A terminals"),
        (EXACT, {"range_max": 2.0}, 3.6, 0.02 / 1.8, "3 A terminals"),
        (EXACT, {"range_max": 5.0}, 12.0, 0.02 / 1.8, "10 A terminals"),
        (replace(EXACT, shunt_ohm=10.0), {"function": "voltage", "shunt_ohm": 10.0, "range_max": 1.0}, 0.12,
         0.02 / 1.8, ", 1000 readings/s"),
    ],
    ids=["over the range", "3 A", "10 A", "a shunt"],
)  # fmt: skip
def test_a_current_is_read_on_its_range_and_flagged_beyond_it(
    wiring: Wiring, options: dict[str, Any], range_max: float, amperes: float, says: str
) -> None:
    with live("scpi-dmm", wiring=wiring) as it, closing(it.open(**options)) as meter:
        info, chunks = meter.info(), taken(meter, 0.2)
        assert it.sim.language.failures == []

    rail = info.rails[0]
    assert rail.conversion.unit == "A" and rail.range_max == pytest.approx(range_max) and says in info.description
    assert np.mean(values(chunks)) == pytest.approx(amperes, rel=3e-3) and len(values(chunks)) > 50
    assert all(np.all(chunk.flags == (amperes == range_max)) for chunk in chunks if chunk.flags is not None)


def test_what_an_instrument_has_seen_cannot_have_been_otherwise() -> None:
    plant = live_plant()
    plant.install({"core": 0.5}, {"inference": {"core": 1.5}})
    plant.look(2_000_000_000_000)

    plant.occupy("inference", 2_000_000_000_000, 2_001_000_000_000)
    with pytest.raises(SetupError, match=r"told 0\.5 s too late"):
        plant.occupy("inference", 1_999_500_000_000, 2_001_000_000_000)
