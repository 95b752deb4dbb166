"""A device's clock that differs from its declaration fails a check; times and energies are equally uncertain."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from rig.recording.reader import open_run

TIME, ENERGY = FigureKey("execution_time_s"), FigureKey("energy_per_inference_j")


def evaluated(lab: Lab, folder: Path) -> Result:
    write(lab, folder / "run")
    return evaluate(open_run(folder / "run"))


def failed(result: Result) -> list[str]:
    return [note for note in result.notes if "clock device" in note]


@pytest.mark.parametrize("rate", [-6e-3, -2e-3, 4e-3])
def test_a_rate_beyond_its_tolerance_fails_and_widens_times_and_energies(rate: float, tmp_path: Path) -> None:
    """A timer that stops in sleep is right in the spans at its nominal rate; by its brackets, spans are too long."""
    lab = plain_lab(3, "plain")
    lab.device_rate = rate
    result = evaluated(lab, tmp_path)

    assert any("rate of the clock device" in rule for rule in failed(result))
    for key in (TIME, ENERGY):
        assert result.quantities[key].half_width() >= abs(rate) * result.quantities[key].value


def test_a_rate_within_its_tolerance_is_that_of_the_brackets(tmp_path: Path) -> None:
    lab = plain_lab(3, "plain")
    lab.device_rate = 8e-4
    result = evaluated(lab, tmp_path)

    assert not failed(result)
    time = result.quantities[TIME]
    assert abs(time.value - lab.truth()["execution_time_s"]) <= time.half_width() < 1e-3 * time.value


def test_brackets_that_lie_on_no_line_fail(tmp_path: Path) -> None:
    lab = plain_lab(3, "plain")
    lab.warming, lab.warming_s = 8e-4, 0.3 * lab.end_s
    lab.brackets_at = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    lab.bracket_s = 1e-5
    result = evaluated(lab, tmp_path)

    assert any("off a straight line" in rule for rule in failed(result))


def test_brackets_around_sleep_that_lie_on_a_line_pass(tmp_path: Path) -> None:
    lab = plain_lab(3, "plain")
    lab.brackets_at = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    result = evaluated(lab, tmp_path)

    assert not failed(result)
