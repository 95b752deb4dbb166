"""Readings that are missing while the device works widen the figure; randomly missing readings do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_kinds import KINDS
from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from rig.recording.reader import open_run

POWER = FigureKey("dynamic_power_w")


def evaluated(lab: Lab, folder: Path) -> Result:
    write(lab, folder / "run")
    return evaluate(open_run(folder / "run"))


@pytest.mark.parametrize("seed", range(6))
def test_a_class_that_was_not_seen_is_covered_or_refused(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "a_class_missing")
    KINDS["a_class_missing"](lab)
    power = evaluated(lab, tmp_path).quantities.get(POWER)

    assert power is None or abs(power.value - lab.truth()["dynamic_power_w"]) <= power.half_width()


@pytest.mark.parametrize("seed", [1000028, 1000030])
def test_a_span_without_a_reading_draws_nothing_to_twice_the_mean(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "a_class_missing")
    KINDS["a_class_missing"](lab)
    power = evaluated(lab, tmp_path).quantities[POWER]

    assert abs(power.value - lab.truth()["dynamic_power_w"]) <= power.half_width() < 0.25 * power.value


@pytest.mark.parametrize("seed", [1000003, 1000016, 1000022])
def test_readings_that_are_missing_at_the_begin_of_each_span_are_covered(seed: int, tmp_path: Path) -> None:
    """A few of each span are few of all readings, and may seem to be before the span."""
    lab = plain_lab(seed, "first_readings_missing")
    KINDS["first_readings_missing"](lab)
    power = evaluated(lab, tmp_path).quantities[POWER]

    assert abs(power.value - lab.truth()["dynamic_power_w"]) <= power.half_width()


def test_readings_missing_by_chance_are_no_bias(tmp_path: Path) -> None:
    lab = plain_lab(3, "plain")
    lab.uniform = False
    lab.deliver = lambda n: np.flatnonzero(np.random.default_rng(0).random(n) > 0.05)

    power = evaluated(lab, tmp_path).quantities[POWER]
    assert power.bias < 1e-3 * power.value
