"""A NIR graph in torch gives the same spikes and operations as a float network of a Xylo."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.torch.device import open_device
from drivers.devices.xylo import float_device
from rig.errors import DataError, RigError, SetupError
from rig.network.description import activity_faults
from rig.types import Sample, SampleSet
from tests.drivers.devices.test_xylo_nir import DT_S, GRAPHS, needs_graphs, neurons, written
from tests.support.remote_workers import answer

nir = pytest.importorskip("nir", reason="needs neurorig[nir]")
pytestmark = pytest.mark.torch


def ends(inputs: Any, outputs: Any) -> dict[str, Any]:
    return {
        "in": nir.Input(input_type={"input": np.array(inputs)}),
        "out": nir.Output(output_type={"output": np.array(outputs)}),
    }


def recurrent(path: Path, seed: int) -> Path:
    """Return a graph of two recurrent hidden layers, and a connection that skips the second."""
    rng = np.random.default_rng(seed)
    shapes = {"a": (6, 4), "b": (5, 6), "c": (3, 5), "skip": (3, 6), "back_a": (6, 6), "back_b": (5, 5)}
    nodes = ends([4], [3]) | {name: nir.Linear(rng.normal(0, 0.7, shape)) for name, shape in shapes.items()}
    nodes |= {"na": neurons(6), "nb": neurons(5), "nc": neurons(3)}
    edges = [("in", "a"), ("a", "na"), ("na", "b"), ("b", "nb"), ("nb", "c"), ("c", "nc"), ("nc", "out")]
    edges += [("na", "skip"), ("skip", "nc"), ("na", "back_a"), ("back_a", "na"), ("nb", "back_b"), ("back_b", "nb")]
    return written(path, nodes, edges[::-1])


def events(steps: int, inputs: int, most: int, seed: int = 3) -> Sample:
    return Sample("s", np.random.default_rng(seed).integers(0, most + 1, (steps, inputs)), label="0")


def in_torch(path: Path, sample: Sample, **options: Any) -> Any:
    of = SampleSet("made", "made", "1", "0" * 64, [sample])
    given: dict[str, Any] = {"network": str(path), "dt_s": DT_S, "reset": "subtract", "dtype": "float64", **options}
    device = open_device(of, **given)
    found, network = answer(device, sample), device.info().network
    assert network is not None and not list(activity_faults(network, found.activity))
    return found


@pytest.mark.parametrize(("seed", "most"), [(0, 1), (5, 1), (2, 3)])
def test_spikes_and_operations_match_the_float_network(tmp_path: Path, seed: int, most: int) -> None:
    path, sample = recurrent(tmp_path / "graph.nir", seed), events(40, 4, most)
    own = in_torch(path, sample)
    other = answer(float_device.open_device(network=str(path), dt_s=DT_S, reset="subtract"), sample)
    assert own.output["scores"] == other.output["spikes"] and sum(other.output["spikes"]) > 0
    for one, same in [("a", "input-hidden1"), ("back_a", "hidden1-hidden1"), ("skip", "hidden1-output")]:
        for counter in ("acs", "macs"):
            assert own.activity[one][counter].tolist() == other.activity[same][counter].tolist()
    assert own.activity["na"]["active"].tolist() == other.activity["hidden1"]["active"].tolist()


@needs_graphs
def test_published_graphs_match_the_float_network() -> None:
    path, sample = GRAPHS / "braille_noDelay_noBias_subtract.nir", events(256, 12, 1)
    own = in_torch(path, sample, dt_s=1e-4)
    other = answer(float_device.open_device(network=str(path), dt_s=1e-4, reset="subtract"), sample)
    assert own.output["scores"] == other.output["spikes"]
    sample = Sample("s", np.random.default_rng(1).integers(0, 2, (5, 2, 34, 34)), label="0")
    found = in_torch(GRAPHS / "cnn_sinabs.nir", sample, dt_s=1.0)
    assert found.activity["0"]["acs"].shape == (5,) and found.activity["0"]["acs"].any()


def test_neurons_follow_their_equations(tmp_path: Path) -> None:
    """A leaky neuron, an integrator that resets to zero, a threshold, and a membrane as output."""
    nodes = ends([1], [1]) | {
        "lif": nir.LIF(*(np.array([v]) for v in (2.0, 1.0, 0.5)), v_threshold=np.array([0.9]), v_reset=np.array([0.0])),
        "scale": nir.Scale(np.array([0.6])),
        "if": nir.IF(np.array([1.0]), np.array([1.0]), np.array([0.25])),
        "li": nir.LI(*(np.array([v]) for v in (4.0, 1.0, 0.0))),
    }
    edges = [("in", "lif"), ("lif", "scale"), ("scale", "if"), ("if", "li"), ("li", "out")]
    sample = Sample("s", np.array([[1], [1], [1], [0], [2], [1], [1]]), label="0")
    found = in_torch(written(tmp_path / "g.nir", nodes, edges), sample, dt_s=1.0, reset="zero")
    total = v = u = w = 0.0
    for x in sample.payload[:, 0]:
        v += 0.5 * (0.5 - v + x)
        spike, v = (1.0, 0.0) if v >= 0.9 else (0.0, v)
        u += 0.6 * spike
        sent, u = (1.0, 0.25) if u >= 1.0 else (0.0, u)
        w += 0.25 * (sent - w)
        total += w
    assert found.output["scores"] == pytest.approx([total]) and total > 0
    assert set(found.activity) == {"lif", "if"}, "a membrane is no activation"


def test_a_membrane_at_threshold_does_not_spike(tmp_path: Path) -> None:
    """As the equations of NIR say; only graphs of whole numbers reach a threshold exactly."""
    nodes = ends([1], [1]) | {"if": nir.IF(np.array([1.0]), np.array([2.0]), np.array([0.0]))}
    path = written(tmp_path / "g.nir", nodes, [("in", "if"), ("if", "out")])
    found = in_torch(path, Sample("s", np.ones((12, 1)), label="0"), dt_s=1.0, reset="zero")
    assert found.output["scores"] == [4.0]


def test_memory_counts_match_the_neurons(tmp_path: Path) -> None:
    shape = (2, 3, 3)
    nodes = ends([1, 3, 3], [18]) | {
        "c": nir.Conv2d((3, 3), np.ones((2, 1, 1, 1)), 1, 0, 1, 1, np.zeros(2)),
        "if": nir.IF(np.ones(shape), np.ones(shape), np.zeros(shape)),
        "flat": nir.Flatten({"input": np.array(shape)}, 0, -1),
    }
    path = written(tmp_path / "g.nir", nodes, [("in", "c"), ("c", "if"), ("if", "flat"), ("flat", "out")])
    of = SampleSet("made", "made", "1", "0" * 64, [Sample("s", np.ones((2, 1, 3, 3)), label="0")])
    network = open_device(of, network=str(path), dt_s=1.0, reset="zero", dtype="float64").info().network
    assert network is not None
    held = {
        kind: sum(m.elements for m in network.memory if m.kind == kind) for kind in ("weights", "parameters", "states")
    }
    assert held == {"weights": 2, "parameters": 2 + 3 * 18, "states": 18}
    assert {m.bits for m in network.memory} == {64}


def test_a_graph_without_neurons_has_no_time(tmp_path: Path) -> None:
    weight, bias = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([0.5, 0.0])
    nodes = ends([2], [2]) | {"w": nir.Affine(weight, bias), "t": nir.Threshold(np.array([0.5, 0.5]))}
    path = written(tmp_path / "g.nir", nodes, [("in", "w"), ("w", "t"), ("t", "out")])
    found = in_torch(path, Sample("s", np.array([0.25, -1.0]), label="1"), dt_s=None, reset=None)
    assert found.output == {"label": "1", "scores": [0.0, 1.0]}


@pytest.mark.parametrize(("change", "kind", "text"), [
    ({"options": {"dt_s": None}}, SetupError, "does not say its dt_s"),
    ({"options": {"reset": None}}, SetupError, "does not say its reset"),
    ({"options": {"dt_s": 0.5}}, DataError, "node 'na' has tau_syn of 0.008 time steps"),
    ({"nodes": {"odd": nir.Delay(np.array([1.0]))}}, DataError, "node 'odd' is a Delay"),
    ({"nodes": {"na": neurons(2, r=np.nan)}}, DataError, "node 'na' holds NaN or infinity in r"),
    ({"nodes": {"a": nir.Linear(np.ones((2, 7)))}}, DataError, "the nodes of g.nir do not fit each other"),
    ({"edges": [("b", "na")]}, DataError, "node 'b' has edges and does not exist"),
    ({"nodes": {"b": nir.Linear(np.ones((2, 2)))}, "edges": [("b", "na")]}, DataError, "'b' is not reached"),
    ({"nodes": {"b": nir.Linear(np.ones((2, 2)))}, "edges": [("a", "b"), ("b", "a")]}, DataError,
     "is in a loop without neurons"),
    ({"nodes": {"in2": nir.Input(input_type={"input": np.array([2])})}}, DataError, "'in2' is one of 2"),
])  # fmt: skip
def test_an_impossible_node_is_named(change: dict[str, Any], kind: type[RigError], text: str, tmp_path: Path) -> None:
    nodes = ends([3], [2]) | {"a": nir.Linear(np.ones((2, 3))), "na": neurons(2)} | change.get("nodes", {})
    edges = [("in", "a"), ("a", "na"), ("na", "out"), *change.get("edges", [])]
    with pytest.raises(kind, match=text):
        in_torch(written(tmp_path / "g.nir", nodes, edges), events(5, 3, 1), **change.get("options", {}))
