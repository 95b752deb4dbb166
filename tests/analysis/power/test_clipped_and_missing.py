"""Power that no reading covers is stated with a bound, or refused, and never ignored. This includes power that
readings in step with a loop miss."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import SimPlant, seconds_of
from fixtures.worlds.random_draw import BlankWorkload, blank, truth
from rig.analysis.power.clipped_and_missing import missing_notes
from rig.analysis.power.estimators import covered_share
from rig.analysis.result.result import Result
from rig.analysis.timing.readings import Readings
from rig.types import Idle, Issue, Rail
from tests.support.figures import ACTIVE, POWER, held, said
from tests.support.plants import OnPlant, Options, on_plant

NAMED = {"gain_limit": 0.0, "offset_limit": 0.0}


def measured(path: Path, meter: Options, **plant: Any) -> OnPlant:
    """Measure ten spans of 0.1 s on a plant."""
    return on_plant(path / "run", device={"inference_s": 0.1}, meter=NAMED | meter, plant=plant, samples=10)


def told(result: Result) -> str:
    return " ".join([*result.notes, *(f"{r.reason}. {r.remedy}" for r in result.refusals)])


def test_a_clipped_inrush_refuses_active_power(tmp_path: Path) -> None:
    """The trace cannot bound this error: the clipping lowers dynamic power by 15 %."""
    result = measured(tmp_path, {"clip": 1.2, "noise": 0.01}, burst=4.0, burst_share=0.05).result
    assert ACTIVE not in result.quantities
    assert "noise does not explain" in told(result)
    assert "Choose a higher range" in told(result)


def test_clipped_noise_is_reported_as_bias(tmp_path: Path) -> None:
    found = measured(tmp_path, {"clip": 1.03, "noise": 0.01})
    power = found.result.quantities[POWER]
    assert held(power, found.real()["dynamic_power_w"])
    assert power.bias > 0
    assert said(found.result, "are at the end of the meter's range")


def test_a_range_that_was_never_reached_is_not_mentioned(tmp_path: Path) -> None:
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


def test_unresolved_work_between_spans_is_stated_as_bias(tmp_path: Path) -> None:
    """A slow meter assigns this work to the span."""
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
    one, yes, no = np.ones(n), np.ones(n, bool), np.zeros(n, bool)
    return structs.replace(Readings(Rail("core"), start, start + 1e-3, one, one, yes, no, 1e-3, 0.0), **changed)


def test_missing_readings_are_counted_by_place() -> None:
    whole = readings()
    keep = np.ones(1000, dtype=bool)
    keep[100:130] = keep[500:510] = False
    holed = readings(start_s=whole.start_s[keep], end_s=whole.end_s[keep], ok=whole.ok[keep])
    (note,) = missing_notes("core", holed, np.array([[0.09, 0.2], [0.7, 0.8]]))
    assert note.text == "Rail core: readings are missing (places: 2, of which 1 while busy), 0.04 s in all"
    assert not list(missing_notes("core", whole, np.array([[0.09, 0.2]])))


def test_invalid_readings_and_uncovered_spans_are_counted() -> None:
    windows = np.array([[0.1, 0.2], [0.9, 1.1], [1.5, 1.6], [-0.1, 0.1]])
    lacking = readings(ok=np.arange(1000) >= 4)
    no_number, outside = (note.text for note in missing_notes("core", lacking, windows))
    assert no_number == "Rail core: 4 of 1000 readings are not numbers and are left out"
    assert outside.startswith("Rail core: 3 of 4 spans lie wholly or partly outside the trace")
    assert covered_share(readings(), windows) == 0.25


def test_readings_at_irregular_times_have_no_gaps() -> None:
    start = np.cumsum(np.random.default_rng(1).exponential(1e-3, 1000))
    assert not list(missing_notes("core", readings(start_s=start, end_s=start + 1e-4), np.array([[0.1, 0.2]])))


# ---- loops in step with a slow meter that has dead time ----------------------------------------

RATE_HZ, SPAN_S = 3.0, 20.0


def uneven(loop_s: float, plant: SimPlant, device: MockDevice) -> MockDevice:
    """Let each period ``loop_s`` of a loop use 1.5 times the dynamic power in its last quarter."""
    whole, rail = plant.occupy, next(iter(plant.idle_w))
    added_w = plant.phase_w["inference"][rail] - plant.idle_w[rail]
    plant.phase_w["more"] = {rail: plant.idle_w[rail] + 0.5 * added_w}

    def occupy(phase: str, on_ns: int, off_ns: int) -> None:
        whole(phase, on_ns, off_ns)
        count = round((off_ns - on_ns) * 1e-9 / loop_s)
        on_s, each_s = seconds_of(on_ns), (off_ns - on_ns) * 1e-9 / count
        plant._pieces += [("more", on_s + (k + 0.75) * each_s, on_s + (k + 1.0) * each_s, 1.0) for k in range(count)]

    plant.occupy = occupy  # type: ignore[method-assign]
    return device


def looped(
    path: Path, loop_s: float, aperture: float = 0.6, rate_hz: float = RATE_HZ, inferences: int = 1
) -> tuple[float, Result]:
    """Return the true dynamic power of an ``uneven`` loop, and the result; an execution has ``inferences`` periods."""
    work = BlankWorkload((replace(blank(1).samples[0], inferences=inferences),))
    loop = Issue(list(work.samples), repeat=round(SPAN_S / loop_s / inferences))
    found = on_plant(
        path / "run", lambda work: iter([Idle(8.0), loop, Idle(8.0)]), samples=work, plant={"seed": 3},
        device={"inference_s": loop_s, "idle_w": 0.045, "inference_w": 0.062, "device_drift_ppm": 0.0},
        meter={"rate_hz": rate_hz, "aperture": aperture, "noise": 1e-3, "meter_drift_ppm": 0.0},
        driver=partial(uneven, loop_s),
    )  # fmt: skip
    return truth(found.plant, "inference", 1)["dynamic_power_w"], found.result


@pytest.mark.parametrize("loop_s", [1 / 3, 0.3334, 0.25, 2 / 3, 1.0])
def test_synchronous_sampling_of_a_loop_widens_the_interval(tmp_path: Path, loop_s: float) -> None:
    true_w, result = looped(tmp_path, loop_s)
    assert held(result.quantities[POWER], true_w)
    assert abs(result.quantities[POWER].value - true_w) > 5e-3 * true_w, "the readings agree, and are wrong"
    assert said(result, "in step")


@pytest.mark.parametrize(
    ("loop_s", "aperture", "rate_hz"), [(1 / 3, 1.0, RATE_HZ), (0.25, 0.5, 1000.0), (0.02, 0.6, 3.0)]
)
def test_full_coverage_of_a_loop_has_no_bias(tmp_path: Path, loop_s: float, aperture: float, rate_hz: float) -> None:
    true_w, result = looped(tmp_path, loop_s, aperture, rate_hz)
    assert held(result.quantities[POWER], true_w) and result.quantities[POWER].half_width() < 5e-3 * true_w
    assert not said(result, "in step")


@pytest.mark.parametrize("readings", [4, 6, 7.998, 8, 12, 20])
def test_more_readings_reduce_the_error_of_a_loop_in_step(tmp_path: Path, readings: float) -> None:
    """An execution lasts (nearly) a whole number of readings; more readings lessen the error, and never remove it."""
    true_w, result = looped(tmp_path, readings / RATE_HZ)
    assert held(result.quantities[POWER], true_w)
    assert 0.2 / readings < result.quantities[POWER].half_width() / true_w < 1.2 / readings


@pytest.mark.parametrize("inferences", [4, 8, 16])
def test_inferences_of_one_execution_may_be_in_step_with_readings(inferences: int, tmp_path: Path) -> None:
    true_w, result = looped(tmp_path, 1 / RATE_HZ, inferences=inferences)
    assert held(result.quantities[POWER], true_w)
