"""A slow meter with dead time measures a loop: the interval covers the unseen part, even if readings repeat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import SimPlant, open_plant, seconds_of
from fixtures.worlds.random_draw import BlankWorkload, blank, truth
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import Idle, Issue, Step

RATE_HZ, SPAN_S = 3.0, 20.0
DYNAMIC = FigureKey("dynamic_power_w")


def uneven(plant: SimPlant, loop_s: float, begin: float, end: float) -> None:
    """Let each execution of a loop use 1.5 times the power from ``begin`` to ``end``, in shares of its length."""
    whole, rail = plant.occupy, next(iter(plant.idle_w))
    added_w = plant.phase_w["inference"][rail] - plant.idle_w[rail]
    plant.phase_w["more"] = {rail: plant.idle_w[rail] + 0.5 * added_w}

    def occupy(phase: str, on_ns: int, off_ns: int) -> None:
        whole(phase, on_ns, off_ns)
        on_s, each_s = seconds_of(on_ns), (off_ns - on_ns) * 1e-9 / round((off_ns - on_ns) * 1e-9 / loop_s)
        for k in range(round((off_ns - on_ns) * 1e-9 / loop_s)):
            at_s = on_s + k * each_s
            plant._pieces.append(("more", at_s + begin * each_s, at_s + end * each_s, 1.0))

    plant.occupy = occupy  # type: ignore[method-assign]


def measured(
    path: Path, loop_s: float, aperture: float, rate_hz: float = RATE_HZ, inferences: int = 1
) -> tuple[float, Result]:
    """Return true dynamic power of a loop that uses more in its last quarter, and the meter's figure.

    Each execution runs the loop once for each of its inferences.
    """
    plant = open_plant(seed=3)
    device = open_device(plant, inference_s=loop_s, idle_w=0.045, inference_w=0.062, device_drift_ppm=0.0)
    uneven(plant, loop_s, 0.75, 1.0)
    meter = open_meter(plant, rate_hz=rate_hz, aperture=aperture, noise=1e-3, meter_drift_ppm=0.0)
    (sample,), times = blank(1).samples, round(SPAN_S / loop_s / inferences)
    work = BlankWorkload((replace(sample, inferences=inferences),))
    steps: list[Step] = [Idle(8.0), Issue(list(work.samples), repeat=times), Idle(8.0)]
    record(path / "run", Bench(device, (meter,), plant.clock), work, iter(steps), scenario={"name": "x"}, argv=[])
    return truth(plant, "inference", 1)["dynamic_power_w"], evaluate(open_run(path / "run"))


@pytest.mark.parametrize("loop_s", [1 / 3, 0.3334, 0.25, 2 / 3, 1.0])
def test_what_readings_in_step_with_a_loop_never_see_is_in_the_interval(tmp_path: Path, loop_s: float) -> None:
    true_w, result = measured(tmp_path, loop_s, 0.6)
    found = result.quantities[DYNAMIC]
    low, high = found.interval()

    assert low <= true_w <= high
    assert abs(found.value - true_w) > 5e-3 * true_w, "the readings agree, and are wrong"
    assert any("in step" in note for note in result.notes)


@pytest.mark.parametrize(
    ("loop_s", "aperture", "rate_hz"), [(1 / 3, 1.0, RATE_HZ), (0.25, 0.5, 1000.0), (0.02, 0.6, 3.0)]
)
def test_a_meter_that_misses_nothing_is_quick_or_sees_many_loops_at_once_states_no_bias(
    tmp_path: Path, loop_s: float, aperture: float, rate_hz: float
) -> None:
    true_w, result = measured(tmp_path, loop_s, aperture, rate_hz)
    found = result.quantities[DYNAMIC]

    assert found.half_width() < 5e-3 * true_w and abs(found.value - true_w) <= found.half_width()
    assert not any("in step" in note for note in result.notes)


@pytest.mark.parametrize("readings", [4, 6, 7.998, 8, 12, 20])
def test_what_is_missed_of_a_loop_in_step_falls_with_readings_per_execution(tmp_path: Path, readings: float) -> None:
    """Exact and nearly exact multiples: no number of readings makes the meter reliable."""
    true_w, result = measured(tmp_path, readings / RATE_HZ, 0.6)
    found = result.quantities[DYNAMIC]
    low, high = found.interval()

    assert low <= true_w <= high
    assert 0.2 / readings < found.half_width() / true_w < 1.2 / readings


@pytest.mark.parametrize("inferences", [4, 8, 16])
def test_inferences_of_one_execution_are_a_loop_that_may_be_in_step(inferences: int, tmp_path: Path) -> None:
    true_w, result = measured(tmp_path, 1 / RATE_HZ, 0.6, inferences=inferences)
    low, high = result.quantities[DYNAMIC].interval()

    assert low <= true_w <= high
