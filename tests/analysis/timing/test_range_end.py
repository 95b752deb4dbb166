"""The end of a range that no one declared is seen in noisy readings, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from rig.analysis.timing.range_end import apparent_ends
from rig.types import Floats

RNG = np.random.default_rng(5)
LEVEL = np.repeat([1.0, 3.0] * 30, 12)
NOISE = RNG.normal(0.0, 0.01, len(LEVEL))


def ends(values: Floats) -> list[list[float]]:
    """The values at which readings stop from above, and from below."""
    return [np.unique(values[stopped]).tolist() for stopped in apparent_ends(values).clipped(values)]


@pytest.mark.parametrize("end", [1.5, 2.9, 3.0])
def test_noisy_readings_that_stop_at_a_value_show_the_end(end: float) -> None:
    assert ends(np.minimum(LEVEL + NOISE, end)) == [[end], []]


def test_readings_in_steps_show_it_as_well() -> None:
    noisy = np.round((LEVEL + RNG.normal(0.0, 0.02, len(LEVEL))) / 0.01) * 0.01
    assert ends(np.minimum(noisy, 2.5)) == [[2.5], []]
    assert ends(noisy) == [[], []]


def test_peaks_shorter_than_two_readings_that_stop_at_a_value_show_it() -> None:
    peaks = np.where(np.arange(len(LEVEL)) % 24 == 17, 2.0, 0.0)
    assert ends(np.minimum(LEVEL + NOISE + peaks, 4.0)) == [[4.0], []]


def test_a_value_in_the_middle_that_comes_back_at_each_rise_is_the_end_of_a_lower_range() -> None:
    late = (LEVEL == 3.0) & (np.arange(len(LEVEL)) % 12 < 2)
    assert ends(np.where(late, 1.7, LEVEL + NOISE)) == [[1.7], []]


def test_readings_that_stop_at_their_lowest_value_are_upper_bounds() -> None:
    assert ends(np.maximum(LEVEL + NOISE, 0.995)) == [[], [0.995]]


def test_noise_alone_shows_none() -> None:
    assert ends(LEVEL + NOISE) == [[], []]


def test_levels_without_noise_show_none() -> None:
    assert ends(LEVEL) == [[], []]
    assert ends(np.round(LEVEL + RNG.normal(0.0, 1e-4, len(LEVEL)), 2)) == [[], []]


def test_one_level_without_noise_shows_none() -> None:
    assert ends(np.where(LEVEL > 1.0, LEVEL + NOISE, 1.0)) == [[], []]


def test_no_reading_and_no_number_show_none() -> None:
    assert ends(np.zeros(0)) == [[], []]
    assert ends(np.full(100, np.nan)) == [[], []]
