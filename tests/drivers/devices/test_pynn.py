"""Networks for PyNN: their files, the counts of a presentation, and NEST itself if an interpreter has it."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from drivers.devices.pynn import ne15_command
from drivers.devices.pynn.description import NetworkFile, checked, read_network, write_network
from drivers.devices.pynn.ne15 import PIXELS, deployed, lesson, subclasses, teaching
from drivers.devices.pynn.ne15_command import Course
from drivers.devices.pynn.nest import NEST, open_device, opened
from drivers.workers import pynn_network
from drivers.workers.common import Refusal
from drivers.workers.pynn_network import on_grid, staged
from rig.commands.shell.main import main
from rig.conformance.device import check_device
from rig.engine.blocking_device import blocking
from rig.errors import DataError, MissingExtraError, UsageError
from rig.types import Device, Sample
from scenarios.workloads.ne15.digit_stream import poisson
from scenarios.workloads.ne15.drawn import write_folder
from scenarios.workloads.ne15.workload import open_workload
from tests.support.paths import ROOT
from tests.support.raised import raised
from tests.support.remote_workers import answer

DIGITS = tuple(k // 2 for k in range(20))


def network(scale: float = 1.0) -> NetworkFile:
    """Return a network of twenty templates; template k has learnt the pixels 30 k to 30 k + 29."""
    weights = np.zeros((PIXELS, 20))
    for k in range(20):
        weights[30 * k : 30 * k + 30, k] = 0.7
    return deployed(weights, DIGITS, scale, {"method": "by hand"}, frozenset({"test-00001"}))


def shown(template: int, seed: int = 0) -> Sample:
    """Return an image that is one template."""
    image = np.zeros(PIXELS, np.uint8)
    image[30 * template : 30 * template + 30] = 200
    stream = poisson(image, 5000.0, 1.0, np.random.default_rng([seed, template]))
    return Sample(f"shown-{template}-{seed}", stream, str(DIGITS[template]), duration_s=1.2)


def sent(sample: Sample) -> dict[str, Any]:
    """Return a sample in its form on the link to a worker."""
    events = sample.payload
    payload = {"dtype": events.dtype.str, "shape": list(events.shape), "data": events.tobytes()}
    return {"id": sample.id, "payload": payload, "duration_s": sample.duration_s}


def synapses() -> dict[str, int]:
    """Return the synapses of each projection, by the description."""
    description = network().description
    return {f"{p.source} to {p.target}, {p.receptor}": description.synapses(p) for p in description.projections}


# ---- the network file ---------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The file of the network."""
    write_network(network(), tmp_path / "n.npz")
    return str(tmp_path / "n.npz")


def test_a_network_file_survives_writing(file: str) -> None:
    again = read_network(Path(file))
    assert again.description == network().description
    assert again.digest() == network().digest() != network(10.0).digest()
    assert [path.name for path in Path(file).parent.iterdir()] == ["n.npz"]


def test_weak_weights_become_inhibition_and_others_are_scaled() -> None:
    arrays = network(10.0).arrays
    assert np.unique(arrays["learnt"]).tolist() == [0.0, 7.0]
    assert np.unique(arrays["inhibition"]).tolist() == [-15.0, 0.0]
    assert ((arrays["learnt"] == 0) == (arrays["inhibition"] != 0)).all()


@pytest.mark.parametrize(("field", "change"), [
    ("labels", {"labels": ("0",)}),
    ("learnt", {"populations": [{"name": "pixels", "size": 784, "source": True}, {"name": "input", "size": 784},
                                {"name": "decision", "size": 21}], "labels": ["0"] * 21}),
    ("projections", {"projections": [{"source": "pixels", "target": "nowhere", "connector": "all-to-all",
                                      "weight": 1.0}]}),
    ("plasticity", {"projections": [{"source": "pixels", "target": "input", "connector": "one-to-one",
                                     "weight": 1.0, "plastic": True}]}),
])  # fmt: skip
def test_mismatched_arrays_are_named(field: str, change: dict[str, Any]) -> None:
    given = {**msgspec.to_builtins(network().description), **change}
    caught = raised(DataError, checked, msgspec.convert(given, type(network().description)), network().arrays)
    assert caught.field == field


def test_an_unreadable_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "n.npz").write_bytes(b"PK\3\4 and no more")
    for path in (tmp_path / "n.npz", tmp_path / "none.npz"):
        raised(DataError, read_network, path, says="cannot be read")


# ---- what is presented, and what is counted -----------------------------------------------


def test_an_event_takes_effect_at_the_end_of_its_step() -> None:
    _, times = on_grid(np.array([[1, 0], [1000, 0], [1001, 1]]), 2, 1.0, "x")
    assert times.tolist() == [1.0, 1.0, 2.0]
    for field, event in (("time", (0, 0)), ("time", (-5, 0)), ("address", (5, 2)), ("address", (5, -1))):
        caught = raised(Refusal, on_grid, np.array([event]), 2, 1.0, "x")
        assert (caught.rig["kind"], caught.rig["field"]) == ("DataError", field)


def test_a_sample_without_a_final_blank_is_refused() -> None:
    sample = {"id": "x", "payload": {"dtype": "<i8", "shape": [1, 2], "data": np.array([[998_001, 0]]).tobytes()}}
    caught = raised(Refusal, staged, [{**sample, "duration_s": 1.0}], 1.0, says=r"at 0\.998001 s of its 1 s")
    assert caught.rig["field"] == "duration_s"
    assert list(staged([{**sample, "duration_s": 1.01}], 1.0)) == ["x"]


def test_synaptic_operations_are_counted_by_both_conventions() -> None:
    """3 events, 2 relay spikes and 4 output spikes, 20 decision neurons at two synapses each."""
    description = network().options()["description"]
    events = np.array([[900, 5], [1500, 5], [3000, 7]])
    spikes = {
        "input": (np.array([5, 7]), np.array([4.0, 5.0])),
        "decision": (np.array([6, 6, 9, 9]), np.array([9.0, 10.0, 8.0, 30.0])),
    }
    found = pynn_network.answer(description, events, spikes)
    assert (found["label"], found["tied"], found["most"]) == ("3", 1, 2)
    assert (found["first_input_ms"], found["first_output_ms"]) == (1, 8.0)
    assert found["synaptic_operations"] == 3 + 2 * 2 * 20
    assert found["synaptic_operations_ne15"] == 3 * 2 * 20 + 4
    fine = pynn_network.answer({**description, "step_ms": 0.1}, events, spikes)
    assert fine["first_input_ms"] == pytest.approx(0.9)

    silence = dict.fromkeys(spikes, (np.zeros(0, int), np.zeros(0)))
    found = pynn_network.answer(description, events, silence)
    assert (found["label"], found["first_output_ms"], found["most"]) == (None, None, 0)


def test_a_lesson_lasts_180_s_for_any_number_of_images() -> None:
    images = np.full((7, PIXELS), 9, np.uint8)
    events = lesson(images, poisson, np.random.default_rng(0))
    told = events[events[:, 1] == PIXELS]
    assert 179_000_000 < events[-1, 0] <= 180_000_000
    assert abs(len(told) - 9000) < 4 * 95
    assert abs(len(events) - len(told) - 360_000) < 4 * 600
    assert (np.diff(events[:, 0]) >= 0).all()


def taught(course: Course) -> tuple[NetworkFile, list[float]]:
    """Return a network whose weights are 1 for each source that a lesson used, and how long each lesson lasts (s)."""
    lasting_s, sources = list[float](), course.network[0]

    def learn(lessons: Iterator[Any]) -> Iterator[Any]:
        for events in lessons:
            lasting_s.append(events[-1, 0] * 1e-6)
            yield np.bincount(events[:, 1], minlength=sources + 1)[:sources] > 0

    return ne15_command.taught(course, learn, "x"), lasting_s


def test_every_template_is_taught_for_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digit d has d + 1 images outside the fold; a lesson ends with its last event, with 2050 events each second."""
    labels = np.repeat(np.arange(10, dtype=np.uint8), range(1, 11))
    images = np.full((55, PIXELS), 9, np.uint8)
    monkeypatch.setattr(ne15_command, "read_digits", lambda *_: (images, labels))
    monkeypatch.setattr(ne15_command, "kept_numbers", lambda count, *_: list(range(count)))
    made, lasting_s = taught(Course(Path(), 1, 0, 5, lesson_s=5.5))
    assert lasting_s == pytest.approx([5.5] * 10, abs=0.02)
    assert made.description.origin["biological_s"] == 55.0


def test_subclasses_hold_each_image_of_one_digit_once() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (200, PIXELS)).astype(np.uint8), np.arange(200, dtype=np.uint8) % 10
    groups = subclasses(images, labels, 3, 0)
    assert [digit for digit, _ in groups] == sorted(digit for digit, _ in groups)
    assert all((labels[group] == digit).all() for digit, group in groups)
    assert sorted(np.concatenate([group for _, group in groups]).tolist()) == list(range(200))
    caught = raised(UsageError, subclasses, images[:21], labels[:21], 3, 0, says="more than the 2 images of some digit")
    assert (caught.field, caught.value) == ("subclasses", 3)
    assert raised(UsageError, subclasses, images[:9], labels[:9], 1, 0).remedy == "Give images of each digit"


def test_training_without_training_images_asks_for_a_fold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ne15", "train", "--data", str(tmp_path), "--out", str(tmp_path / "n.npz")]) == UsageError.exit_code
    assert "no training images" in capsys.readouterr().err


def test_a_network_for_another_encoding_is_refused(file: str, tmp_path: Path) -> None:
    write_folder(tmp_path, 20, 0, 0)
    streams = open_workload(data=str(tmp_path), encoding="rank-order", md5=False, samples=2)
    with pytest.raises(DataError, match="784 sources, and the encoding rank-order has 3136") as caught:
        open_device(streams, network=file, interpreter="/nowhere")
    assert "--encoding rank-order" in caught.value.remedy


def test_teaching_a_stream_uses_the_sources_of_its_encoding(tmp_path: Path) -> None:
    write_folder(tmp_path, 20, 0, 0)
    course = Course(tmp_path, 1, None, 5, encoding="rank-order", lesson_s=2.0, md5=False)
    made, lasting_s = taught(course)
    assert made.description.sizes == {"pixels": 3136, "input": 3136, "decision": 10}
    assert made.description.projections[0].weight == teaching(*course.network).projections[0].weight == 6.0
    assert lasting_s == pytest.approx([2.0] * 10, abs=0.4)
    shown = open_workload(data=str(tmp_path), encoding="rank-order", split="train", md5=False).samples
    assert made.trained_on == {sample.id for sample in shown}
    for k in range(10):
        sent = {address for sample in shown if sample.label == str(k) for address in sample.payload[:, 1]}
        assert set(np.flatnonzero(made.arrays["learnt"][:, k])) == sent


def test_a_network_states_its_training_data(tmp_path: Path) -> None:
    write_folder(tmp_path, 10, 20, 0)
    of_images = Course(tmp_path, 1, None, 5, encoding="rank-order", lesson_s=2.0, md5=False)
    of_recordings = Course(tmp_path / "flashing", 1, 1, 10, encoding="dvs", lesson_s=1.0)
    told = [taught(course)[0].about()["algorithm"]["training"]["data"] for course in (of_images, of_recordings)]
    assert told == ["10 training images of a folder", "18 recordings of a folder"]


# ---- NEST ---------------------------------------------------------------------------------


def test_silent_sources_are_left_out_of_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[NetworkFile] = []

    def opened(network: NetworkFile, interpreter: str) -> Device:
        made.append(network)
        return blocking(lambda sample: {"weights": {"input-decision": [[0.5], [0.25]]}})

    monkeypatch.setattr(ne15_command, "opened", opened)
    stimulus = np.array([[1000, 7], [2000, 700], [3000, PIXELS], [4000, 7]])
    (weights,) = ne15_command._on_nest(Course(tmp_path, 1, None, 10), "", True, iter([stimulus]))
    assert [p.size for p in made[0].description.populations] == [2, 1, 2, 1]
    assert weights.shape == (PIXELS,)
    assert {int(k): weights[k] for k in np.flatnonzero(weights)} == {7: 0.5, 700: 0.25}


def test_a_missing_nest_is_refused(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.delenv(NEST.variable, raising=False)
    raised(UsageError, open_device, says="pip install nest-simulator", network=file)
    pytest.importorskip("execnet", reason="extra nest is not installed")
    raised(MissingExtraError, open_device, says="cannot import NEST", network=file, interpreter=sys.executable)


def python(variable: str = NEST.variable) -> str:
    return os.environ.get(variable) or pytest.skip(f"{variable} names no interpreter with its stack")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with closing(opened(network(), python())) as made:
        yield made


def asked(device: Device, sample: Sample) -> dict[str, Any]:
    reply = answer(device, sample)
    assert [span.phase for span in reply.spans] == ["load", "inference"]
    return dict(reply.output)


@pytest.mark.real_time
def test_nest_passes_the_device_check(device: Device) -> None:
    assert check_device(opened(network(), python()), [shown(k) for k in range(3)])


@pytest.mark.real_time
def test_presentations_do_not_affect_later_presentations(device: Device) -> None:
    first = [asked(device, shown(k)) for k in (0, 7, 19)]
    again = [asked(device, shown(k)) for k in (19, 0, 7)]
    assert [found["label"] for found in first] == ["0", "3", "9"]
    assert [first[2], first[0], first[1]] == again
    assert all(0 < found["first_output_ms"] - found["first_input_ms"] < 60 for found in first)
    assert all(found["fired"]["input"] <= found["events"] for found in first)


@pytest.mark.real_time
def test_a_presentation_keeps_the_events_of_its_first_steps() -> None:
    early = Sample("early", np.array([[1, 5], [1, 5], [2, 5]]), duration_s=0.1)
    with closing(opened(network(), python())) as fresh:
        assert [asked(fresh, early)["fired"]["input"] for _ in range(3)] == [1, 1, 1]


@pytest.mark.real_time
def test_training_data_and_unknown_sources_are_refused(device: Device) -> None:
    for name in ("test-00001", "test-00001@000007"):
        raised(DataError, device.stage, [replace(shown(0), id=name)], says="trained on")
    bad = replace(shown(0), id="bad", payload=np.array([[5, PIXELS]]))
    raised(DataError, asked, device, bad, says="outside 0 to 783")
    assert asked(device, shown(3))["label"] == "1"


@pytest.mark.real_time
def test_teaching_changes_only_the_weights_of_shown_pixels() -> None:
    image = np.zeros((1, PIXELS), np.uint8)
    image[0, 100:130] = 200
    events = lesson(image, poisson, np.random.default_rng(0))
    sample = Sample("lesson", events[events[:, 0] < 2_000_000], duration_s=2.01)
    with closing(opened(checked(teaching(), {}), python())) as device:
        weights = np.array(asked(device, sample)["weights"]["input-decision"])[:, 0]
    assert np.flatnonzero(weights).tolist() == list(range(100, 130))
    assert 0 < weights.max() < 1.3


def said_by(program: str, given: Any, folder: Path, *words: str) -> str:
    """Return the last line that a program in NEST's interpreter prints; its first argument is a file of inputs."""
    (folder / "given").write_bytes(pickle.dumps(given))
    run = [python(), "-W", "ignore", "-c", program, str(folder / "given"), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(run, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    return done.stdout.splitlines()[-1]


COUNTED = """
import importlib, pickle, sys
from drivers.workers.pynn_network import Network
given = pickle.load(open(sys.argv[1], "rb"))
network = Network(importlib.import_module(sys.argv[2]), given["description"], given["arrays"])
network.run(0.01)
sizes = {name: int(population.size) for name, population in network._made.items()}
print((sizes, network.synapses(), sorted(network.spikes())))
"""


@pytest.mark.real_time
def test_nest_and_the_mock_have_equally_many_neurons_and_synapses(tmp_path: Path) -> None:
    """``test_spinnaker.py`` expects the same counts from the virtual SpiNNaker."""
    wanted = str((network().description.sizes, synapses(), ["decision", "input"]))
    for backend in ("pyNN.nest", "pyNN.mock"):
        assert said_by(COUNTED, network().options(), tmp_path, backend) == wanted, backend


LOGGED = """
import pickle, sys
from drivers.workers.pynn_nest import open_worker
options, sample = pickle.load(open(sys.argv[1], "rb"))
worker, lengths = open_worker(options), []
worker.stage([sample])
import nest
for _ in range(3):
    worker.run(sample["id"], None)
    lengths.append(len(nest.GetKernelStatus("spike_buffer_resize_log")["times"]))
print(*lengths)
"""


@pytest.mark.real_time
def test_the_log_of_nest_does_not_grow_with_presentations(tmp_path: Path) -> None:
    """PyNN fetches NEST's whole log whenever it asks for the time: a growing log makes each inference slower."""
    first, *later = said_by(LOGGED, (network().options(), sent(shown(3))), tmp_path).split()
    assert later == [first, first]
