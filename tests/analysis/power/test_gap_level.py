"""Gaps between spans show idle under them where idle moves, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_kinds import KINDS as FIRST_KINDS
from fixtures.worlds.lab_recording import plain_lab, write
from fixtures.worlds.more_lab_kinds import KINDS as MORE_KINDS
from rig.analysis.evaluate import evaluate
from rig.analysis.figure_key import FigureKey
from rig.analysis.power.idle_level import gap_weights
from rig.analysis.quantity import Quantity
from rig.recording.reader import open_run

KINDS = FIRST_KINDS | MORE_KINDS
POWER = FigureKey("dynamic_power_w")


def measured(kind: str, seed: int, path: Path) -> tuple[Quantity, float]:
    """Dynamic power of a recording of a kind, and its truth."""
    lab = plain_lab(seed, kind)
    KINDS[kind](lab)
    write(lab, path / "run")
    return evaluate(open_run(path / "run")).quantities[POWER], lab.truth()["dynamic_power_w"]


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("idle_fan_on_the_rail", 1000006),
        ("idle_fan_on_the_rail", 3000015),
        ("idle_in_a_sine", 1000003),
        ("idle_windows_not_idle", 1000001),
        ("idle_steps_in_the_middle", 5000010),
    ],
)
def test_spans_over_the_gaps_beside_them_are_right_where_idle_moves(kind: str, seed: int, tmp_path: Path) -> None:
    power, real = measured(kind, seed, tmp_path)

    assert abs(power.value - real) <= power.half_width() < 0.1 * real


@pytest.mark.parametrize("seed", [1000002, 1000003])
def test_a_device_that_polls_in_its_gaps_is_not_idle_there(seed: int, tmp_path: Path) -> None:
    power, real = measured("awake_between_spans", seed, tmp_path)

    assert abs(power.value - real) <= power.half_width()


@pytest.mark.parametrize("seed", [1000000, 1000002, 1000016])
def test_a_level_still_owes_what_the_offset_did_along_the_run(seed: int, tmp_path: Path) -> None:
    """Spans over the gaps beside them do not, so dynamic power is known better than active power."""
    lab = plain_lab(seed, "offset_wanders")
    KINDS["offset_wanders"](lab)
    write(lab, tmp_path / "run")
    active = evaluate(open_run(tmp_path / "run")).quantities[FigureKey("active_power_w")]

    assert abs(active.value - lab.truth()["active_power_w"]) <= active.half_width()


def test_pulses_that_come_back_all_the_time_are_part_of_idle(tmp_path: Path) -> None:
    power, real = measured("idle_housekeeping", 3000006, tmp_path)

    assert abs(power.value - real) <= power.half_width()


def test_a_line_through_neighbouring_gaps_gives_the_level_under_a_span() -> None:
    middle_s = np.arange(0.5, 10.0)
    gap = (middle_s % 2.0) > 1.0
    windows_s = np.array([[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])

    weight = gap_weights(gap, np.ones(len(gap)), middle_s, windows_s)

    assert weight.sum() == pytest.approx(1.0)
    assert weight @ middle_s == pytest.approx(4.5)
    assert not np.any(weight[~gap])
