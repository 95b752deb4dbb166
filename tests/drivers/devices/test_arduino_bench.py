"""The whole walk in real time: a Nano-like board on a pty, in the firmware's own words, and a 34465A on its supply.

A run takes as long as the board computes, some seconds.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from drivers.devices.arduino.device import open_device
from drivers.devices.arduino.emulator import Emulator
from drivers.meters.scpi.dmm.meter import open_meter
from fixtures.bench.live_plant import live_plant
from fixtures.instruments.front_end import Wiring
from fixtures.instruments.nano_board import RAIL, NanoBoard, NanoPower
from fixtures.instruments.scpi_dmm_sim import TruevoltSim
from fixtures.instruments.scpi_server import ScpiServer
from fixtures.worlds.random_draw import truth
from rig.analysis.evaluate import evaluate
from rig.analysis.figure_key import FigureKey
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import Idle, Issue, Step
from scenarios.workloads.asc.workload import open_workload
from tests.support.scpi_bench import calibration

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(
        not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")),
        reason="gcc-arm-none-eabi or qemu-system-arm is not installed: the firmware was NOT run",
    ),
]

pytest.importorskip("serial", reason="extra serial is not installed")
pytest.importorskip("pyvisa_py", reason="extra visa is not installed")

TIMES, SLICES, SUPPLY_V = 3, 2, 3.3
BOARDS = {
    "polls while it waits": NanoPower(),
    "sleeps while it waits, with another clock": NanoPower(
        0.004, {"preprocessing": 0.058, "inference": 0.049, "both": 0.05}, -140.0
    ),
}


@pytest.mark.parametrize("which", BOARDS)
def test_single_stream_by_phases_holds_the_energy_that_the_board_used(tmp_path: Path, which: str) -> None:
    plant, workload = live_plant(), open_workload(samples=SLICES)
    sim = TruevoltSim(plant, Wiring(rail=RAIL, supply_v=SUPPLY_V, ready_s=0.25, seed=len(which)))
    with (
        closing(Emulator()) as emulator,
        NanoBoard(emulator, plant, BOARDS[which]) as board,
        ScpiServer(sim) as server,
        closing(open_device(port=board.port)) as device,
        closing(
            open_meter(
                plant.clock, address=server.address, rail=RAIL, rate_hz=50_000.0, supply_v=SUPPLY_V,
                calibration=calibration(tmp_path),
            )
        ) as meter,
    ):  # fmt: skip
        steps: list[Step] = [Idle(0.5), *(Issue([sample], repeat=TIMES) for sample in workload.samples), Idle(0.5)]
        bench = Bench(device, (meter,), plant.clock)
        record(tmp_path / "run", bench, workload, iter(steps), scenario={"name": "single-stream"}, argv=[])
    result = evaluate(open_run(tmp_path / "run"))

    assert not result.refusals
    for phase in ("preprocessing", "inference"):
        real = truth(plant, phase, SLICES)
        for name, true in (
            ("energy_per_inference_j", real["energy_per_inference_j"] / TIMES),
            ("execution_time_s", real["execution_time_s"] / TIMES),
            ("active_power_w", real["active_power_w"]),
        ):
            found = result.quantities[FigureKey(name, phase)]
            low, high = found.interval()
            assert low <= true <= high, (phase, name)
            assert high - low < 0.02 * true, (phase, name)
