"""A solver's power is the average over its runtime, which begins when the graph is loaded."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import SimPlant
from rig.types import Reply
from tests.support.figures import held
from tests.support.plants import on_plant

SOLVER = {
    "idle_w": 1e-3, "inference_w": 3e-3, "inference_s": 0.1, "device_forward_s": 0.1, "device_back_s": 1e-4,
}  # fmt: skip
"""The graph takes 0.1 s to load, the solve 0.1 s."""


def solving(plant: SimPlant, device: MockDevice) -> MockDevice:
    """Let the device answer with solutions."""
    poll = device.poll

    def solved(timeout_s: float) -> list[Reply]:
        return [structs.replace(reply, output={"cost": -1.0, "solution": "80"}) for reply in poll(timeout_s)]

    device.poll = solved  # type: ignore[method-assign]
    return device


def test_power_over_the_runtime_is_that_of_the_solves_without_loading_and_pauses(tmp_path: Path) -> None:
    found = on_plant(tmp_path / "run", device=SOLVER, driver=solving).result.quantities
    power = found["runtime_power_w"]
    assert held(power, 3e-3, 0.999)
    assert power.value == found["literal.active_power_w"].value
    assert found["average_power_w"].value < 0.8 * power.value
