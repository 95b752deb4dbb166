"""The window that a GPU's sensor sees is found from bursts of work."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu_sensors import BURSTS_S, seen


@pytest.mark.parametrize(("lag_s", "window_s"), [(0.008, 0.1), (0.01, 0.025), (0.0, 0.05)])
def test_the_window_that_a_sensor_sees_is_found(lag_s: float, window_s: float) -> None:
    rng = np.random.default_rng(1)
    bursts_s = np.cumsum(rng.uniform(*BURSTS_S, 2000)).reshape(-1, 2)
    fine_s = np.arange(0.0, bursts_s[-1, 1], 1e-4)
    works = np.searchsorted(bursts_s.ravel(), fine_s) % 2 == 1
    total = np.concatenate(([0.0], np.cumsum(works))) * 1e-4
    renewed_s = np.arange(0.5, bursts_s[-1, 1] - 0.1, 0.1)
    to = np.round((renewed_s - lag_s) / 1e-4).astype(int)
    watts = 80.0 + 200.0 * (total[to] - total[to - round(window_s / 1e-4)]) / window_s + rng.normal(0.0, 15.0, len(to))
    found = seen(bursts_s, renewed_s, watts)
    assert found.lag_within_s[0] - 1e-9 <= lag_s <= found.lag_within_s[1] + 1e-9
    assert found.window_within_s[0] - 1e-9 <= window_s <= found.window_within_s[1] + 1e-9
    assert found.window_within_s[1] - found.window_within_s[0] < 0.03
