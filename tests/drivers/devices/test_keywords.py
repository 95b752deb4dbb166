"""Devices that learn words, NeuroBench's networks and a simulated Xylo: prototypes, sessions, and a learning phase."""

import json
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.spoken_words import write_folder
from drivers.devices.keywords.device import SHAPES, STEPS, Keywords, m5, open_device, spiking
from drivers.devices.training_data import prototypes
from drivers.devices.xylo import device as xylo
from drivers.devices.xylo.published_power import LIVE_PHASE_W
from fixtures.bench.true_power import open_plant
from rig.analysis.complexity.cost_and_activity import static_figures
from rig.commands.shell.main import main
from rig.conformance.device import check_device
from rig.errors import DataError, UsageError
from scenarios.workloads.mswc.workload import Sessions, open_workload
from tests.support.raised import raised
from tests.support.remote_workers import answers

needs_rockpool = pytest.mark.skipif(find_spec("rockpool") is None, reason="the xylo extra is not installed")
SMALL: dict[str, Any] = {"sessions": 2, "way": 2, "shots": 3, "pool": 3, "queries": 2, "base_shots": 6, "base_tests": 2}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("soundfile", reason="extra audio is not installed")
    folder = tmp_path_factory.mktemp("words")
    write_folder(folder, base_words=4, base_shots=6, base_tests=2, languages=2, way=2, each=5)
    return folder


# ---- prototypes --------------------------------------------------------------------------------


def test_the_largest_prototype_output_is_the_nearest_mean() -> None:
    rng = np.random.default_rng(0)
    means, features = rng.normal(size=(5, 7)), rng.normal(size=(50, 7))
    weights, biases = prototypes(means)
    nearest = ((features[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (features @ weights.T + biases).argmax(axis=1).tolist() == nearest.tolist()


def network(name: str, known: list[str]) -> Keywords:
    import torch

    torch.manual_seed(0)
    return Keywords(torch, (m5 if name == "m5" else spiking)(torch), known, STEPS if name == "snn" else 1)


def heard(name: str, count: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).normal(size=(count, *SHAPES[name]))
    return (values > 1.0 if name == "snn" else values).astype(np.float32)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "footprint", "dense"), [("m5", "6.03e+06", "2.59e+07"), ("snn", "1.36e+07", "3.39e+06")]
)
def test_the_static_figures_match_table_2(name: str, footprint: str, dense: str) -> None:
    described, _ = network(name, ["a"]).counted(heard(name, 1)[0])
    found = static_figures(described)
    names = ("footprint_at_start_bytes", "footprint_bytes", "dense_operations_per_execution")
    assert [f"{found[each].value:.2e}" for each in names] == [footprint, footprint, dense]
    assert found["connection_sparsity"].value == 0.0
    assert found["model_execution_rate_hz"].value == pytest.approx(200.0 if name == "snn" else 1.0)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["m5", "snn"])
def test_a_prototype_weight_is_twice_the_mean_feature(name: str) -> None:
    net = network(name, [])
    net.forget_readout()
    shots = heard(name, 3)[:, -20:]  # 20 steps are enough, and the M5 has 20 rows
    net.learn("word", shots)
    mean = np.mean([net.features(shots[k : k + 1])[0] for k in range(3)], axis=0)
    weight, bias = (np.asarray(getattr(net.model.readout, part).detach())[0] for part in ("weight", "bias"))
    assert weight == pytest.approx(2 * mean, rel=1e-4, abs=1e-4)
    assert bias == pytest.approx(-float(mean @ mean) / (STEPS if name == "snn" else 1), rel=1e-4)


@pytest.mark.torch
def test_the_nearest_learnt_prototype_gives_the_answer() -> None:
    net = network("m5", [])
    net.forget_readout()
    near, far = heard("m5", 1, 1), 4.0 + heard("m5", 1, 2)
    net.learn("near", near)
    assert net.answer(far[0]) == "near"
    net.learn("far", far)
    assert [net.answer(near[0]), net.answer(far[0])] == ["near", "far"]


# ---- sessions ----------------------------------------------------------------------------------


def measured(folder: Path, out: Path, device: str, *more: str) -> dict[str, Any]:
    options = [f"{key}={value}" for key, value in {**SMALL, "idle_s": 2}.items()]
    said = [part for option in (*options, *more) for part in ("--option", option)]
    command = ["measure", "--device", *device.split(), "--workload", "mswc-fscil", "--data", str(folder)]
    assert main([*command, "--mode", "together", "--out", str(out), *said]) == 0
    return dict(json.loads((out / "derived" / "results.json").read_text(encoding="utf-8"))["quantities"])


@pytest.mark.torch
def test_words_are_judged_by_session_and_old_and_new(words: Path, tmp_path: Path) -> None:
    found = measured(words, tmp_path / "run", "keywords --meter none", "count=false", "device.threads=1")
    assert found["sample.session 00.session_accuracy"]["n"] == 8
    assert [found[f"sample.session {k:02d}.session_accuracy_new"]["n"] for k in (1, 2)] == [4, 8]
    assert found["sample.session 02.session_accuracy_old"]["n"] == 8
    low, high = found["session_accuracy_mean"]["interval_95"]
    assert 0.5 < low < found["session_accuracy_mean"]["value"] <= high
    assert found["learning_time_per_class_s"]["value"] > 0
    assert found["learning_time_per_class_s"]["n"] == 4


@pytest.mark.torch
def test_a_round_begins_with_only_base_words(words: Path) -> None:
    workload = open_workload(data=str(words), **SMALL)
    taught = next(sample for sample in workload.samples if sample.learn)
    asked = next(sample for sample in workload.samples if sample.label == taught.label and not sample.learn)
    with closing(open_device(workload, count=False, threads=1)) as device:
        device.submit([taught, asked, workload.samples[0], asked], None)
        _, known, _, anew = (reply.output["label"] for reply in answers(device, 4))
    assert known == taught.label and anew in workload.base


@pytest.mark.torch
def test_words_without_teaching_need_no_learning_phase(words: Path) -> None:
    for split in ("test", "train"):
        workload = open_workload(data=str(words), split=split, learn=False, **SMALL)
        with closing(open_device(workload, count=False, threads=1)) as device:
            info = device.info()
        assert info.phases == ("inference",)
        assert info.algorithm["training"]["data"] == {"source": workload.details["source"], "split": "train"}


@pytest.mark.torch
def test_a_trained_readout_answers_only_base_words(words: Path) -> None:
    teaching = open_workload(data=str(words), **SMALL)
    raised(UsageError, open_device, teaching, says="learn=false", readout="trained")
    raised(DataError, open_device, teaching, says="front_end=spikes", network="snn")
    workload = open_workload(data=str(words), learn=False, **SMALL)
    assert not any(sample.learn for sample in workload.samples)
    device = open_device(workload, readout="trained", epochs=1, count=False, threads=1)
    assert device.info().phases == ("inference",)
    assert "reply.label" in check_device(device, workload.samples[-4:], labels=workload.base)


def test_the_measured_energy_of_learning_is_the_simulated_truth(words: Path, tmp_path: Path) -> None:
    learning = ("learning_s=0.25", "learning_w=0.005", "inference_s=0.1", "inference_w=0.003", "idle_w=0.001")
    found = measured(words, tmp_path / "run", "mock", *learning)
    for figure, truth in (
        ("learning_time_per_class_s", 0.25),
        ("learning_energy_per_class_j", 0.25 * 0.005),
        ("learning_dynamic_energy_per_class_j", 0.25 * 0.004),
        ("phase.inference.energy_per_inference_j", 0.1 * 0.003),
    ):
        low, high = found[figure]["interval_95"]
        assert low <= truth <= high, figure
        assert found[figure]["value"] == pytest.approx(truth, rel=0.05), figure
    assert "energy_per_inference_j" not in found, "no sample learns and answers"


# ---- a simulated Xylo --------------------------------------------------------------------------


def on_xylo(folder: Path) -> tuple[Sessions, xylo.XyloDevice]:
    workload = open_workload(data=str(folder), front_end="audio", **SMALL)
    device = xylo.open_device(open_plant(), workload, simulate=True, front_end="live")
    assert isinstance(device, xylo.XyloDevice)
    return workload, device


@needs_rockpool
def test_a_learnt_word_is_forgotten_when_a_round_begins(words: Path) -> None:
    workload, device = on_xylo(words)
    taught = next(sample for sample in workload.samples if sample.learn and sample.label == "eo00")
    shot = replace(taught, id="shot", payload=taught.payload[0], learn=False, duration_s=1.0)
    with closing(device):
        assert device.info().phases == ("learning", "inference")
        for sample in (shot, taught, shot, workload.samples[0], shot):
            device.submit([sample], None)
        before, _, after, _, anew = (reply.output["label"] for reply in answers(device, 5))
    assert after == taught.label
    assert before == anew != taught.label


@needs_rockpool
def test_the_readout_is_limited_to_8_bits_and_8_words(words: Path) -> None:
    workload, device = on_xylo(words)
    network = device._backend.network  # type: ignore[attr-defined]
    assert np.abs(network.specification["weights_out"]).max() == 127
    assert network.classes == (*workload.base, *(s.label for s in workload.samples if s.learn))
    many = replace(workload, base=tuple(f"word {k}" for k in range(5)))
    with pytest.raises(DataError, match="9 words, and a Xylo has 8 output neurons"):
        xylo.open_device(open_plant(), many, simulate=True, front_end="live")
    raised(UsageError, xylo.open_device, open_plant(), workload, says="front_end=live", simulate=True)


@needs_rockpool
def test_learning_energy_is_the_declared_power_times_learning_time(words: Path, tmp_path: Path) -> None:
    found = measured(words, tmp_path / "run", "xylo --simulate", "workload.front_end=audio", "device.front_end=live")
    truth = sum(LIVE_PHASE_W["learning"].values()) * found["learning_time_per_class_s"]["value"]
    low, high = found["learning_energy_per_class_j"]["interval_95"]
    assert low <= truth <= high
    assert found["learning_time_per_class_s"]["n"] == 4
    assert found["sample.session 02.session_accuracy_new"]["n"] == 8
