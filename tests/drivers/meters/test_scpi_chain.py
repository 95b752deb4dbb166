"""SCPI meters in real time: device, plant, instrument, link, engine, disk, estimators; and their failures."""

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

from drivers.meters.scpi.dmm.meter import open_meter
from fixtures.bench.live_plant import live_plant
from fixtures.instruments.front_end import Wiring
from fixtures.worlds.random_draw import blank, truth
from rig.analysis.evaluate import evaluate
from rig.conformance.device import check_meter
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import MeterError, RigError, SetupError
from rig.recording.reader import Run, open_run
from rig.types import Chunk, Device, Idle, Issue, Mark, Meter, Step
from tests.support.meters import check_figures, error_of
from tests.support.scpi_bench import calibration, live

pytestmark = pytest.mark.real_time


EXACT = Wiring(noise=1e-5, gain_limit=0.0, offset_limit=0.0, resolution=1e-6)
PROMPT = Wiring(ready_s=1e-3)
IDLE_S, SPANS = 0.25, 8
PATIENT_S = 60.0
"""Only a broken meter makes a test wait this long; a busy machine may delay any thread for seconds."""


def steps(at: Callable[[int], None] = lambda k: None, n: int = SPANS, marks: bool = True) -> Iterator[Step]:
    yield from [Mark()] * marks
    yield Idle(IDLE_S)
    for k, sample in enumerate(blank(n).samples):
        at(k)
        yield Issue([sample])
    yield Idle(IDLE_S)


def recorded(path: Path, device: Device, meter: Meter, clock: Any, played: Iterator[Step]) -> RigError | None:
    """Record a run; return the error that ended it."""
    try:
        record(path, Bench(device, (meter,), clock), blank(SPANS), played, scenario={"name": "x"}, argv=[])
    except RigError as error:
        return error
    finally:
        meter.close()
    return None


def drained(meter: Meter, enough: int) -> list[Chunk]:
    """Start, read until there are enough readings, and stop."""
    meter.start()
    chunks: list[Chunk] = []
    deadline_s = time.monotonic() + PATIENT_S
    while sum(len(c.value) for c in chunks) < enough and time.monotonic() < deadline_s:
        chunks += meter.read()
        time.sleep(0.005)
    return chunks + list(meter.stop())


def started(meter: Meter) -> Meter:
    meter.start()
    return meter


# ---- the whole chain ----------------------------------------------------------------------


def test_the_energy_that_was_measured_is_the_energy_that_was_used(tmp_path: Path) -> None:
    with live(Wiring(gain_limit=5e-4, offset_limit=1e-4)) as (plant, device, sim, server):
        meter = open_meter(
            plant.clock, address=server.address, rate_hz=20_000, supply_v=1.8, calibration=calibration(tmp_path)
        )
        assert recorded(tmp_path / "run", device, meter, plant.clock, steps()) is None
        counts = sim.counts()
    run = open_run(tmp_path / "run")
    result = evaluate(run)
    real = truth(plant, "inference", SPANS)

    assert result.simulated
    assert (len(run.traces["core"].value), counts["dropped"]) == (counts["taken"], 0)
    check_figures(result, real, 3e-3)


def test_an_unplugged_meter_ends_the_run_with_a_typed_error_and_a_whole_recording(tmp_path: Path) -> None:
    with live() as (plant, device, _, server):
        meter = open_meter(plant.clock, address=server.address, rate_hz=20_000, supply_v=1.8, timeout_s=20.0)
        began_s = time.monotonic()
        unplug = steps(lambda k: server.unplug() if k == 4 else None, n=100, marks=False)
        error = recorded(tmp_path / "run", device, meter, plant.clock, unplug)
        lasted_s = time.monotonic() - began_s
    run = open_run(tmp_path / "run")

    assert isinstance(error, MeterError) and ("hung up" in error.message or "is gone" in error.message)
    assert lasted_s < 3.0  # less than the hundred samples take, and less than the timeout
    assert run.error is not None and run.error.error == "MeterError"
    assert run.truncated == () and run.sealed
    assert _whole(run)
    assert not evaluate(run).complete


def _whole(run: Run) -> bool:
    """The trace has as many readings as the events count, until the plug was pulled."""
    return bool(len(run.traces["core"].value) == run.arrivals("core")[-1, 0] > 0.25 * 20_000)


# ---- faults of the link -------------------------------------------------------------------


def test_a_stall_loses_nothing_while_the_memory_lasts() -> None:
    with live() as (_, _, sim, server):
        meter = open_meter(address=server.address, rate_hz=50_000, supply_v=1.8)
        with closing(meter):
            meter.start()
            server.stall(0.2)
            before_s = time.monotonic()
            assert meter.read() is not None and time.monotonic() - before_s < 0.2
            time.sleep(0.3)
            chunks = [*meter.read(), *meter.stop()]
        counts = sim.counts()

    assert sum(len(c.value) for c in chunks) == counts["taken"] > 0.2 * 50_000
    assert counts["dropped"] == 0


def test_a_stall_that_outlasts_the_memory_is_told_and_not_averaged_over() -> None:
    with (
        live(memory=2000) as (_, _, sim, server),
        closing(open_meter(address=server.address, rate_hz=50_000, supply_v=1.8)) as meter,
    ):
        server_stall = threading.Timer(0.05, server.stall, (0.15,))
        server_stall.start()
        error = error_of(started(meter), PATIENT_S)
        server_stall.join()
        dropped = sim.counts()["dropped"]

    assert "overflowed" in error.message and dropped > 0
    assert "MEM" in error.remedy


@pytest.mark.parametrize("fault", ["garble", "cut"])
def test_garbage_and_a_torn_block_are_errors(fault: str) -> None:
    with (
        live() as (_, _, _, server),
        closing(open_meter(address=server.address, rate_hz=50_000, supply_v=1.8, timeout_s=0.3)) as meter,
    ):
        arm = server.garble if fault == "garble" else lambda: server.cut(3000)
        threading.Timer(0.05, arm).start()
        error = error_of(started(meter), PATIENT_S)

    assert error.field in ("address", "")
    assert server.address in error.message


def test_a_link_that_is_too_slow_ends_in_an_overflow() -> None:
    with (
        live(memory=1000) as (_, _, _, server),
        closing(open_meter(address=server.address, rate_hz=50_000, supply_v=1.8)) as meter,
    ):
        threading.Timer(0.02, server.slow, (100_000,)).start()

        assert "overflowed" in error_of(started(meter), PATIENT_S).message


# ---- what is read -------------------------------------------------------------------------


def test_current_past_the_range_is_flagged_and_stays_a_number() -> None:
    with (
        live(EXACT) as (_, _, _, server),
        closing(open_meter(address=server.address, rate_hz=1000, range_max=1e-3, supply_v=1.8)) as meter,
    ):
        chunks = drained(meter, 20)

    assert np.all(np.concatenate([c.value for c in chunks]) == pytest.approx(1.2e-3))
    assert all(np.all(c.flags == 1) for c in chunks if c.flags is not None)


def test_a_voltage_over_a_shunt_is_a_current() -> None:
    with (
        live(replace(EXACT, shunt_ohm=10.0)) as (_, _, _, server),
        closing(
            open_meter(
                address=server.address, rate_hz=1000, function="voltage", shunt_ohm=10.0, range_max=1.0, supply_v=1.8
            )
        ) as meter,
    ):
        amperes = np.concatenate([c.value for c in drained(meter, 20)])
        rail = meter.info().rails[0]

    assert rail.conversion.unit == "A" and rail.range_max == pytest.approx(0.12)
    assert np.mean(amperes) == pytest.approx(0.02 / 1.8, rel=2e-3)


def test_the_first_reading_begins_inside_the_bracket() -> None:
    with (
        live() as (plant, _, sim, server),
        closing(open_meter(plant.clock, address=server.address, rate_hz=1000, supply_v=1.8)) as meter,
    ):
        bracket = meter.start()
        began_ns = sim.began_ns()

    assert bracket.before_ns <= began_ns <= bracket.after_ns
    assert bracket.after_ns - bracket.before_ns < 50_000_000


@pytest.mark.parametrize(("range_max", "range_", "terminals"), [(5.0, 10.0, "10 A"), (2.0, 3.0, "3 A")])
def test_a_current_is_on_the_range_of_its_terminals(range_max: float, range_: float, terminals: str) -> None:
    with (
        live(EXACT) as (plant, _, sim, server),
        closing(open_meter(plant.clock, address=server.address, range_max=range_max, supply_v=1.8)) as meter,
    ):
        value = np.concatenate([c.value for c in drained(meter, 50)])
        info = meter.info()

    assert info.details["range"] == range_
    assert info.rails[0].range_max == pytest.approx(1.2 * range_)
    assert f"{terminals} terminals" in info.description
    assert np.mean(value) == pytest.approx(0.02 / 1.8, rel=3e-3)
    assert sim.language.failures == []


# ---- conformance --------------------------------------------------------------------------


def test_the_multimeter_keeps_every_rule() -> None:
    with live(PROMPT) as (plant, _, sim, server):
        meter = open_meter(plant.clock, address=server.address, rate_hz=20_000, supply_v=1.8)

        assert "read.count" in check_meter(meter, clock=plant.clock, seconds=0.2)
        assert sim.language.failures == []


# ---- the plant -----------------------------------------------------------------------------


def test_what_an_instrument_has_seen_cannot_have_been_otherwise() -> None:
    plant = live_plant()
    plant.install({"core": 0.5}, {"inference": {"core": 1.5}})
    plant.look(2_000_000_000_000)

    plant.occupy("inference", 2_000_000_000_000, 2_001_000_000_000)
    with pytest.raises(SetupError, match=r"told 0\.5 s too late"):
        plant.occupy("inference", 1_999_500_000_000, 2_001_000_000_000)
