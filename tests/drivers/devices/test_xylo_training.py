"""Training for the simulated Xylo learns, is reproducible, is recorded, and uses no other data."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.training_data import batch_of
from drivers.devices.xylo.networks import train_command as training
from drivers.devices.xylo.networks.network import load_network
from rig.commands.shell.main import main
from scenarios.workloads.asc.workload import open_workload

pytestmark = pytest.mark.skipif(find_spec("rockpool") is None, reason="needs neurorig[xylo]")
QUICK = ("--hidden", "6,6", "--epochs", "1", "--option", "samples=12")


def trained(folder: Path, *argv: str) -> Any:
    path = folder / "a.json"
    assert main(("network", "train", "asc", "--out", str(path), *(argv or QUICK))) == 0
    return load_network(path)


def test_one_command_gives_a_network_that_fits_the_chip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = trained(tmp_path)
    assert network.layers == (16, 6, 6, 4)
    assert network.floats.sizes == network.layers
    out = capsys.readouterr().out
    assert f"rig measure --workload asc --device xylo-float --meter none --option network={tmp_path}/a.json" in out


def test_a_network_that_heard_a_whole_folder_is_measured_on_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    soundfile = pytest.importorskip("soundfile")
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, 16000)
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", noise, 16000)
    (tmp_path / "labels.csv").write_text("filename,label\na.wav,a\nb.wav,b\n")
    trained(tmp_path, *QUICK[:4], "--data", str(tmp_path))
    assert "--option data=ANOTHER_FOLDER" in capsys.readouterr().out


def test_a_single_class_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.wav", np.random.default_rng(0).uniform(-0.3, 0.3, 16000), 16000)
    (tmp_path / "labels.csv").write_text("filename,label\na.wav,a\n")

    assert main(("network", "train", "asc", "--out", str(tmp_path / "a.json"), "--data", str(tmp_path))) == 6
    assert "the data have 1 classes, but a network for Xylo Audio 2 has 2 to 8" in capsys.readouterr().err


def test_the_file_says_what_it_was_trained_on_and_how(tmp_path: Path) -> None:
    told = trained(tmp_path).training
    data = open_workload(split="train", samples=12)
    assert told["data"]["digest_sha256"] == data.digest_sha256
    assert (told["data"]["split"], told["data"]["seeds"]) == ("train", [0, 3])
    assert (told["hidden"], told["epochs"], told["seed"], told["batch"]) == ([6, 6], 1, 0, 1)
    assert set(told["versions"]) == {"numpy", "rockpool"}
    assert "were given" in told["tuning"]


def test_one_seed_gives_one_file_and_another_another(tmp_path: Path) -> None:
    digests = [trained(tmp_path, *QUICK, "--seed", seed).digest_sha256 for seed in ("0", "0", "1")]
    assert digests[0] == digests[1] != digests[2]


def test_it_learns_which_channel_is_loud() -> None:
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1], 40)
    events = np.zeros((20, 80, 4), np.float32)
    events[:, np.arange(80), 2 * labels] = rng.integers(1, 4, (20, 80))
    heard: list[str] = []
    network = training.trained(events, labels, 2, training.Settings((8,), 0, 10), heard.append)
    assert training.accuracy(network, events, labels) > 0.95
    assert len(heard) == 10


@pytest.mark.parametrize(("samples", "batch"), [(41360, 100), (4000, 100), (122, 12), (9, 1)])
def test_few_samples_make_small_batches_so_that_an_epoch_has_steps(samples: int, batch: int) -> None:
    assert batch_of(samples, 100) == batch


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (("asc", "--option", "split=test", "--out", "a.json"), 3, "trained on the train split"),
        (("qubo-mis", "--out", "a.json"), 3, "has no train split"),
        (("asc", "--hidden", "9,x", "--out", "a.json"), 3, "sizes of layers"),
        (("asc", "--hidden", "9,65", "--out", "a.json"), 3, "each with up to 64 targets"),
        (("asc", "--hidden", "400,64,64,64", "--out", "a.json"), 3, "32000 weights in all"),
        (("asc", "--option", "samples=3", "--out", "a.json"), 6, "no training sample is labelled park"),
        (("asc", "--epochs", "0", "--out", "a.json"), 3, "epochs"),
        (("asc", "--out", "a.nir"), 3, "does not end in .json"),
        (("asc", "--data", "/no/such/folder", "--out", "a.json"), 6, "is not a folder"),
        (("asc", *QUICK, "--out", "/no/such/folder/a.json"), 7, "cannot write"),
    ],
)
def test_what_cannot_be_trained_is_told(
    argv: tuple[str, ...], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("network", "train", *argv)) == code
    assert text in capsys.readouterr().err


def test_json_is_one_document_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = trained(tmp_path, *QUICK, "--json")
    said = json.loads(capsys.readouterr().out)
    assert (said["sha256"], said["training"]) == (network.digest_sha256, network.training)
