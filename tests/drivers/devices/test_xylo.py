"""The Xylo driver in simulator mode: bit-exact, on its own counter, with errors that name what is missing."""

from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drivers.devices.xylo import device as xylo, rockpool_import
from drivers.devices.xylo.backend import PHASES, SimBackend
from drivers.devices.xylo.chip import CORE_CLOCKS_HZ
from drivers.devices.xylo.networks.encoder import encode
from drivers.devices.xylo.networks.network import load_network
from drivers.meters.xylo_monitor import open_meter
from fixtures.bench.true_power import SimPlant, open_plant
from rig.conformance.device import check_device, check_meter
from rig.errors import DataError, SetupError, UsageError
from rig.types import Sample
from scenarios.workloads.asc.scenes import CLASSES, synthesize
from scenarios.workloads.asc.workload import open_workload
from tests.support.raised import raised
from tests.support.remote_workers import answer

RATE_HZ = 16000.0
UNSEEN = range(5000, 5020)
# Looked up without an import: importing rockpool unprepared would start its samna.
HAS_ROCKPOOL = find_spec("rockpool") is not None


def scene(label: str = "bus", seed: int = 5000, seconds: float = 1.0, **changes: Any) -> Sample:
    payload = synthesize(label, seed, seconds, RATE_HZ)
    asked: dict[str, Any] = {"payload": payload, "label": label, "duration_s": seconds, "rate_hz": RATE_HZ} | changes
    return Sample(id=f"{label}-{seed}", **asked)


@pytest.fixture
def plant() -> SimPlant:
    return open_plant()


@pytest.fixture
def device(plant: SimPlant) -> Any:
    if not HAS_ROCKPOOL:
        pytest.skip("needs neurorig[xylo]")
    return xylo.open_device(plant, simulate=True)


# ---- what the network answers ---------------------------------------------------------------


def test_output_equals_a_direct_run_of_the_simulator(device: Any) -> None:
    network = load_network()
    simulator = rockpool_import.load_xylo_audio2().simulator.from_specification(**network.specification)
    for seed in (*UNSEEN[:4], UNSEEN[0]):
        sample = scene("park", seed)
        raster = encode(sample.payload, RATE_HZ, network.encoder)
        simulator.reset_state()
        expected = np.asarray(simulator.evolve(raster)[0]).sum(axis=0)
        reply = answer(device, sample)
        assert reply.output["spikes"] == expected.tolist()
        assert reply.output["label"] == CLASSES[int(expected.argmax())]


def test_scene_accuracy_is_high(device: Any) -> None:
    replies = [(label, answer(device, scene(label, seed))) for seed in UNSEEN for label in CLASSES]
    hits = sum(reply.output["label"] == label for label, reply in replies)
    assert hits / len(replies) >= 0.9


# ---- when it does it -------------------------------------------------------------------------


def test_spans_follow_the_duration_and_the_cycle_model(device: Any, plant: SimPlant) -> None:
    opened_ns = plant.clock.now_ns()
    plant.clock.sleep_until(opened_ns + 1_234_567)
    sample, network = scene(), load_network()
    reply = answer(device, sample)
    backend = SimBackend.open(network, 25e6)
    seconds = backend.infer(encode(sample.payload, RATE_HZ, network.encoder)).seconds
    heard, inferred = reply.spans
    assert (heard.phase, inferred.phase) == PHASES
    assert heard.on_tick == 1_234_567 // 80
    assert heard.off_tick - heard.on_tick == pytest.approx(12.5e6, abs=1)
    assert inferred.on_tick == heard.off_tick
    assert inferred.off_tick - inferred.on_tick == pytest.approx(seconds * 12.5e6, abs=1.1)
    assert 0.005 < seconds < 0.5
    assert device.timer() == inferred.off_tick
    spans_ns = [((on - opened_ns) // 80, (off - opened_ns) // 80) for _, on, off in plant.activity]
    assert spans_ns == [(span.on_tick, span.off_tick) for span in reply.spans]


@pytest.mark.skipif(not HAS_ROCKPOOL, reason="needs neurorig[xylo]")
@pytest.mark.parametrize("core_clock_hz", CORE_CLOCKS_HZ)
def test_cycles_by_hand(core_clock_hz: float) -> None:
    """A silent input costs only the fixed part of the model, computed here from its constants."""
    result = SimBackend.open(load_network(), core_clock_hz).infer(np.zeros((100, 16), dtype=np.int64))
    cycles_per_bin = 16 + 189 * (3 + 19) + 4 * 12
    assert result.output.sum() == 0
    assert result.seconds == pytest.approx(100 * cycles_per_bin / core_clock_hz)


@pytest.mark.skipif(not HAS_ROCKPOOL, reason="needs neurorig[xylo]")
def test_aliases_cost_cycles_without_spikes() -> None:
    network = load_network()
    aliased = {**network.specification, "aliases": [[(k + 1) % 189] for k in range(189)]}
    opened = SimBackend.open(replace(network, specification=aliased), 1e6)
    assert opened.infer(np.zeros((100, 16), np.int64)).seconds == pytest.approx(1e-4 * (16 + 189 * (3 + 25) + 4 * 12))


def test_only_the_inference_phase_gives_a_label(device: Any) -> None:
    for phase, label in (("preprocess", None), ("inference", answer(device, scene()).output["label"])):
        assert answer(device, scene(), times=3, phase=phase).output["label"] == label


def test_a_sequence_is_one_stream(device: Any) -> None:
    parts = [synthesize("street_traffic", seed, 1.0, RATE_HZ) for seed in range(5000, 5010)]
    sample = Sample("ten", np.concatenate(parts), duration_s=10.0, rate_hz=RATE_HZ, inferences=10)
    reply = answer(device, sample)
    assert reply.output["label"] == "street_traffic"
    assert reply.spans[0].off_tick - reply.spans[0].on_tick == pytest.approx(125e6, abs=1)
    assert reply.activity["input"]["spikes"].shape == (1000,)


# ---- what it says of itself ------------------------------------------------------------------


def test_info_states_the_simulation(device: Any, plant: SimPlant) -> None:
    info, power = device.info(), device.info().details["power_profile"]
    assert info.mode == "simulator" and "SIMULATED" in info.description
    assert info.artifacts["network"] == load_network().digest_sha256
    assert "2410.23776" in power["source"] and "assumption" in power["assumption"]
    assert (power["idle_w"], power["phase_w"]) == (plant.idle_w, plant.phase_w)
    assert sum(plant.phase_w["inference"].values()) == pytest.approx(692e-6)
    assert sum(plant.idle_w.values()) == pytest.approx(692e-6 * (1 - 28.4 / 57.6))


def test_device_and_monitor_pass_the_checks(device: Any, plant: SimPlant) -> None:
    assert "read.count" in check_meter(open_meter(device, plant), clock=plant.clock)
    checked = check_device(device, list(open_workload(samples=2).samples), clock=plant.clock)
    assert {"repeat.length", "poll.returns", "reply.activity", "info.network"} <= set(checked)


def test_the_monitor_is_the_plants_meter(device: Any, plant: SimPlant) -> None:
    info = open_meter(device, plant).info()
    assert (info.name, {rail.rate_hz for rail in info.rails}) == ("xylo-monitor", {1280.0})
    raised(UsageError, open_meter, device, plant, rate_hz=0.0)
    raised(SetupError, open_meter, device, says="simulated bench")


@pytest.mark.parametrize(("mode", "onboard"), [("hardware", "xylo-monitor"), ("simulator", None)])
def test_an_unsuitable_device_is_refused(mode: str, onboard: str | None, plant: SimPlant) -> None:
    info = SimpleNamespace(name="x", mode=mode, onboard_meter=onboard)
    raised(SetupError, open_meter, SimpleNamespace(info=lambda: info), plant)


# ---- what it refuses -------------------------------------------------------------------------


def test_open_refuses_bad_options(plant: SimPlant) -> None:
    raised(UsageError, xylo.open_device, plant, says=r"5e\+07, 2.5e\+07", simulate=True, core_clock_hz=40e6)
    raised(SetupError, xylo.open_device, says="simulated bench", simulate=True)


@pytest.mark.parametrize("changes", [
    {"payload": np.full(16000, np.nan, dtype=np.float32)}, {"payload": np.full(16000, np.inf, dtype=np.float32)},
    {"payload": np.zeros(0, dtype=np.float32)}, {"payload": np.zeros((2, 16000), dtype=np.float32)},
    {"payload": np.zeros(16000, dtype=np.int16)}, {"rate_hz": None}, {"rate_hz": 4000.0}, {"rate_hz": float("nan")},
    {"rate_hz": 8000.0}, {"rate_hz": 44100.0},
])  # fmt: skip
def test_bad_audio_is_refused(changes: dict[str, Any], device: Any) -> None:
    for call in (device.stage, lambda samples: device.submit(samples, None)):
        raised(DataError, call, [scene(**changes)])
    assert device.poll(1.0) == ()
