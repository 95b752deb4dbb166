"""Decoders of primate reaching give the published networks' results and counts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.cpu.decoders import WINDOW, binned, fitted, read_decoder, windowed
from drivers.devices.cpu.reaching import open_device
from rig.analysis.complexity.cost_and_activity import static_figures
from rig.analysis.scores.predictions import r2
from rig.conformance.device import check_device
from rig.errors import DataError, RigError
from rig.network.counting import count
from rig.network.description import activity_faults, network_faults
from scenarios.workloads.mackey_glass.workload import open_workload as open_series
from scenarios.workloads.primate_reaching.workload import open_workload
from tests.support.paths import SHARED
from tests.support.raised import raised

PUBLISHED = SHARED / "data" / "networks" / "nhp"
RNG = np.random.default_rng(0)
SPIKES = (RNG.random((200, 8)) < 0.1).astype(np.uint8)


def spiking(**changes: Any) -> dict[str, Any]:
    made = {
        "fc1.weight": RNG.normal(size=(5, 8)), "fc_out.weight": RNG.normal(size=(2, 5)), "lif1.beta": 0.9,
        "lif1.threshold": 1, "lif_out.beta": 0.8, "lif_out.threshold": 1, "lif1.reset_mechanism_val": 1,
    }  # fmt: skip
    return {f"model_state_dict.{name}": value for name, value in {**made, **changes}.items() if value is not None}


def buffered(**changes: Any) -> dict[str, Any]:
    made = {
        "fc1.weight": RNG.normal(size=(4, 8)), "fc1.bias": RNG.normal(size=4), "fc2.weight": RNG.normal(size=(2, 4)),
        "fc2.bias": RNG.normal(size=2), "batchnorm1.num_batches_tracked": 7,
    }  # fmt: skip
    norm = {f"batchnorm1.{k}": RNG.uniform(0.5, 2.0, 4) for k in ("weight", "bias", "running_mean", "running_var")}
    return {**made, **norm, **changes}


def flattened(channels: int = 8, first: int = 5, second: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    sizes = (channels, first, second, 2)
    held: dict[str, Any] = {"v_x": np.array([2.0]), "v_y": np.array([-1.0])}
    held["norm_layer.weight"] = rng.normal(1, 0.1, (7, channels))
    held["norm_layer.bias"] = rng.normal(0, 0.1, (7, channels))
    for k in (1, 2, 3):
        held |= {f"fc{k}.weight": rng.normal(size=(sizes[k], sizes[k - 1])), f"fc{k}.bias": rng.normal(size=sizes[k])}
        held |= {f"lif{k}.beta": np.array(0.5), f"lif{k}.threshold": np.array(0.5)}
    return {name: np.asarray(values, np.float32) for name, values in held.items()}


def stored(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path / "network.npz", **arrays)
    return path / "network.npz"


def test_a_spiking_decoder_follows_its_neuron_equations(tmp_path: Path) -> None:
    arrays = {name.removeprefix("model_state_dict."): a for name, a in spiking().items()}
    decoder = read_decoder(stored(tmp_path, spiking(**arrays)), channels=8)
    predictions, seen = decoder.decode(SPIKES)
    u, spiked, v = np.zeros(5), np.zeros(5), np.zeros(2)
    for k, given in enumerate(SPIKES):
        u = arrays["lif1.beta"] * np.where(spiked, 0.0, u) + arrays["fc1.weight"] @ given
        spiked = u > 1
        v = arrays["lif_out.beta"] * v + arrays["fc_out.weight"] @ spiked
        assert np.array_equal(seen["hidden"][k], spiked) and np.array_equal(seen["output"][k], v > 1)
        assert predictions[k] == pytest.approx(v)
    assert seen["hidden"].any() and seen["output"].any()


def test_a_buffered_network_predicts_from_the_last_fifty_steps(tmp_path: Path) -> None:
    a = buffered()
    predictions, seen = read_decoder(stored(tmp_path, a), channels=8).decode(SPIKES)
    assert not predictions[: WINDOW - 1].any()
    norm = {k: a[f"batchnorm1.{k}"] for k in ("weight", "bias", "running_mean", "running_var")}
    for k in (WINDOW - 1, 120):
        hidden = np.maximum(a["fc1.weight"] @ SPIKES[k + 1 - WINDOW : k + 1].sum(axis=0) + a["fc1.bias"], 0.0)
        hidden = (hidden - norm["running_mean"]) / np.sqrt(norm["running_var"] + 1e-5) * norm["weight"] + norm["bias"]
        assert predictions[k] == pytest.approx(a["fc2.weight"] @ hidden + a["fc2.bias"])
    assert len(seen["input"]) == len(SPIKES) - WINDOW + 1


def test_a_linear_layer_recovers_a_linear_velocity() -> None:
    weights = RNG.normal(size=(8, 2))
    velocity = np.zeros((len(SPIKES), 2))
    velocity[WINDOW - 1 :] = windowed(SPIKES) @ weights + 3.0
    predictions, _ = fitted(SPIKES, velocity).decode(SPIKES)
    score = r2(velocity[WINDOW:], predictions[WINDOW:])
    assert score is not None and score > 0.99


@pytest.mark.parametrize(("arrays", "said"), [
    (spiking(**{"fc1.weight": np.ones((5, 9))}), r"fc1\.weight of float64 and shape \(5, 9\)"),
    (spiking(**{"lif1.beta": None}), r"no array lif1\.beta"),
    (spiking(**{"lif1.beta": np.nan}), r"lif1\.beta that is not finite"),
    (buffered(**{"fc2.weight": np.ones((2, 5))}), r"fc2\.weight"),
    (buffered(**{"fc2.bias": np.array(["a", "b"])}), r"fc2\.bias of <U1"),
    ({"other": np.ones(3)}, r"no array fc1\.weight"),
])  # fmt: skip
def test_a_network_file_with_wrong_arrays_is_refused(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    raised(DataError, read_decoder, stored(tmp_path, arrays), says=said, channels=8)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"PK\3\4 no archive"):
        raised(DataError, read_decoder, tmp_path / "network.npz", says="cannot be read", channels=8)
        (tmp_path / "network.npz").write_bytes(content)


@pytest.mark.real_time
def test_a_decoder_passes_the_device_check() -> None:
    workload = open_workload(reaches=100)  # so many that a repetition takes visibly longer
    assert "reply.activity" in check_device(open_device(workload), workload.samples, prompt_s=5.0)
    raised(RigError, open_device, open_series(starts=1), says="no session of primate-reaching")


needs_networks = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs the published networks")


@needs_networks
@pytest.mark.parametrize(("name", "channels", "dense", "figure", "own_bytes"), [
    ("SNN2_indy_20160622_01", 96, 4900, "footprint_bytes", 19832),
    ("SNN2_loco_20170210_03", 192, 9700, "footprint_bytes", 39032),
    ("ANN_2D_indy_20160622_01", 96, 4704, "footprint_bytes", 39624),
    ("ANN_2D_loco_20170210_03", 192, 7776, "footprint_bytes", 71112),
    # PyTorch counts batches in 16 bytes of these
    ("ANN_3D_indy_20160622_01", 96, 23136, "footprint_at_start_bytes", 94552 - 16),
    ("ANN_3D_loco_20170210_03", 192, 44640, "footprint_at_start_bytes", 180952 - 16),
])  # fmt: skip
def test_costs_match_the_publication(name: str, channels: int, dense: int, figure: str, own_bytes: int) -> None:
    decoder = read_decoder(PUBLISHED / f"{name}.npz", channels)
    figures, neurons = static_figures(decoder.network()), decoder.network().neurons
    assert neurons == (52 if "SNN" in name else 80), "those that the harness counts: spikes, and outputs of ReLUs"
    assert figures["dense_operations_per_execution"].value == dense
    assert figures[figure].value == own_bytes
    assert figures["model_execution_rate_hz"].value == 250
    if "3D" in name:
        predictions, seen = decoder.decode(np.zeros((60, channels), np.uint8))
        assert predictions.shape == (60, 2) and seen["input"].shape == (60, 7 * channels)


@pytest.mark.parametrize(("arrays", "connection", "executions", "execution_s"), [
    (spiking(), "fc_out", 200, 0.004), (buffered(), "fc2", 151, 0.004),
    (flattened(), "fc1", 7 * 200, pytest.approx(0.004 / 7)),
], ids=["spiking", "buffered", "flattened"])  # fmt: skip
def test_counted_activity_fits_its_description(
    arrays: dict[str, Any], connection: str, executions: int, execution_s: Any, tmp_path: Path
) -> None:
    decoder = read_decoder(stored(tmp_path, arrays), channels=8)
    predictions, seen = decoder.decode(SPIKES)
    network, counted = decoder.network(), count(decoder.synapses(), seen)
    assert predictions[60:].any(axis=1).all() and network.execution_s == execution_s
    assert not [*network_faults(network), *activity_faults(network, counted)]
    assert len(counted[connection]["macs"]) == executions


def by_the_published_code(spikes: np.ndarray) -> np.ndarray:
    """Return the bins of each step, from a buffer that begins with one empty row and keeps the last 50."""
    buffer, found = np.zeros((1, spikes.shape[1])), []
    for row in spikes:
        buffer = np.vstack((buffer, row))[-WINDOW:]
        found.append([buffer[7 * k : 7 * k + 7].sum(axis=0) for k in range(7)])
    return np.array(found)


def test_buffer_bins_match_the_published_code() -> None:
    spikes = (np.random.default_rng(0).random((120, 3)) < 0.3).astype(np.uint8)
    assert binned(spikes).tolist() == by_the_published_code(spikes).tolist()


@pytest.mark.parametrize(("channels", "dense", "published"), [(96, 32928, 24972), (192, 54432, 43020)])
def test_flattened_costs_match_publication(tmp_path: Path, channels: int, dense: int, published: int) -> None:
    network = read_decoder(stored(tmp_path, flattened(channels, 32, 48)), channels).network()
    figures = static_figures(network)
    assert 7 * figures["dense_operations_per_execution"].value == dense
    assert figures["footprint_at_start_bytes"].value == published - 36  # snnTorch: 12 in each neuron layer


@pytest.mark.torch
def test_the_flattened_spiking_network_matches_snntorch(tmp_path: Path, torch: Any) -> None:
    import snntorch

    held, spikes = flattened(), (np.random.default_rng(0).random((60, 8)) < 0.2).astype(np.uint8)
    found, _ = read_decoder(stored(tmp_path, held), 8).decode(spikes)
    of = {name: torch.from_numpy(np.asarray(values)) for name, values in held.items()}
    reset = {1: "subtract", 2: "subtract", 3: "none"}
    leaky = [snntorch.Leaky(beta=0.5, threshold=0.5, reset_mechanism=reset[k]) for k in (1, 2, 3)]
    wanted = []
    for bins in by_the_published_code(spikes):
        membranes = [torch.zeros(n) for n in (5, 4, 2)]
        given = torch.from_numpy(bins.astype(np.float32))
        for drive in torch.nn.functional.layer_norm(given, (7, 8), of["norm_layer.weight"], of["norm_layer.bias"]):
            for k, cell in enumerate(leaky, 1):
                current = of[f"fc{k}.weight"] @ drive + of[f"fc{k}.bias"]
                drive, membranes[k - 1] = cell(current, membranes[k - 1])  # noqa: PLW2901 - what the next is given
        wanted.append((membranes[2] * torch.tensor([2.0, -1.0])).tolist())
    assert found == pytest.approx(np.array(wanted), abs=1e-4)


@needs_networks
def test_a_session_may_be_named_in_the_path() -> None:
    workload = open_workload(reaches=8)
    raised(DataError, open_device, workload, says="SNN2_synthetic_0", networks=str(PUBLISHED / "SNN2_{session}.npz"))
    device = open_device(workload, networks=str(PUBLISHED / "SNN2_indy_20160622_01.npz"))
    assert list(device.info().artifacts) == ["network of synthetic_0"]
    device.close()
