"""A device that sleeps between spans is aligned by its spans, even if they use less than configured idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.worlds.lab_kinds import KINDS
from fixtures.worlds.lab_recording import plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.recording.reader import open_run


@pytest.mark.parametrize("kind", ["gated_at_once", "gated_late", "gated_deep"])
@pytest.mark.parametrize("seed", range(5))
def test_dynamic_power_is_counted_from_the_configured_idle(kind: str, seed: int, tmp_path: Path) -> None:
    lab = plain_lab(1_000_000 + seed, kind)
    KINDS[kind](lab)
    write(lab, tmp_path / "run")
    power = evaluate(open_run(tmp_path / "run")).quantities[FigureKey("dynamic_power_w")]

    assert abs(power.value - lab.truth()["dynamic_power_w"]) <= 2.0 * power.half_width()  # one in twenty exceeds one
