"""Graphs exported by the frameworks are read, or refused by the name of the node that the chip cannot run.

Published graphs of the same frameworks are read in ``test_xylo_nir.py``, without these frameworks.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.xylo.networks.network import Network
from drivers.devices.xylo.networks.nir_deploy import deployed, load_nir
from drivers.devices.xylo.networks.nir_graph import checked
from rig.errors import DataError
from tests.support.raised import raised

nir = pytest.importorskip("nir", reason="needs neurorig[nir]")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

DT_S = 1e-4
"""The time step of every snnTorch export."""
RASTER = (np.random.default_rng(0).random((200, 3)) < 0.3).astype(np.float64)


def read(path: Path, graph: Any, dt_s: float = DT_S) -> Network:
    pytest.importorskip("rockpool", reason="needs neurorig[xylo]")
    nir.write(str(path / "a.nir"), graph)
    return load_nir(path / "a.nir", dt_s, "subtract", "channel", ())


def snntorch_model(hidden: str, **options: Any) -> Any:
    """Return a model of three inputs, five neurons of the kind ``hidden``, and two outputs.

    The export needs a value for each neuron.
    """
    import snntorch
    import torch

    torch.manual_seed(0)

    def neurons(kind: str, n: int, **more: Any) -> Any:
        values = {name: torch.full((n,), v) for name, v in (("alpha", 0.75), ("beta", 0.875), ("threshold", 1.0))}
        return getattr(snntorch, kind)(init_hidden=True, **values, **more)

    model = torch.nn.Sequential(
        torch.nn.Linear(3, 5, bias=False), neurons(hidden, 5, **options), torch.nn.Linear(5, 2, bias=False),
        neurons("Synaptic", 2, output=True),
    )  # fmt: skip
    for values in model.parameters():
        values.data = 0.3 * values.data.abs()
    return model


def exported(model: Any) -> Any:
    import torch

    pytest.importorskip("nirtorch", reason="snnTorch exports with nirtorch")
    from snntorch.export_nir import export_to_nir

    return export_to_nir(model, torch.zeros(3))


def test_a_network_of_snntorch_gives_the_spikes_of_snntorch(tmp_path: Path, torch: Any) -> None:
    """Run step by step; a spike resets at once, as in NIR's equations, not one step later as by default."""

    model = snntorch_model("Synaptic")
    network = read(tmp_path, exported(model))
    for neurons in (model[1], model[3]):
        neurons.reset_delay = False
        neurons.reset_mem()
    with torch.no_grad():
        theirs = np.array([model(step)[0].numpy() for step in torch.tensor(RASTER).float()])
    assert network.floats is not None
    assert theirs.sum() > 20
    assert network.floats.run(RASTER)[-1].spikes.tolist() == theirs.tolist()


def test_a_recurrent_bias_of_snntorch_is_refused(tmp_path: Path, torch: Any) -> None:
    model = snntorch_model("RSynaptic", linear_features=5)
    raised(DataError, read, tmp_path, exported(model), says=r"node '1\.w_rec' has a bias")
    torch.nn.init.zeros_(model[1].recurrent.bias)
    network = read(tmp_path, exported(model))
    assert network.floats is not None
    assert network.links == ((0, 1), (1, 1), (1, 2))
    assert network.floats.weights[1, 1] == pytest.approx(model[1].recurrent.weight.detach().numpy().T)


def test_a_network_of_rockpool_is_read(tmp_path: Path, torch: Any) -> None:
    """Rockpool's batch axis gets into the graph, so the graph's types are not checked."""

    pytest.importorskip("rockpool", reason="needs neurorig[xylo]")
    pytest.importorskip("nirtorch", reason="Rockpool exports with nirtorch")
    from rockpool.nn.combinators import Sequential
    from rockpool.nn.modules import LIFTorch, LinearTorch
    from rockpool.nn.modules.torch.nir import to_nir

    times = {"dt": 1e-3, "tau_mem": 8e-3, "tau_syn": 4e-3}
    model = Sequential(LinearTorch((3, 5), has_bias=False), LIFTorch(5, **times), LinearTorch((5, 2), has_bias=False),
                       LIFTorch(2, **times))  # fmt: skip
    network = read(tmp_path, to_nir(model, torch.zeros(1, 3)), 1e-3)
    assert network.layers == (3, 5, 2)
    assert set(network.specification["dash_mem"]) == {3}


def test_a_norse_network_is_read_with_unit_time_step(torch: Any) -> None:
    """Norse multiplies time constants by ``dt``. nir cannot write its scalars, so the graph is read from memory."""

    norse = pytest.importorskip("norse.torch", reason="norse is not installed")
    from norse.torch.utils.export_nir import to_nir

    linear = torch.nn.Linear
    model = norse.SequentialState(linear(3, 5, bias=False), norse.LIFCell(), linear(5, 2, bias=False), norse.LIFCell())
    graph, by_default = to_nir(model, torch.zeros(1, 3), dt=1.0), to_nir(model, torch.zeros(1, 3))
    read_ = checked(graph.nodes, graph.edges)
    assert [layer.values["tau_mem"][0] for layer in read_.layers] == pytest.approx([0.01, 0.01])
    with pytest.raises(DataError, match="check --option dt_s"):
        deployed(checked(by_default.nodes, by_default.edges), 1e-3, "channel")


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_network_of_spyx_is_read(recurrent: bool, tmp_path: Path) -> None:
    """spyx writes a recurrent layer as a nested graph whose input leads to the recurrent weights."""
    spyx = pytest.importorskip("spyx.nn", reason="spyx is not installed")
    from flax import nnx
    from spyx.nir import to_nir

    keys = nnx.Rngs(0)
    kind = spyx.RCuBaLIF if recurrent else spyx.CuBaLIF
    options = {"alpha": 0.75, "beta": 0.875, "rngs": keys}
    model = nnx.Sequential(
        nnx.Linear(3, 5, use_bias=False, rngs=keys), kind((5,), **options),
        nnx.Linear(5, 2, use_bias=False, rngs=keys), spyx.CuBaLIF((2,), **options),
    )  # fmt: skip
    graph = to_nir(model, {"input": np.array([3])}, {"output": np.array([2])}, dt=DT_S)
    if recurrent:
        caught = raised(DataError, read, tmp_path, graph, says=r"'layer_0' leads to layer_1\.w_rec")
        assert "let the edge from its input lead to the neurons" in caught.remedy
        inner = graph.nodes["layer_1"]
        inner.edges = [(a, "layer_1.lif" if a == "layer_1.input" else b) for a, b in inner.edges]
    network = read(tmp_path, graph)
    assert network.layers == (3, 5, 2)
    assert ((1, 1) in network.links) == recurrent
    assert network.floats is not None
    kernel = np.asarray(model.layers[0].kernel[...])
    assert network.floats.weights[0, 1] == pytest.approx(kernel * 0.25 * 0.875 * 0.125, rel=1e-5)
