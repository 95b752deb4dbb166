"""Describe a network on Xylo Audio 2, and count its activity.

The chip stores 8 bits for a weight, 16 for a threshold, a bias, a membrane and a synaptic current, and 4 for each time
constant, which is a bit shift. Hidden spikes arrive one time step after they are sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo.networks.float_network import FloatNetwork, Link
from drivers.devices.xylo.networks.network import Network
from rig.network.counting import Synapses, active, count, linear
from rig.network.description import Activity, Counts, Layer, Memory, NetworkInfo


@dataclass(frozen=True, slots=True)
class Inspection:
    """The description of a network and the fan-out of its connections, computed once for each network."""

    info: NetworkInfo
    synapses: tuple[Synapses, ...]

    def activity(self, raster: Counts, recorded: dict[str, NDArray[Any]], output: Counts) -> Activity:
        """Count one sample; ``recorded`` holds ``Spikes``, ``Vmem`` and ``Vmem_out``, as Rockpool records them."""
        spikes = {"input": raster, **self._by_layer(np.asarray(recorded["Spikes"], np.int64), output)}
        counted = count(self.synapses, spikes)
        for name, values in spikes.items():
            counted[name]["spikes"] = values.sum(axis=1)
        for name, membranes in self._by_layer(recorded["Vmem"], recorded["Vmem_out"]).items():
            counted[name]["updates"] = active(np.diff(membranes, axis=0, prepend=0))
        return counted

    def _by_layer(self, hidden: NDArray[Any], output: NDArray[Any]) -> dict[str, NDArray[Any]]:
        parts = [*np.split(hidden, np.cumsum([layer.neurons for layer in self.info.layers[:-2]]), axis=1), output]
        return {layer.name: part for layer, part in zip(self.info.layers, parts, strict=True)}


def inspection_of(network: Network) -> Inspection:
    """Describe a deployed network; its connections are the blocks of weights between its layers."""
    convention = "Xylo Audio 2: 8-bit weights of the connections between layers, zeros included"
    return _inspection(network, network.blocks(), (8, 16, 4), 1, convention)


def float_inspection_of(network: Network, floats: FloatNetwork) -> Inspection:
    """Describe a network before it was fitted to the chip."""
    return _inspection(network, floats.weights, (32, 32, 32), floats.delay, "every number in 32 bits")


def _inspection(
    network: Network, blocks: Mapping[Link, NDArray[Any]], kept: tuple[int, int, int], delay: int, convention: str
) -> Inspection:
    """Describe a network; ``kept`` holds the bits of a weight, of another value of a neuron, and of a time constant."""
    names = ["input", *(f"hidden{k}" for k in range(1, len(network.layers) - 1)), "output"]
    layers = tuple(Layer(name, size) for name, size in zip(names[1:], network.layers[1:], strict=True))
    synapses = tuple(
        linear(f"{names[a]}-{names[b]}", names[a], names[b], block, 1 if a == b else delay if a else 0)
        for (a, b), block in blocks.items()
    )
    bits, value_bits, time_bits = kept
    memory = [Memory(f"weights {s.connection.name}", "weights", s.connection.weights, bits) for s in synapses]
    for layer in layers:
        n = layer.neurons
        memory += [
            Memory(f"thresholds {layer.name}", "parameters", n, value_bits),
            Memory(f"biases {layer.name}", "parameters", n, value_bits),
            Memory(f"time constants {layer.name}", "parameters", 2 * n, time_bits),
            Memory(f"membranes {layer.name}", "states", n, value_bits, 0),
            Memory(f"synaptic currents {layer.name}", "states", n, value_bits, 0),
        ]
    connections = tuple(s.connection for s in synapses)
    info = NetworkInfo(layers, connections, tuple(memory), network.specification["dt"], convention)
    return Inspection(info, synapses)
