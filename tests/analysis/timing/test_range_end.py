"""The end of a range that no one declared is seen in noisy readings, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from rig.analysis.timing.range_end import apparent_range_end

RNG = np.random.default_rng(5)
LEVEL = np.repeat([1.0, 3.0] * 30, 12)


@pytest.mark.parametrize("end", [1.5, 2.9, 3.0])
def test_noisy_readings_that_stop_at_a_value_show_the_end(end: float) -> None:
    assert apparent_range_end(np.minimum(LEVEL + RNG.normal(0.0, 0.01, len(LEVEL)), end)) == end


def test_readings_in_steps_show_it_as_well() -> None:
    noisy = np.round((LEVEL + RNG.normal(0.0, 0.02, len(LEVEL))) / 0.01) * 0.01
    assert apparent_range_end(np.minimum(noisy, 2.5)) == 2.5
    assert apparent_range_end(noisy) is None


def test_noise_alone_shows_none() -> None:
    assert apparent_range_end(LEVEL + RNG.normal(0.0, 0.01, len(LEVEL))) is None


def test_levels_without_noise_show_none() -> None:
    assert apparent_range_end(LEVEL) is None
    assert apparent_range_end(np.round(LEVEL + RNG.normal(0.0, 1e-4, len(LEVEL)), 2)) is None


def test_no_reading_and_no_number_show_none() -> None:
    assert apparent_range_end(np.zeros(0)) is None
    assert apparent_range_end(np.full(100, np.nan)) is None
