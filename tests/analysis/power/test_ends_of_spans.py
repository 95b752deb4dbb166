"""The residuals of a trace's levels show where energy is, or that the trace cannot show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Piece, plain_lab
from rig.analysis.result.figure_key import LITERAL, TRIMMED, FigureKey
from tests.support.labs import POWER, evaluated, measured, off

CORE, TEXT = (FigureKey("dynamic_power_w", method=method) for method in (TRIMMED, LITERAL))


@pytest.mark.parametrize("seed", [0, 2])
def test_work_within_a_reading_before_each_span_is_told_from_work_inside(seed: int, tmp_path: Path) -> None:
    """The outside part grows with the share of an end reading that the span leaves empty."""
    lab = plain_lab(seed, "before")
    above_w, reading_s = float(np.median(lab.span_w)) - lab.idle_w, 1.0 / lab.rate_hz
    lab.pieces += [Piece(on - 0.9 * reading_s, on, 0.8 * above_w) for on, _ in lab.spans_s.tolist()]
    result = measured(lab, tmp_path)
    assert off(lab, result) <= 1.5
    assert result.quantities[POWER].half_width() < 0.02 * result.quantities[POWER].value


def test_power_that_rises_within_spans_is_theirs(tmp_path: Path) -> None:
    lab, result = evaluated("heads_and_tails", 1, tmp_path)
    assert off(lab, result) <= 1.5
    assert off(lab, result, CORE) > off(lab, result)


def test_a_shifted_clock_moves_energy_from_one_end_of_spans_to_the_other(tmp_path: Path) -> None:
    """Both ends together show no trace of it, so nothing is subtracted and the bias is small."""
    lab = plain_lab(4, "late")
    lab.said_late_s = 0.2 / lab.rate_hz
    result = measured(lab, tmp_path)
    power = result.quantities[POWER]
    assert off(lab, result) <= 1.5
    assert power.bias < 2e-3 * power.value
    assert power.value == pytest.approx(result.quantities[TEXT].value, rel=2e-3)


def test_spans_of_one_power_leave_nothing(tmp_path: Path) -> None:
    lab, result = evaluated("plain", 2, tmp_path)
    assert off(lab, result) <= 1.5
    assert result.quantities[POWER].bias < 1e-3 * result.quantities[POWER].value
