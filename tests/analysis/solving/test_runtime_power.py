"""A solver's power is the average over its runtime, which begins when the graph is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fixtures.bench.mock_device import MockDevice, open_device
from fixtures.bench.true_power import SimPlant, open_plant
from rig.analysis.result.result import Result
from rig.types import Reply
from tests.analysis.power.test_average import by_single_stream, measured

IDLE_W, SOLVING_W = 1e-3, 3e-3


class Solver:
    """A mock device whose answers are solutions; the graph takes 0.1 s to load, the solve 0.1 s."""

    def __init__(self, plant: SimPlant) -> None:
        self._inner: MockDevice = open_device(
            plant, idle_w=IDLE_W, inference_w=SOLVING_W, inference_s=0.1, device_forward_s=0.1, device_back_s=1e-4
        )
        self.stage, self.submit, self.close = self._inner.stage, self._inner.submit, self._inner.close
        self.timer, self.pulse = self._inner.timer, getattr(self._inner, "pulse")  # noqa: B009

    def info(self) -> object:
        return replace(self._inner.info(), name="solver")

    def poll(self, timeout_s: float) -> list[Reply]:
        found = self._inner.poll(timeout_s)
        return [structs.replace(reply, output={"cost": -1.0, "solution": "80"}) for reply in found]


@pytest.fixture
def result(tmp_path: Path) -> Result:
    plant = open_plant()
    return measured(tmp_path / "run", plant, Solver(plant), by_single_stream)[1]


def test_power_over_the_runtime_is_that_of_the_solves(result: Result) -> None:
    power = result.quantities["runtime_power_w"]
    low, high = power.interval(0.999)
    assert low <= SOLVING_W <= high
    assert power.value == result.quantities["literal.active_power_w"].value


def test_loading_and_pauses_are_not_part_of_the_runtime(result: Result) -> None:
    assert result.quantities["average_power_w"].value < 0.8 * result.quantities["runtime_power_w"].value
