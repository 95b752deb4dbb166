"""Intervals of average power over the time of serving, and of power of batches, contain the plant's exact truth. A
solver's power is the average over its runtime; pre-processing is measured separately."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import ORIGIN_NS, SimPlant
from reports.audit.audit import audit
from rig.analysis.result.finding import Finding
from rig.analysis.result.result import Result
from rig.commands.shell.main import main
from rig.types import Budget, DeviceInfo, Issue, Preprocessing, Reply, Rules, Sample, Span
from scenarios.offline import offline
from scenarios.rules import neurobench_1_0, quick
from scenarios.server import server
from scenarios.single_stream import single_stream
from scenarios.steps import framed
from tests.support.figures import held
from tests.support.plants import OnPlant, Play, on_plant
from tests.support.serving import S


def by_server(arrival_hz: float = 8.0, duration_s: float = 6.0) -> Play:
    return lambda work: server(work, quick("server"), arrival_hz=arrival_hz, duration_s=duration_s, idle_s=1.0)


def by_offline() -> Play:
    return lambda work: offline(work, quick("offline"), idle_s=1.0)


def mean_w(found: OnPlant) -> float:
    """Return the plant's mean power from the first request to the last answer."""
    table = [row for row in found.run.replies.to_pylist() if not row["warmup"]]
    on_ns = min(row["issued_ns"] if row["due_ns"] is None else row["due_ns"] for row in table)
    off_ns = max(row["completed_ns"] for row in table)
    return found.plant.energy_j(on_ns, off_ns) / (float(off_ns - on_ns) * 1e-9)


def served(found: OnPlant) -> bool:
    """Return whether the interval of average power contains the plant's mean power, and is below 2 % of it each way."""
    real_w = mean_w(found)
    power = found.result.quantities["average_power_w"]
    return held(power, real_w, 0.999) and power.half_width() < 0.02 * real_w


@pytest.mark.parametrize(("seed", "play"), [(0, by_server()), (1, None), (2, by_offline())])
def test_average_power_holds_the_exact_mean_over_the_time_served(tmp_path: Path, seed: int, play: Play | None) -> None:
    faults = {"noise": 0.02, "gain_limit": 2e-3, "offset_limit": 2e-4, "meter_seed": seed + 7, "rate_hz": 2000.0}
    found = on_plant(
        tmp_path / "run", play, samples=40, meter=faults,
        device={"device_seed": seed, "inference_s": 0.05, "span_spread": 0.2},
        plant={"seed": seed, "idle_drift_per_s": 1e-4 * (seed % 2), "burst": 0.3},
    )  # fmt: skip
    assert served(found)
    q = found.result.quantities
    energy, power, time_s = (q[n] for n in ("average_energy_per_sample_j", "average_power_w", "duration_s"))
    assert energy.value == pytest.approx(power.value * time_s.value / energy.n)


@pytest.mark.parametrize("repeat", [1, 10])
def test_energy_and_latency_of_a_sample_do_not_depend_on_how_often_it_is_looped(tmp_path: Path, repeat: int) -> None:
    """By hand: 20 ms at 3 mW, and 1.2 ms on the link for each request; executions share the run's joules equally."""
    found = on_plant(
        tmp_path / "run", lambda work: single_stream(work, quick("single-stream"), idle_s=1.0, repeat=repeat),
        device={"inference_s": 0.02}, samples=40,
    )  # fmt: skip
    result, q, n = found.result, found.result.quantities, 40 * repeat
    each_j = mean_w(found) * q["duration_s"].value / n
    assert q["average_energy_per_sample_j"].value == pytest.approx(each_j, 1e-3)
    assert q["latency_mean_s"].value == pytest.approx(0.02 + 1.2e-3 / repeat, 1e-2)
    assert q["throughput_samples_hz"].value == pytest.approx(n / q["duration_s"].value)
    percentiles = {"execution_time_p50_s", "phase.inference.execution_time_p99_s", "latency_p50_s", "latency_p99_s"}
    assert percentiles & {str(key) for key in q} == (percentiles if repeat == 1 else set())  # of a loop, only the mean
    assert any("shows their mean alone" in text for text in result.notes) == (repeat > 1)


def test_a_rarely_asked_device_draws_nearly_idle_on_average_and_its_own_power_while_active(tmp_path: Path) -> None:
    found = on_plant(tmp_path / "run", by_server(1.0, 20.0), device={"inference_s": 0.05}, samples=40)
    assert served(found)
    assert found.result.quantities["average_power_w"].value < 1.3e-3
    assert found.result.quantities["active_power_w"].value > 2.9e-3


@pytest.mark.parametrize(("frames", "inference_s", "late_s"), [(6, 0.1, 0.0), (60, 0.1, 0.0), (6, 0.7, 1.201)])
def test_a_stream_takes_its_strides_also_after_the_last_answer(
    tmp_path: Path, frames: int, inference_s: float, late_s: float
) -> None:
    """A stride of 0.5 s has ``inference_s`` at 3 mW, and 1 mW for the rest; a device that is too slow never rests."""
    found = on_plant(
        tmp_path / "run",
        lambda work: framed((Issue([s], due_ns=k * S // 2) for k, s in enumerate(work.samples)), work, 1.0, 1),
        stream={"stride_s": 0.5}, samples=frames, device={"inference_s": inference_s, "device_jitter_s": 0.0},
    )  # fmt: skip
    q, lasts_s = found.result.quantities, 0.5 * frames + late_s
    assert q["duration_s"].value == pytest.approx(lasts_s, abs=1e-2 * late_s)
    assert q["throughput_samples_hz"].value == pytest.approx(frames / lasts_s, 1e-2 * late_s + 1e-9)
    joules = lasts_s * 1e-3 + frames * inference_s * 2e-3
    assert held(q["average_power_w"], joules / lasts_s, 0.999)
    assert held(q["average_energy_per_sample_j"], joules / frames, 0.999)
    main(["report", str(tmp_path / "run")])
    checked = audit(tmp_path / "run").compared
    assert {"average_power_w", "average_energy_per_sample_j", "duration_s"} <= {c.key for c in checked if c.ok}


class Batching:
    """The mock device with a batch: all samples issued together have the same span of 0.1 s."""

    def __init__(self, plant: SimPlant, device: MockDevice, batch: int) -> None:
        self.device, self.plant, self.batch = device, plant, batch
        self.poll, self.stage, self.close, self.timer = device.poll, device.stage, device.close, device.timer

    def info(self) -> DeviceInfo:
        return DeviceInfo("batching", "simulator", clock=self.device.info().clock, max_batch=self.batch, timeout_s=60.0)

    def submit(self, samples: list[Sample], budget: Budget | None) -> None:
        on_ns = self.plant.clock.now_ns() + 20_000
        off_ns = on_ns + 100_000_000
        self.plant.occupy("inference", on_ns, off_ns)
        on, off = (self.device._clock.tick_at((ns - ORIGIN_NS) * 1e-9) for ns in (on_ns, off_ns))
        span = (Span("inference", on, off),)
        self.device._pending += [(off_ns, Reply(s.id, {"label": s.label}, span)) for s in samples]


@pytest.mark.parametrize("batch", [1, 4, 10])
def test_spans_of_a_batch_are_one_window_and_each_inference_costs_its_share(tmp_path: Path, batch: int) -> None:
    found = on_plant(
        tmp_path / "run", by_offline(), device={"marks": False}, meter={"noise": 0.002}, samples=40,
        driver=lambda plant, device: Batching(plant, device, batch),
    )  # fmt: skip
    q, batches, plant = found.result.quantities, 40 // batch, found.plant
    assert len(found.result.series.phase_windows_s["inference"]) == batches
    assert found.run.replies.num_rows == 41  # including the warm-up
    assert q["execution_time_s"].value == pytest.approx(0.1 / batch, rel=1e-3)
    assert (q["energy_per_inference_j"].n, q["active_power_w"].n) == (40, 40)
    windows = [(on, off) for name, on, off in plant.activity if name == "inference"][-batches:]
    batch_j = float(np.mean([plant.energy_j(on, off) for on, off in windows]))
    assert held(q["energy_per_inference_j"], batch_j / batch, 0.999)
    assert held(q["active_power_w"], 3e-3, 0.999)
    assert served(found)


# ---- a solver's runtime, which begins when the graph is loaded ---------------------------------

SOLVER = {
    "idle_w": 1e-3, "inference_w": 3e-3, "inference_s": 0.1, "device_forward_s": 0.1, "device_back_s": 1e-4,
}  # fmt: skip
"""The graph takes 0.1 s to load, the solve 0.1 s."""


def solving(plant: SimPlant, device: MockDevice) -> MockDevice:
    """Let the device answer with solutions."""
    poll = device.poll

    def solved(timeout_s: float) -> list[Reply]:
        return [structs.replace(reply, output={"cost": -1.0, "solution": "80"}) for reply in poll(timeout_s)]

    device.poll = solved  # type: ignore[method-assign]
    return device


def test_power_over_the_runtime_is_that_of_the_solves_without_loading_and_pauses(tmp_path: Path) -> None:
    found = on_plant(tmp_path / "run", device=SOLVER, driver=solving).result.quantities
    power = found["runtime_power_w"]
    assert held(power, 3e-3, 0.999)
    assert power.value == found["literal.active_power_w"].value
    assert found["average_power_w"].value < 0.8 * power.value


# ---- pre-processing, measured separately -------------------------------------------------------

STRICT = neurobench_1_0("single-stream")
LISTENING, NOWHERE = Preprocessing(rails=("rail1",)), Preprocessing(rails=("afe",))
PHASE, ABSENT = Preprocessing(phases=("preprocess",)), Preprocessing(none="it takes samples as they are")


def declared(folder: Path, told: Preprocessing | None, rules: Rules = STRICT, preprocess_s: float = 0.0) -> Result:
    def declaring(plant: SimPlant, device: MockDevice) -> MockDevice:
        info = replace(device.info(), preprocessing=told)
        device.info = lambda: info  # type: ignore[method-assign]
        return device

    options = {"rails": 2, "idle_w": 3e-3, "preprocess_s": preprocess_s}
    stream = {"idle_s": 0.5}
    return on_plant(folder / "run", device=options, stream=stream, samples=8, rules=rules, driver=declaring).result


def check_of(result: Result) -> Finding | None:
    assert result.validity is not None
    return next((c for c in result.validity.checks if "pre-processing" in c.rule), None)


def test_a_front_end_that_listens_is_reported_by_itself_and_not_lost_in_idle(tmp_path: Path) -> None:
    found = declared(tmp_path, LISTENING).quantities
    assert held(found["preprocessing_power_w"], 1e-3, 0.999)
    assert found["preprocessing_power_w"].value == found["rail.rail1.idle_power_w"].value


@pytest.mark.parametrize(("told", "preprocess_s", "ok", "found"), [
    (None, 0.0, False, "not declared"), (None, 0.05, False, "not declared"), (PHASE, 0.05, True, "preprocess"),
    (PHASE, 0.0, False, "preprocess, not measured by itself"), (LISTENING, 0.0, True, "rail1"),
    (NOWHERE, 0.0, False, "afe, not measured by itself"), (ABSENT, 0.0, True, "it takes samples as they are"),
])  # fmt: skip
def test_pre_processing_must_be_measured_by_itself_or_declared_absent(
    tmp_path: Path, told: Preprocessing | None, preprocess_s: float, ok: bool, found: str
) -> None:
    result = declared(tmp_path, told, preprocess_s=preprocess_s)
    check = check_of(result)
    assert check is not None
    assert (check.ok, check.found) == (ok, found)
    assert [str(r.scope) for r in result.refusals if "afe" in r.reason] == ["preprocessing_power_w"] * (told is NOWHERE)


def test_rules_of_the_bench_ask_for_no_declaration(tmp_path: Path) -> None:
    assert check_of(declared(tmp_path, None, quick("single-stream"))) is None
