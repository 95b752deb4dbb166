"""The echo state network and the long short-term memory: their learning, and their costs compared with the published
ones."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from drivers.devices.cpu import esn, lstm
from drivers.devices.cpu.lstm import drawn, loss_and_gradient, normalised, step
from rig.analysis.complexity.cost_and_activity import static_figures
from rig.analysis.scores.predictions import smape
from rig.conformance.device import check_device
from rig.errors import DataError, UsageError
from rig.types import Device, Sample
from scenarios.workloads.mackey_glass.workload import open_workload
from tests.support.raised import raised
from tests.support.remote_workers import answer

SINE = np.sin(np.arange(300) / 5.0)
SHORT = Sample("sine", SINE[:240], seed=1)
SMALL: dict[str, Any] = {"cells": 8, "window": 6, "epochs": 3, "washout": 10}
Opened = Callable[..., Device]
BOTH = pytest.mark.parametrize("opened", [partial(esn.open_device, neurons=20), partial(lstm.open_device, **SMALL)])


@BOTH
def test_the_forecaster_passes_the_check(opened: Opened) -> None:
    assert "reply.activity" in check_device(opened(), [SHORT], prompt_s=5.0)


@BOTH
def test_the_seed_determines_the_forecast(opened: Opened) -> None:
    forecasts = [answer(opened(seed=seed), SHORT).output["forecast"] for seed in (0, 0, 1)]
    assert forecasts[0] == forecasts[1] != forecasts[2]


@pytest.mark.parametrize("payload", [np.zeros(300, np.int64), np.zeros((2, 300)), np.full(300, np.nan), np.zeros(60)])
def test_an_invalid_series_is_refused(payload: Any) -> None:
    raised(DataError, answer, esn.open_device(neurons=20), Sample("bad", payload))


@pytest.mark.parametrize(("opened", "options"), [
    *((esn.open_device, {name: value}) for name, value in (("neurons", 0), ("density", 1.5), ("leak", -1.0))),
    *((lstm.open_device, {name: 0}) for name in ("cells", "window", "epochs", "learning_rate")),
])  # fmt: skip
def test_options_out_of_range_are_refused(opened: Opened, options: dict[str, Any]) -> None:
    raised(UsageError, opened, **options)


# ---- the echo state network ---------------------------------------------------------------


def test_186_neurons_cost_what_the_published_network_costs() -> None:
    """281,248 bytes, 35,156 dense operations, sparsity of connections 0.876, of activations 0; 4.37e3 effective."""
    device = esn.open_device()
    network = device.info().network
    assert network is not None
    figures = {str(key): q.value for key, q in static_figures(network).items()}
    assert figures["footprint_at_start_bytes"] == 281248
    assert figures["dense_operations_per_execution"] == 35156
    assert round(figures["connection_sparsity"], 3) == 0.876
    (sample,) = open_workload(starts=1).samples
    reply = answer(device, sample)
    activity = reply.activity
    operations = sum(activity[c.name][kind] for c in network.connections for kind in ("acs", "macs"))
    assert operations.tolist() == [2 * 186 + round(0.11 * 186**2) + 188] * 750
    assert round(operations[0] / 1e3, 2) == 4.37
    assert network.neurons == 186 and (activity["reservoir"]["active"] == 186).all()
    forecast = np.array(reply.output["forecast"], np.float64)
    assert len(forecast) == 750 and smape(sample.payload[750:825], forecast[:75]) < 2.0


def test_a_diverging_forecast_is_valid_json() -> None:
    device = esn.open_device(neurons=20, spectral_radius=50.0, input_scale=1e6, ridge=1e-3)
    noise = Sample("noise", np.random.default_rng(0).normal(size=300), seed=1)
    assert all(point is None or np.isfinite(point) for point in answer(device, noise).output["forecast"])


# ---- the long short-term memory -----------------------------------------------------------


def test_the_lstm_costs_what_the_published_network_costs() -> None:
    """4.90e5 bytes; 60,100 dense operations. The reference counts 300 more: 3 products of gates in each cell."""
    network = lstm.open_device().info().network
    assert network is not None
    figures = {str(key): q.value for key, q in static_figures(network).items()}
    assert figures["footprint_bytes"] == figures["footprint_at_start_bytes"] == 490008
    assert figures["dense_operations_per_execution"] == 4 * 100 * (50 + 100) + 100
    assert figures["connection_sparsity"] == 0
    assert network.neurons == 100, "the outputs of the ReLU"


@pytest.mark.parametrize("name", ["norm", "into", "back", "bias", "out"])
def test_the_gradient_is_numerically_exact(name: str) -> None:
    rng = np.random.default_rng(3)
    weights, inputs, wanted = drawn(5, 4, rng), rng.normal(size=(12, 4)), rng.normal(size=12)
    gradient = getattr(loss_and_gradient(weights, inputs, wanted, 3)[1], name)
    own = getattr(weights, name)
    for at in np.ndindex(own.shape):
        ends = []
        for sign in (1.0, -1.0):
            moved = own.copy()
            moved[at] += sign * 1e-6
            ends.append(loss_and_gradient(replace(weights, **{name: moved}), inputs, wanted, 3)[0])
        assert gradient[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


@pytest.mark.torch
def test_a_step_matches_torch(torch: Any) -> None:
    weights = drawn(5, 4, np.random.default_rng(0))
    cell, norm = torch.nn.LSTMCell(4, 5).double(), torch.nn.LayerNorm(4).double()
    with torch.no_grad():
        for own, array in (
            (cell.weight_ih, weights.into.T), (cell.weight_hh, weights.back.T),
            (cell.bias_ih, weights.bias[0]), (cell.bias_hh, weights.bias[1]),
        ):  # fmt: skip
            own.copy_(torch.from_numpy(array.copy()))
        window = np.array([0.3, -1.0, 2.0, 0.5])
        hidden, kept = cell(norm(torch.from_numpy(window[None])))
    found = step(weights, normalised(window) @ weights.into, np.zeros(5), np.zeros(5))
    for own, theirs in zip(found[1:], (hidden, kept), strict=True):
        assert own == pytest.approx(theirs.numpy()[0], abs=1e-12)


def test_training_lowers_the_error() -> None:
    output = answer(lstm.open_device(**SMALL | {"epochs": 150, "cells": 16, "window": 12}), SHORT).output
    forecast, losses = np.array(output["forecast"], float), output["training_loss"]
    assert losses[0] > 100 * losses[-1]
    assert smape(SINE[120:150], forecast[:30]) < 30.0


def test_the_network_reads_its_own_forecasts() -> None:
    activity = answer(lstm.open_device(**SMALL), SHORT).activity
    assert activity["input-lstm"]["macs"].tolist() == [6 * 32] * 120
    assert activity["readout"]["macs"].tolist() == activity["lstm"]["active"].tolist()
