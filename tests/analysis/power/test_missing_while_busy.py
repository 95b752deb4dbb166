"""Readings that are missing while the device works widen the figure; randomly missing readings do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fixtures.worlds.lab_recording import plain_lab
from tests.support.labs import POWER, evaluated, measured, off


def test_a_class_that_was_not_seen_is_covered_or_refused(tmp_path: Path) -> None:
    for seed in (1, 3, 5):
        lab, result = evaluated("a_class_missing", seed, tmp_path / str(seed))
        assert POWER not in result.quantities or off(lab, result) <= 1.0


def test_a_span_without_a_reading_draws_nothing_to_twice_the_mean(tmp_path: Path) -> None:
    lab, result = evaluated("a_class_missing", 1000030, tmp_path)
    assert off(lab, result) <= 1.0
    assert result.quantities[POWER].half_width() < 0.25 * result.quantities[POWER].value


def test_readings_that_are_missing_at_the_begin_of_each_span_are_covered(tmp_path: Path) -> None:
    """A few of each span are few of all readings, and may seem to be before the span."""
    assert off(*evaluated("first_readings_missing", 1000003, tmp_path)) <= 1.0


def test_readings_missing_by_chance_are_no_bias(tmp_path: Path) -> None:
    lab = plain_lab(3, "plain")
    lab.uniform = False
    lab.deliver = lambda n: np.flatnonzero(np.random.default_rng(0).random(n) > 0.05)
    power = measured(lab, tmp_path).quantities[POWER]
    assert power.bias < 1e-3 * power.value
