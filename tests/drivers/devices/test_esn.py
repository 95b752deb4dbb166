"""The echo state network learns, is reproducible, and has the operations of the published baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from drivers.devices.cpu.esn import open_device
from rig.analysis.complexity.static import static_figures
from rig.analysis.scores.predictions import smape
from rig.conformance.device import check_device
from rig.errors import DataError, RigError, UsageError
from rig.types import Device, Reply, Sample
from scenarios.workloads.mackey_glass.workload import open_workload

SHORT = Sample("sine", np.sin(np.arange(300) / 5.0), seed=1)


def answer(device: Device, sample: Sample) -> Reply:
    device.submit([sample], None)
    while not (found := device.poll(1.0)):
        pass
    return found[0]


def test_it_does_what_the_rig_asks_of_a_device() -> None:
    assert "reply.activity" in check_device(open_device(neurons=20), [SHORT], prompt_s=5.0)


def test_it_costs_what_the_published_network_costs() -> None:
    """186 neurons: 281,248 bytes, 35,156 dense operations, connection sparsity 0.876, and 4.37e3 effective ones."""
    device = open_device()
    network = device.info().network
    assert network is not None
    figures = {str(key): q.value for key, q in static_figures(network).items()}
    assert figures["footprint_at_start_bytes"] == 281248
    assert figures["dense_operations_per_execution"] == 35156
    assert round(figures["connection_sparsity"], 3) == 0.876
    (sample,) = open_workload(starts=1).samples
    activity: Any = answer(device, sample).activity
    device.close()
    operations = sum(activity[c.name][kind] for c in network.connections for kind in ("acs", "macs"))
    assert operations.tolist() == [2 * 186 + round(0.11 * 186**2) + 188] * 750
    assert round(operations[0] / 1e3, 2) == 4.37


def test_it_forecasts_the_first_lyapunov_time() -> None:
    (sample,) = open_workload(starts=1).samples
    device = open_device()
    forecast = np.array(answer(device, sample).output["forecast"], np.float64)
    device.close()
    assert len(forecast) == 750
    assert smape(sample.payload[750:825], forecast[:75]) < 2.0


def test_the_same_seed_gives_the_same_forecast_and_another_gives_another() -> None:
    forecasts = []
    for seed in (0, 0, 1):
        device = open_device(neurons=20, seed=seed)
        forecasts.append(answer(device, SHORT).output["forecast"])
        device.close()
    assert forecasts[0] == forecasts[1] != forecasts[2]


def test_a_forecast_that_diverges_is_an_answer_that_json_can_hold() -> None:
    device = open_device(neurons=20, spectral_radius=50.0, input_scale=1e6, ridge=1e-3)
    reply = answer(device, Sample("noise", np.random.default_rng(0).normal(size=300), seed=1))
    device.close()
    assert all(point is None or np.isfinite(point) for point in reply.output["forecast"])


@pytest.mark.parametrize("payload", [np.zeros(300, np.int64), np.zeros((2, 300)), np.full(300, np.nan), np.zeros(60)])
def test_a_payload_that_is_no_series_is_refused(payload: Any) -> None:
    device = open_device(neurons=20)
    device.submit([Sample("bad", payload)], None)
    with pytest.raises(DataError):
        while not device.poll(1.0):
            pass
    device.close()


@pytest.mark.parametrize("options", [{"neurons": 0}, {"density": 1.5}, {"leak": -1.0}, {"ridge": 0.0}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        open_device(**options)
    assert isinstance(caught.value, RigError)
