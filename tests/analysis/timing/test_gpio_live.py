"""A board in MLPerf Tiny's energy mode is measured in real time by a Joulescope, which also records its pin."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from drivers.devices.mlperf_tiny import device as mlperf_tiny, queries
from drivers.meters.joulescope import meter as joulescope
from fixtures.bench.live_plant import LivePlant
from fixtures.worlds.random_draw import BlankWorkload
from rig.analysis.evaluate import evaluate
from rig.engine.acquisition import Bench
from rig.engine.play_steps import collect
from rig.engine.record import start_document
from rig.recording.reader import open_run
from rig.recording.writer import Recorder
from rig.types import Idle, Issue, Sample
from tests.support.joulescope_driver import installed
from tests.support.tiny_board import IDLE_W, INFERENCE_W, Chip, TinyBoardSim

pytestmark = pytest.mark.real_time

pytest.importorskip("serial", reason="extra serial is not installed")

N = 6
HOLD_S = 2e-3


def test_a_board_in_energy_mode_is_timed_by_its_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "QUIET_S", 0.015)
    plant = LivePlant()
    installed(plant, monkeypatch)
    chip = Chip(energy_mode=True, hold_s=HOLD_S, inference_s=0.03)
    samples = tuple(Sample(f"s{k}", np.arange(16, dtype=np.int8) + k) for k in range(N))
    with (
        TinyBoardSim(chip, plant, baud=115200) as board,  # as quick as in performance mode, to shorten the test
        closing(mlperf_tiny.open_device(port=board.port, mode="energy", baud=115200, labels="a,b,c,d")) as device,
        closing(joulescope.open_meter(plant.clock, rate_hz=10_000.0, mark_input=0, pin="stamp")) as meter,
        Recorder(tmp_path / "run") as recorder,
    ):
        bench, workload = Bench(device, (meter,), plant.clock), BlankWorkload(samples)
        recorder.event(start_document(bench, workload, "run", {"name": "single-stream"}, []))
        collect([Idle(0.3), *(Issue([s]) for s in samples), Idle(0.3)], bench, recorder)
    result = evaluate(open_run(tmp_path / "run"))
    spans = [(on, off) for _, on, off in plant.activity]
    busy_s = float(np.mean([(off - on) * 1e-9 for on, off in spans])) + HOLD_S
    time, dynamic = (result.quantities[name] for name in ("execution_time_s", "dynamic_power_w"))
    added_w = (INFERENCE_W - IDLE_W) * (busy_s - HOLD_S) / busy_s
    assert result.clocks.keys() == {"joulescope"} and not result.refusals
    low, high = time.interval()
    assert low <= busy_s <= high and high - low < 4e-3 * busy_s
    assert dynamic.value == pytest.approx(added_w, rel=5e-3)
