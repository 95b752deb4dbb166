"""A DMM6500 against a dialogue and a simulator, both written from its manual. It was never run on an instrument."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from drivers.meters.scpi.dmm6500 import Digitizer, open_meter
from fixtures.instruments.scpi_server import ScpiServer
from rig.engine.clock import HostClock
from rig.errors import MeterError, SetupError
from tests.support.raised import raised
from tests.support.scpi_bench import Scripted, spoken

pytestmark = pytest.mark.real_time

END = 'TRAC:ACT:END? "defbuffer1"'
SET_UP = [
    "*RST", "*CLS", 'DIG:FUNC "CURR"', "DIG:CURR:RANG 0.1", "DIG:CURR:SRAT 20000", "DIG:CURR:APER AUTO",
    'TRAC:POIN 10,"defbuffer2"', 'TRAC:POIN 1000,"defbuffer1"', 'TRAC:FILL:MODE ONCE,"defbuffer1"',
    'TRIG:LOAD "Empty"', 'TRIG:BLOC:MDIG 1,"defbuffer1",1000', "FORM REAL", "FORM:BORD NORM",
]  # fmt: skip
OPENS = [
    ("*IDN?", b"KEITHLEY INSTRUMENTS,MODEL DMM6500,04493036,1.7.3c"),
    ("*LANG?", b"SCPI"),
    *((line, None) for line in SET_UP),
    ("ROUT:TERM?", b"FRON"),
    ("DIG:CURR:RANG?;:DIG:CURR:SRAT?", b"0.1;20000"),
    ("SYST:ERR?", b'0,"No error;0;0 0"'),
]
STARTS = [('TRAC:CLE "defbuffer1"', None), ("INIT", None), ("TRIG:STAT?", b"RUNNING;RUNNING;1")]


def data(first: int, last: int, *value: float) -> tuple[str, bytes]:
    return f'TRAC:DATA? {first},{last},"defbuffer1",READ', b"#0" + struct.pack(f">{len(value)}d", *value)


def opened(server: ScpiServer, **options: Any) -> Any:
    return open_meter(address=server.address, **({"rate_hz": 20_000.0, "supply_v": 1.8, "readings": 1000} | options))


def test_it_is_set_up_by_the_commands_of_the_manual_and_says_what_it_is() -> None:
    with ScpiServer(instrument := Scripted(OPENS)) as server, closing(opened(server)) as meter:
        info = meter.info()
    assert (instrument.left, instrument.strange) == ([], [])
    assert info.rails[0].rate_hz == 20_000.0
    assert info.rails[0].range_max == pytest.approx(0.12)
    assert info.serial_number == "04493036"
    assert "FRON terminals" in info.description


def series(dialogue: Sequence[tuple[str, bytes | None]], readings: int, use: Any) -> Any:
    return spoken(dialogue, lambda session: use(Digitizer(session, "core", readings)))


def test_the_buffer_is_read_on_from_where_it_was_read_to() -> None:
    value = [0.011, -10.0, 9.9e37]  # their bytes contain line ends
    dialogue = [
        *STARTS, (END, b"2"), data(1, 2, *value[:2]), ("ABOR", None), (END, b"3"), data(3, 3, value[2]),
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

    series([*STARTS, (END, b"2"), data(1, 2, 2.0, 4.0)], 2, use)


def test_an_instrument_that_does_not_start_is_told() -> None:
    dialogue = [*STARTS[:2], ("TRIG:STAT?", b"IDLE;IDLE;0"), ("SYST:ERR?", b'0,"No error;0;0 0"')]
    raised(MeterError, series, dialogue, 1000, lambda source: source.begin(HostClock()), says="does not start: IDLE")


@pytest.mark.parametrize(
    ("who", "language"), [(b"KEITHLEY INSTRUMENTS,MODEL DMM7510,1,1", b"SCPI"), (OPENS[0][1], b"TSP")]
)
def test_another_model_or_another_language_is_refused(who: bytes, language: bytes) -> None:
    with ScpiServer(Scripted([("*IDN?", who), ("*LANG?", language)])) as server:
        raised(SetupError, opened, server, says="speaks")
