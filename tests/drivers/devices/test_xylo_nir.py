"""Networks in NIR on the simulated Xylo: what is accepted, what is refused by name, and what is exported."""

import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from drivers.devices.xylo import device as xylo
from drivers.devices.xylo.backend import SimBackend
from drivers.devices.xylo.networks.network import Network, load_network
from drivers.devices.xylo.networks.nir_deploy import deployed, load_nir, write_nir
from drivers.devices.xylo.networks.nir_graph import checked
from fixtures.bench.true_power import open_plant
from rig.commands.shell.main import main
from rig.errors import DataError, RigError, SetupError, UsageError
from rig.network.description import activity_faults, network_faults
from rig.types import Sample
from tests.support.paths import ROOT, SHARED
from tests.support.raised import raised
from tests.support.remote_workers import answer

nir = pytest.importorskip("nir", reason="needs neurorig[nir]")
pytestmark = pytest.mark.skipif(find_spec("rockpool") is None, reason="needs neurorig[xylo]")

DT_S = 1e-3
LEAKS = np.array([0.4, -0.3])
GRAPHS = SHARED / "data" / "networks" / "nir"
BRAILLE = GRAPHS / "braille_noDelay_noBias_subtract.nir"
CORE = ("active_power_w", "energy_per_inference_j")
needs_graphs = pytest.mark.skipif(not GRAPHS.is_dir(), reason="needs the published graphs")


def neurons(size: int, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "tau_syn": 4 * DT_S, "tau_mem": 8 * DT_S, "r": 8.0, "w_in": 4.0, "v_threshold": 1.0, "v_leak": 0.0,
        "v_reset": 0.0, **changes,
    }  # fmt: skip
    return nir.CubaLIF(**{name: np.full(size, v) if np.ndim(v) == 0 else v for name, v in values.items()})


def graph(seed: int = 0, sizes: tuple[int, ...] = (3, 5, 2), recurrent: bool = True) -> tuple[dict[str, Any], Any]:
    """Return nodes and edges of a random network with recurrent hidden layers."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, Any] = {
        "in": nir.Input(input_type={"input": np.array([sizes[0]])}),
        "out": nir.Output(output_type={"output": np.array([sizes[-1]])}),
    }
    edges, before = [], "in"
    for k, size in enumerate(sizes[1:]):
        nodes |= {f"w{k}": nir.Linear(rng.normal(0, 0.7, (size, sizes[k]))), f"n{k}": neurons(size)}
        edges += [(before, f"w{k}"), (f"w{k}", f"n{k}")]
        before = f"n{k}"
        if recurrent and k < len(sizes) - 2:
            nodes[f"r{k}"] = nir.Linear(rng.normal(0, 0.3, (size, size)))
            edges += [(f"n{k}", f"r{k}"), (f"r{k}", f"n{k}")]
    return nodes, [*edges, (before, "out")]


def nested(seed: int, depth: int = 1, **more: Any) -> tuple[dict[str, Any], Any]:
    """Return the same network as ``graph``, with its recurrent layer inside ``depth`` nested graphs."""
    nodes, edges = graph(seed)
    inner = {"lif": nodes.pop("n0"), "w_rec": nodes.pop("r0"), **more}
    inside = [("input", "lif"), ("lif", "w_rec"), ("w_rec", "lif"), ("lif", "output")]
    for _ in range(depth):
        ends = {"input": nir.Input(np.array([1, 5])), "output": nir.Output(np.array([1, 5]))}  # a batch axis, unchecked
        rnn = nir.NIRGraph(nodes=inner | ends, edges=inside, type_check=False)
        inner, inside = {"rnn": rnn}, [("input", "rnn"), ("rnn", "output")]
    outer = [tuple("n0" if n == "r0" else n for n in edge) for edge in edges]
    return nodes | {"n0": rnn}, [edge for edge in outer if edge != ("n0", "n0")]


def written(path: Path, nodes: dict[str, Any], edges: Any) -> Path:
    nir.write(str(path), nir.NIRGraph(nodes=nodes, edges=edges, type_check=False))
    return path


def loaded(path: Path, **options: Any) -> Network:
    asked: dict[str, Any] = {"dt_s": DT_S, "reset": "subtract", "quantize": "channel", "classes": (), **options}
    return load_nir(path, **asked)


def spikes(network: Network, raster: Any) -> tuple[Any, Any]:
    inference = SimBackend.open(network, 25e6).infer(raster)
    return inference.output.tolist(), {k: v["spikes"].tolist() for k, v in inference.activity.items() if "spikes" in v}


# ---- what comes out ---------------------------------------------------------------------------


@needs_graphs
def test_a_published_network_gives_the_vendor_spikes() -> None:
    """The figures are Rockpool's with torch, for this input (neuromorphs/NIR, paper/03_rnn)."""
    network = loaded(BRAILLE, dt_s=1e-4)
    raster = (np.random.default_rng(0).random((256, 12)) < 0.06).astype(np.int64)
    output, by_layer = spikes(network, raster)
    assert np.sum(output, axis=0).tolist() == [2, 8, 12, 4, 8, 10, 4]
    assert sum(by_layer["hidden1"]) == 127


@needs_graphs
def test_the_page_shows_the_output_of_its_command(tmp_path: Path) -> None:
    """A whole session, so that each figure of the table is one that a reader can get."""
    page = (ROOT / "docs/reference/xylo-networks.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("rig measure") and BRAILLE.name in line]
    command = line.replace("examples/", f"{ROOT}/examples/").replace(BRAILLE.name, str(BRAILLE))
    assert main([*shlex.split(command)[1:-1], str(tmp_path / "run")]) == 0
    found = json.loads((tmp_path / "run/derived/results.json").read_text())["quantities"]
    ours = {name: found[f"phase.inference.{name}"]["value"] for name in ("execution_time_s", "energy_per_inference_j")}
    core = {name: found[f"phase.inference.rail.snn_core.{name}"]["value"] for name in CORE}
    shown = [f"{1e3 * ours['execution_time_s']:.1f} ms", f"{1e6 * core[CORE[0]]:.0f} µW"]
    shown += [f"{1e6 * energy_j:.1f} µJ" for energy_j in (core[CORE[1]], ours["energy_per_inference_j"])]
    rows = [row.split("|")[2].strip() for row in page.splitlines() if row.count("|") == 5 and "simulated |" not in row]
    assert [row for row in rows if row.endswith((" ms", " µW", " µJ"))] == shown
    ratios = 1e3 * ours["execution_time_s"] / 85.9, 1e6 * core[CORE[0]] / 277.09
    said = f"the time is {ratios[0]:.2f} times the published one, and the power {ratios[1]:.2f} times."
    assert said in " ".join(page.split())


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), recurrent=st.booleans(), layers=st.integers(1, 3))
def test_a_deployed_graph_survives_writing_and_reading(
    seed: int, recurrent: bool, layers: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("nir")
    sizes = (3, *rng.integers(1, 9, layers).tolist(), 2)
    once = loaded(written(folder / "a.nir", *graph(seed, sizes, recurrent)))
    write_nir(once, folder / "b.nir")
    again = loaded(folder / "b.nir", quantize="none")
    assert again.deployment["rounding"] == []
    assert (again.layers, again.links) == (once.layers, once.links)
    raster = rng.integers(0, 4, (40, 3))
    assert spikes(again, raster) == spikes(once, raster)


def test_the_shipped_network_survives_nir(tmp_path: Path) -> None:
    shipped = load_network()
    write_nir(shipped, tmp_path / "shipped.nir")
    again = loaded(tmp_path / "shipped.nir", dt_s=0.01, quantize="none", classes=shipped.classes)
    for name, values in shipped.specification.items():
        if name not in ("aliases", "dash_syn_2"):
            assert np.array_equal(values, again.specification[name]), name
    assert again.encoder.bin_s == shipped.encoder.bin_s


def test_rounding_of_leak_and_time_constants_is_listed(tmp_path: Path) -> None:
    """On the chip an input decays once before it reaches the membrane (``input_kept``).

    Rockpool's mapping, which is used here, does not correct for this.
    """
    nodes, edges = graph(1)
    nodes |= {"n0": neurons(5, v_leak=0.5, tau_mem=6.7 * DT_S), "n1": neurons(2, tau_syn=2 * DT_S, v_leak=LEAKS)}
    network = loaded(written(tmp_path / "a.nir", nodes, edges))
    spec, rounding = network.specification, network.deployment["rounding"]
    assert set(spec["dash_mem"]) == {3} and set(spec["dash_syn_out"]) == {1}, "the shifts nearest to 6.7 and 2 steps"
    assert spec["bias"].tolist() == np.rint(0.5 / 6.7 * spec["threshold"]).astype(int).tolist()
    assert spec["bias_out"].tolist() == np.rint(LEAKS / 8 * spec["threshold_out"]).astype(int).tolist()
    (time,) = [row for row in rounding if row["what"] == "tau_mem"]
    assert (time["node"], time["steps"], time["decay"]) == ("n0", 8.0, 0.875)
    assert time["asked_steps"] == pytest.approx(6.7)
    assert {row["node"] for row in rounding if row["what"] == "weight"} == {"w0", "w1", "r0"}
    lost = {row["node"]: row for row in rounding if row["what"] == "v_leak"}
    off = np.abs(spec["bias_out"] / spec["threshold_out"] - LEAKS / 8)
    assert lost.keys() == {"n0", "n1"} and lost["n1"]["largest_error_of_threshold"] == pytest.approx(off.max())
    assert lost["n1"]["largest_bias_of_threshold"] == pytest.approx(0.05)
    assert network.deployment["input_kept"] == {"n0": 0.75, "n1": 0.5}


def test_events_of_a_sample_reach_the_network_unchanged(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nir", *graph(2))
    options: dict[str, Any] = {"network": str(path), "dt_s": DT_S, "reset": "subtract", "classes": "yes,no"}
    device = xylo.open_device(open_plant(seed=1), simulate=True, **options)
    raster = np.random.default_rng(1).integers(0, 3, (50, 3))
    reply = answer(device, Sample("s", raster))
    assert reply.output["spikes"] == np.sum(spikes(loaded(path), raster)[0], axis=0).tolist()
    assert reply.output["label"] in ("yes", "no")
    network = device.info().network
    assert network is not None and network.dense == 3 * 5 + 5 * 5 + 5 * 2, "as NeuroBench counts an RNN: all weights"
    assert [c.name for c in network.connections] == ["input-hidden1", "hidden1-hidden1", "hidden1-output"]
    assert not [*network_faults(network), *activity_faults(network, reply.activity)]
    for bad in (raster[:, :2], raster * 16, raster - 1, raster * 1.0, raster[:0]):
        raised(DataError, device.stage, [Sample("bad", bad)])
    device.close()


@pytest.mark.parametrize("depth", [1, 3])
def test_a_nested_graph_equals_its_flat_graph(depth: int, tmp_path: Path) -> None:
    """A recurrent layer is usually nested. Its types are not checked, because exports add a batch axis."""
    flat = loaded(written(tmp_path / "flat.nir", *graph(3)))
    within = loaded(written(tmp_path / "nested.nir", *nested(3, depth)))
    raster = np.random.default_rng(3).integers(0, 4, (40, 3))
    assert (within.layers, within.links) == (flat.layers, flat.links)
    assert spikes(within, raster)[0] == spikes(flat, raster)[0]


def test_an_error_in_a_nested_graph_names_its_node() -> None:
    raised(DataError, checked, *nested(3, more=nir.LIF(*(np.ones(5) for _ in range(4)))), says=r"'n0\.more' is a LIF")
    raised(DataError, checked, *nested(3, second=nir.Input(np.array([5]))), says="'n0' .* 2 nodes of the kind Input")
    nodes, edges = nested(3)
    raised(DataError, checked, nodes | {"n0.lif": neurons(5)}, edges, says="'n0.lif' is in the graph and in")
    nodes["n0"].edges.append(("w1", "lif"))
    raised(DataError, checked, nodes, edges, says=r"'n0\.w1' has edges and does not exist")
    nodes, edges = nested(3)
    nodes["n0"].edges[0] = ("input", "w_rec")  # as in spyx's export
    raised(DataError, checked, nodes, edges, says="'w0' leads to n0.w_rec .*let the edge")


# ---- what is refused --------------------------------------------------------------------------


def bad_graphs() -> dict[str, Any]:
    """Return changes of the graph's nodes and edges, by the text of the error that each must cause."""

    def affine(bias: float) -> Any:
        return nir.Affine(np.ones((5, 3)), np.full(5, bias))

    return {
        "'w0' has a bias": lambda n, e: n.update(w0=affine(0.1)),
        "'w0' holds NaN or infinity in weight": lambda n, e: n.update(w0=nir.Linear(np.full((5, 3), np.nan))),
        "'n0' holds NaN or infinity in tau_mem": lambda n, e: n.update(n0=neurons(5, tau_mem=np.inf)),
        "'n0' has tau_syn of 0": lambda n, e: n.update(n0=neurons(5, tau_syn=0.0)),
        "'n0' is a LIF": lambda n, e: n.update(n0=nir.LIF(*(np.ones(5) for _ in range(4)))),
        "'n0' has tau_syn of shape": lambda n, e: n.update(n0=neurons(4)),
        "'n0' resets to a v_reset": lambda n, e: n.update(n0=neurons(5, v_reset=0.5)),
        "'n0' has tau_mem of 0.5 time steps": lambda n, e: n.update(n0=neurons(5, tau_mem=0.5 * DT_S)),
        "'n0' has tau_syn of 1 time steps, which becomes 1": lambda n, e: n.update(n0=neurons(5, tau_syn=DT_S)),
        "'w1' takes 4 inputs": lambda n, e: n.update(w1=nir.Linear(np.ones((2, 4)))),
        "'w0' leads from nowhere": lambda n, e: e.remove(("in", "w0")),
        "'ghost' has edges and does not exist": lambda n, e: e.append(("n0", "ghost")),
        "'n1' gets the output of n0 without weights": lambda n, e: e.append(("n0", "n1")),
        "leads on from the output layer": lambda n, e: (
            n.update(back=nir.Linear(np.ones((5, 2)))), e.extend([("n1", "back"), ("back", "n0")])),
        "leads from the input to the output layer": lambda n, e: (
            n.update(skip=nir.Linear(np.ones((2, 3)))), e.extend([("in", "skip"), ("skip", "n1")])),
        "one of two from": lambda n, e: (
            n.update(more=nir.Linear(np.ones((5, 3)))), e.extend([("in", "more"), ("more", "n0")])),
        "needs 1001 hidden channels": lambda n, e: n.update(
            w0=nir.Linear(np.ones((1001, 3))), n0=neurons(1001), r0=nir.Linear(np.ones((1001, 1001))),
            w1=nir.Linear(np.ones((2, 1001)))),
        "needs 9 output channels": lambda n, e: n.update(w1=nir.Linear(np.ones((9, 5))), n1=neurons(9)),
        "needs 17 input channels": lambda n, e: n.update(w0=nir.Linear(np.ones((5, 17)))),
        "threshold becomes 0": lambda n, e: n.update(n0=neurons(5, v_threshold=1e-6)),
        "bias becomes -": lambda n, e: n.update(n1=neurons(2, v_leak=-1e5)),
        "'other' is one of 2": lambda n, e: n.update(other=nir.Output(output_type={"output": np.array([2])})),
    }  # fmt: skip


@pytest.mark.parametrize("text", list(bad_graphs()))
def test_an_unsuitable_graph_is_refused_by_node(text: str) -> None:
    nodes, edges = graph(4)
    bad_graphs()[text](nodes, edges)
    with pytest.raises(DataError, match=text):
        deployed(checked(nodes, edges), DT_S, "channel")


def test_too_many_targets_or_weights_are_refused(tmp_path: Path) -> None:
    """The limit is on fan-out: 64 hidden neurons, including those of the same layer."""
    nodes, edges = graph(8, (3, 40, 24, 2))
    assert loaded(written(tmp_path / "most.nir", nodes, edges)).layers == (3, 40, 24, 2)
    nodes |= {"r0": nir.Linear(np.ones((40, 40))), "w1": nir.Linear(np.ones((25, 40))), "n1": neurons(25)}
    nodes |= {"r1": nir.Linear(np.ones((25, 25))), "w2": nir.Linear(np.ones((2, 25)))}
    raised(DataError, loaded, written(tmp_path / "more.nir", nodes, edges), says="'n0' has a neuron that reaches 65")
    nodes["r0"].weight[:, :] = np.eye(40)
    loaded(written(tmp_path / "sparse.nir", nodes, edges))

    nodes, edges = graph(9, (3, *([60] * 10), 2), recurrent=False)
    raised(DataError, loaded, written(tmp_path / "a.nir", nodes, edges), says=r"'n8' needs 32\d{3} weights")


def test_a_loop_through_several_layers_is_refused() -> None:
    nodes, edges = graph(5, (3, 4, 4, 2), recurrent=False)
    nodes["back"] = nir.Linear(np.ones((4, 4)))
    raised(DataError, checked, nodes, [*edges, ("n1", "back"), ("back", "n0")], says="loop through several layers")


def test_a_damaged_or_missing_file_is_refused(tmp_path: Path) -> None:
    raised(DataError, loaded, tmp_path / "a.nir", says="there is no file")
    for content in (b"", b"\x89HDF\r\n\x1a\n cut off"):
        (tmp_path / "a.nir").write_bytes(content)
        raised(DataError, loaded, tmp_path / "a.nir", says="as a NIR graph")


@pytest.mark.parametrize(("options", "error", "text"), [
    ({"dt_s": None}, SetupError, "does not say its dt_s"),
    ({"dt_s": None, "reset": None}, SetupError, "Add --option dt_s=0.001 --option reset=subtract"),
    ({"reset": None}, SetupError, "does not say its reset"), ({"reset": "zero"}, UsageError, "reset"),
    ({"dt_s": -1.0}, UsageError, "dt_s"), ({"quantize": "some"}, UsageError, "quantize"),
    ({"quantize": "none"}, DataError, "no integers"), ({"classes": ("one",)}, UsageError, "2 classes"),
])  # fmt: skip
def test_graph_options_are_checked(options: dict[str, Any], error: type[RigError], text: str, tmp_path: Path) -> None:
    for name, value in (("dt_s", 0.01), ("quantize", "none")):
        raised(UsageError, xylo.open_device, open_plant(seed=1), says=name, simulate=True, **{name: value})
    raised(error, loaded, written(tmp_path / "a.nir", *graph(6)), says=text, **options)


def test_equal_graphs_have_equal_digests(tmp_path: Path) -> None:
    nodes, edges = graph(7)
    one = loaded(written(tmp_path / "a.nir", nodes, edges)).digest_sha256
    same = loaded(written(tmp_path / "b.nir", nodes, edges[::-1])).digest_sha256
    nodes["w0"].weight[0, 0] += 1e-3
    assert one == same != loaded(written(tmp_path / "c.nir", nodes, edges)).digest_sha256
