"""The window that a GPU's sensor sees is found from bursts of work."""

import time
from multiprocessing.connection import Connection

import numpy as np
import pytest

from benchmarks.gpu_sensors import BURSTS_S, measured, seen
from tests.support.instruments import live


def rest(to: Connection, seconds: float, seed: int) -> None:
    """Send the times of bursts, and do no work."""
    began_s = time.monotonic()
    time.sleep(seconds)
    bursts_s = began_s + np.cumsum(np.random.default_rng(seed).uniform(*BURSTS_S, 400))
    to.send(bursts_s[bursts_s < began_s + seconds][:100].reshape(-1, 2))


@pytest.mark.real_time
def test_both_sources_of_an_idle_gpu_are_read() -> None:
    with live("nvml"):
        name, found = measured(2.5, "0", 1, rest)

    assert (name[:8], set(found)) == ("SIM A100", {"energy", "instant"})
    assert found["energy"].every_s == pytest.approx(0.02, abs=0.01) and found["instant"].renewals > 10


@pytest.mark.parametrize(("lag_s", "window_s"), [(0.008, 0.1), (0.01, 0.025), (0.0, 0.05)])
def test_the_window_of_a_sensor_is_found(lag_s: float, window_s: float) -> None:
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
