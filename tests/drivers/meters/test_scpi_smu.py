"""The data log of a power system against written dialogues, after the guides of the N6700C and N6705C."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from drivers.meters.scpi.session import ScpiSession
from drivers.meters.scpi.smu.meter import Elog, open_meter, setup_lines
from drivers.meters.threaded import Batch
from fixtures.instruments.scpi_server import ScpiServer, block
from rig.engine.clock import HostClock
from rig.errors import SetupError
from rig.types import Meter
from tests.support.scpi_bench import Scripted, spoken

pytestmark = pytest.mark.real_time

NONE = '+0,"No error"'
PERIOD_S = 2.048e-4
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


@contextmanager
def opened(dialogue: Sequence[Said], **options: Any) -> Iterator[tuple[Meter, Scripted]]:
    instrument = Scripted(dialogue)
    with ScpiServer(instrument) as server, closing(
        open_meter(address=server.address, rate_hz=1.0 / PERIOD_S, **options)
    ) as meter:  # fmt: skip
        yield meter, instrument
    assert instrument.strange == []


@pytest.mark.parametrize(
    ("module", "supply_v", "columns", "unit", "volts"),
    [
        ("N6781A", None, ("CURR", "VOLT"), "W", None), ("N6761A", None, ("CURR", "VOLT"), "W", None),
        ("N6731B", None, ("CURR",), "A", 1.8), ("N6783A", None, ("CURR",), "A", 1.8),
        ("N6731B", 1.9, ("CURR",), "A", 1.9),
    ],
)  # fmt: skip
def test_a_module_logs_what_its_converters_allow(
    module: str, supply_v: float | None, columns: Sequence[str], unit: str, volts: float | None
) -> None:
    with opened(opens(module, columns, supply_v), supply_v=supply_v) as (meter, instrument):
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
    with pytest.raises(SetupError, match="output 1 of the N6705C is off"), opened([who, module, ("OUTP? (@1)", "0")]):
        pass
    with opened([who, module, ("OUTP ON,(@1)", None), *rest], power="on") as (_, instrument):
        assert instrument.left == []


def test_the_data_log_is_set_up_without_touching_the_output() -> None:
    at = "(@3)"
    assert setup_lines(3, ("CURR", "VOLT"), (0.1, 5.0), 204.8e-6, "N6781A") == [
        "*CLS", f"ABOR:ELOG {at}", "FORM REAL", "FORM:BORD NORM", "SENS:SWE:TINT:RES RES20",
        f"SENS:ELOG:FUNC:CURR:MINM OFF,{at}", f"SENS:ELOG:FUNC:CURR ON,{at}", f"SENS:ELOG:FUNC:VOLT:MINM OFF,{at}",
        f"SENS:ELOG:FUNC:VOLT ON,{at}", f"SENS:ELOG:CURR:RANG:AUTO OFF,{at}", f"SENS:ELOG:CURR:RANG 0.1,{at}",
        f"SENS:ELOG:VOLT:RANG 5,{at}", f"SENS:ELOG:PER 0.0002048,{at}", f"TRIG:ELOG:SOUR BUS,{at}",
    ]  # fmt: skip
