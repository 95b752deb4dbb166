"""The network as the complexity metrics need it: its layers, connections and memory as deployed."""

from __future__ import annotations

from itertools import chain

from drivers.devices.arduino.mfe import FILTERS, FRAMES
from drivers.devices.arduino.quantised import KERNEL, Convolution, Quantised
from rig.network.description import Connection, Layer, Memory, NetworkInfo

CONVENTION = "weights and constants as the firmware holds them; pre-processing and activations are not in it"


def network_info(network: Quantised, takes: str = "") -> NetworkInfo:
    """Describe an exported network; activations are counted after pooling. ``takes`` is the memory of the build."""
    first, height, width = _convolved("first", "input", network.first, FRAMES, FILTERS)
    second, height, width = _convolved("second", first[0].name, network.second, height, width)
    weights = network.dense_weights
    zeros = int(weights.size - (weights != 0).sum())
    dense = Connection("dense", second[0].name, "classes", weights.size, zeros, weights.size, len(network.classes))
    memory = chain(
        _memory("first", network.first),
        _memory("second", network.second),
        [Memory("dense.weights", "weights", weights.size, 8), Memory("dense.bias", "weights", len(weights), 32)],
    )
    layers = (first[0], second[0], Layer("classes", len(network.classes)))
    return NetworkInfo(layers, (first[1], second[1], dense), tuple(memory), 1.0, CONVENTION + takes)


def _convolved(
    name: str, source: str, layer: Convolution, height: int, width: int
) -> tuple[tuple[Layer, Connection], int, int]:
    """Return a convolution without padding and its pooling, with the height and the width of its output.

    Pooling drops an odd last row or column, which the firmware does not compute.
    """
    high, wide = (height - KERNEL + 1) // 2, (width - KERNEL + 1) // 2
    weights, channels = layer.weights, len(layer.weights)
    zeros = int(weights.size - (weights != 0).sum())
    neurons = Layer(f"{name}.pooled", high * wide * channels)
    dense = weights.size * 4 * high * wide
    synapses = Connection(name, source, neurons.name, weights.size, zeros, dense, KERNEL**2 * channels)
    return (neurons, synapses), high, wide


def _memory(name: str, layer: Convolution) -> list[Memory]:
    parts = (("bias", layer.bias), ("multiplier", layer.multiplier), ("shift", layer.shift))
    return [
        Memory(f"{name}.weights", "weights", layer.weights.size, 8),
        *(Memory(f"{name}.{part}", "weights", array.size, 8 * array.itemsize) for part, array in parts),
    ]
