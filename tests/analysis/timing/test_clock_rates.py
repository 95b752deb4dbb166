"""What a result states of the rate of each clock against the host's is as good as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rig.analysis.timing.timebase import fit_brackets
from rig.types import Bracket, ClockInfo
from tests.support.plants import BARE, on_plant

FAST = {"device": -30e-6, "meter": 40e-6}


def test_rates_of_a_device_and_of_a_meter_that_its_trace_places_hold(tmp_path: Path) -> None:
    z = []
    for seed in range(6):
        device = {"device_seed": seed, "device_drift_ppm": 1e6 * FAST["device"], "timeout_s": 100.0}
        meter = {"meter_seed": seed + 20, "meter_drift_ppm": 1e6 * FAST["meter"]}
        clocks = on_plant(tmp_path / f"{seed}", BARE, device=device, meter=meter, samples=8).result.clocks
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
