"""The residuals of a trace's levels show where energy is, or that the trace cannot show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.kinds import KINDS
from fixtures.worlds.lab_recording import Lab, Piece, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import LITERAL, TRIMMED, FigureKey
from rig.analysis.result.quantity import Quantity
from rig.recording.reader import open_run


def of(lab: Lab, folder: Path, method: str = "") -> Quantity:
    if not (folder / "run").exists():
        write(lab, folder / "run")
    return evaluate(open_run(folder / "run")).quantities[FigureKey("dynamic_power_w", method=method)]


def off(lab: Lab, q: Quantity) -> float:
    """Return the error in half-widths."""
    return abs(q.value - lab.truth()["dynamic_power_w"]) / q.half_width()


@pytest.mark.parametrize("seed", range(3))
def test_work_within_a_reading_before_each_span_is_told_from_work_inside(seed: int, tmp_path: Path) -> None:
    """The outside part grows with the share of an end reading that the span leaves empty."""
    lab = plain_lab(seed, "before")
    above_w, reading_s = float(np.median(lab.span_w)) - lab.idle_w, 1.0 / lab.rate_hz
    lab.pieces += [Piece(on - 0.9 * reading_s, on, 0.8 * above_w) for on, _ in lab.spans_s.tolist()]
    power = of(lab, tmp_path)
    assert off(lab, power) <= 1.5
    assert power.half_width() < 0.02 * power.value


@pytest.mark.parametrize("seed", range(3))
def test_power_that_rises_within_spans_is_theirs(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "rises")
    KINDS["heads_and_tails"](lab)
    power, core = of(lab, tmp_path), of(lab, tmp_path, TRIMMED)
    assert off(lab, power) <= 1.5
    assert off(lab, core) > off(lab, power)


def test_a_shifted_clock_moves_energy_from_one_end_of_spans_to_the_other(tmp_path: Path) -> None:
    """Both ends together show no trace of it, so nothing is subtracted and the bias is small."""
    lab = plain_lab(4, "late")
    lab.said_late_s = 0.2 / lab.rate_hz
    power, text = of(lab, tmp_path), of(lab, tmp_path, LITERAL)
    assert off(lab, power) <= 1.5
    assert power.bias < 2e-3 * power.value
    assert power.value == pytest.approx(text.value, rel=2e-3)


@pytest.mark.parametrize("seed", range(2))
def test_energy_that_a_capacitor_moved_into_gaps_is_within_the_interval(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "capacitor")
    KINDS["capacitor_behind_the_shunt"](lab)
    power = of(lab, tmp_path)
    assert off(lab, power) <= 1.5
    assert power.bias > 0.0


def test_spans_of_one_power_leave_nothing(tmp_path: Path) -> None:
    lab = plain_lab(2, "plain")
    power = of(lab, tmp_path)
    assert off(lab, power) <= 1.5
    assert power.bias < 1e-3 * power.value
