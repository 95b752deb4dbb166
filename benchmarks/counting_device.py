"""A simulated device with known energy per operation and per execution, and a meter with one gain and new noise.

A network is a text file with the number of active inputs in an execution. Each active input causes ``FAN_OUT``
operations. ``law`` tells how the dynamic energy of an execution depends on its operations.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from fixtures.bench import mock_device, mock_meter
from fixtures.bench.mock_device import MockDevice
from fixtures.bench.mock_meter import MockMeter
from fixtures.bench.true_power import SimPlant
from rig.network.counting import count, linear, memory_of
from rig.network.description import NetworkInfo
from rig.types import Budget, DeviceInfo, Reply, Sample

INPUTS, FAN_OUT, EXECUTIONS = 1000, 10, 10
LAWS: dict[str, Callable[[float, float, float], float]] = {
    "line": lambda slope_j, base_j, operations: base_j + slope_j * operations,
    "curve": lambda slope_j, base_j, operations: base_j + slope_j * operations * (operations / (INPUTS * FAN_OUT)),
    "constant": lambda slope_j, base_j, operations: base_j + 0.5 * slope_j * INPUTS * FAN_OUT,
    "scatter": lambda slope_j, base_j, operations: (base_j + slope_j * operations) * (0.7 + 0.6 * _drawn(operations)),
}
"""Only with the first of these laws, energies are on a rising line."""


def open_device(
    bench: SimPlant, *, network: str, law: str = "line", slope_j: float = 2e-9, base_j: float = 5e-6,
    idle_w: float = 1e-3, inference_s: float = 0.02, device_seed: int = 1,
) -> Counting:  # fmt: skip
    """Open the device with a network file. The energy of an execution above idle follows ``law``."""
    active = int(Path(network).read_text())
    energy_j = LAWS[law](slope_j, base_j, active * FAN_OUT)
    inference_w = idle_w + EXECUTIONS * energy_j / inference_s
    opened: MockDevice = mock_device.open_device(
        bench, idle_w=idle_w, inference_w=inference_w, inference_s=inference_s, device_seed=device_seed
    )
    return Counting(opened, active)


def open_meter(bench: SimPlant, *, meter_seed: int = 2, noise: float = 0.01, gain_limit: float = 2e-3) -> MockMeter:
    """Open a meter with one gain for each ``meter_seed``, and with other noise for each power of an execution."""
    meter: MockMeter = mock_meter.open_meter(bench, meter_seed=meter_seed, noise=noise, gain_limit=gain_limit)
    told = zlib.crc32(repr(bench.phase_w).encode())
    for observer in meter._rails:
        observer._rng = np.random.default_rng([meter_seed, told])
    return meter


class Counting:
    """The mock device, with a network of one connection and its counters."""

    def __init__(self, inner: MockDevice, active: int) -> None:
        self._inner = inner
        weights = np.ones((INPUTS, FAN_OUT))
        self._synapses = linear("dense", "input", "dense", weights)
        seen = np.zeros((EXECUTIONS, INPUTS))
        seen[:, :active] = 1.0
        self._activity = count([self._synapses], {"input": seen})
        network = NetworkInfo((), (self._synapses.connection,), memory_of({"dense": weights}), None, "one connection")
        self._info = replace(inner.info(), name="counting", network=network)

    def info(self) -> DeviceInfo:
        """Return the mock device's info, with the network."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        self._inner.stage(samples)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        self._inner.submit(samples, budget)

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Return the answers of the mock device, with the activity of the network."""
        return [msgspec.structs.replace(reply, activity=self._activity) for reply in self._inner.poll(timeout_s)]

    def timer(self) -> int:
        return self._inner.timer()

    def close(self) -> None:
        self._inner.close()


def _drawn(operations: float) -> float:
    return float(np.random.default_rng(int(operations)).random())


MODES = ("simulator",)
