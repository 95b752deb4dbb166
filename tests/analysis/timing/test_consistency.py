"""A recording whose readings contradict its spans or its own length states no power."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.worlds.lab_kinds import KINDS
from fixtures.worlds.lab_recording import plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.figure_key import FigureKey
from rig.analysis.result import Result
from rig.recording.reader import open_run

POWER = FigureKey("dynamic_power_w")


def evaluated(kind: str, seed: int, folder: Path) -> Result:
    lab = plain_lab(seed, kind)
    KINDS[kind](lab)
    write(lab, folder / "run")
    return evaluate(open_run(folder / "run"))


@pytest.mark.parametrize("kind", ["every_reading_twice", "wrong_rate"])
@pytest.mark.parametrize("seed", range(4))
def test_readings_at_another_rate_than_declared_give_no_power(kind: str, seed: int, tmp_path: Path) -> None:
    result = evaluated(kind, seed, tmp_path)

    assert POWER not in result.quantities
    assert any("power on rail core" in str(r.scope) for r in result.refusals)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_readings_lost_among_the_spans_give_no_power(seed: int, tmp_path: Path) -> None:
    assert POWER not in evaluated("lost_block", seed, tmp_path).quantities


@pytest.mark.parametrize(
    "kind", ["plain", "gated_at_once", "class_of_powers", "first_spans_hot", "bursts", "random_walk"]
)
@pytest.mark.parametrize("seed", range(3))
def test_what_a_device_does_contradicts_nothing(kind: str, seed: int, tmp_path: Path) -> None:
    assert POWER in evaluated(kind, seed, tmp_path).quantities
