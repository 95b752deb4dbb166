"""A slow meter with dead time measures a loop: the interval covers the unseen part, even if readings repeat."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import SimPlant, seconds_of
from fixtures.worlds.random_draw import BlankWorkload, blank, truth
from rig.analysis.result.result import Result
from rig.types import Idle, Issue
from tests.support.figures import POWER, held, said
from tests.support.plants import on_plant

RATE_HZ, SPAN_S = 3.0, 20.0


def uneven(loop_s: float, plant: SimPlant, device: MockDevice) -> MockDevice:
    """Let each execution of a loop use 1.5 times the power in the last quarter of its length."""
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


def measured(
    path: Path, loop_s: float, aperture: float = 0.6, rate_hz: float = RATE_HZ, inferences: int = 1
) -> tuple[float, Result]:
    """Return true dynamic power of such a loop, run once for each of its inferences, and the result."""
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
def test_what_readings_in_step_with_a_loop_never_see_is_in_the_interval(tmp_path: Path, loop_s: float) -> None:
    true_w, result = measured(tmp_path, loop_s)
    assert held(result.quantities[POWER], true_w)
    assert abs(result.quantities[POWER].value - true_w) > 5e-3 * true_w, "the readings agree, and are wrong"
    assert said(result, "in step")


@pytest.mark.parametrize(
    ("loop_s", "aperture", "rate_hz"), [(1 / 3, 1.0, RATE_HZ), (0.25, 0.5, 1000.0), (0.02, 0.6, 3.0)]
)
def test_a_meter_that_misses_nothing_is_quick_or_sees_many_loops_at_once_states_no_bias(
    tmp_path: Path, loop_s: float, aperture: float, rate_hz: float
) -> None:
    true_w, result = measured(tmp_path, loop_s, aperture, rate_hz)
    assert held(result.quantities[POWER], true_w) and result.quantities[POWER].half_width() < 5e-3 * true_w
    assert not said(result, "in step")


@pytest.mark.parametrize("readings", [4, 6, 7.998, 8, 12, 20])
def test_what_is_missed_of_a_loop_in_step_falls_with_readings_per_execution(tmp_path: Path, readings: float) -> None:
    """Exact and nearly exact multiples: no number of readings makes the meter reliable."""
    true_w, result = measured(tmp_path, readings / RATE_HZ)
    assert held(result.quantities[POWER], true_w)
    assert 0.2 / readings < result.quantities[POWER].half_width() / true_w < 1.2 / readings


@pytest.mark.parametrize("inferences", [4, 8, 16])
def test_inferences_of_one_execution_are_a_loop_that_may_be_in_step(inferences: int, tmp_path: Path) -> None:
    true_w, result = measured(tmp_path, 1 / RATE_HZ, inferences=inferences)
    assert held(result.quantities[POWER], true_w)
