"""Whole runs on a plant: changes that must not change a figure, and the remedies of refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import SimPlant, open_plant
from fixtures.worlds.random_draw import blank, truth
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.result import Result
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import MARK_PHASE, Budget, Device, Idle, Issue, Mark, Reply, Sample, Span, Step
from scenarios.rules import quick
from scenarios.single_stream import single_stream

Options = dict[str, Any]
Measure = Callable[..., tuple[SimPlant, Result]]
STILL: Options = {"noise": 0.0, "gain_limit": 0.0, "offset_limit": 0.0}


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """Measure a fresh plant, with options of device, meter and scenario and a number of samples."""
    runs = iter(range(100))

    def run(
        device: Options, meter: Options, scenario: Options | None = None, samples: int = 20,
        driver: Callable[[Device], Device] = lambda opened: opened, **plant_options: Any,
    ) -> tuple[SimPlant, Result]:  # fmt: skip
        plant = open_plant(**plant_options)
        bench = Bench(driver(open_device(plant, **device)), (open_meter(plant, **meter),), plant.clock)
        path, workload = tmp_path / str(next(runs)), blank(samples)
        phases = bench.device.info().phases
        chosen: Options = {"idle_s": 1.0} | (scenario or {})
        steps = single_stream(workload, quick("single-stream"), phases=phases, **chosen)
        record(path, bench, workload, steps, scenario={"name": "single-stream", "options": chosen}, argv=[])
        return plant, evaluate(open_run(path))

    return run


def held(q: Quantity, real: float) -> bool:
    low, high = q.interval()
    return low <= real <= high


def test_offsets_of_the_clocks_change_no_figure(measure: Measure) -> None:
    """Ticks are whole, so an offset may shift a stamp by part of a tick."""
    device = {"inference_s": 0.0503, "marks": False}
    _, one = measure(device | {"device_offset_s": 0.0}, STILL | {"meter_offset_s": 0.0})
    for k, offset_s in enumerate((1.25, 86_400.5)):
        _, other = measure(device | {"device_offset_s": offset_s}, STILL | {"meter_offset_s": 1e5 - k * offset_s})
        assert other.quantities.keys() == one.quantities.keys()
        for name, q in one.quantities.items():
            if q.value and name.quantity != "execution_time_se_s":
                assert other.quantities[name].value == pytest.approx(q.value, rel=2e-5), name


def test_twice_the_watts_are_twice_the_figures_noise_and_all(measure: Measure) -> None:
    def levels(times: float) -> Options:
        return {"idle_w": 1e-3 * times, "inference_w": 3e-3 * times, "marks": False, "inference_s": 0.05}

    meter = {"noise": 0.02, "gain_limit": 1e-3, "hum": 1e-3}
    (_, once), (_, twice) = (measure(levels(times), meter) for times in (1.0, 2.0))
    assert once.quantities.keys() == twice.quantities.keys()
    for name, q in once.quantities.items():
        factor = 2.0 if q.unit in ("W", "J") else 1.0
        assert twice.quantities[name].value == pytest.approx(factor * q.value, rel=1e-6), name
        assert twice.quantities[name].half_width() == pytest.approx(factor * q.half_width(), rel=1e-3), name


def remedy_of(result: Result) -> int:
    """Return the recommended repeat, beside a wide figure or instead of one."""
    found = re.search(r"--repeat (\d+)", told(result))
    assert found is not None
    return int(found[1])


def told(result: Result) -> str:
    every = [f"{r.reason} {r.remedy}" for r in result.refusals] + list(result.notes)
    return next(text for text in every if "a window lasts" in text)


@pytest.mark.parametrize(("inference_s", "rate_hz"), [(1e-3, 100.0), (2e-4, 1000.0)])
def test_a_span_too_short_for_the_meter_has_at_most_a_wide_figure_and_the_repeat_it_asks_for_is_enough(
    measure: Measure, inference_s: float, rate_hz: float
) -> None:
    device, meter = {"inference_s": inference_s}, {"rate_hz": rate_hz}
    plant, short = measure(device, meter)
    times, wide = remedy_of(short), short.quantities.get(FigureKey("dynamic_power_w"))
    assert wide is None or held(wide, truth(plant, "inference", 20)["dynamic_power_w"])
    plant, long = measure(device, meter, {"repeat": times})
    assert not long.refusals
    real = truth(plant, "inference", 20)
    power = long.quantities["dynamic_power_w"]
    assert held(power, real["dynamic_power_w"])
    assert wide is None or power.half_width() < 0.5 * wide.half_width()
    energy = long.quantities["energy_per_inference_j"]
    assert held(energy, real["energy_per_inference_j"] / times)
    assert energy.n == 20 * times


def test_a_repeat_that_was_not_enough_is_answered_with_one_that_is(measure: Measure) -> None:
    device, meter = {"inference_s": 1e-3}, {"rate_hz": 100.0}
    _, short = measure(device, meter, {"repeat": 5})
    _, long = measure(device, meter, {"repeat": remedy_of(short)})
    assert "dynamic_power_w" in long.quantities


class NoLoop:
    """A driver without ``submit_repeated``: the rig issues the sample of a loop repeatedly."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.info, self.stage, self.submit = driver.info, driver.stage, driver.submit
        self.close, self.timer = driver.close, driver.timer

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        replies: Sequence[Reply] = self._driver.poll(timeout_s)
        return replies


class EachStamped(NoLoop):
    """A driver that stamps each execution of a loop."""

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        self._driver.submit_repeated(samples, times, phase, budget)

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        replies = super().poll(timeout_s)
        return [replace(reply, spans=tuple(one for span in reply.spans for one in each(span))) for reply in replies]


def each(span: Span) -> list[Span]:
    ticks = np.linspace(span.on_tick, span.off_tick, span.executions + 1).astype(int).tolist()
    return [Span(span.phase, on, off - (off - on) // 20) for on, off in pairwise(ticks)]


@pytest.mark.parametrize("driver", [NoLoop, EachStamped])
def test_a_repeat_that_made_no_span_longer_is_not_asked_for_again(
    measure: Measure, driver: Callable[[Device], Device]
) -> None:
    device, meter = {"inference_s": 1e-3}, {"rate_hz": 100.0}
    _, short = measure(device, meter, driver=driver)
    _, looped = measure(device, meter, {"repeat": remedy_of(short)}, driver=driver)
    assert "--repeat made no span longer" in told(looped)
    assert "one span around the loop (submit_repeated)" in told(looped)
    assert not re.search(r"--repeat \d", told(looped))


def test_time_is_reported_where_power_is_refused(measure: Measure) -> None:
    plant, result = measure({"inference_s": 1e-3}, {"rate_hz": 20.0})
    remedy_of(result)
    assert "dynamic_power_w" not in result.quantities
    time_s = result.quantities["execution_time_s"]
    assert time_s.value == pytest.approx(truth(plant, "inference", 20)["execution_time_s"], rel=1e-3)
    assert "energy_per_inference_j" not in result.quantities


def test_phases_measured_apart_have_figures_of_their_own_and_totals(measure: Measure) -> None:
    device = {"preprocess_s": 0.03, "inference_s": 0.05, "preprocess_w": 2e-3, "inference_w": 4e-3}
    plant, result = measure(device, {"noise": 0.005}, {"apart": True, "repeat": 2})
    q = result.quantities
    energy = time_s = 0.0
    for phase in ("preprocess", "inference"):
        real = truth(plant, phase, 20)
        assert held(q[f"phase.{phase}.dynamic_power_w"], real["dynamic_power_w"])
        assert held(q[f"phase.{phase}.energy_per_inference_j"], real["energy_per_inference_j"] / 2)
        assert q[f"phase.{phase}.energy_per_inference_j"].n == 40
        energy += real["energy_per_inference_j"] / 2
        time_s += real["execution_time_s"] / 2
    assert held(q["energy_per_inference_j"], energy)
    assert q["execution_time_s"].value == pytest.approx(time_s, rel=1e-3)
    assert held(q["active_power_w"], energy / time_s)
    assert not result.refusals


def test_phases_measured_together_are_one_total_and_parts_where_readings_fit(measure: Measure) -> None:
    device = {"preprocess_s": 0.03, "inference_s": 0.05}
    plant, result = measure(device, {"noise": 0.005})
    both = [truth(plant, phase, 20) for phase in ("preprocess", "inference")]
    total = sum(t["energy_per_inference_j"] for t in both)
    assert held(result.quantities["energy_per_inference_j"], total)
    for phase, real in zip(("preprocess", "inference"), both, strict=True):
        assert held(result.quantities[f"phase.{phase}.dynamic_power_w"], real["dynamic_power_w"])


def test_rails_of_one_device_add_up_to_the_truth(measure: Measure) -> None:
    plant, result = measure({"rails": 3, "inference_s": 0.05}, {"noise": 0.01, "gain_limit": 2e-3})
    real, q = truth(plant, "inference", 20), result.quantities
    assert held(q["dynamic_power_w"], real["dynamic_power_w"])
    parts = [q[f"rail.rail{k}.dynamic_power_w"].value for k in range(3)]
    assert q["dynamic_power_w"].value == pytest.approx(sum(parts))
    shared = {c.shared for c in q["energy_per_inference_j"].components if c.source.startswith("gain calibration")}
    assert shared == {f"gain:mock:rail{k}" for k in range(3)}


def test_warm_up_enters_no_result(measure: Measure) -> None:
    device, meter = {"inference_s": 0.05, "marks": False}, {"noise": 0.0, "gain_limit": 0.0, "offset_limit": 0.0}
    for warmup in (0, 5):
        plant, result = measure(device, meter, {"warmup": warmup})
        q, real = result.quantities, truth(plant, "inference", 20)
        assert q["energy_per_inference_j"].n == q["execution_time_s"].n == q["accuracy"].n == 20
        assert q["dynamic_power_w"].value == pytest.approx(real["dynamic_power_w"], rel=1e-4)
        assert len(result.series.warmup_windows_s) == warmup


def test_a_warm_up_that_is_much_slower_moves_nothing(tmp_path: Path) -> None:
    plant = open_plant()
    device = open_device(plant, inference_s=0.05, marks=False)
    bench = Bench(device, (open_meter(plant, **STILL),), plant.clock)
    samples = blank(20).samples
    steps: list[Step] = [
        Mark(), Issue(samples[:1], repeat=20, warmup=True), Idle(1.0), *(Issue([s]) for s in samples), Idle(1.0),
        Mark(),
    ]  # fmt: skip
    record(tmp_path / "run", bench, blank(20), steps, scenario={"name": "by hand"}, argv=[])
    q = evaluate(open_run(tmp_path / "run")).quantities
    real = truth(plant, "inference", 20)
    assert q["execution_time_s"].value == pytest.approx(real["execution_time_s"], rel=1e-4)
    assert q["energy_per_inference_j"].value == pytest.approx(real["energy_per_inference_j"], rel=1e-4)


def test_a_rail_that_the_activity_does_not_touch_places_no_other_rail(tmp_path: Path) -> None:
    worst = 0.0
    for seed in (4, 14):
        plant = open_plant(seed=seed)
        links: Options = {"device_forward_s": 5e-3, "device_back_s": 1e-4}
        device = open_device(plant, device_seed=seed, inference_s=0.004, marks=False, **links)
        busy = {"core": 3e-3, "io": 1e-3}
        plant.install({"core": 1e-3, "io": 1e-3}, {"inference": busy, MARK_PHASE: busy})
        meter = open_meter(plant, meter_seed=seed, rate_hz=5e3, meter_forward_s=1e-4, meter_back_s=5e-3)
        steps = single_stream(blank(40), quick("single-stream"), idle_s=1.0, warmup=0)
        path = tmp_path / str(seed)
        record(path, Bench(device, (meter,), plant.clock), blank(40), steps, scenario={"name": "x"}, argv=[])
        found = evaluate(open_run(path)).quantities["rail.core.dynamic_power_w"].value
        worst = max(worst, abs(found / truth(plant, "inference", 40)["dynamic_power_w"] - 1.0))
    assert worst < 0.01


@pytest.mark.parametrize("reads", ["steady spans", "their edges"])
def test_the_drop_over_a_shunt_is_taken_off(measure: Measure, reads: str) -> None:
    meter = STILL | {"noise": 1e-4, "supply_v": 1.8, "burden_ohm": 0.02 * 1.8**2 / 3e-3}
    plant, result = measure({"inference_s": 0.0053, "inference_w": 3e-3}, meter, samples=150)
    name = "trimmed.dynamic_power_w" if reads == "steady spans" else "dynamic_power_w"
    assert held(result.quantities[name], truth(plant, "inference", 150)["dynamic_power_w"])


def test_figures_are_a_pure_function_of_the_recording(measure: Measure, tmp_path: Path) -> None:
    measure({"inference_s": 0.02}, {})
    runs = [evaluate(open_run(tmp_path / "0")) for _ in range(2)]
    assert runs[0].quantities == runs[1].quantities
    assert np.array_equal(runs[0].series.execution_times_s, runs[1].series.execution_times_s)
