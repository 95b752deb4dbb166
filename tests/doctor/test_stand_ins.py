"""``rig doctor`` on a board and on each substitute for a meter: names, ranges, rates, and the order of power."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.bench.live_plant import live_plant
from fixtures.instruments.front_end import EXACT
from rig.doctor.examination import Settings, diagnose
from rig.doctor.findings import Finding
from tests.support.instruments import INSTRUMENTS
from tests.support.paths import ROOT
from tests.support.tiny_board import Chip, TinyBoardSim

pytest.importorskip("serial", reason="extra serial is not installed")
pytest.importorskip("pyvisa_py", reason="extra visa is not installed")
pytestmark = pytest.mark.real_time

BOARD = f"{ROOT / 'drivers' / 'devices' / 'mlperf_tiny' / 'device.py'}:open_device"
WATCHES = ("serial-text", "nvml", "rapl")
ON_TIME = ("rate", "clock")
"""Findings about these are right only if the machine has time for the instrument and its reader."""
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


@pytest.mark.parametrize(("name", "how", "says", "rate_hz"), [
    ("ppk2", {}, "SIMULATED Nordic PPK2, source mode", 100_000),
    ("lpm01a", {}, "SIMULATED ST PowerShield, energy", 1000),
    ("otii", {}, "SIMULATED Otii Simulator", 4000),
    ("joulescope", {}, "Joulescope u/js110/000007, power", 20_000),
    ("scpi-dmm", {"wiring": EXACT}, "34465A on its 3 A terminals", 1000),
    ("serial-text", {}, "serial", 0),
    ("nvml", {}, "SIM", None),
    ("dmm6500", {}, "DMM6500, FRON terminals", 10_000),
    ("rapl", {}, "RAPL", 100),
])  # fmt: skip
def test_the_doctor_names_the_meter_its_range_its_rate_and_the_order_of_power(
    tmp_path: Path, name: str, how: dict[str, Any], says: str, rate_hz: float | None
) -> None:
    plant = live_plant()
    with TinyBoardSim(Chip(), plant) as board, INSTRUMENTS[name](plant, **how) as instrument:
        if name == "joulescope":
            instrument.sim.paths = ("u/js110/000007",)
        options = dict(instrument.options)
        supply = f"supply_v = {options.pop('supply_v')}\n" if "supply_v" in options else ""
        given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        path = tmp_path / "bench.toml"
        text = BENCH.format(board=BOARD, port=board.port, driver=name, options=f"{supply}options = {{ {given} }}")
        path.write_text(text, encoding="utf-8")
        found = [f for f in diagnose([], path, Settings(seconds=0.6)) if f.item != "host"]

    def of(item: str, topic: str) -> Finding:
        (finding,) = [f for f in found if (f.item, f.topic) == (item, topic)]
        return finding

    order = ["board", "meter"] if name in WATCHES else ["meter (feeds it)", "board"]
    assert of("board", "power").text == f"opened in this order: {', '.join(order)}"
    assert [f.item for f in found if f.topic == "identity"] == [who.partition(" ")[0] for who in order]
    assert says in of("meter", "identity").text
    if rate_hz is not None:  # the counter's rate is measured
        assert of("meter", "rate").values["declared_hz"] == pytest.approx(rate_hz, rel=1e-6)
    if name in ("lpm01a", "scpi-dmm", "dmm6500"):  # the others choose their range themselves
        assert "up to " in of("meter", "identity").text
    assert [f.text for f in found if f.level == "broken" and f.topic not in ON_TIME] == []
