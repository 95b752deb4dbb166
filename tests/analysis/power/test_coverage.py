"""What a trace did not see is stated and bounded, or refused; it is never ignored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import SimPlant
from rig.analysis.power.coverage import covered_share, missing_notes
from rig.analysis.result.result import Result
from rig.analysis.timing.readings import Readings
from rig.types import Rail
from tests.support.figures import ACTIVE, POWER, held, said
from tests.support.plants import OnPlant, Options, on_plant

NAMED = {"gain_limit": 0.0, "offset_limit": 0.0}


def measured(path: Path, meter: Options, **plant: Any) -> OnPlant:
    """Ten spans of 0.1 s on a plant."""
    return on_plant(path / "run", device={"inference_s": 0.1}, meter=NAMED | meter, plant=plant, samples=10)


def told(result: Result) -> str:
    return " ".join([*result.notes, *(f"{r.reason}. {r.remedy}" for r in result.refusals)])


def test_an_inrush_that_the_range_cut_off_is_refused_and_never_stated(tmp_path: Path) -> None:
    """The trace cannot bound this: without the end of the range, dynamic power is 15 % higher."""
    result = measured(tmp_path, {"clip": 1.2, "noise": 0.01}, burst=4.0, burst_share=0.05).result
    assert ACTIVE not in result.quantities
    assert "noise does not explain" in told(result)
    assert "Choose a higher range" in told(result)


def test_noise_that_touches_the_end_of_the_range_is_told_and_bounded(tmp_path: Path) -> None:
    found = measured(tmp_path, {"clip": 1.03, "noise": 0.01})
    power = found.result.quantities[POWER]
    assert held(power, found.real()["dynamic_power_w"])
    assert power.bias > 0
    assert said(found.result, "are at the end of the meter's range")


def test_a_range_that_was_never_reached_is_not_spoken_of(tmp_path: Path) -> None:
    result = measured(tmp_path, {"clip": 3.0}).result
    assert "range" not in told(result)
    assert result.quantities[POWER].bias < 1e-3 * result.quantities[POWER].value


def loading(plant: SimPlant, device: MockDevice) -> MockDevice:
    """A host that loads the next problem uses power for 8 ms just before each span."""
    submit = device.submit

    def load(samples: Any, budget: Any) -> None:
        done_ns = plant.clock.now_ns() + 8_000_000
        plant.occupy("inference", done_ns - 8_000_000, done_ns)
        plant.clock.sleep_until(done_ns)
        submit(samples, budget)

    device.submit = load  # type: ignore[method-assign]
    return device


def test_work_between_spans_that_no_reading_sees_is_stated_as_bias(tmp_path: Path) -> None:
    """A slow meter assigns it to the span."""
    biases = []
    for rate_hz in (20.0, 2000.0):
        found = on_plant(
            tmp_path / f"{rate_hz:g}", device={"inference_s": 0.5}, stream={"idle_s": 2.0}, driver=loading,
            meter=NAMED | {"rate_hz": rate_hz, "noise": 0.001}, samples=10,
        )  # fmt: skip
        power = found.result.quantities[POWER]
        true_w = found.plant.phase_w["inference"]["core"] - found.plant.idle_w["core"]
        # only noise is left, and one 95 % interval in twenty misses
        assert abs(power.value - true_w) <= 2.0 * power.half_width()
        biases.append(power.bias)
        assert ("readings at the ends of spans" in told(found.result)) == (rate_hz == 20.0)
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


def test_readings_that_are_no_number_and_spans_outside_the_trace_are_counted() -> None:
    windows = np.array([[0.1, 0.2], [0.9, 1.1], [1.5, 1.6], [-0.1, 0.1]])
    lacking = readings(ok=np.arange(1000) >= 4)
    no_number, outside = (note.text for note in missing_notes("core", lacking, windows))
    assert no_number == "Rail core: 4 of 1000 readings are not numbers and are left out"
    assert outside.startswith("Rail core: 3 of 4 spans lie outside the trace")
    assert covered_share(readings(), windows) == 0.25


def test_a_meter_whose_readings_come_when_they_come_has_no_gaps() -> None:
    start = np.cumsum(np.random.default_rng(1).exponential(1e-3, 1000))
    assert not list(missing_notes("core", readings(start_s=start, end_s=start + 1e-4), np.array([[0.1, 0.2]])))
