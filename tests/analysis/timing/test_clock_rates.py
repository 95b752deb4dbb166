"""What a result states of the rate of each clock against the host's is as good as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import open_plant
from fixtures.worlds.random_draw import blank, steps
from rig.analysis.evaluate import evaluate
from rig.analysis.timing.timebase import fit_brackets
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import Bracket, ClockInfo

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


@pytest.mark.parametrize("length_s", [5.0, 13.0])
def test_readings_of_one_moment_share_what_a_tick_cannot_show(length_s: float) -> None:
    """Readings at both ends within one tick of 32 kHz: they agree to a microsecond, and are off together."""
    rng, hz = np.random.default_rng(1), 32768.0
    z = []
    for _ in range(200):
        at = np.concatenate([t + rng.uniform(0.0, 1.0) + np.arange(8) * 2e-6 for t in (0.0, length_s)])
        read = [Bracket(round(t * 1e9) - 500, int(np.floor(t * hz)), round(t * 1e9) + 500) for t in at.tolist()]
        found = fit_brackets(ClockInfo("chip", hz), read, 0)
        z.append((found.rate - 1.0) / found.rate_sigma)
    assert np.mean(np.abs(z) <= 1.96) >= 0.93
