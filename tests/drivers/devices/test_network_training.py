"""Networks for the Xylo and the Arduino learn, are reproducible, are recorded, and use no other data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.arduino.quantised import read_network
from drivers.devices.training_data import batch_of
from drivers.devices.xylo.networks import train_command as training
from drivers.devices.xylo.networks.network import load_network
from rig.commands.shell.main import main
from scenarios.workloads.asc.workload import open_workload

needs_rockpool = pytest.mark.skipif(find_spec("rockpool") is None, reason="needs neurorig[xylo]")
XYLO, ARDUINO = pytest.param("xylo", marks=needs_rockpool), "arduino"
Capture = pytest.CaptureFixture[str]
BOTH = pytest.mark.parametrize("device", [XYLO, ARDUINO])
FILE = {"xylo": "a.json", "arduino": "a.h"}
SMALL = {"xylo": ("--hidden", "6,6"), "arduino": ()}


def trained(device: str, folder: Path, *argv: str, samples: int = 12) -> tuple[str, Mapping[str, Any]]:
    """Return the digest of the trained network's file, and the record of its training."""
    path, quick = folder / FILE[device], (*SMALL[device], "--epochs", "1", "--option", f"samples={samples}")
    assert main(("network", "train", "asc", "--device", device, "--out", str(path), *quick, *argv)) == 0
    if device == "xylo":
        return load_network(path).digest_sha256, load_network(path).training
    return read_network(path).sha256, read_network(path).network.training


def recordings(folder: Path, names: str) -> str:
    """Write one clip of each class; return the folder."""
    soundfile = pytest.importorskip("soundfile")
    for name in names:
        soundfile.write(folder / f"{name}.wav", np.random.default_rng(0).uniform(-0.3, 0.3, 16000), 16000)
    (folder / "labels.csv").write_text("".join(["filename,label\n", *(f"{name}.wav,{name}\n" for name in names)]))
    return str(folder)


@BOTH
def test_one_seed_gives_one_file_and_another_another(device: str, tmp_path: Path) -> None:
    digests = [trained(device, tmp_path, "--seed", seed)[0] for seed in ("0", "0", "1")]
    assert digests[0] == digests[1] != digests[2]


@BOTH
def test_file_and_command_say_what_it_was_trained_on_and_how(device: str, tmp_path: Path, capsys: Capture) -> None:
    digest, told = trained(device, tmp_path, "--json")
    said = json.loads(capsys.readouterr().out)
    assert (said["sha256"], said["training"]) == (digest, told)
    assert told["data"]["digest_sha256"] == open_workload(split="train", samples=12).digest_sha256
    assert (told["data"]["split"], told["data"]["seeds"]) == ("train", [0, 3])
    assert (told["epochs"], told["seed"], told["batch"]) == (1, 0, 1)
    assert told.get("hidden") == ([6, 6] if device == "xylo" else None)
    assert "were given" in told["tuning"]


@needs_rockpool
def test_a_network_that_heard_a_whole_folder_is_measured_on_another(tmp_path: Path, capsys: Capture) -> None:
    trained("xylo", tmp_path, "--data", recordings(tmp_path, "ab"), samples=2)
    assert load_network(tmp_path / "a.json").layers == (16, 6, 6, 2)
    told = capsys.readouterr().out
    assert "rig measure --workload asc --device xylo-float --meter none --option data=ANOTHER_FOLDER" in told
    assert f"--option network={tmp_path}/a.json" in told


@pytest.mark.parametrize(("device", "text"), [
    pytest.param("xylo", "have 1 classes, but a network for Xylo Audio 2 has 2 to 8", marks=needs_rockpool),
    ("arduino", "have one class"),
])  # fmt: skip
def test_a_single_class_is_refused(device: str, text: str, tmp_path: Path, capsys: Capture) -> None:
    given = ("--data", recordings(tmp_path, "a"), "--out", str(tmp_path / FILE[device]))
    assert main(("network", "train", "asc", "--device", device, *given)) == 6
    assert text in capsys.readouterr().err


def test_it_learns_which_channel_is_loud() -> None:
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1], 40)
    events = np.zeros((20, 80, 4), np.float32)
    events[:, np.arange(80), 2 * labels] = rng.integers(1, 4, (20, 80))
    heard: list[str] = []
    network = training.trained(events, labels, 2, training.Settings((8,), 0, 10), heard.append)
    assert training.accuracy(network, events, labels) > 0.95
    assert len(heard) == 10


@pytest.mark.parametrize(("samples", "batch"), [(41360, 100), (122, 12), (9, 1)])
def test_few_samples_make_small_batches_so_that_an_epoch_has_steps(samples: int, batch: int) -> None:
    assert batch_of(samples, 100) == batch


@needs_rockpool
@pytest.mark.parametrize(("argv", "code", "text"), [
    (("asc", "--option", "split=test", "--out", "a.json"), 3, "trained on the train split"),
    (("qubo-mis", "--out", "a.json"), 3, "has no train split"),
    (("asc", "--hidden", "9,x", "--out", "a.json"), 3, "sizes of layers"),
    (("asc", "--hidden", "9,65", "--out", "a.json"), 3, "each with up to 64 targets"),
    (("asc", "--hidden", "400,64,64,64", "--out", "a.json"), 3, "32000 weights in all"),
    (("asc", "--option", "samples=3", "--out", "a.json"), 6, "no training sample is labelled park"),
    (("asc", "--data", "/no/such/folder", "--out", "a.json"), 6, "is not a folder"),
    (("asc", "--out", "/no/such/folder/a.json"), 7, "cannot write"),
    (("asc", "--device", "arduino", "--out", "a.json"), 3, "does not end in .h"),
    (("asc", "--device", "arduino", "--hidden", "9,9", "--out", "a.h"), 3, "published layers"),
    (("asc", "--device", "arduino", "--epochs", "0", "--out", "a.h"), 3, "epochs"),
    (("asc", "--device", "arduino", "--option", "audio_hz=8000", "--out", "a.h"), 6, "no slice of 16000"),
])  # fmt: skip
def test_what_cannot_be_trained_is_told(argv: tuple[str, ...], code: int, text: str, capsys: Capture) -> None:
    assert main(("network", "train", *argv)) == code
    assert text in capsys.readouterr().err
