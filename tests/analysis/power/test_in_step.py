"""Errors that do not average out are not averaged: coarse stamps, readings in step with work, slow wander."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from fixtures.worlds.labs.lab_kinds import KINDS
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.result import Result
from rig.analysis.timing.activity_signal import in_step
from rig.recording.reader import open_run

FIGURES = ("dynamic_power_w", "active_power_w", "energy_per_inference_j", "execution_time_s")


def measured(kind: str, seed: int, path: Path) -> tuple[Lab, Result]:
    lab = plain_lab(seed, kind)
    KINDS[kind](lab)
    write(lab, path / "run")
    return lab, evaluate(open_run(path / "run"))


def part(q: Quantity, source: str) -> float:
    return sum(abs(c.u) for c in q.components if c.source == source)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("coarse_device_timer", 6),
        ("coarse_device_timer", 23),
        ("starts_on_coarse_tick", 0),
        ("starts_on_coarse_tick", 22),
        ("synchronous_bursts_in_place", 0),
        ("synchronous_bursts_in_place", 7),
        ("random_walk", 11),
        ("random_walk", 12),
        ("offset_wanders", 1),
        ("offset_wanders", 4),
    ],
)
def test_intervals_cover_what_does_not_average(kind: str, seed: int, tmp_path: Path) -> None:
    lab, result = measured(kind, seed, tmp_path)
    real = lab.truth()

    for name in FIGURES:
        q = result.quantities[FigureKey(name)]
        assert abs(q.value - real[name]) <= q.half_width(), name


def test_the_step_of_stamps_cancels_in_energy_above_idle(tmp_path: Path) -> None:
    """If a span is stamped too long, its power is too low and its time too long."""
    _, result = measured("coarse_device_timer", 23, tmp_path)
    power, time_s, energy = (
        result.quantities[FigureKey(name)]
        for name in ("dynamic_power_w", "execution_time_s", "dynamic_energy_per_inference_j")
    )

    assert part(power, "timer resolution") / power.value == pytest.approx(
        part(time_s, "timer resolution") / time_s.value
    )
    assert part(energy, "timer resolution") < 1e-6 * energy.value


def test_spans_that_start_on_a_tick_are_not_averaged_over(tmp_path: Path) -> None:
    lab, result = measured("starts_on_coarse_tick", 0, tmp_path)
    time_s = result.quantities[FigureKey("execution_time_s")]

    assert part(time_s, "timer resolution") > 2.0 * 1e-3 / (6.0 * len(lab.spans_s)) ** 0.5


@given(st.integers(2, 200), st.floats(1e-6, 1.0), st.integers(1, 50))
def test_spans_one_whole_number_of_readings_apart_are_in_step(count: int, period_s: float, readings: int) -> None:
    assert in_step(period_s * readings * np.arange(count), period_s) == pytest.approx(1.0, rel=1e-6)


def test_spans_at_random_moments_are_not_in_step() -> None:
    at_s = np.random.default_rng(1).uniform(0.0, 1e3, 1000)

    assert in_step(at_s, 1e-3) < 4e-3
