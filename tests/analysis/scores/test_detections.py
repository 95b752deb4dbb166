"""Boxes are judged by COCO's mean average precision, compared with cases by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.analysis.scores.detections import coco_map
from rig.recording.reader import open_run
from tests.support.drive import has
from tests.support.predicted import recorded

CAR = [2, 100.0, 100.0, 100.0, 100.0]
needs_coco = pytest.mark.skipif(not has("faster_coco_eval"), reason="extra detection is not installed")


def answer(x: float, score: float = 0.9, kind: int = 2) -> list[float]:
    """Return a box as large as the car, at ``x``."""
    return [kind, score, x, 100.0, 100.0, 100.0]


def judged(path: Path, answers: Sequence[tuple[str, Any]], boxes: dict[str, Any]) -> Result:
    detect = {"classes": ["pedestrian", "two wheeler", "car"], "least_diagonal": 60.0, "boxes": boxes}
    return evaluate(open_run(recorded(path, answers, np.zeros(1), {"detect": detect}, "boxes")))


@needs_coco
def test_the_precision_by_hand() -> None:
    assert coco_map([[CAR]], [[answer(100)]], 3) == pytest.approx(1.0)
    # moved by 25 of 100 pixels: 75 of 125 are shared, IoU 0.6, right at the thresholds 0.50, 0.55 and 0.60
    assert coco_map([[CAR]], [[answer(125)]], 3) == pytest.approx(0.3)
    # the second frame's car is not found: recall 0.5 at precision 1, which is 51 of COCO's 101 points
    assert coco_map([[CAR], [CAR]], [[answer(100)], []], 3) == pytest.approx(51 / 101)
    # a box with a better score is wrong: precision 1/2 at every recall
    assert coco_map([[CAR]], [[answer(100, 0.5), answer(400, 0.9)]], 3) == pytest.approx(0.5)
    # one car found after a wrong box, and one pedestrian missed: the mean of 1/2 and 0
    assert coco_map([[CAR], [[0, *CAR[1:]]]], [[answer(100)], [answer(100, 0.95)]], 3) == pytest.approx(0.25)
    assert coco_map([[CAR]], [[]], 3) == 0.0


@needs_coco
def test_frames_without_an_entry_and_small_boxes_are_not_judged(tmp_path: Path) -> None:
    small = [2, 0.99, 300.0, 300.0, 30.0, 30.0]
    found = judged(tmp_path, [("a", [answer(100), small]), ("early", [answer(400)])], {"a": [CAR]})
    assert found.quantities["map"].value == pytest.approx(1.0)
    assert found.quantities["map"].n == 1


@pytest.mark.parametrize("odd", [None, [[1, 2]], [answer(100, kind=3)], [answer(float("nan"))], [["2", 1, 1, 1, 1, 1]]])
def test_an_answer_that_is_no_boxes_fails_a_check(tmp_path: Path, odd: Any) -> None:
    found = judged(tmp_path, [("a", odd)], {"a": [CAR]})
    assert "map" not in {str(key) for key in found.quantities}
    assert any("boxes of a class" in note for note in found.notes)


def test_without_the_package_the_precision_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faster_coco_eval", None)
    found = judged(tmp_path, [("a", [answer(100)])], {"a": [CAR]})
    assert [str(r.scope) for r in found.refusals if "coco" in r.reason] == ["map"]
