"""Effects of an instrument on a level: limits for each reading, steps, and the ends that trimming removes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.worlds.lab_recording import plain_lab
from rig.analysis.result.quantity import Quantity
from rig.analysis.timing.profile import step_in, step_of, undithered
from tests.support.figures import ACTIVE, IDLE, POWER
from tests.support.labs import lab_of, measured

CALM = settings(deadline=None, derandomize=True, database=None)


def u_of(q: Quantity, what: str) -> Mapping[str, float]:
    return {c.source: c.u for c in q.components if what in c.source}


def test_two_levels_share_no_error_where_linearity_is_not_stated(tmp_path: Path) -> None:
    lab = plain_lab(1, "plain")
    lab.declared = {"accuracy": {"of_reading": 1e-3, "offset": 1e-5}}
    found = measured(lab, tmp_path).quantities
    busy, idle = ((1e-3 * found[key].value + 1e-5) / math.sqrt(3.0) for key in (ACTIVE, IDLE))

    assert u_of(found[POWER], "calibration") == pytest.approx(
        {"busy level calibration": busy, "idle level calibration": -idle}, rel=1e-3
    )
    assert u_of(found[ACTIVE], "calibration") == pytest.approx({"busy level calibration": busy})
    assert u_of(found[IDLE], "calibration") == pytest.approx({"idle level calibration": idle})


def test_with_linearity_stated_two_levels_share_one_gain_and_one_offset(tmp_path: Path) -> None:
    lab = plain_lab(1, "plain")
    lab.declared = {"accuracy": {"of_reading": 1e-3, "offset": 1e-5, "linearity": 1e-6}}
    found = measured(lab, tmp_path).quantities
    bend = 1e-6 / math.sqrt(3.0)

    gain = 1e-3 * found[POWER].value / math.sqrt(3.0)
    assert u_of(found[POWER], "calibration") == pytest.approx(
        {"gain calibration": gain, "busy level calibration": bend, "idle level calibration": -bend}
    )
    assert "offset calibration" in u_of(found[ACTIVE], "calibration")


@settings(CALM, max_examples=50)
@given(st.floats(0.0, 0.15), st.floats(-0.5, 0.5), st.integers(0, 2**32 - 1))
def test_a_level_beside_a_threshold_flips_and_that_is_no_dither(sigma: float, level: float, seed: int) -> None:
    values = np.round(level + np.random.default_rng(seed).normal(0.0, sigma, 4000))

    assert undithered(values, 1.0) == 1.0


@settings(CALM, max_examples=50)
@given(st.floats(0.3, 5.0), st.floats(-0.5, 0.5), st.integers(0, 2**32 - 1))
def test_what_dither_leaves_of_a_step_covers_the_error_of_a_mean(sigma: float, level: float, seed: int) -> None:
    values = np.round(level + np.random.default_rng(seed).normal(0.0, sigma, 20_000))
    left = undithered(values, 1.0)

    assert abs(float(np.mean(values)) - level) <= left / math.pi + 4.0 * float(np.std(values)) / math.sqrt(20_000)
    assert left <= 0.01 or sigma < 0.6


@given(st.floats(1e-6, 1e3), st.integers(2, 3), st.integers(0, 2**32 - 1))
def test_a_step_is_found_where_no_two_levels_are_one_step_apart(step: float, few: int, seed: int) -> None:
    levels = np.array([0, 2 * few, 5 * few, 9 * few + 1, 20 * few])
    values = np.random.default_rng(seed).choice(levels, 2000) * step

    assert step_of(values) <= step * few * 1.001


def test_a_step_that_is_declared_too_fine_is_found(tmp_path: Path) -> None:
    lab = lab_of("coarse_steps", 1_000_001)
    step = lab.declared["resolution"]
    lab.declared["resolution"] = step / 1000.0

    parts = u_of(measured(lab, tmp_path).quantities[ACTIVE], "resolution")
    assert parts["resolution"] == pytest.approx(step / math.sqrt(12.0), rel=1e-6)


@given(st.floats(1e-6, 1e3), st.integers(20, 40), st.integers(0, 2**32 - 1))
def test_the_step_of_spans_is_that_of_their_own_range(step: float, level: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform(0.0, (level - 4.5) * step, 300)
    ends = rng.permutation(np.arange(level - 4, level)) * step
    raw = np.concatenate([low, ends, np.full(200, level * step)])
    within = np.arange(len(raw)) >= len(raw) - 200

    found, recurring = step_in(raw[within], raw[250:])

    assert found == pytest.approx(step, rel=1e-6)
    assert np.array_equal(recurring, raw[within])
