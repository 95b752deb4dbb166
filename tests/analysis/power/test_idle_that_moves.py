"""Idle that changes between its windows is predicted from gaps and spans."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.worlds.lab_kinds import KINDS
from fixtures.worlds.lab_recording import plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import LITERAL, FigureKey
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

    assert abs(power.value - real) <= 1.5 * power.half_width()
    assert abs(by_text.value - real) <= 1.5 * by_text.half_width()


@pytest.mark.parametrize("seed", [1, 2])
def test_sleep_that_drifts_beside_an_only_idle_window_says_how_much_idle_may(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "gated drift")
    KINDS["gated_at_once"](lab)
    KINDS["idle_drifts_with_one_window"](lab)
    write(lab, tmp_path / "run")
    power, real = evaluate(open_run(tmp_path / "run")).quantities[POWER], lab.truth()["dynamic_power_w"]

    assert abs(power.value - real) <= 1.5 * power.half_width()


def test_sleep_between_spans_is_not_idle_that_moves(tmp_path: Path) -> None:
    lab = plain_lab(1, "gated_at_once")
    KINDS["gated_at_once"](lab)
    write(lab, tmp_path / "run")

    power = evaluate(open_run(tmp_path / "run")).quantities[POWER]
    assert abs(power.value - lab.truth()["dynamic_power_w"]) <= power.half_width() < 0.01 * abs(power.value)
