"""A network before it is fitted to the integers of the chip.

The float network gives the spikes of the chip if fitting rounds nothing, and those of the framework of its NIR file."""

from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.devices.xylo import float_device
from drivers.devices.xylo.backend import SimBackend
from drivers.devices.xylo.networks import nir_deploy, nir_graph
from drivers.devices.xylo.networks.encoder import EncoderParams
from drivers.devices.xylo.networks.float_network import MOST_SPIKES, MOST_SPIKES_OUT, FloatNetwork, Neurons
from drivers.devices.xylo.networks.network import Network, load_network, write_network
from drivers.devices.xylo.networks.nir_deploy import fitted, wanted_of
from rig.conformance.device import check_device
from rig.errors import SetupError, UsageError
from rig.types import Sample
from scenarios.workloads.asc.scenes import CLASSES, synthesize
from tests.support.paths import SHARED
from tests.support.raised import raised
from tests.support.remote_workers import answer

pytestmark = pytest.mark.skipif(find_spec("rockpool") is None, reason="needs neurorig[xylo]")

BRAILLE = SHARED / "data" / "networks" / "nir" / "braille_noDelay_noBias_subtract.nir"
STEPS = 7
"""So few steps that states stay whole numbers.

They are sums of weights of 512 less thresholds of 384 or 640, and are halved in each step.
"""


def halving(size: int, threshold: int, last: bool) -> Neurons:
    keep, most = np.full(size, 0.5), MOST_SPIKES_OUT if last else MOST_SPIKES
    return Neurons(keep, keep, np.full(size, float(threshold)), np.zeros(size), most, True)


@given(seed=st.integers(0, 2**32 - 1), back=st.booleans(), skip=st.booleans())
def test_without_rounding_spikes_match_the_vendor_simulator(seed: int, back: bool, skip: bool) -> None:
    rng = np.random.default_rng(seed)
    links = {(0, 1): (3, 5), (1, 2): (5, 4), (2, 3): (4, 2)} | ({(1, 1): (5, 5)} if back else {})
    links |= {(1, 3): (5, 2)} if skip else {}
    weights = {link: 512.0 * rng.choice([-1, 0, 1], shape) for link, shape in links.items()}
    layers = (halving(5, 384, False), halving(4, 384, False), halving(2, 640, True))
    floats = FloatNetwork(layers, weights, 1)
    spec = fitted(wanted_of(floats), "none", 1e-3)
    sizes = (3, 5, 4, 2)
    params = EncoderParams(channels=3, bin_s=1e-3)
    network = Network(("a", "b"), params, sizes, spec, {}, "", tuple(links), floats=floats)
    raster = rng.integers(0, 2, (STEPS, 3))
    chip, traces = SimBackend.open(network, 25e6).infer(raster), floats.run(raster.astype(np.float64))
    assert np.array_equal(traces[-1].spikes, chip.output)
    for name, trace in zip(("hidden1", "hidden2"), traces, strict=False):
        assert trace.spikes.sum(axis=1).tolist() == chip.activity[name]["spikes"].tolist()


def test_a_batch_gives_the_spikes_of_single_samples() -> None:
    floats = load_network().floats
    assert floats is not None
    events = np.random.default_rng(0).integers(0, 4, (50, 3, 16)).astype(np.float32)
    together = floats.run(events)[-1].spikes
    for k in range(3):
        assert np.array_equal(together[:, k], floats.run(events[:, k])[-1].spikes)


@pytest.mark.skipif(find_spec("nir") is None, reason="needs neurorig[nir]")
def test_a_constant_input_leads_to_the_exact_membrane() -> None:
    """When nothing changes any more, NIR's CubaLIF has I = w_in W S and v = v_leak + r I, for any time step."""
    values = {
        "tau_syn": 3e-3, "tau_mem": 7e-3, "r": 2.5, "w_in": 1.5, "v_threshold": 1e9, "v_leak": 0.25, "v_reset": 0.0,
    }  # fmt: skip
    neurons = nir_graph.Neurons("n", 2, {name: np.full(2, value) for name, value in values.items()})
    weights = nir_graph.Weights("w", "in", "n", np.array([[0.5, -1.0], [2.0, 0.0]]))
    graph = nir_graph.Graph("in", 2, (neurons,), (weights,), "")
    for dt_s in (1e-4, 1e-3):
        (trace,) = nir_deploy.floats_of(graph, dt_s).run(np.ones((1000, 2)))
        assert trace.before_reset[-1] == pytest.approx([0.25 + 2.5 * 1.5 * -0.5, 0.25 + 2.5 * 1.5 * 2.0], rel=1e-3)


@pytest.mark.skipif(not BRAILLE.is_file() or find_spec("nir") is None, reason="needs the published graph and nir")
def test_a_graph_gives_the_spikes_of_its_training_framework() -> None:
    """The figures are of RSynaptic and Synaptic in snnTorch 1.0.0, reset at once, for this input and half the weights.

    With full weights, membranes reach twice the threshold, and snnTorch then subtracts it a second time.
    """
    floats = nir_deploy.load_nir(BRAILLE, 1e-4, "subtract", "channel", ()).floats
    assert floats is not None
    halved = replace(floats, weights={link: 0.5 * weights for link, weights in floats.weights.items()})
    hidden, output = halved.run((np.random.default_rng(0).random((256, 12)) < 0.06).astype(np.float64))
    assert hidden.spikes.sum() == 29
    assert output.spikes.sum(axis=0).tolist() == [0, 0, 0, 1, 0, 0, 1]


def scene(label: str = "park") -> Sample:
    return Sample(label, synthesize(label, 5000, 1.0, 16000.0), label, duration_s=1.0, rate_hz=16000.0)


def test_float_weights_take_four_times_the_memory() -> None:
    with closing(float_device.open_device()) as device:
        network = device.info().network
    deployed = SimBackend.open(load_network(), 25e6).inspection.info
    assert network is not None and network.footprint_bits("weights") == 4 * deployed.footprint_bits("weights")
    assert network.dense == deployed.dense
    assert [c.name for c in network.connections] == [c.name for c in deployed.connections]


def test_the_float_network_passes_the_device_check() -> None:
    assert "reply.activity" in check_device(float_device.open_device(), list(map(scene, CLASSES)), prompt_s=5.0)
    with closing(float_device.open_device()) as device:
        network, activity = device.info().network, answer(device, scene()).activity
    assert network is not None
    changed = sum(int(activity[layer.name]["updates"].sum()) for layer in network.layers)
    assert changed > 0.9 * network.neurons * 100, "a real number that decays changes in each step"


def test_an_integer_file_and_a_module_are_refused(tmp_path: Path) -> None:
    write_network(tmp_path / "bare.json", replace(load_network(), floats=None))
    raised(SetupError, float_device.open_device, says="no float weights", network=str(tmp_path / "bare.json"))
    raised(UsageError, float_device.open_device, says="no modules.*NIR graph", network="mynet.py:conv", dt_s=0.01)
