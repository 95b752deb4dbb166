"""Average power over the time a system served, and power of batches, hold the plant's exact truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.bench.mock_device import MockDevice, open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import ORIGIN_NS, SimPlant, open_plant
from fixtures.worlds.random_draw import BlankWorkload, blank
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.result import Result
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import Run, open_run
from rig.types import Budget, DeviceInfo, Reply, Sample, Span, Step
from scenarios.offline import offline
from scenarios.rules import quick
from scenarios.server import server
from scenarios.single_stream import single_stream

Play = Callable[[BlankWorkload], Iterator[Step]]


def by_server(workload: BlankWorkload) -> Iterator[Step]:
    return server(workload, quick("server"), arrival_hz=8.0, duration_s=6.0, idle_s=1.0)


def by_single_stream(workload: BlankWorkload) -> Iterator[Step]:
    return single_stream(workload, quick("single-stream"), idle_s=1.0)


def by_offline(workload: BlankWorkload) -> Iterator[Step]:
    return offline(workload, quick("offline"), idle_s=1.0)


PLAYS: dict[str, Play] = {"server": by_server, "single-stream": by_single_stream, "offline": by_offline}


def measured(
    path: Path, plant: SimPlant, device: Any, play: Play, samples: int = 40, **meter: Any
) -> tuple[Run, Result]:
    workload = blank(samples)
    bench = Bench(device, (open_meter(plant, **meter),), plant.clock)
    record(path, bench, workload, play(workload), scenario={"name": "x"}, rules=quick("server"), argv=[])
    run = open_run(path)
    return run, evaluate(run)


def truth_w(plant: SimPlant, run: Run) -> float:
    """Return the plant's mean power from the first request to the last answer."""
    table = [row for row in run.replies.to_pylist() if not row["warmup"]]
    on_ns = min(row["issued_ns"] if row["due_ns"] is None else row["due_ns"] for row in table)
    off_ns = max(row["completed_ns"] for row in table)
    return plant.energy_j(on_ns, off_ns) / (float(off_ns - on_ns) * 1e-9)


def held(q: Quantity, real: float) -> bool:
    low, high = q.interval(0.999)
    return low <= real <= high


@pytest.mark.parametrize(("seed", "name"), [*enumerate(PLAYS)])
def test_average_power_holds_the_exact_mean_over_the_time_served(tmp_path: Path, seed: int, name: str) -> None:
    plant = open_plant(seed=seed, idle_drift_per_s=1e-4 * (seed % 2), burst=0.3)
    device = open_device(plant, device_seed=seed, inference_s=0.05, span_spread=0.2)
    faults: dict[str, Any] = {
        "noise": 0.02,
        "gain_limit": 2e-3,
        "offset_limit": 2e-4,
        "meter_seed": seed + 7,
        "rate_hz": 2000.0,
    }
    run, result = measured(tmp_path / "run", plant, device, PLAYS[name], **faults)
    real_w, q = truth_w(plant, run), result.quantities
    assert held(q["average_power_w"], real_w)
    assert q["average_power_w"].half_width() < 0.02 * real_w
    answered = q["average_energy_per_sample_j"].n
    duration_s = q["duration_s"].value
    assert q["average_energy_per_sample_j"].value == pytest.approx(q["average_power_w"].value * duration_s / answered)


def test_without_a_fault_the_average_is_the_truth_to_a_part_in_a_thousand(tmp_path: Path) -> None:
    plant = open_plant()
    device = open_device(plant, inference_s=0.05)
    still: dict[str, Any] = {"noise": 0.0, "gain_limit": 0.0, "offset_limit": 0.0}
    run, result = measured(tmp_path / "run", plant, device, by_server, **still)
    assert result.quantities["average_power_w"].value == pytest.approx(truth_w(plant, run), rel=1e-3)


@pytest.mark.parametrize("repeat", [1, 10])
def test_energy_and_latency_of_a_sample_do_not_depend_on_how_often_it_is_looped(tmp_path: Path, repeat: int) -> None:
    """20 ms at 3 mW, and a link of 1 ms: the joules of the run over the executions in it, by hand."""
    plant = open_plant()
    device = open_device(plant, inference_s=0.02)

    def by_loops(workload: BlankWorkload) -> Iterator[Step]:
        return single_stream(workload, quick("single-stream"), idle_s=1.0, repeat=repeat)

    run, result = measured(tmp_path / "run", plant, device, by_loops)
    q, n = result.quantities, 40 * repeat
    each_j = truth_w(plant, run) * q["duration_s"].value / n
    assert q["average_energy_per_sample_j"].value == pytest.approx(each_j, 1e-3)
    assert q["latency_mean_s"].value == pytest.approx(0.02 + 1.2e-3 / repeat, 1e-2)
    assert q["throughput_samples_hz"].value == pytest.approx(n / q["duration_s"].value)
    percentiles = {"execution_time_p50_s", "phase.inference.execution_time_p99_s", "latency_p50_s", "latency_p99_s"}
    assert percentiles & {str(key) for key in q} == (percentiles if repeat == 1 else set())  # of a loop, only the mean
    assert any("shows their mean alone" in text for text in result.notes) == (repeat > 1)


def test_average_power_of_several_rails_is_their_sum(tmp_path: Path) -> None:
    plant = open_plant()
    run, result = measured(tmp_path / "run", plant, open_device(plant, rails=3, inference_s=0.05), by_server)
    q = result.quantities
    assert held(q["average_power_w"], truth_w(plant, run))
    parts = [q[f"rail.rail{k}.average_power_w"].value for k in range(3)]
    assert q["average_power_w"].value == pytest.approx(sum(parts))


def test_a_rarely_asked_device_draws_nearly_idle_on_average_and_its_own_power_while_active(tmp_path: Path) -> None:
    plant = open_plant()

    def rarely(workload: BlankWorkload) -> Iterator[Step]:
        return server(workload, quick("server"), arrival_hz=1.0, duration_s=20.0, idle_s=1.0)

    run, result = measured(tmp_path / "run", plant, open_device(plant, inference_s=0.05), rarely)
    q = result.quantities
    assert held(q["average_power_w"], truth_w(plant, run))
    assert q["average_power_w"].value < 1.3e-3
    assert q["active_power_w"].value > 2.9e-3


# ---- batches -------------------------------------------------------------------------------


class Batching:
    """The mock device with a batch: all samples issued together have the same span."""

    def __init__(self, device: MockDevice, plant: SimPlant, batch: int, seconds: float) -> None:
        self.device, self.plant, self.batch, self.seconds = device, plant, batch, seconds
        self.poll, self.stage, self.close, self.timer = device.poll, device.stage, device.close, device.timer

    def info(self) -> DeviceInfo:
        return DeviceInfo("batching", "simulator", clock=self.device.info().clock, max_batch=self.batch, timeout_s=60.0)

    def submit(self, samples: list[Sample], budget: Budget | None) -> None:
        on_ns = self.plant.clock.now_ns() + 20_000
        off_ns = on_ns + round(self.seconds * 1e9)
        self.plant.occupy("inference", on_ns, off_ns)
        clock = self.device._clock
        on, off = (clock.tick_at((ns - ORIGIN_NS) * 1e-9) for ns in (on_ns, off_ns))
        span = (Span("inference", on, off),)
        self.device._pending += [(off_ns, Reply(s.id, {"label": s.label}, span)) for s in samples]


@pytest.mark.parametrize("batch", [1, 4, 10])
def test_spans_of_a_batch_are_one_window_and_each_inference_costs_its_share(tmp_path: Path, batch: int) -> None:
    plant = open_plant()
    device = Batching(open_device(plant, marks=False), plant, batch, 0.1)
    run, result = measured(tmp_path / "run", plant, device, by_offline, noise=0.002)
    q, batches = result.quantities, 40 // batch
    assert len(result.series.phase_windows_s["inference"]) == batches
    assert run.replies.num_rows == 41  # including the warm-up
    assert q["execution_time_s"].value == pytest.approx(0.1 / batch, rel=1e-3)
    assert (q["energy_per_inference_j"].n, q["active_power_w"].n) == (40, 40)
    windows = [(on, off) for name, on, off in plant.activity if name == "inference"][-batches:]
    batch_j = np.mean([plant.energy_j(on, off) for on, off in windows])
    assert held(q["energy_per_inference_j"], float(batch_j) / batch)
    assert held(q["active_power_w"], 3e-3)
    assert held(q["average_power_w"], truth_w(plant, run))
