"""The power monitor of a Xylo board, on simulated boards in real time: rates, stamps, and lost readings."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.xylo.device import XyloDevice
from drivers.meters.xylo_monitor import open_meter
from fixtures.instruments.xylo.bench import on_board
from fixtures.instruments.xylo.board import CHANNELS, SimBoard, Traits
from fixtures.instruments.xylo.helpers import set_power_measure, set_power_measurement
from rig import check_meter
from rig.errors import MeterError, UsageError
from rig.types import Chunk, Meter
from tests.support.meters import column, error_of, taken
from tests.support.raised import raised
from tests.support.xylo_boards import hardware, opener

pytest.importorskip("xylosim")
pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("warm_soon")]
Opened = Callable[..., XyloDevice]


@pytest.fixture(name="opened")
def _opened() -> Iterator[Opened]:
    yield from opener(lambda board=None, **traits: on_board(board or SimBoard(Traits(**traits))))


def measured(meter: Meter, seconds: float) -> dict[str, Any]:
    """Return the readings of each rail in this many seconds; close the meter."""
    with closing(meter):
        chunks = taken(meter, seconds)
    names = ("value", "start_tick", "end_tick")
    rails = (rail.name for rail in meter.info().rails)
    return {rail: Chunk(rail, *(column(chunks, name, rail) for name in names)) for rail in rails}


# ---- what it reads --------------------------------------------------------------------------


@pytest.mark.parametrize(("chip", "rate_hz"), [("audio2", 1280.0), ("audio3", 925.926)])
def test_each_rail_has_its_power_and_channel(chip: str, rate_hz: float, opened: Opened) -> None:
    device = opened(chip=chip)

    found = measured(open_meter(device), 0.5)

    assert set(found) == set(CHANNELS[chip])
    for rail, watts in hardware(device).plant.idle_w.items():
        trace = found[rail]
        assert trace.value.mean() == pytest.approx(watts, abs=1e-6)
        assert np.median(np.diff(trace.end_tick)) == pytest.approx(1e6 / rate_hz, abs=1.0)
        assert set(trace.end_tick - trace.start_tick) == {round(1e6 / rate_hz)}


def test_a_rate_set_by_another_program_is_reset(opened: Opened) -> None:
    board = SimBoard(Traits())
    set_power_measure(board, 5.0)

    found = measured(open_meter(opened(board), rate_hz=320.0), 0.5)

    assert board.power.started[0] == 5.0
    assert np.median(np.diff(found["Io"].end_tick)) == pytest.approx(3125, abs=1)


@pytest.mark.parametrize("share", [{"lost": 0.3}, {"late": 0.3, "late_s": 0.1}, {"late": 0.3, "late_s": 0.6}])
def test_lost_readings_are_missing_and_late_readings_are_ordered(share: dict[str, float], opened: Opened) -> None:
    found = measured(open_meter(opened(**share)), 2.0)

    for trace in found.values():
        stamps = np.asarray(trace.end_tick)
        assert np.all(np.diff(stamps) > 0)
        gaps = np.diff(stamps[stamps < stamps[-1] - 400_000])  # later ones are still on their way when it stops
        missing = 1.0 - len(gaps) / (np.sum(gaps) / 781.25)
        caught_up = "late" in share and share["late_s"] < 0.25
        assert missing < 0.03 if caught_up else 0.05 < missing < 0.4


def test_readings_on_a_busy_bus_are_late_and_complete(opened: Opened) -> None:
    device = opened(event_s=2e-5)
    meter = open_meter(device)
    meter.start()
    hardware(device).write(10_000)  # the link is busy for 0.2 s

    time.sleep(0.6)
    chunks = meter.stop()

    stamps = column(chunks, "end_tick", "Io")
    assert set(np.diff(stamps)) <= {780, 781, 782}


def test_a_delayed_start_repeats_its_bracket(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, held_s = opened(), iter([0.5])
    board = device.board
    assert board is not None
    tick = board.tick

    def late() -> int:
        time.sleep(next(held_s, 0.0))
        return tick()

    monkeypatch.setattr(board, "tick", late)

    bracket = open_meter(device).start()

    assert bracket.after_ns - bracket.before_ns < 400_000_000


# ---- what it refuses ------------------------------------------------------------------------


@pytest.mark.parametrize(("chip", "other"), [("audio2", set_power_measure), ("audio3", set_power_measurement)])
def test_a_rate_that_changes_during_a_run_is_an_error(chip: str, other: Any, opened: Opened) -> None:
    device = opened(chip=chip)
    board = hardware(device)
    meter = open_meter(device, rate_hz=500.0)
    meter.start()
    time.sleep(0.3)

    board.power.stop_auto_power_measurement()
    other(board, 50.0)

    error = error_of(meter)
    assert re.search(r"runs at [\d.]+ Hz and was set to 500 Hz|stopped|stopwatch", error.message)
    assert "kept" in error.remedy


@pytest.mark.parametrize(("fault", "says"), [
    (lambda board: board.power.stop_auto_power_measurement(), "stopped by something else"),
    (lambda board: board.unplug(), "Device is not open"),
])  # fmt: skip
def test_a_monitor_that_stops_is_an_error(fault: Callable[[SimBoard], None], says: str, opened: Opened) -> None:
    device = opened(chip="audio3")
    meter = open_meter(device)
    meter.start()
    fault(hardware(device))

    assert says in error_of(meter).message


def test_a_wrong_rate_is_found_in_a_short_run(opened: Opened) -> None:
    device = opened()
    meter = open_meter(device, rate_hz=20.0)
    meter.start()
    board = hardware(device)
    board.power.stop_auto_power_measurement()
    board.power.start_auto_power_measurement(5.0)
    time.sleep(1.0)

    raised(MeterError, meter.stop, says="runs at 5 Hz and was set to 20 Hz")


def test_audio_3_refuses_a_rate_above_its_converters(opened: Opened) -> None:
    raised(UsageError, open_meter, opened(chip="audio3"), says=r"925\.9 or less", rate_hz=1280.0)


def test_accuracy_needs_a_calibration_file(opened: Opened, tmp_path: Path) -> None:
    device = opened()
    assert all(rail.accuracy is None for rail in open_meter(device).info().rails)

    raised(UsageError, open_meter, device, says="no rail Core", calibration=f"Core={tmp_path / 'core.toml'}")


def test_the_monitor_keeps_every_rule(chip: str, opened: Opened) -> None:
    assert "chunk.grow" in check_meter(open_meter(opened(chip=chip, lost=0.02, late=0.02)), prompt_s=1.0)
