"""SCPI drivers are tested against written dialogues, and that of a multimeter against a simulated one on a link.

The dialogues of a data log (N6705C) and of a reading buffer (DMM6500) are written from the guides of the N6700C and
N6705C, and from the DMM6500's reference manual. No instrument was ever met.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.meters.scpi import dmm6500, n6700 as smu, truevolt as scpi_dmm
from drivers.meters.scpi.dmm6500 import Digitizer
from drivers.meters.scpi.n6700 import Elog, setup_lines
from drivers.meters.scpi.session import ScpiSession
from drivers.meters.scpi.truevolt import CaptureSettings, Truevolt
from drivers.meters.threaded import Batch
from fixtures.instruments.front_end import Wiring
from fixtures.instruments.scpi_server import ScpiServer, block
from rig.bench.calibration import certificate
from rig.engine.clock import HostClock
from rig.errors import DataError, MeterError, RigError, SetupError, UsageError
from rig.types import Meter
from tests.support import scpi_bench
from tests.support.instruments import live
from tests.support.meters import error_of, taken, values
from tests.support.raised import raised
from tests.support.scpi_bench import Dialogue, Scripted, calibration

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


def test_setup_sends_the_exact_lines() -> None:
    got = spoken([*IS_OPENED, *IS_SET_UP, ("SYST:ERR?", NONE)], lambda dmm: dmm.configure(FAST))

    assert got == replace(FAST, terminals_a=3.0)


def test_a_bus_trigger_is_sent_to_a_waiting_instrument() -> None:
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


@pytest.mark.parametrize(("bit", "says"), [(1 << 14, "overflowed"), (1 << 2, "timing violation")])
def test_lost_or_mistimed_readings_are_errors(bit: int, says: str) -> None:
    raised(MeterError, fetched, "#10", f"+{bit | 2}", says=says)


def test_instrument_errors_are_in_the_message() -> None:
    dialogue = [*IS_OPENED, *IS_SET_UP, ("SYST:ERR?", '-221,"Settings conflict"'), ("SYST:ERR?", NONE)]
    raised(RigError, spoken, dialogue, lambda dmm: dmm.configure(FAST), says='-221,"Settings conflict"')


def test_a_changed_sample_timer_is_refused() -> None:
    changed = (IS_SET_UP[-1][0], "+1.00000000E-01;+2.00000000E-05;+2.10000000E-05;+3")
    dialogue = [*IS_OPENED, *IS_SET_UP[:-1], changed, ("SYST:ERR?", '-221,"SAMP:TIM changed"'), ("SYST:ERR?", NONE)]
    error = raised(UsageError, spoken, dialogue, lambda dmm: dmm.configure(FAST), says="SAMP:TIM changed")
    assert error.field == "rate_hz"


@pytest.mark.parametrize(("who", "options", "fast", "memory"), [
    (WHO, "0", False, 50_000), (WHO, "DIG", True, 50_000), (WHO, '"MEM","SEC"', False, 2_000_000),
    (WHO_3, "0", True, 50_000), (WHO.replace("34465A", "34470A"), "DIG,MEM", True, 2_000_000),
])  # fmt: skip
def test_options_and_firmware_determine_rate_and_memory(who: str, options: str, fast: bool, memory: int) -> None:
    dialogue = [("*IDN?", who), ("*OPT?", options)]

    assert spoken(dialogue, lambda dmm: (dmm.fast, dmm.memory)) == (fast, memory)


def test_another_model_is_refused() -> None:
    dialogue = [("*IDN?", WHO.replace("34465A", "34461A"))]

    raised(SetupError, spoken, dialogue, lambda dmm: None)


# ---- options ------------------------------------------------------------------------------


def test_rates_above_3333_hz_require_the_digitizing_option() -> None:
    with live("scpi-dmm", options=("MEM",)) as it:
        error = raised(RigError, it.open, rate_hz=5000.0)
        with closing(it.open(rate_hz=3000.0)) as meter:
            rail = meter.info().rails[0]

    assert error.field == "rate_hz" and "DIG" in error.message and "3333" in error.remedy
    assert rail.aperture_s == pytest.approx(332e-6, abs=1e-9)


def test_a_meter_describes_its_settings() -> None:
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


def test_accuracy_comes_only_from_the_calibration_file(tmp_path: Path) -> None:
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


def test_a_stall_within_the_memory_loses_nothing() -> None:
    with live("scpi-dmm") as it, closing(it.open(rate_hz=50_000)) as meter:
        meter.start()
        it.sim.server.stall(0.2)
        time.sleep(0.3)
        chunks = [*meter.read(), *meter.stop()]
    counts = it.sim.counts()

    assert len(values(chunks)) == counts["taken"] > 0.2 * 50_000
    assert counts["dropped"] == 0


@pytest.mark.parametrize("fault", [lambda server: server.stall(0.15), lambda server: server.slow(100_000)])
def test_a_stall_beyond_the_memory_is_reported(fault: Callable[[Any], None]) -> None:
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
def test_a_current_beyond_its_range_is_flagged(
    wiring: Wiring, options: dict[str, Any], range_max: float, amperes: float, says: str
) -> None:
    with live("scpi-dmm", wiring=wiring) as it, closing(it.open(**options)) as meter:
        info, chunks = meter.info(), taken(meter, 0.2)
        assert it.sim.language.failures == []

    rail = info.rails[0]
    assert rail.conversion.unit == "A" and rail.range_max == pytest.approx(range_max) and says in info.description
    assert np.mean(values(chunks)) == pytest.approx(amperes, rel=3e-3) and len(values(chunks)) > 50
    assert all(np.all(chunk.flags == (amperes == range_max)) for chunk in chunks if chunk.flags is not None)


# ---- logs of other instruments -----------------------------------------------------------------


@contextmanager
def opened(factory: Callable[..., Meter], dialogue: Dialogue, **options: Any) -> Iterator[tuple[Meter, Scripted]]:
    instrument = Scripted(dialogue)
    with ScpiServer(instrument) as server, closing(factory(address=server.address, **options)) as meter:
        yield meter, instrument
    assert instrument.strange == []


# ---- the data log ---------------------------------------------------------------------------

PERIOD_S = 2.048e-4
LOG = partial(smu.open_meter, rate_hz=1.0 / PERIOD_S)
STARTS = [("*CLS;:INIT:ELOG (@1)", None), ("TRIG:ELOG (@1)", None), ("SYST:ERR?", NONE)]
Said = tuple[str, str | bytes | None]


def opens(module: str, columns: Sequence[str], supply_v: float | None = None) -> list[Said]:
    at = "(@1)"
    ranges = ";:".join(f"SENS:ELOG:{node}:RANG? {at}" for node in columns)
    asked = [("MEAS:VOLT? (@1)", "+1.8E+00")] if supply_v is None and len(columns) == 1 else []
    return [
        ("*IDN?", "Keysight Technologies,N6705C,MY1,E.02.07"),
        ("SYST:CHAN:MOD? (@1)", f'"{module}"'),
        ("OUTP? (@1)", "1"),
        *asked,
        *((line, None) for line in setup_lines(1, columns, (0.1, 5.0)[: len(columns)], PERIOD_S, module)),
        (f"{ranges};:SENS:ELOG:PER? {at}", ";".join(["0.1", "20"][: len(columns)]) + f";{PERIOD_S}"),
        ("SYST:ERR?", NONE),
    ]


def records(*value: float) -> Said:
    return ("FETC:ELOG? 4096,(@1)", block(struct.pack(f">{len(value)}f", *value)))


@pytest.mark.parametrize(("module", "supply_v", "columns", "unit", "volts"), [
    ("N6781A", None, ("CURR", "VOLT"), "W", None), ("N6761A", None, ("CURR", "VOLT"), "W", None),
    ("N6731B", None, ("CURR",), "A", 1.8), ("N6783A", None, ("CURR",), "A", 1.8),
    ("N6731B", 1.9, ("CURR",), "A", 1.9),
])  # fmt: skip
def test_a_module_logs_its_quantities(
    module: str, supply_v: float | None, columns: Sequence[str], unit: str, volts: float | None
) -> None:
    with opened(LOG, opens(module, columns, supply_v), supply_v=supply_v) as (meter, instrument):
        info = meter.info()
    assert instrument.left == []
    assert (info.rails[0].conversion.unit, info.rails[0].conversion.supply_v) == (unit, volts)
    assert info.details["module"] == module
    assert info.details["ranges"] == dict(zip(columns, (0.1, 20.0), strict=False))


def test_log_records_are_current_times_voltage() -> None:
    early = [STARTS[0], STARTS[1], ("SYST:ERR?", '-211,"Trigger ignored"'), *STARTS[1:]]
    taken = [records(0.01, 1.8, 0.02, 1.5), records(9.9e37, 1.8), ("ABOR:ELOG (@1)", None), ("SYST:ERR?", NONE)]

    def use(session: ScpiSession) -> list[Batch]:
        log = Elog(session, 1, ("CURR", "VOLT"), "core")
        log.begin(HostClock())
        return [*log.fetch(), *log.finish()]

    ((first,), (last,)) = scpi_bench.spoken([*early, *taken], use)
    assert first.value == pytest.approx([0.018, 0.03])
    assert np.isnan(last.value[0]) and last.flags is not None and last.flags.tolist() == [1]


def test_an_output_is_switched_on_only_on_request() -> None:
    who, module, _, *rest = opens("N6781A", ("CURR", "VOLT"))
    with ScpiServer(Scripted([who, module, ("OUTP? (@1)", "0")])) as server:
        raised(SetupError, LOG, address=server.address, says="output 1 of the N6705C is off")
    with opened(LOG, [who, module, ("OUTP ON,(@1)", None), *rest], power="on") as (_, instrument):
        assert instrument.left == []


def test_the_data_log_setup_leaves_the_output_alone() -> None:
    at = "(@3)"
    assert setup_lines(3, ("CURR", "VOLT"), (0.1, 5.0), 204.8e-6, "N6781A") == [
        "*CLS", f"ABOR:ELOG {at}", "FORM REAL", "FORM:BORD NORM", "SENS:SWE:TINT:RES RES20",
        f"SENS:ELOG:FUNC:CURR:MINM OFF,{at}", f"SENS:ELOG:FUNC:CURR ON,{at}", f"SENS:ELOG:FUNC:VOLT:MINM OFF,{at}",
        f"SENS:ELOG:FUNC:VOLT ON,{at}", f"SENS:ELOG:CURR:RANG:AUTO OFF,{at}", f"SENS:ELOG:CURR:RANG 0.1,{at}",
        f"SENS:ELOG:VOLT:RANG 5,{at}", f"SENS:ELOG:PER 0.0002048,{at}", f"TRIG:ELOG:SOUR BUS,{at}",
    ]  # fmt: skip


def test_an_unlogged_parameter_is_switched_off_first() -> None:
    lines = setup_lines(1, ("CURR",), (0.1,), 102.4e-6, "N6731B")
    assert lines.index("SENS:ELOG:FUNC:VOLT OFF,(@1)") < lines.index("SENS:ELOG:FUNC:CURR ON,(@1)")


# ---- the reading buffer ---------------------------------------------------------------------

BUFFER = partial(dmm6500.open_meter, rate_hz=20_000.0, supply_v=1.8, readings=1000)
END = 'TRAC:ACT:END? "defbuffer1"'
SET_UP = [
    "*RST", "*CLS", 'DIG:FUNC "CURR"', "DIG:CURR:RANG 0.1", "DIG:CURR:SRAT 20000", "DIG:CURR:APER AUTO",
    'TRAC:POIN 10,"defbuffer2"', 'TRAC:POIN 1000,"defbuffer1"', 'TRAC:FILL:MODE ONCE,"defbuffer1"',
    'TRIG:LOAD "Empty"', 'TRIG:BLOC:MDIG 1,"defbuffer1",1000', "FORM REAL", "FORM:BORD NORM",
]  # fmt: skip
ANSWERS = [
    ("*IDN?", b"KEITHLEY INSTRUMENTS,MODEL DMM6500,04493036,1.7.3c"),
    ("*LANG?", b"SCPI"),
    *((line, None) for line in SET_UP),
    ("ROUT:TERM?", b"FRON"),
    ("DIG:CURR:RANG?;:DIG:CURR:SRAT?", b"0.1;20000"),
    ("SYST:ERR?", b'0,"No error;0;0 0"'),
]
TRIGGERS = [('TRAC:CLE "defbuffer1"', None), ("INIT", None), ("TRIG:STAT?", b"RUNNING;RUNNING;1")]


def data(first: int, last: int, *value: float) -> tuple[str, bytes]:
    return f'TRAC:DATA? {first},{last},"defbuffer1",READ', b"#0" + struct.pack(f">{len(value)}d", *value)


def test_a_dmm6500_is_set_up_by_the_manual_commands() -> None:
    with opened(BUFFER, ANSWERS) as (meter, instrument):
        info = meter.info()
    assert instrument.left == []
    assert info.rails[0].rate_hz == 20_000.0
    assert info.rails[0].range_max == pytest.approx(0.12)
    assert info.serial_number == "04493036"
    assert "FRON terminals" in info.description


def series(dialogue: Sequence[tuple[str, bytes | None]], readings: int, use: Any) -> Any:
    return scpi_bench.spoken(dialogue, lambda session: use(Digitizer(session, "core", readings)))


def test_the_buffer_is_read_from_the_last_position() -> None:
    value = [3.25, -3.625, 9.9e37]  # the bytes of the first two contain 0a and 0d, which end lines
    assert b"\n" in struct.pack(">d", value[0]) and b"\r" in struct.pack(">d", value[1])
    dialogue = [
        *TRIGGERS, (END, b"2"), data(1, 2, *value[:2]), ("ABOR", None), (END, b"3"), data(3, 3, value[2]),
        ("SYST:ERR?", b'0,"No error;0;0 0"'),
    ]  # fmt: skip

    def use(source: Digitizer) -> list[Any]:
        bracket = source.begin(HostClock())
        assert bracket.before_ns < bracket.after_ns
        return [chunk for batch in (*source.fetch(), *source.finish()) for chunk in batch]

    chunks = series(dialogue, 1000, use)
    assert np.concatenate([c.value for c in chunks])[:2].tolist() == value[:2]
    assert np.concatenate([c.flags for c in chunks]).tolist() == [0, 0, 1]


def test_a_full_buffer_ends_the_run_after_its_readings() -> None:
    def use(source: Digitizer) -> None:
        source.begin(HostClock())
        batches = source.fetch()
        assert next(batches)[0].value.tolist() == [2.0, 4.0]
        raised(MeterError, next, batches, says="is full after 2 readings")

    series([*TRIGGERS, (END, b"2"), data(1, 2, 2.0, 4.0)], 2, use)


def test_an_instrument_that_does_not_start_is_reported() -> None:
    dialogue = [*TRIGGERS[:2], ("TRIG:STAT?", b"IDLE;IDLE;0"), ("SYST:ERR?", b'0,"No error;0;0 0"')]
    raised(MeterError, series, dialogue, 1000, lambda source: source.begin(HostClock()), says="does not start: IDLE")


@pytest.mark.parametrize(
    ("who", "language"), [(b"KEITHLEY INSTRUMENTS,MODEL DMM7510,1,1", b"SCPI"), (ANSWERS[0][1], b"TSP")]
)
def test_another_model_or_another_language_is_refused(who: bytes, language: bytes) -> None:
    with ScpiServer(Scripted([("*IDN?", who), ("*LANG?", language)])) as server:
        raised(SetupError, BUFFER, address=server.address, says="command language")
