"""The long short-term memory: its gradient, its learning, and its cost compared with the published network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.devices.cpu.lstm import Memories, drawn, loss_and_gradient, normalised, open_device, step
from rig.analysis.complexity.static import static_figures
from rig.analysis.scores.predictions import smape
from rig.conformance.device import check_device
from rig.errors import DataError, RigError, UsageError
from rig.types import Device, Reply, Sample

SINE = np.sin(np.arange(240) / 5.0)
SHORT = Sample("sine", SINE, seed=1)
SMALL: dict[str, Any] = {"cells": 8, "window": 6, "epochs": 3, "washout": 10}


def answer(device: Device, sample: Sample) -> Reply:
    device.submit([sample], None)
    while not (found := device.poll(1.0)):
        pass
    return found[0]


def test_it_does_what_the_rig_asks_of_a_device() -> None:
    assert "reply.activity" in check_device(open_device(**SMALL), [SHORT], prompt_s=5.0)


def test_it_costs_what_the_published_network_costs() -> None:
    """4.90e5 bytes; 60,100 dense operations. The reference adds 3 products of gates for each of 100 cells."""
    network = open_device().info().network
    assert network is not None
    figures = {str(key): q.value for key, q in static_figures(network).items()}
    assert figures["footprint_bytes"] == figures["footprint_at_start_bytes"] == 490008
    assert figures["dense_operations_per_execution"] == 4 * 100 * (50 + 100) + 100
    assert figures["connection_sparsity"] == 0


@pytest.mark.parametrize("name", ["norm", "into", "back", "bias", "out"])
def test_the_gradient_is_the_slope_of_the_loss(name: str) -> None:
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
def test_a_step_is_that_of_torch() -> None:
    import torch

    weights = drawn(5, 4, np.random.default_rng(0))
    cell = torch.nn.LSTMCell(4, 5).double()
    norm = torch.nn.LayerNorm(4).double()
    with torch.no_grad():
        for own, array in (
            (cell.weight_ih, weights.into.T), (cell.weight_hh, weights.back.T),
            (cell.bias_ih, weights.bias[0]), (cell.bias_hh, weights.bias[1]),
        ):  # fmt: skip
            own.copy_(torch.from_numpy(array.copy()))
        window = np.array([0.3, -1.0, 2.0, 0.5])
        hidden, kept = cell(norm(torch.from_numpy(window[None])))
    found = step(weights, normalised(window) @ weights.into, Memories.none(5))
    assert found.hidden == pytest.approx(hidden.numpy()[0], abs=1e-12)
    assert found.cell == pytest.approx(kept.numpy()[0], abs=1e-12)


def test_training_lets_it_forecast() -> None:
    device = open_device(**SMALL | {"epochs": 150, "cells": 16, "window": 12})
    output = answer(device, SHORT).output
    device.close()
    forecast, losses = np.array(output["forecast"], float), output["training_loss"]
    assert losses[0] > 100 * losses[-1]
    assert smape(SINE[120:150], forecast[:30]) < 30.0


def test_the_same_seed_gives_the_same_forecast_and_another_gives_another() -> None:
    forecasts = []
    for seed in (0, 0, 1):
        device = open_device(**SMALL, seed=seed)
        forecasts.append(answer(device, SHORT).output["forecast"])
        device.close()
    assert forecasts[0] == forecasts[1] != forecasts[2]


def test_what_it_reads_after_a_step_is_its_own_forecast() -> None:
    device = open_device(**SMALL)
    activity: Any = answer(device, SHORT).activity
    device.close()
    assert activity["input-lstm"]["macs"].tolist() == [6 * 32] * 120
    assert activity["readout"]["macs"].tolist() == activity["lstm"]["active"].tolist()


@pytest.mark.parametrize("option", [{"cells": 0}, {"window": 0}, {"epochs": 0}, {"learning_rate": 0.0}])
def test_an_option_out_of_range_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        open_device(**option)


def test_a_series_that_is_too_short_is_refused() -> None:
    device = open_device(**SMALL)
    with pytest.raises((DataError, RigError), match="too short"):
        device.stage([Sample("s", SINE[:20])])
    device.close()
