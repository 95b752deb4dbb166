"""Networks for the Xylo and the Arduino learn, are reproducible, are recorded, and use no other data.

The microcontroller's features are exact to a code; its network is trained, rounded, stored and read back."""

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from drivers.devices.arduino import mfe, training
from drivers.devices.arduino.quantised import Quantised, header, read_network
from drivers.devices.arduino.toolchain import DEFAULT_NETWORK
from drivers.devices.training_data import batch_of
from drivers.devices.xylo.networks import train_command
from drivers.devices.xylo.networks.network import load_network
from rig.commands.shell.main import main
from rig.errors import DataError
from scenarios.workloads.asc.scenes import CLASSES, synthesize
from scenarios.workloads.asc.workload import open_workload
from tests.support.raised import Capture, Patch, raised

needs_rockpool = pytest.mark.skipif(find_spec("rockpool") is None, reason="needs neurorig[xylo]")
XYLO, ARDUINO = pytest.param("xylo", marks=needs_rockpool), "arduino"
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
def test_one_seed_always_gives_the_same_file(device: str, tmp_path: Path) -> None:
    digests = [trained(device, tmp_path, "--seed", seed)[0] for seed in ("0", "0", "1")]
    assert digests[0] == digests[1] != digests[2]


@BOTH
def test_file_and_command_state_the_training_data(device: str, tmp_path: Path, capsys: Capture) -> None:
    digest, told = trained(device, tmp_path, "--json")
    said = json.loads(capsys.readouterr().out)
    assert (said["sha256"], said["training"]) == (digest, told)
    assert told["data"]["digest_sha256"] == open_workload(split="train", samples=12).digest_sha256
    assert (told["data"]["split"], told["data"]["seeds"]) == ("train", [0, 3])
    assert (told["epochs"], told["seed"], told["batch"]) == (1, 0, 1)
    assert told.get("hidden") == ([6, 6] if device == "xylo" else None)
    assert "were given" in told["tuning"]


@needs_rockpool
def test_a_network_of_a_folder_is_measured_on_another(tmp_path: Path, capsys: Capture) -> None:
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


def test_training_finds_the_loud_channel() -> None:
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1], 40)
    events = np.zeros((20, 80, 4), np.float32)
    events[:, np.arange(80), 2 * labels] = rng.integers(1, 4, (20, 80))
    heard: list[str] = []
    network = train_command.trained(events, labels, 2, train_command.Settings((8,), 0, 10), heard.append)
    assert train_command.accuracy(network, events, labels) > 0.95
    assert len(heard) == 10


@pytest.mark.parametrize(("samples", "batch"), [(41360, 100), (122, 12), (9, 1)])
def test_small_data_sets_are_trained_in_small_batches(samples: int, batch: int) -> None:
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
def test_impossible_training_is_reported(argv: tuple[str, ...], code: int, text: str, capsys: Capture) -> None:
    assert main(("network", "train", *argv)) == code
    assert text in capsys.readouterr().err


# ---- the microcontroller's network and its features --------------------------------------------

SHAPE = (99, 40)


def bright_or_dark(count: int, seed: int) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Return noise that is louder in the upper filters (label 1) or in the lower ones (label 0)."""
    rng = np.random.default_rng(seed)
    labels = np.tile([0, 1], count // 2)
    level = rng.normal(0, 25, (count, *SHAPE))
    level[labels == 0, :, :20] += 40
    level[labels == 1, :, 20:] += 40
    return np.clip(level, -128, 127).astype(np.int8), labels


@pytest.fixture(scope="module")
def learnt() -> tuple[training.FloatNetwork, Quantised]:
    features, labels = bright_or_dark(40, 0)
    floats = training.trained(features, labels, 2, training.Settings(0, 3), lambda _: None)
    return floats, training.quantised(floats, features, ("dark", "bright"), {"epochs": 3})


@pytest.fixture
def file(tmp_path: Path, learnt: tuple[training.FloatNetwork, Quantised]) -> Path:
    path = tmp_path / "net.h"
    path.write_text(header(learnt[1]))
    return path


def test_training_finds_the_loud_half_and_survives_rounding(learnt: tuple[training.FloatNetwork, Quantised]) -> None:
    features, labels = bright_or_dark(20, 1)
    floats, whole = (network.scores(features) for network in learnt)
    assert training.accuracy(floats, labels) > 0.9
    assert np.corrcoef(floats.ravel(), whole.ravel())[0, 1] > 0.99


def test_gradients_match_finite_differences(monkeypatch: Patch) -> None:
    monkeypatch.setattr(training, "DROPPED", 0.0)
    rng = np.random.default_rng(0)
    weights: Any = {k: v.astype(float) for k, v in training._untrained((15, 11), 3, 0)[0].items()}
    image, labels = rng.random((3, 15, 11, 1)), np.array([0, 1, 2])

    def run() -> tuple[float, Any]:
        moments: Any = [(np.zeros(n), np.ones(n)) for n in training.CHANNELS]
        return training._gradients(weights, moments, image, labels, rng)  # type: ignore[arg-type]  # float64 to see more

    found = run()[1]
    for name, values in weights.items():
        place = tuple(int(rng.integers(size)) for size in values.shape)
        kept, losses = values[place], []
        for step in (1e-5, -1e-5):
            values[place] = kept + step
            losses.append(run()[0])
        values[place] = kept
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(found[name][place], rel=1e-4, abs=1e-6), name


def test_a_header_survives_writing_and_reading(file: Path, learnt: tuple[training.FloatNetwork, Quantised]) -> None:
    read, features = read_network(file), bright_or_dark(4, 2)[0]
    assert np.array_equal(read.network.scores(features), learnt[1].scores(features))
    assert (read.network.classes, read.network.training) == (("dark", "bright"), {"epochs": 3})
    body = file.read_text().split("\n", 1)[1]
    assert read.sha256 == hashlib.sha256(body.encode()).hexdigest()


def resealed(text: str) -> str:
    """Return a header with the right digest for its content."""
    body = text.split("\n", 1)[1]
    return f"// sha256 of all that follows this line: {hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def changed(text: str, name: str, change: Callable[[list[str]], list[str]]) -> str:
    """Return a header in which one array has other values, and states their number."""
    begin = text.index(f"NETWORK_{name}[")
    end = text.index("};", begin)
    values = change(text[text.index("{\n", begin) + 2 : end].split(","))
    return f"{text[:begin]}NETWORK_{name}[{len(values)}] = {{\n{','.join(values)}{text[end:]}"


@pytest.mark.parametrize(("change", "said"), [
    (lambda text: text.replace("[32] = {", "[32] = { ", 1).replace(",1,", ",2,", 1), "was altered"),
    (lambda text: "int main;" + text, "states no digest"),
    (lambda text: resealed(text.replace("mfe_sha256", "mfe")), "mfe_sha256"),
    (lambda text: resealed(text.replace('"mfe_sha256": "', '"mfe_sha256": "0')), "another pre-processing"),
    (lambda text: resealed(text.replace("NETWORK_DENSE_BIAS", "NETWORK_OTHER")), "DENSE_BIAS"),
    (lambda text: resealed(text.replace('"dark"', '"dark", "dim"')), "malformed"),
    (lambda text: resealed(text + "int main(void) { return 0; }\n"), "its lines differ"),
    (lambda text: resealed(changed(text, "FIRST_SHIFT", lambda values: ["300", *values[1:]])), "malformed"),
    (lambda text: resealed(changed(text, "FIRST_SHIFT", lambda values: ["63", *values[1:]])), "SHIFT"),
    (lambda text: resealed(changed(text, "SECOND_SHIFT", lambda values: values[:1])), "SECOND"),
    (lambda text: resealed(changed(text, "DENSE_BIAS", lambda values: values[:1])), "DENSE_BIAS"),
])  # fmt: skip
def test_a_damaged_header_is_refused(file: Path, change: Any, said: str) -> None:
    file.write_text(change(file.read_text()))
    assert "train it again" in str(raised(DataError, read_network, file, says=said))
    raised(DataError, read_network, file.with_name("none.h"), says="cannot read the network header")


def test_the_shipped_network_states_its_training_data() -> None:
    shipped = read_network(DEFAULT_NETWORK)
    data = shipped.network.training["data"]
    assert (data["split"], data["seeds"]) == ("train", [0, 500]) and DEFAULT_NETWORK.stat().st_size < 100_000
    assert shipped.network.classes == ("airport", "street_traffic", "bus", "park")


RATE_HZ = 16000
TIME_S = np.arange(RATE_HZ) / RATE_HZ


def real_codes(audio: NDArray[np.int16]) -> NDArray[np.float64]:
    """Return the features in floating point, from the definition, neither rounded nor clipped."""
    signal = audio / 32768
    emphasised = signal - 0.98 * np.concatenate(([0.0], signal[:-1]))
    frames = np.stack([emphasised[at : at + 256] for at in range(0, RATE_HZ - 319, 160)])
    energy = (np.abs(np.fft.rfft(frames)) ** 2 / 256) @ mfe.triangles().T
    return np.asarray((10 * np.log10(np.maximum(energy, 1e-30)) + 52) / 0.25)


def worst_code_error(audio: NDArray[np.int16]) -> float:
    """Return the largest difference from the real features, clipped in the same way, in codes."""
    real = np.clip(real_codes(audio), 0, 255)
    return float(np.abs(mfe.features(audio).astype(int) + 128 - real).max())


def loudest(bin_: int) -> NDArray[np.int16]:
    """Return full scale with the signs of a tone."""
    return np.where(np.cos(2 * np.pi * bin_ * np.arange(RATE_HZ) / 256 + 0.01) >= 0, 32767, -32768).astype(np.int16)


@pytest.mark.parametrize("audio", [
    *(mfe.pcm16(synthesize(label, 1000)) for label in CLASSES),
    *map(loudest, (0, 1, 64, 127, 128)),
    np.zeros(RATE_HZ, np.int16),
])  # fmt: skip
def test_features_of_audio_are_exact_to_half_a_code(audio: NDArray[np.int16]) -> None:
    assert worst_code_error(audio) < 0.51


@given(st.integers(1, 32767), st.floats(30, 7900), st.floats(0, 6.3))
def test_features_of_a_noisy_tone_are_exact(level: int, hertz: float, phase: float) -> None:
    noise = np.random.default_rng(level).uniform(-0.5, 0.5, RATE_HZ)
    audio = np.clip(np.rint(level * np.sin(2 * np.pi * hertz * TIME_S + phase) + noise), -32768, 32767)
    assert worst_code_error(audio.astype(np.int16)) < 0.51


def test_slices_are_computed_independently() -> None:
    pair = np.stack([mfe.pcm16(synthesize(label, 1000)) for label in CLASSES[:2]])
    assert np.array_equal(mfe.features(pair)[1], mfe.features(pair[1]))


def test_audio_is_rounded_to_16_bit_samples() -> None:
    audio = np.zeros(RATE_HZ)
    audio[:4] = (-1.0, 0.5, 1.0, 1.6 / 32768)
    assert mfe.pcm16(audio)[:4].tolist() == [-32768, 16384, 32767, 2]
