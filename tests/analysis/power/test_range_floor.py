"""Noise that a meter cuts off at the low end of its range leaves idle power as it is."""

from __future__ import annotations

import numpy as np
import pytest

from rig.analysis.power.range_floor import floor_bias_w, floor_note, lift_w, lifted
from rig.analysis.timing.readings import Readings
from rig.types import Conversion, Floats, Rail

N = 20_000
NOISE_W = 0.01


def cut_off(level_w: float, floor_w: float = 0.0) -> Readings:
    """Idle readings with noise that a converter cuts off at ``floor_w``."""
    watts = np.maximum(level_w + np.random.default_rng(3).normal(0.0, NOISE_W, N), floor_w)
    return readings(watts, watts == floor_w)


def readings(watts: Floats, floor: np.ndarray) -> Readings:
    at = np.arange(len(watts)) * 1e-3
    ok = np.ones(len(watts), bool)
    rail = Rail("core", kind="mean", rate_hz=1e3, aperture_s=1e-3, conversion=Conversion("W"))
    return Readings(rail, at, at + 1e-3, watts, watts, ok, ~ok, 1e-3, 0.0, floor=floor)


@pytest.mark.parametrize("level", [-0.5, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("floor_w", [0.0, 0.3])
def test_the_mean_of_noise_that_was_cut_off_is_found(level: float, floor_w: float) -> None:
    before = cut_off(floor_w + level * NOISE_W, floor_w)
    r = lifted(before, lift_w(before, np.ones(N, bool)))
    assert float(r.watts.mean()) == pytest.approx(floor_w + level * NOISE_W, abs=0.03 * NOISE_W)
    assert floor_note(r) is not None


def test_part_of_the_correction_is_bias() -> None:
    before = cut_off(0.0)
    after = lifted(before, lift_w(before, np.ones(N, bool)))
    mean = np.full(N, 1.0 / N)
    assert floor_bias_w(after, mean) == pytest.approx(0.25 * float((before.watts - after.watts).mean()))


def test_readings_that_are_not_cut_off_stay_as_they_are() -> None:
    r = cut_off(1.0)
    assert lifted(r, lift_w(r, np.ones(N, bool))) is r
    assert floor_bias_w(r, np.ones(N)) == 0.0
    assert floor_note(r) is None


def test_a_meter_that_shows_hardly_more_than_its_low_end_is_left_alone() -> None:
    r = cut_off(-3.0 * NOISE_W)
    assert lifted(r, lift_w(r, np.ones(N, bool))) is r
