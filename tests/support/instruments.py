"""Every simulated instrument, with the factory of its meter and the options that reach it.

All but ``scpi-smu`` and ``dmm6500`` measure a live plant.
"""

import math
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from drivers.meters.joulescope import meter as joulescope
from drivers.meters.lpm01a import meter as lpm01a
from drivers.meters.nvml import meter as nvml
from drivers.meters.otii import meter as otii
from drivers.meters.ppk2 import meter as ppk2
from drivers.meters.rapl import open_meter as open_rapl
from drivers.meters.scpi import dmm6500, n6700 as scpi_smu, truevolt as scpi_dmm
from drivers.meters.serial_text import meter as serial_text
from fixtures.bench.live_plant import LivePlant
from fixtures.instruments.lpm01a_sim import Lpm01aSim
from fixtures.instruments.powercap_tree import PowercapTree
from fixtures.instruments.ppk2_sim import Ppk2Sim
from fixtures.instruments.scpi_dmm_sim import TruevoltSim
from fixtures.instruments.scpi_server import ScpiServer, block
from fixtures.instruments.text_board import TextBoard
from rig.types import Meter
from tests.support.fake_nvml import FakeNvml
from tests.support.joulescope_driver import installed
from tests.support.meters import SUPPLY_V
from tests.support.otii_server import OtiiServer
from tests.support.powercap_zones import DESKTOP

LEVELS_W = {"ppk2": (0.0018, 0.09), "rapl": (20.0, 60.0), "nvml": (50.0, 250.0)}
"""Idle and busy power of the rail, for instruments that the usual 0.02 W and 0.06 W do not suit."""
DIALOGUE_S = 2.048e-4


@dataclass
class StandIn:
    """An instrument: what opens its meter, the options that reach it, and the simulation."""

    plant: LivePlant
    factory: Callable[..., Meter]
    sim: Any
    options: dict[str, Any] = field(default_factory=dict)

    def open(self, **more: Any) -> Meter:
        return self.factory(**(self.options | more))

    def began_ns(self) -> int:
        """Return when the last series really began, in the plant's nanoseconds."""
        return int(getattr(self.sim, "latest", self.sim).began_ns())


@contextmanager
def on_port(plant: LivePlant, kind: Callable[..., Any], factory: Callable[..., Meter], options: dict[str, Any],
            **how: Any) -> Iterator[StandIn]:  # fmt: skip
    """Put an instrument at the end of its own wire or socket."""
    with kind(plant, **how) as sim:
        yield StandIn(plant, factory, sim, {"port": sim.port, **options})


@contextmanager
def on_scpi(plant: LivePlant, sim: Any, factory: Callable[..., Meter], **options: Any) -> Iterator[StandIn]:
    """Put an instrument behind a SCPI socket, which is its attribute ``server``."""
    with ScpiServer(sim) as sim.server:
        yield StandIn(plant, factory, sim, {"address": sim.server.address, **options})


@contextmanager
def in_driver(plant: LivePlant) -> Iterator[StandIn]:
    """Put a Joulescope behind its package."""
    with pytest.MonkeyPatch.context() as patch:
        driver = installed(plant, patch)
        yield StandIn(plant, joulescope.open_meter, driver, {"rate_hz": 20_000.0})
        if latest := vars(driver).get("latest"):
            latest.finalize()


@contextmanager
def in_kernel(plant: LivePlant, **how: Any) -> Iterator[StandIn]:
    """Put RAPL counters into a folder, as the kernel does."""
    with (
        TemporaryDirectory() as folder,
        PowercapTree(Path(folder) / "powercap", plant, **{"zones": DESKTOP, **how}) as sim,
    ):
        yield StandIn(plant, open_rapl, sim, {"root": str(sim.root)})


@contextmanager
def in_module(plant: LivePlant, **how: Any) -> Iterator[StandIn]:
    """Put GPUs behind NVML, which a meter must leave closed."""
    with pytest.MonkeyPatch.context() as patch:
        sim = FakeNvml(plant, **how)
        patch.setitem(sys.modules, "pynvml", sim)
        yield StandIn(plant, nvml.open_meter, sim)
        assert sim.opened == 0


class LogInTime:
    """A log of one ampere at two volts that grows with time, after N6705C's guide.

    A command that is not listed sets something and gets no answer.
    """

    ANSWERS = {  # noqa: RUF012
        "*IDN?": "Keysight Technologies,N6705C,MY1,E.02.07", "SYST:CHAN:MOD? (@1)": '"N6781A"', "OUTP? (@1)": "1",
        "SENS:ELOG:CURR:RANG? (@1);:SENS:ELOG:VOLT:RANG? (@1);:SENS:ELOG:PER? (@1)": f"0.1;20;{DIALOGUE_S}",
        "SYST:ERR?": '+0,"No error"',
    }  # fmt: skip

    def execute(self, line: str) -> bytes:
        if line.startswith("TRIG:ELOG (@"):
            self._began_s, self._taken = time.monotonic(), 0
        if line.startswith("FETC"):
            n = min(int((time.monotonic() - self._began_s) / DIALOGUE_S) - self._taken, 4096)
            self._taken += n
            return block(struct.pack(">2f", 1.0, 2.0) * n) + b"\n"
        answer = self.ANSWERS.get(line)
        return b"" if answer is None else f"{answer}\n".encode()


class BufferInTime:
    """A DMM6500's buffer that fills with time, after its manual: reading ``k`` is ``k`` microamperes, from 0."""

    ANSWERS = {  # noqa: RUF012
        "*IDN?": "KEITHLEY INSTRUMENTS,MODEL DMM6500,SIM0000001,1.7.3c",
        "*LANG?": "SCPI",
        "ROUT:TERM?": "FRON",
        "TRIG:STAT?": "RUNNING;RUNNING;1",
        "SYST:ERR?": '0,"No error;0;0 0"',
    }

    def execute(self, line: str) -> bytes:
        answer = self.ANSWERS.get(line)
        match line.split(" "):
            case ["DIG:CURR:SRAT", rate_hz]:
                self._rate_hz = float(rate_hz)
            case ["INIT"]:
                self._began_s, self._ended_s = time.perf_counter(), math.inf
            case ["ABOR"]:
                self._ended_s = time.perf_counter()
            case ["DIG:CURR:RANG?;:DIG:CURR:SRAT?"]:
                answer = f"0.1;{self._rate_hz:g}"
            case ["TRAC:ACT:END?", _]:
                answer = str(int((min(time.perf_counter(), self._ended_s) - self._began_s) * self._rate_hz))
            case ["TRAC:DATA?", place]:
                first, last = map(int, place.split(",")[:2])
                return b"#0" + struct.pack(f">{last - first + 1}d", *(k * 1e-6 for k in range(first - 1, last))) + b"\n"
        return b"" if answer is None else f"{answer}\n".encode()


INSTRUMENTS: dict[str, Callable[..., AbstractContextManager[StandIn]]] = {
    "ppk2": lambda plant, **how: on_port(plant, Ppk2Sim, ppk2.open_meter, {"supply_v": SUPPLY_V}, **how),
    "lpm01a": lambda plant, **how: on_port(plant, Lpm01aSim, lpm01a.open_meter, {}, **how),
    "otii": lambda plant, **how: on_port(plant, OtiiServer, otii.open_meter, {"supply_v": SUPPLY_V}, **how),
    "serial-text": lambda plant, **how: on_port(
        plant, TextBoard, serial_text.open_meter, {"columns": "time:ms, core:mW", "kind": "point"}, **how
    ),
    "joulescope": in_driver,
    "scpi-dmm": lambda plant, **how: on_scpi(plant, TruevoltSim(plant, **how), scpi_dmm.open_meter, supply_v=SUPPLY_V),
    "scpi-smu": lambda plant: on_scpi(plant, LogInTime(), scpi_smu.open_meter, rate_hz=1.0 / DIALOGUE_S),
    "dmm6500": lambda plant: on_scpi(plant, BufferInTime(), dmm6500.open_meter, supply_v=SUPPLY_V),
    "rapl": in_kernel,
    "nvml": in_module,
}


@contextmanager
def live(name: str, **how: Any) -> Iterator[StandIn]:
    """Yield an instrument; all but ``scpi-smu`` and ``dmm6500`` measure the rail ``core`` of a live plant.

    ``how`` are options of the simulation.
    """
    plant = LivePlant()
    idle_w, busy_w = LEVELS_W.get(name, (0.02, 0.06))
    plant.install({"core": idle_w}, {"inference": {"core": busy_w}})
    with INSTRUMENTS[name](plant, **how) as stand_in:
        yield stand_in
