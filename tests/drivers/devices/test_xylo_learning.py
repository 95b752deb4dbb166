"""A simulated Xylo that learns words: prototypes in integers, a phase with its energy, and separate rounds."""

from __future__ import annotations

import importlib.util
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.spoken_words import write_folder
from drivers.devices.training_data import prototypes
from drivers.devices.xylo.backend import LIVE_PHASE_W
from drivers.devices.xylo.device import XyloDevice, open_device
from fixtures.bench.true_power import open_plant
from rig.commands.shell.main import main
from rig.errors import DataError, UsageError
from scenarios.workloads.mswc.workload import Sessions, open_workload
from tests.support.remote_workers import answers

pytestmark = pytest.mark.skipif(importlib.util.find_spec("rockpool") is None, reason="the xylo extra is not installed")

SMALL = {"sessions": 2, "way": 1, "shots": 3, "pool": 3, "queries": 2, "base_shots": 4, "base_tests": 2}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("soundfile", reason="extra audio is not installed")
    folder = tmp_path_factory.mktemp("words")
    write_folder(folder, base_words=2, base_shots=4, base_tests=2, languages=2, way=1, each=5)
    return folder


def opened(folder: Path, **options: Any) -> tuple[Sessions, XyloDevice]:
    workload = open_workload(data=str(folder), front_end="audio", **{**SMALL, **options})
    device = open_device(open_plant(), workload, simulate=True, front_end="live")
    assert isinstance(device, XyloDevice)
    return workload, device


def answered(device: XyloDevice, *samples: Any) -> list[Any]:
    for sample in samples:
        device.submit([sample], None)
    return [reply.output["label"] for reply in answers(device, len(samples))]


def test_the_largest_output_of_prototypes_is_that_of_the_nearest_mean() -> None:
    rng = np.random.default_rng(0)
    means, features = rng.normal(size=(5, 7)), rng.normal(size=(50, 7))
    weights, biases = prototypes(means)
    nearest = ((features[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (features @ weights.T + biases).argmax(axis=1).tolist() == nearest.tolist()


def test_a_word_is_answered_once_it_was_learnt_and_no_more_when_a_round_begins(words: Path) -> None:
    workload, device = opened(words)
    taught = next(sample for sample in workload.samples if sample.learn)
    shot = replace(taught, id="shot", payload=taught.payload[0], learn=False, duration_s=1.0)
    with closing(device):
        assert device.info().phases == ("learning", "inference")
        before, _, after, _, anew = answered(device, shot, taught, shot, workload.samples[0], shot)
    assert after == taught.label
    assert before == anew != taught.label


def test_the_readout_holds_8_bits_and_as_many_words_as_the_chip_has_outputs(words: Path) -> None:
    workload, device = opened(words)
    network = device._backend.network  # type: ignore[attr-defined]
    assert np.abs(network.specification["weights_out"]).max() == 127
    assert network.classes == (*workload.base, *(s.label for s in workload.samples if s.learn))
    many = replace(workload, base=tuple(f"word {k}" for k in range(7)))
    with pytest.raises(DataError, match="9 words, and a Xylo has 8 output neurons"):
        open_device(open_plant(), many, simulate=True, front_end="live")
    with pytest.raises(UsageError, match="front_end=live"):
        open_device(open_plant(), workload, simulate=True)


def test_the_energy_of_a_learnt_class_is_the_declared_power_for_the_time_of_its_shots(
    words: Path, tmp_path: Path
) -> None:
    told = {**SMALL, "workload.front_end": "audio", "device.front_end": "live", "idle_s": 2}
    options = [part for key, value in told.items() for part in ("--option", f"{key}={value}")]
    command = ["measure", "--device", "xylo", "--simulate", "--workload", "mswc-fscil", "--data", str(words)]
    assert main([*command, "--mode", "together", "--out", str(tmp_path / "run"), *options]) == 0
    found = json.loads((tmp_path / "run" / "derived" / "results.json").read_text(encoding="utf-8"))["quantities"]
    truth = sum(LIVE_PHASE_W["learning"].values()) * found["learning_time_per_class_s"]["value"]
    low, high = found["learning_energy_per_class_j"]["interval_95"]
    assert low <= truth <= high
    assert found["learning_time_per_class_s"]["n"] == 2
    assert found["sample.session 02.session_accuracy_new"]["n"] == 4
