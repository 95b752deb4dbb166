"""The multimeter driver against written dialogues, and against a simulated instrument behind its link."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.meters.scpi.dmm import meter as scpi_dmm
from drivers.meters.scpi.dmm.meter import CaptureSettings, Truevolt
from fixtures.instruments.front_end import Wiring
from rig.bench.calibration import certificate
from rig.engine.clock import HostClock
from rig.errors import DataError, MeterError, RigError, SetupError, UsageError
from tests.support import scpi_bench
from tests.support.instruments import live
from tests.support.meters import error_of, taken, values
from tests.support.raised import raised
from tests.support.scpi_bench import Dialogue, calibration

pytestmark = pytest.mark.real_time

WHO = "Keysight Technologies,34465A,MY54501234,A.02.17-02.40-02.17-00.52-04-02"
WHO_3 = WHO.replace("A.02.17", "A.03.03")
NONE = '+0,"No error"'
IS_OPENED = [("*IDN?", WHO), ("*OPT?", "DIG,MEM")]
IS_SET_UP: Dialogue = [
    *((line, None) for line in (
        "*RST;*CLS", "CONF:CURR:DC 0.1", "CURR:DC:RANG:AUTO OFF", "CURR:DC:APER 2e-05", "CURR:DC:ZERO:AUTO OFF",
        "TRIG:SOUR BUS", "TRIG:COUN 1", "TRIG:DEL 0", "SAMP:COUN 1000000000", "SAMP:SOUR TIM", "SAMP:TIM 2e-05",
        "FORM:DATA REAL,64",
    )),
    ("CURR:DC:RANG?;:CURR:DC:APER?;:SAMP:TIM?;:CURR:DC:TERM?", "+1.00000000E-01;+2.00000000E-05;+2.00000000E-05;+3"),
]  # fmt: skip
FAST = CaptureSettings("current", 0.1, 20e-6, 20e-6)


def spoken(dialogue: Dialogue, use: Callable[[Truevolt], Any]) -> Any:
    return scpi_bench.spoken(dialogue, lambda session: use(Truevolt(session)))


# ---- written dialogues --------------------------------------------------------------------


def test_setting_up_says_exactly_this() -> None:
    got = spoken([*IS_OPENED, *IS_SET_UP, ("SYST:ERR?", NONE)], lambda dmm: dmm.configure(FAST))

    assert got == replace(FAST, terminals_a=3.0)


def test_a_bus_trigger_is_given_to_an_instrument_that_waits_for_it() -> None:
    dialogue = [
        *IS_OPENED, ("ABOR;*CLS", None), ("INIT", None), ("STAT:OPER:COND?", "+0"), ("STAT:OPER:COND?", "+32"),
        ("*TRG;:STAT:OPER:COND?", "+16"),
    ]  # fmt: skip
    before_ns = HostClock().now_ns()
    bracket = spoken(dialogue, lambda dmm: dmm.begin(HostClock()))

    assert before_ns < bracket.before_ns < bracket.after_ns < HostClock().now_ns()
    assert bracket.tick == 0


@pytest.mark.parametrize("states", [("+0",), ("+32", "+32")], ids=["never ready", "never triggered"])
def test_an_instrument_that_does_not_start_is_given_up(states: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scpi_dmm, "STARTED_S", 0.0)
    asked = zip(("STAT:OPER:COND?", "*TRG;:STAT:OPER:COND?"), states, strict=False)
    dialogue = [*IS_OPENED, ("ABOR;*CLS", None), ("INIT", None), *asked]
    error = raised(RigError, spoken, dialogue, lambda dmm: dmm.begin(HostClock()))

    assert "does not start" in error.message and error.value == int(states[-1])


def fetched(answer: str, questionable: str = "+0") -> Any:
    dialogue = [*IS_OPENED, *IS_SET_UP, ("SYST:ERR?", NONE), ("R? 25000", answer), ("STAT:QUES:EVEN?", questionable)]
    return spoken(dialogue, lambda dmm: (dmm.configure(FAST), dmm.readings())[1])


def test_readings_are_big_endian_doubles_in_a_block() -> None:
    assert fetched("#216" + "\0" * 16)[0].tolist() == [0.0, 0.0]
    assert fetched("#10")[0].tolist() == []


@pytest.mark.parametrize(("bit", "says"), [(1 << 14, "overflowed"), (1 << 2, "timing violation")])
def test_lost_and_mistimed_readings_are_errors_and_no_readings(bit: int, says: str) -> None:
    raised(MeterError, fetched, "#10", f"+{bit | 2}", says=says)


def test_what_the_instrument_objects_to_is_in_the_error() -> None:
    dialogue = [*IS_OPENED, *IS_SET_UP, ("SYST:ERR?", '-221,"Settings conflict"'), ("SYST:ERR?", NONE)]
    raised(RigError, spoken, dialogue, lambda dmm: dmm.configure(FAST), says='-221,"Settings conflict"')


def test_a_timer_that_the_instrument_changed_is_refused() -> None:
    changed = (IS_SET_UP[-1][0], "+1.00000000E-01;+2.00000000E-05;+2.10000000E-05;+3")
    dialogue = [*IS_OPENED, *IS_SET_UP[:-1], changed, ("SYST:ERR?", '-221,"SAMP:TIM changed"'), ("SYST:ERR?", NONE)]
    error = raised(UsageError, spoken, dialogue, lambda dmm: dmm.configure(FAST), says="SAMP:TIM changed")
    assert error.field == "rate_hz"


@pytest.mark.parametrize(("who", "options", "fast", "memory"), [
    (WHO, "0", False, 50_000), (WHO, "DIG", True, 50_000), (WHO, '"MEM","SEC"', False, 2_000_000),
    (WHO_3, "0", True, 50_000), (WHO.replace("34465A", "34470A"), "DIG,MEM", True, 2_000_000),
])  # fmt: skip
def test_options_and_firmware_say_how_fast_and_how_deep(who: str, options: str, fast: bool, memory: int) -> None:
    dialogue = [("*IDN?", who), ("*OPT?", options)]

    assert spoken(dialogue, lambda dmm: (dmm.fast, dmm.memory)) == (fast, memory)


def test_another_model_is_no_digitiser() -> None:
    dialogue = [("*IDN?", WHO.replace("34465A", "34461A"))]

    raised(SetupError, spoken, dialogue, lambda dmm: None)


# ---- options ------------------------------------------------------------------------------


def test_without_the_digitizing_option_more_than_3333_readings_a_second_are_refused() -> None:
    with live("scpi-dmm", options=("MEM",)) as it:
        error = raised(RigError, it.open, rate_hz=5000.0)
        with closing(it.open(rate_hz=3000.0)) as meter:
            rail = meter.info().rails[0]

    assert error.field == "rate_hz" and "DIG" in error.message and "3333" in error.remedy
    assert rail.aperture_s == pytest.approx(332e-6, abs=1e-9)


def test_a_meter_says_what_it_is_and_how_it_was_set() -> None:
    with (
        live("scpi-dmm", options=("DIG",)) as it,
        closing(it.open(range_max=0.05, rate_hz=10_000.0, burden_ohm=0.2)) as meter,
    ):
        info = meter.info()

    rail = info.rails[0]
    assert (rail.conversion.unit, rail.conversion.supply_v, rail.conversion.burden_ohm) == ("A", 1.8, 0.2)
    assert (rail.rate_hz, rail.aperture_s, rail.range_max) == (10_000.0, pytest.approx(98e-6), pytest.approx(0.12))
    assert rail.accuracy is None and rail.resolution == pytest.approx(15e-6 * 0.1)
    assert info.mode == "simulator" and info.buffer_s == pytest.approx(5.0)
    assert info.versions["34465A SIM0000001"].startswith("A.02.17")
    assert info.details["autozero"] == "off"


# ---- calibration --------------------------------------------------------------------------


def test_an_accuracy_is_stated_from_the_owners_file_and_from_nowhere_else(tmp_path: Path) -> None:
    path = calibration(tmp_path)
    with live("scpi-dmm") as it, closing(it.open(calibration=path)) as meter:
        info = meter.info()

    accuracy = info.rails[0].accuracy
    assert accuracy is not None and (accuracy.of_reading, accuracy.offset) == (pytest.approx(5e-4), pytest.approx(1e-5))
    assert "certificate 4711" in accuracy.source
    assert len(info.details["calibration"]["sha256"]) == 64
    assert info.calibration is not None and info.calibration == certificate(path)


def test_a_calibration_of_another_instrument_or_range_is_refused(tmp_path: Path) -> None:
    with live("scpi-dmm") as it:
        raised(DataError, it.open, calibration=calibration(tmp_path, serial="MY1"), says="MY1")
        assert raised(RigError, it.open, calibration=calibration(tmp_path, full_scale=1.0)).field == "calibration_range"


def test_resolution_is_coarser_for_shorter_apertures() -> None:
    steps = spoken(
        IS_OPENED, lambda dmm: [dmm.resolution(CaptureSettings("current", 1.0, 1.0, s)) for s in (2e-5, 1e-3, 2e-2)]
    )
    assert np.all(np.diff(steps) < 0) and steps[0] == 30e-6


# ---- its memory and its ranges ---------------------------------------------------------------


EXACT = Wiring(noise=1e-5, gain_limit=0.0, offset_limit=0.0, resolution=1e-6)


def test_a_stall_loses_nothing_while_the_memory_lasts() -> None:
    with live("scpi-dmm") as it, closing(it.open(rate_hz=50_000)) as meter:
        meter.start()
        it.sim.server.stall(0.2)
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
        error = error_of(meter)

        assert "overflowed" in error.message and it.sim.counts()["dropped"] > 0
        assert "MEM" in error.remedy


@pytest.mark.parametrize(("wiring", "options", "range_max", "amperes", "says"), [
    (EXACT, {"range_max": 1e-3}, 1.2e-3, 1.2e-3, "3 A terminals"),
    (EXACT, {"range_max": 2.0}, 3.6, 0.02 / 1.8, "3 A terminals"),
    (EXACT, {"range_max": 5.0}, 12.0, 0.02 / 1.8, "10 A terminals"),
    (replace(EXACT, shunt_ohm=10.0), {"function": "voltage", "shunt_ohm": 10.0, "range_max": 1.0}, 0.12,
     0.02 / 1.8, ", 1000 readings/s"),
], ids=["over the range", "3 A", "10 A", "a shunt"])  # fmt: skip
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
