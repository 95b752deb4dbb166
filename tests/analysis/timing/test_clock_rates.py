"""What a result states of the rate of each clock against the host's is as good as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import open_plant
from fixtures.worlds.random_draw import blank, steps
from rig.analysis.evaluate import evaluate
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run

FAST = {"device": -30e-6, "meter": 40e-6}


def test_rates_of_a_device_and_of_a_meter_that_its_trace_places_hold(tmp_path: Path) -> None:
    z = []
    for seed in range(6):
        plant = open_plant()
        device = open_device(plant, device_seed=seed, device_drift_ppm=1e6 * FAST["device"], timeout_s=100.0)
        meter = open_meter(plant, meter_seed=seed + 20, meter_drift_ppm=1e6 * FAST["meter"])
        workload = blank(8)
        bench, path = Bench(device, (meter,), plant.clock), tmp_path / f"{seed}"
        record(path, bench, workload, steps(workload, 1.0), scenario={"name": "single-stream"}, argv=[])
        clocks = evaluate(open_run(path)).clocks
        assert clocks["meter"].method != "brackets"
        z += [(1.0 / (1.0 + c.rate_error) - 1.0 - FAST[name]) / c.rate_sigma for name, c in clocks.items()]
    assert np.max(np.abs(z)) <= 2.9  # for twelve, that is 95 %
