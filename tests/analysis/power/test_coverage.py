"""What a trace did not see is stated and bounded, or refused; it is never ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import SimPlant, open_plant
from fixtures.worlds.random_draw import blank
from rig.analysis.evaluate import evaluate
from rig.analysis.power import coverage
from rig.analysis.power.coverage import covered_share, hidden_w, missing_notes
from rig.analysis.power.model.noise import Noise
from rig.analysis.result.result import Result
from rig.analysis.timing.readings import Readings
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import Rail
from scenarios.rules import quick
from scenarios.single_stream import single_stream

Options = dict[str, Any]
Measure = Callable[..., tuple[SimPlant, Result]]
NAMED: Options = {"gain_limit": 0.0, "offset_limit": 0.0}


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """One run of ten spans of 0.1 s on a plant."""

    def run(meter: Options, **plant_options: Any) -> tuple[SimPlant, Result]:
        plant = open_plant(**plant_options)
        bench = Bench(open_device(plant, inference_s=0.1), (open_meter(plant, **NAMED | meter),), plant.clock)
        steps = single_stream(blank(10), quick("single-stream"), phases=bench.device.info().phases, idle_s=1.0)
        record(tmp_path / "run", bench, blank(10), steps, scenario={"name": "single-stream"}, argv=[])
        return plant, evaluate(open_run(tmp_path / "run"))

    return run


def told(result: Result) -> str:
    return " ".join([*result.notes, *(f"{r.reason}. {r.remedy}" for r in result.refusals)])


def test_an_inrush_that_the_range_cut_off_is_refused_and_never_stated(measure: Measure) -> None:
    """The trace cannot bound this: without the end of the range, dynamic power is 15 % higher."""
    _, result = measure({"clip": 1.2, "noise": 0.01}, burst=4.0, burst_share=0.05)
    assert "active_power_w" not in result.quantities
    assert "noise does not explain" in told(result)
    assert "Choose a higher range" in told(result)


def test_noise_that_touches_the_end_of_the_range_is_told_and_bounded(measure: Measure) -> None:
    plant, result = measure({"clip": 1.03, "noise": 0.01})
    figure = result.quantities["dynamic_power_w"]
    low, high = figure.interval()
    true_w = plant.phase_w["inference"]["core"] - plant.idle_w["core"]
    assert low <= true_w <= high
    assert figure.bias > 0
    assert "are at the end of the meter's range" in told(result)


def test_a_range_that_was_never_reached_is_not_spoken_of(measure: Measure) -> None:
    _, result = measure({"clip": 3.0})
    assert "range" not in told(result)
    power = result.quantities["dynamic_power_w"]
    assert power.bias < 1e-3 * power.value


def _loading(plant: SimPlant, submit: Callable[..., None], samples: Any, budget: Any) -> None:
    done_ns = plant.clock.now_ns() + 8_000_000
    plant.occupy("inference", done_ns - 8_000_000, done_ns)
    plant.clock.sleep_until(done_ns)
    submit(samples, budget)


def test_work_between_spans_that_no_reading_sees_is_stated_as_bias(tmp_path: Path) -> None:
    """A host that loads the next problem uses power just before each span; a slow meter assigns it to the span."""
    off, biases = [], []
    for rate_hz in (20.0, 2000.0):
        plant = open_plant()
        device = open_device(plant, inference_s=0.5)
        device.submit = partial(_loading, plant, device.submit)  # type: ignore[method-assign]
        meter = open_meter(plant, rate_hz=rate_hz, noise=0.001, **NAMED)
        bench = Bench(device, (meter,), plant.clock)
        steps = single_stream(blank(10), quick("single-stream"), phases=("inference",), idle_s=2.0)
        run = tmp_path / f"{rate_hz:g}"
        record(run, bench, blank(10), steps, scenario={"name": "single-stream"}, argv=[])
        result = evaluate(open_run(run))
        figure = result.quantities["dynamic_power_w"]
        true_w = plant.phase_w["inference"]["core"] - plant.idle_w["core"]
        off.append(abs(figure.value - true_w) / figure.half_width())
        biases.append(figure.bias)
        assert ("readings at the ends of spans" in told(result)) == (rate_hz == 20.0)
    assert max(off) <= 2.0  # only noise is left, and one 95 % interval in twenty misses
    assert biases[0] > 5.0 * biases[1]  # one reading at a begin mixes loading and span


def readings(n: int = 1000, **changed: Any) -> Readings:
    start = np.arange(n) * 1e-3
    flat = Readings(
        Rail("core"), start, start + 1e-3, np.ones(n), np.ones(n), np.ones(n, bool), np.zeros(n, bool), 1e-3, 0.0
    )
    return replace(flat, **changed)


def test_missing_readings_are_counted_where_they_are_missing() -> None:
    whole = readings()
    keep = np.ones(1000, dtype=bool)
    keep[100:130] = keep[500:510] = False
    holed = readings(start_s=whole.start_s[keep], end_s=whole.end_s[keep], ok=whole.ok[keep])
    (note,) = missing_notes("core", holed, np.array([[0.09, 0.2], [0.7, 0.8]]))
    assert note.text == "Rail core: readings are missing in 2 places, 1 of them while busy, 0.04 s in all"
    assert not list(missing_notes("core", whole, np.array([[0.09, 0.2]])))


def test_readings_that_are_no_number_are_counted() -> None:
    ok = np.ones(1000, dtype=bool)
    ok[3:7] = False
    (note,) = missing_notes("core", readings(ok=ok), np.zeros((0, 2)))
    assert note.text == "Rail core: 4 of 1000 readings are not numbers and are left out"


def test_spans_outside_the_trace_are_named() -> None:
    windows = np.array([[0.1, 0.2], [0.9, 1.1], [1.5, 1.6], [-0.1, 0.1]])
    (note,) = missing_notes("core", readings(), windows)
    assert note.text.startswith("Rail core: 3 of 4 spans lie outside the trace")
    assert covered_share(readings(), windows) == 0.25


def test_a_meter_whose_readings_come_when_they_come_has_no_gaps() -> None:
    start = np.cumsum(np.random.default_rng(1).exponential(1e-3, 1000))
    assert not list(missing_notes("core", readings(start_s=start, end_s=start + 1e-4), np.array([[0.1, 0.2]])))


class _View:
    """The part of a view that ``hidden_w`` needs."""

    def __init__(self, watts: np.ndarray[Any, Any], top: float) -> None:
        n = len(watts)
        self.readings = readings(n, watts=watts, overload=watts >= top)
        self.held = self.idle = np.zeros(n, bool)
        self.noise = Noise(0.01, 0.01, 0.0, (), 1.0, 10.0)


def test_what_noise_lifted_hides_its_width_and_what_it_did_not_as_much_again() -> None:
    watts = np.array([0.1, 0.1, 1.0, 0.98, 0.99, 1.0, 0.97, 0.1, 1.0, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 0.99])
    hidden, unexplained = hidden_w(_View(watts, 1.0))  # type: ignore[arg-type]
    assert hidden[[2, 5]].tolist() == [0.01, 0.01]  # next to readings just below
    assert hidden[8] == 1.0  # far above both neighbours
    assert hidden[11:15].tolist() == [1.0] * 4  # more in a row than noise raises
    assert np.flatnonzero(unexplained).tolist() == [8, 11, 12, 13, 14]
    assert coverage.NOISE_RUN == 3
