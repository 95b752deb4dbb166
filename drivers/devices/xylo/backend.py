"""What runs a Xylo network: here the simulator, with on-chip time from Rockpool's cycle model.

In: rasters of events. Out: output spikes, the time on the chip and what the network did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.complexity import Inspection, inspection_of
from drivers.devices.xylo.network import Network
from rig.network.description import Activity


@dataclass(frozen=True, slots=True)
class Inference:
    """The result of one raster.

    ``output`` holds the spikes of the output neurons, int64, shape (bins, classes); ``seconds`` is the time on the
    chip; one execution of the network is one bin.
    """

    output: NDArray[np.int64]
    seconds: float
    activity: Activity


class Backend(Protocol):
    """Runs the network on one raster (int64, shape (bins, channels)), from the resting state."""

    def infer(self, raster: NDArray[np.int64]) -> Inference: ...


@dataclass(frozen=True, slots=True)
class SimBackend:
    """XyloSim and the cycle model."""

    simulator: Any
    cycles_model: Any
    cycles_config: SimpleNamespace
    inspection: Inspection
    core_clock_hz: float

    @classmethod
    def open(cls, network: Network, core_clock_hz: float) -> SimBackend:
        """Import Rockpool and build the simulated chip. Raises ``MissingExtraError`` without Rockpool."""
        xylo = rockpool_import.load_xylo_audio2()
        simulator = xylo.simulator.from_specification(**network.specification)
        config = _cycles_config(network.specification)
        return cls(simulator, xylo.cycles_model, config, inspection_of(network), core_clock_hz)

    def infer(self, raster: NDArray[np.int64]) -> Inference:
        """Simulate every bin; each lasts the cycle model's mean at the core clock."""
        self.simulator.reset_state()
        out, _, recorded = self.simulator.evolve(raster, record=True)
        output = np.asarray(out, dtype=np.int64)
        hidden = np.asarray(recorded["Spikes"], dtype=np.int64)
        cycles, _ = self.cycles_model(self.cycles_config, raster, hidden, output)
        seconds = float(cycles) * len(raster) / self.core_clock_hz
        return Inference(output, seconds, self.inspection.activity(raster, recorded, output))


def _cycles_config(spec: Mapping[str, Any]) -> SimpleNamespace:
    """The few fields of a chip configuration that the cycle model reads.

    Rockpool's own ``config_from_specification`` needs samna, which a simulation must not.
    """
    neurons = [SimpleNamespace(alias_target=None)] * len(spec["threshold"])
    return SimpleNamespace(
        input=SimpleNamespace(weights=spec["weights_in"][:, :, 0]),
        reservoir=SimpleNamespace(weights=spec["weights_rec"][:, :, 0], neurons=neurons),
        readout=SimpleNamespace(weights=spec["weights_out"]),
        synapse2_enable=False,
    )
