"""Levels of spans and gaps that change in proportion are a gain that is not known; other changes are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab
from rig.analysis.power.budget import CHANGES
from tests.support.labs import POWER, measured, off


def _lab(seed: int) -> Lab:
    lab = plain_lab(seed, "gain")
    n = 60
    at = 4.0 + 0.2 * np.arange(n)
    lab.spans_s, lab.label = np.column_stack([at, at + 0.1]), np.zeros(n, np.int64)
    lab.span_w, lab.idle_w, lab.rate_hz, lab.end_s = np.full(n, 2.0), 1.0, 500.0, 20.0
    lab.idle_s, lab.noise_w, lab.pieces, lab.steps_w = [(0.1, 3.5), (16.5, 19.9)], 0.01, [], []
    return lab


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_gain_that_sags_in_the_middle_is_part_of_the_uncertainty(seed: int, tmp_path: Path) -> None:
    lab = _lab(seed)
    lab.raw = lambda w: w * (1.0 - 0.05 * np.exp(-0.5 * ((np.arange(len(w)) - 5000.0) / 1200.0) ** 2))
    result = measured(lab, tmp_path)
    assert off(lab, result) <= 1.0
    assert any("change by one factor" in note for note in result.notes)


@pytest.mark.parametrize("part", ["idle", "spans", "both, unlike"])
def test_levels_that_do_not_change_in_proportion_are_no_gain(part: str, tmp_path: Path) -> None:
    lab = _lab(4)
    second = np.arange(60) >= 30  # these begin at 10 s
    if part != "spans":
        lab.steps_w = [(9.95, -0.2)]
    if part != "idle":
        lab.span_w = np.where(second, 1.8 if part == "spans" else 1.4, 2.0)
    result = measured(lab, tmp_path)
    assert CHANGES not in {c.source for c in result.quantities[POWER].components}


def test_power_of_readings_on_two_scales_is_refused(tmp_path: Path) -> None:
    lab = _lab(5)
    lab.raw = lambda w: w * np.where((np.arange(len(w)) > 3000) & (np.arange(len(w)) < 6000), 0.05, 1.0)
    result = measured(lab, tmp_path)
    assert POWER not in result.quantities
    assert any("more than one scale" in refusal.reason for refusal in result.refusals)


SWING = "power changes within spans as it does between the gaps"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fan_that_runs_more_at_work_than_at_rest_widens_idle(seed: int, tmp_path: Path) -> None:
    lab = _lab(seed)
    at = np.sort(np.random.default_rng(seed).uniform(4.0, 16.0, 24))
    lab.steps_w = [(float(t), 0.2 if k % 2 == 0 else -0.2) for k, t in enumerate(at)]
    result = measured(lab, tmp_path)
    assert off(lab, result) <= 1.0
    assert any(SWING in note for note in result.notes)


def test_gaps_at_a_level_of_their_own_do_not_swing(tmp_path: Path) -> None:
    lab = _lab(3)
    lab.steps_w = [(3.9, 0.2), (16.1, -0.2)]
    assert not any(SWING in note for note in measured(lab, tmp_path).notes)


SETTLES = "power comes down slowly after the last span"


def _after_work(seed: int, fall: str) -> Lab:
    """A device whose gaps are above idle, with no window before 18 s, and what follows the last span, at 15.9 s."""
    lab = _lab(seed)
    lab.idle_s = [(0.1, 3.0), (18.0, 19.9)]
    tau, steps = 0.6, 60
    share = np.exp(-np.arange(steps + 1) / 10.0) if fall == "slow" else np.append(np.ones(9), np.zeros(steps - 8))
    lab.steps_w = [(3.9, 0.2), *((15.95 + tau * 0.1 * k, 0.2 * float(share[k + 1] - share[k])) for k in range(steps))]
    return lab


def test_gaps_from_which_power_settles_slowly_after_the_work_may_be_idle(tmp_path: Path) -> None:
    lab = _after_work(6, "slow")
    result = measured(lab, tmp_path)
    assert off(lab, result) <= 1.0
    assert any(SETTLES in note for note in result.notes)


def test_gaps_from_which_a_device_goes_to_sleep_a_while_after_the_work_are_not_idle(tmp_path: Path) -> None:
    assert not any(SETTLES in note for note in measured(_after_work(7, "at once"), tmp_path).notes)
