"""``rig doctor`` on a board and on each substitute for a meter: names, ranges, rates, and the order of power."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fixtures.bench.live_plant import LivePlant, live_plant
from fixtures.instruments.front_end import EXACT
from fixtures.instruments.lpm01a_sim import Lpm01aSim
from fixtures.instruments.powercap_tree import PowercapTree
from fixtures.instruments.ppk2_sim import Ppk2Sim
from fixtures.instruments.scpi_dmm_sim import TruevoltSim
from fixtures.instruments.scpi_server import ScpiServer
from fixtures.instruments.text_board import Sketch, TextBoard
from rig.doctor.examination import Settings, diagnose
from rig.doctor.findings import Finding
from tests.support import joulescope_driver
from tests.support.digitizer_sim import DigitizerSim
from tests.support.fake_nvml import FakeNvml
from tests.support.otii_server import OtiiServer
from tests.support.paths import ROOT
from tests.support.powercap_zones import DESKTOP
from tests.support.tiny_board import Chip, TinyBoardSim

pytest.importorskip("serial", reason="extra serial is not installed")
pytest.importorskip("pyvisa_py", reason="extra visa is not installed")
pytestmark = pytest.mark.real_time

BOARD = f"{ROOT / 'drivers' / 'devices' / 'mlperf_tiny' / 'device.py'}:open_device"
WATCHES = ("serial-text", "nvml", "rapl")
ON_TIME = ("rate", "clock")
"""Findings about these are right only if the machine has time for the instrument and its reader."""
DMM6500 = f"{ROOT / 'drivers' / 'meters' / 'scpi' / 'dmm6500.py'}:open_meter"
BENCH = """
[devices.board]
driver = "{board}"
options = {{ port = "{port}", labels = "down,go,left,right" }}
boot_s = 0.1

[meters.meter]
driver = "{driver}"
sees = "board"
{options}
"""
Make = Callable[[LivePlant, pytest.MonkeyPatch, Path], AbstractContextManager[Any]]


@contextmanager
def joulescope(plant: LivePlant, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    driver = joulescope_driver.installed(plant, monkeypatch)
    driver.paths = ("u/js110/000007",)
    yield
    driver.latest.finalize()


def fed(options: str) -> str:
    return f"supply_v = 1.8\n{options}"


ADDRESS, PORT = 'options = {{ address = "{0.address}" }}', 'options = {{ port = "{0.port}" }}'
STAND_INS: list[tuple[str, Make, str, str, float | None]] = [
    ("ppk2", lambda plant, *_: Ppk2Sim(plant), fed(PORT), "SIMULATED Nordic PPK2, source mode", 100_000),
    ("lpm01a", lambda plant, *_: Lpm01aSim(plant), PORT, "SIMULATED ST PowerShield, energy", 1000),
    ("otii", lambda plant, *_: OtiiServer(plant), fed("options = {{ port = {0.port} }}"),
     "SIMULATED Otii Simulator", 4000),
    ("joulescope", joulescope, "options = {{ rate_hz = 20000.0 }}", "Joulescope u/js110/000007, power", 20_000),
    ("scpi-dmm", lambda plant, *_: ScpiServer(TruevoltSim(plant, EXACT)), fed(ADDRESS),
     "34465A on its 3 A terminals", 1000),
    ("serial-text", lambda plant, *_: TextBoard(plant, Sketch()),
     'options = {{ port = "{0.port}", columns = "time:ms, core:mW", kind = "point" }}', "serial", 0),
    ("nvml", lambda plant, *_: patch.dict(sys.modules, {"pynvml": FakeNvml(plant)}), "", "SIM", None),
    (DMM6500, lambda *_: ScpiServer(DigitizerSim()), fed(ADDRESS), "DMM6500, FRON terminals", 10_000),
    ("rapl", lambda plant, _, folder: PowercapTree(folder / "powercap", plant, DESKTOP),
     'options = {{ root = "{0.root}" }}', "RAPL", 100),
]  # fmt: skip


@pytest.mark.parametrize(("driver", "make", "template", "says", "rate_hz"), STAND_INS)
def test_the_doctor_names_the_meter_its_range_its_rate_and_the_order_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    driver: str, make: Make, template: str, says: str, rate_hz: float | None,
) -> None:  # fmt: skip
    plant = live_plant()
    with TinyBoardSim(Chip(), plant) as board, make(plant, monkeypatch, tmp_path) as stand_in:
        options = template.format(stand_in)
        path = tmp_path / "bench.toml"
        path.write_text(BENCH.format(board=BOARD, port=board.port, driver=driver, options=options), encoding="utf-8")
        found = [f for f in diagnose([], path, Settings(seconds=0.6)) if f.item != "host"]

    def of(item: str, topic: str) -> Finding:
        (finding,) = [f for f in found if (f.item, f.topic) == (item, topic)]
        return finding

    order = ["board", "meter"] if driver in WATCHES else ["meter (feeds it)", "board"]
    assert of("board", "power").text == f"opened in this order: {', '.join(order)}"
    assert [f.item for f in found if f.topic == "identity"] == [who.partition(" ")[0] for who in order]
    assert says in of("meter", "identity").text
    if rate_hz is not None:  # the counter's rate is measured
        assert of("meter", "rate").values["declared_hz"] == pytest.approx(rate_hz, rel=1e-6)
    if driver in ("lpm01a", "scpi-dmm", DMM6500):  # the others choose their range themselves
        assert "up to " in of("meter", "identity").text
    assert [f.text for f in found if f.level == "broken" and f.topic not in ON_TIME] == []
