"""Footprints and dense operations of the published keyword networks, to the byte, from their own weights.

Those of primate reaching and of the echo state network are compared where their devices are tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from rig.analysis.complexity.static import static_figures
from rig.network.counting import Synapses, convolution, linear, memory_of
from rig.network.description import Layer, Memory, NetworkInfo, network_faults
from tests.support.paths import SHARED

NETWORKS = SHARED / "data" / "networks"
pytestmark = pytest.mark.skipif(not NETWORKS.is_dir(), reason="needs the published networks")


def arrays(name: str) -> dict[str, Any]:
    with np.load(NETWORKS / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def described(synapses: list[Synapses], memory: tuple[Memory, ...], neurons: Mapping[str, int]) -> NetworkInfo:
    layers = tuple(Layer(name, n) for name, n in neurons.items())
    network = NetworkInfo(layers, tuple(s.connection for s in synapses), memory, 0.004)
    assert not list(network_faults(network))
    return network


def figure(network: NetworkInfo, name: str) -> float:
    return static_figures(network)[name].value


def test_the_keyword_spiking_network() -> None:
    """Layers of leaky neurons behind linear weights; each neuron keeps a membrane of 32 bits."""
    held, sizes = arrays("gsc_snn"), {"lif1": 256, "lif3": 256, "lif5": 256, "lif7": 35}
    names = ["input", *sizes]
    synapses = [linear(k, *pair, held[f"{k}.weight"].T) for k, pair in zip("1357", pairwise(names), strict=True)]
    membranes = Memory("membranes", "states", sum(sizes.values()), 32, 0)
    network = described(synapses, (*memory_of(held), membranes), sizes)
    assert figure(network, "footprint_at_start_bytes") == 583900
    assert 200 * figure(network, "dense_operations_per_execution") == 29030400


def test_the_keyword_convolution() -> None:
    """M5 on 8000 values: four convolutions, each followed by pooling of four, then a linear layer."""
    held, length, synapses = arrays("gsc_m5_ann"), 8000, []
    for k in range(1, 5):
        kernel = held[f"conv{k}.weight"]
        stride = 16 if k == 1 else 1
        synapses.append(convolution(f"conv{k}", f"x{k - 1}", f"x{k}", kernel, (kernel.shape[1], length), stride=stride))
        length = ((length - kernel.shape[2]) // stride + 1) // 4
    synapses.append(linear("fc", "x4", "fc", held["fc1.weight"].T))
    network = described(synapses, memory_of(held), {f"x{k}": 1 for k in range(1, 5)})
    assert figure(network, "footprint_bytes") == 109228
    assert figure(network, "dense_operations_per_execution") == 1880256
