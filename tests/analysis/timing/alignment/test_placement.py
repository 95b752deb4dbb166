"""Readings are placed at their spans, however far away, with the right uncertainty."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.worlds.random_draw import draw, measured
from rig.analysis.evaluate import evaluate
from rig.recording.reader import open_run
from tests.support.labs import evaluated, off


@pytest.mark.parametrize("seed", [1000000, 1000027])
def test_readings_lost_one_by_one_are_followed_to_the_last_span(seed: int, tmp_path: Path) -> None:
    """The last spans are farther away than the first search reaches; most spans are nearer."""
    assert off(*evaluated("drops_now_and_then", seed, tmp_path)) <= 1.0


def test_spans_that_nearly_touch_have_no_edges_to_follow(tmp_path: Path) -> None:
    """Two of its spans are closer than the readings that are left out of the levels next to an edge."""
    measured(draw(115), tmp_path / "run")
    result = evaluate(open_run(tmp_path / "run"))

    assert not any("later in the trace" in note for note in result.notes)
