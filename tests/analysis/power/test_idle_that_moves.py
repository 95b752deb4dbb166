"""Idle that moves between its windows is stated as bias, as far as the gaps between spans show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_kinds import KINDS
from fixtures.worlds.lab_recording import plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.figure_key import LITERAL, FigureKey
from rig.recording.reader import open_run

POWER = FigureKey("dynamic_power_w")


@pytest.mark.parametrize(
    "kind", ["idle_steps_at_first_span", "idle_steps_in_the_middle", "idle_drifts_with_one_window"]
)
@pytest.mark.parametrize("seed", range(4))
def test_dynamic_power_covers_what_idle_did(kind: str, seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, kind)
    KINDS[kind](lab)
    write(lab, tmp_path / "run")
    result = evaluate(open_run(tmp_path / "run"))
    power, real = result.quantities[POWER], lab.truth()["dynamic_power_w"]

    by_text = result.quantities[FigureKey("dynamic_power_w", method=LITERAL)]

    assert abs(power.value - real) <= power.half_width()
    assert abs(by_text.value - real) <= by_text.half_width()
    assert any("idle moved" in note for note in result.notes) == (power.bias > 0.0)


@pytest.mark.parametrize("seed", [1, 2])
def test_sleep_that_drifts_beside_an_only_idle_window_says_how_much_idle_may(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "gated drift")
    KINDS["gated_at_once"](lab)
    KINDS["idle_drifts_with_one_window"](lab)
    write(lab, tmp_path / "run")
    power, real = evaluate(open_run(tmp_path / "run")).quantities[POWER], lab.truth()["dynamic_power_w"]

    assert 0.0 < abs(power.value - real) <= power.half_width() < 2.0 * abs(power.value - real)


def test_sleep_between_spans_is_not_idle_that_moves(tmp_path: Path) -> None:
    lab = plain_lab(1, "gated_at_once")
    KINDS["gated_at_once"](lab)
    write(lab, tmp_path / "run")

    assert evaluate(open_run(tmp_path / "run")).quantities[POWER].bias == 0.0


def test_a_little_that_gaps_lie_off_the_idle_windows_enters_the_line_through_them(tmp_path: Path) -> None:
    lab = plain_lab(1, "gaps in doubt")
    lab.noise_w, above_w = 1e-3 * lab.idle_w, float(lab.span_w[0]) - lab.idle_w
    begin_s, end_s, off_w = float(lab.spans_s[0, 0]), float(lab.spans_s[-1, 1]), 5e-4 * above_w
    lab.swing_j = lambda t: off_w * (np.clip(t, begin_s, end_s) - begin_s)
    write(lab, tmp_path / "run")
    found = evaluate(open_run(tmp_path / "run")).quantities[POWER]

    line_w = next(c.u for c in found.components if c.source == "idle drift off a straight line")
    assert line_w == pytest.approx(off_w / np.sqrt(3.0), rel=0.3)


@pytest.mark.parametrize(("limit", "stated"), [(0.6, 1.0 / np.sqrt(3.0)), (0.4, 0.0)])
def test_gaps_that_two_offsets_of_the_meter_explain_may_be_idle(limit: float, stated: float, tmp_path: Path) -> None:
    lab = plain_lab(1, "another offset")
    lab.noise_w, off_w = 1e-3 * lab.idle_w, 1e-2 * (float(lab.span_w[0]) - lab.idle_w)
    begin_s, end_s = float(lab.spans_s[0, 0]) - 0.01, float(lab.spans_s[-1, 1]) + 0.01
    lab.swing_j = lambda t: -off_w * (np.clip(t, begin_s, end_s) - begin_s)
    lab.declared = {"accuracy": {"of_reading": 1e-3, "offset": limit * off_w, "linearity": 0.0}}
    write(lab, tmp_path / "run")
    found = evaluate(open_run(tmp_path / "run")).quantities[POWER]

    line_w = next(c.u for c in found.components if c.source == "idle drift off a straight line")
    assert line_w == pytest.approx(stated * off_w, abs=0.03 * off_w)
