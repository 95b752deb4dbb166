"""Footprints and dense operations of published networks, to the byte, from their own weights.

The publication counts every array of the state dictionary by its type, and the buffer of past inputs
with the one sample that it holds before the first execution. We count the same arrays without those that only the
framework needs: the flags of snnTorch's neurons and PyTorch's count of batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rig.analysis.complexity.static import static_figures
from rig.network.counting import Synapses, convolution, linear, memory_of
from rig.network.description import Layer, Memory, NetworkInfo, network_faults
from tests.support.paths import SHARED

NETWORKS = SHARED / "data" / "networks"
pytestmark = pytest.mark.skipif(not NETWORKS.is_dir(), reason="needs the published networks")
FRAMEWORK = ("graded_spikes_factor", "reset_mechanism_val", "num_batches_tracked")


def arrays(name: str) -> dict[str, Any]:
    with np.load(NETWORKS / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def described(synapses: list[Synapses], memory: tuple[Memory, ...], neurons: Mapping[str, int]) -> NetworkInfo:
    layers = tuple(Layer(name, n) for name, n in neurons.items())
    network = NetworkInfo(layers, tuple(s.connection for s in synapses), memory, 0.004)
    assert not list(network_faults(network))
    return network


def spiking(held: Mapping[str, Any], weights: list[str], sizes: list[int]) -> NetworkInfo:
    """Layers of leaky neurons behind linear weights; each neuron keeps a membrane of 32 bits."""
    names = ["input", *(f"lif{k}" for k in range(1, len(sizes) + 1))]
    synapses = [linear(w, names[k], names[k + 1], held[w].T) for k, w in enumerate(weights)]
    membranes = Memory("membranes", "states", sum(sizes), 32, 0)
    return described(synapses, (*memory_of(held), membranes), dict(zip(names[1:], sizes, strict=True)))


def buffered(held: Mapping[str, Any], channels: int) -> NetworkInfo:
    """Return the primate network with 50 past samples, one of them there before the first execution."""
    names = ("input", "hidden1", "hidden2", "output")
    synapses = [linear(f"fc{k}", names[k - 1], names[k], held[f"fc{k}.weight"].T) for k in (1, 2, 3)]
    past = Memory("past inputs", "buffers", 50 * channels, 32, channels)
    return described(synapses, (*memory_of(held), past), {"hidden1": 32, "hidden2": 48, "output": 2})


def figure(network: NetworkInfo, name: str) -> float:
    return static_figures(network)[name].value


@pytest.mark.parametrize(
    ("name", "start", "after", "own", "dense"),
    [
        ("nhp/SNN2_indy_20160622_01", 19648, 19856, 19832, 4900),
        ("nhp/SNN2_loco_20170210_03", 38848, 39056, 39032, 9700),
    ],
)
def test_primate_spiking_networks(name: str, start: int, after: int, own: int, dense: int) -> None:
    held = {key.removeprefix("model_state_dict."): a for key, a in arrays(name).items()}
    network = spiking(held, ["fc1.weight", "fc_out.weight"], [50, 2])
    assert figure(network, "footprint_at_start_bytes") == start
    assert figure(network, "footprint_bytes") == after
    assert figure(network, "dense_operations_per_execution") == dense
    bare = {key: a for key, a in held.items() if not key.endswith(FRAMEWORK)}
    assert figure(spiking(bare, ["fc1.weight", "fc_out.weight"], [50, 2]), "footprint_bytes") == own


@pytest.mark.parametrize(
    ("name", "channels", "start", "after", "own", "dense"),
    [
        ("nhp/ANN_2D_indy_20160622_01", 96, 20824, 39640, 39624, 4704),
        ("nhp/ANN_2D_loco_20170210_03", 192, 33496, 71128, 71112, 7776),
    ],
)
def test_primate_networks_with_a_buffer(name: str, channels: int, start: int, after: int, own: int, dense: int) -> None:
    network = buffered(arrays(name), channels)
    assert figure(network, "footprint_at_start_bytes") == start
    assert figure(network, "footprint_bytes") == after
    assert figure(network, "dense_operations_per_execution") == dense
    bare = {key: a for key, a in arrays(name).items() if not key.endswith(FRAMEWORK)}
    assert figure(buffered(bare, channels), "footprint_bytes") == own


def test_the_keyword_spiking_network() -> None:
    network = spiking(arrays("gsc_snn"), [f"{k}.weight" for k in (1, 3, 5, 7)], [256, 256, 256, 35])
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
    synapses.append(linear("fc", "x4", "x5", held["fc1.weight"].T))
    network = described(synapses, memory_of(held), {f"x{k}": 1 for k in range(1, 6)})
    assert figure(network, "footprint_bytes") == 109228
    assert figure(network, "dense_operations_per_execution") == 1880256


def test_the_echo_state_network() -> None:
    """Only the published size, because its weights are not available: 186 neurons, one input and a constant."""
    held = {"in": np.zeros((2, 186)), "reservoir": np.zeros((186, 186)), "out": np.zeros((188, 1))}
    synapses = [
        linear("in", "input", "reservoir", held["in"]),
        linear("recurrent", "reservoir", "reservoir", held["reservoir"], 1),
        linear("readout", "states", "output", held["out"]),
    ]
    network = described(synapses, memory_of(held), {"reservoir": 186, "output": 1})
    assert figure(network, "footprint_bytes") == 281248
    assert figure(network, "dense_operations_per_execution") == 35156
