"""A data log (N6705C) and a reading buffer (DMM6500) against dialogues written from their manuals.

The guides are those of the N6700C and N6705C, and the DMM6500's reference manual. No instrument was ever met.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from drivers.meters.scpi import dmm6500
from drivers.meters.scpi.dmm6500 import Digitizer
from drivers.meters.scpi.session import ScpiSession
from drivers.meters.scpi.smu import meter as smu
from drivers.meters.scpi.smu.meter import Elog, setup_lines
from drivers.meters.threaded import Batch
from fixtures.instruments.scpi_server import ScpiServer, block
from rig.engine.clock import HostClock
from rig.errors import MeterError, SetupError
from rig.types import Meter
from tests.support.raised import raised
from tests.support.scpi_bench import Dialogue, Scripted, spoken

pytestmark = pytest.mark.real_time


@contextmanager
def opened(factory: Callable[..., Meter], dialogue: Dialogue, **options: Any) -> Iterator[tuple[Meter, Scripted]]:
    instrument = Scripted(dialogue)
    with ScpiServer(instrument) as server, closing(factory(address=server.address, **options)) as meter:
        yield meter, instrument
    assert instrument.strange == []


# ---- the data log ---------------------------------------------------------------------------

NONE = '+0,"No error"'
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
def test_a_module_logs_what_its_converters_allow(
    module: str, supply_v: float | None, columns: Sequence[str], unit: str, volts: float | None
) -> None:
    with opened(LOG, opens(module, columns, supply_v), supply_v=supply_v) as (meter, instrument):
        info = meter.info()
    assert instrument.left == []
    assert (info.rails[0].conversion.unit, info.rails[0].conversion.supply_v) == (unit, volts)
    assert info.details["module"] == module
    assert info.details["ranges"] == dict(zip(columns, (0.1, 20.0), strict=False))


def test_records_are_current_times_voltage_and_a_trigger_that_came_too_early_is_repeated() -> None:
    early = [STARTS[0], STARTS[1], ("SYST:ERR?", '-211,"Trigger ignored"'), *STARTS[1:]]
    taken = [records(0.01, 1.8, 0.02, 1.5), records(9.9e37, 1.8), ("ABOR:ELOG (@1)", None), ("SYST:ERR?", NONE)]

    def use(session: ScpiSession) -> list[Batch]:
        log = Elog(session, 1, ("CURR", "VOLT"), "core")
        log.begin(HostClock())
        return [*log.fetch(), *log.finish()]

    ((first,), (last,)) = spoken([*early, *taken], use)
    assert first.value == pytest.approx([0.018, 0.03])
    assert np.isnan(last.value[0]) and last.flags is not None and last.flags.tolist() == [1]


def test_an_output_that_is_off_is_switched_on_only_when_asked() -> None:
    who, module, _, *rest = opens("N6781A", ("CURR", "VOLT"))
    with ScpiServer(Scripted([who, module, ("OUTP? (@1)", "0")])) as server:
        raised(SetupError, LOG, address=server.address, says="output 1 of the N6705C is off")
    with opened(LOG, [who, module, ("OUTP ON,(@1)", None), *rest], power="on") as (_, instrument):
        assert instrument.left == []


def test_the_data_log_is_set_up_without_touching_the_output() -> None:
    at = "(@3)"
    assert setup_lines(3, ("CURR", "VOLT"), (0.1, 5.0), 204.8e-6, "N6781A") == [
        "*CLS", f"ABOR:ELOG {at}", "FORM REAL", "FORM:BORD NORM", "SENS:SWE:TINT:RES RES20",
        f"SENS:ELOG:FUNC:CURR:MINM OFF,{at}", f"SENS:ELOG:FUNC:CURR ON,{at}", f"SENS:ELOG:FUNC:VOLT:MINM OFF,{at}",
        f"SENS:ELOG:FUNC:VOLT ON,{at}", f"SENS:ELOG:CURR:RANG:AUTO OFF,{at}", f"SENS:ELOG:CURR:RANG 0.1,{at}",
        f"SENS:ELOG:VOLT:RANG 5,{at}", f"SENS:ELOG:PER 0.0002048,{at}", f"TRIG:ELOG:SOUR BUS,{at}",
    ]  # fmt: skip


def test_a_parameter_that_is_not_logged_is_switched_off_before_the_other_is_switched_on() -> None:
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


def test_it_is_set_up_by_the_commands_of_the_manual_and_says_what_it_is() -> None:
    with opened(BUFFER, ANSWERS) as (meter, instrument):
        info = meter.info()
    assert instrument.left == []
    assert info.rails[0].rate_hz == 20_000.0
    assert info.rails[0].range_max == pytest.approx(0.12)
    assert info.serial_number == "04493036"
    assert "FRON terminals" in info.description


def series(dialogue: Sequence[tuple[str, bytes | None]], readings: int, use: Any) -> Any:
    return spoken(dialogue, lambda session: use(Digitizer(session, "core", readings)))


def test_the_buffer_is_read_on_from_where_it_was_read_to() -> None:
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


def test_a_full_buffer_ends_the_run_after_all_that_it_holds() -> None:
    def use(source: Digitizer) -> None:
        source.begin(HostClock())
        batches = source.fetch()
        assert next(batches)[0].value.tolist() == [2.0, 4.0]
        raised(MeterError, next, batches, says="is full after 2 readings")

    series([*TRIGGERS, (END, b"2"), data(1, 2, 2.0, 4.0)], 2, use)


def test_an_instrument_that_does_not_start_is_told() -> None:
    dialogue = [*TRIGGERS[:2], ("TRIG:STAT?", b"IDLE;IDLE;0"), ("SYST:ERR?", b'0,"No error;0;0 0"')]
    raised(MeterError, series, dialogue, 1000, lambda source: source.begin(HostClock()), says="does not start: IDLE")


@pytest.mark.parametrize(
    ("who", "language"), [(b"KEITHLEY INSTRUMENTS,MODEL DMM7510,1,1", b"SCPI"), (ANSWERS[0][1], b"TSP")]
)
def test_another_model_or_another_language_is_refused(who: bytes, language: bytes) -> None:
    with ScpiServer(Scripted([("*IDN?", who), ("*LANG?", language)])) as server:
        raised(SetupError, BUFFER, address=server.address, says="speaks")
