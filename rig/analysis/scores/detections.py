"""Compute COCO's mean average precision of object boxes with the package faster-coco-eval (extra ``detection``)."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from rig.analysis.result.catalogue import figure
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.analysis.result.finding import Finding, refusal
from rig.analysis.scores.answers import Answer
from rig.recording.reader import Run

MAP = FigureKey("map")


def detections_of(run: Run, answers: Sequence[Answer], wanted: dict[str, Any]) -> tuple[Figures, list[Finding]]:
    """Return the mean average precision over frames; or, without it, a failed check or a refusal.

    ``wanted`` holds the names of the ``classes``, ``least_diagonal`` and, by sample, the true ``boxes``: rows of class,
    x, y, w, h in pixels. An answer is an output with ``boxes``: rows of class, score, x, y, w, h. Frames that ``boxes``
    does not list are not judged. Answered boxes with a diagonal below ``least_diagonal`` do not count. Only the first
    answer to a frame counts.
    """
    said, odd = _boxes(answers, len(wanted["classes"]))
    if odd:
        rule, allowed = "boxes of a class, with a score, x, y, w, h", "0"
        return Figures(), [Finding(rule, f"{len(odd)} answers without, such as {odd[0]}", allowed)]
    judged = [name for name in wanted["boxes"] if name in said]
    truth = [wanted["boxes"][name] for name in judged]
    if not any(truth):
        return Figures(), []
    least = wanted["least_diagonal"]
    found = [[row for row in said[name] if math.hypot(row[4], row[5]) >= least] for name in judged]
    try:
        value = coco_map(truth, found, len(wanted["classes"]))
    except ImportError:
        remedy = "pip install 'neurorig[detection]', and make the report again"
        return Figures(), [refusal(MAP, "faster-coco-eval is not installed", remedy)]
    method = f"COCO, IoU 0.50 to 0.95, {len(judged)} frames; frames that follow one another give no interval"
    return figure("map", value, method, len(judged)), []


def coco_map(truth: list[list[list[float]]], found: list[list[list[float]]], classes: int) -> float:
    """Return COCO's mean average precision over IoU 0.50 to 0.95, of boxes by frame as in ``detections_of``.

    It is the mean over the classes that occur, with at most 100 boxes a frame and class. Raises ``ImportError`` without
    the package.
    """
    coco = importlib.import_module("faster_coco_eval")
    boxes = [(k, row) for k, rows in enumerate(truth) for row in rows]
    annotations = [
        {"id": n, "image_id": k, "category_id": int(row[0]), "bbox": row[1:], "area": row[3] * row[4], "iscrowd": 0}
        for n, (k, row) in enumerate(boxes, 1)
    ]
    answers = [
        {"image_id": k, "category_id": int(row[0]), "score": row[1], "bbox": row[2:]}
        for k, rows in enumerate(found)
        for row in rows
    ]
    if not answers:
        return 0.0
    images = [{"id": k} for k in range(len(truth))]
    known = coco.COCO({"images": images, "annotations": annotations, "categories": [{"id": k} for k in range(classes)]})
    judge = coco.COCOeval_faster(known, known.loadRes(answers), "bbox", print_function=lambda *_: None)
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    return float(judge.stats[0])


def _boxes(answers: Sequence[Answer], classes: int) -> tuple[dict[str, list[list[float]]], list[str]]:
    """Return the boxes of the first answer to each sample, and the samples whose answer cannot be judged."""
    said: dict[str, list[list[float]]] = {}
    odd = []
    for answer in answers:
        boxes = answer.output.get("boxes") if isinstance(answer.output, dict) else None
        if answer.sample_id in said:
            continue
        if isinstance(boxes, list) and all(_is_box(box, classes) for box in boxes):
            said[answer.sample_id] = boxes
        else:
            odd.append(answer.sample_id)
    return said, odd


def _is_box(box: Any, classes: int) -> bool:
    plain = isinstance(box, list) and len(box) == 6 and all(type(v) in (int, float) and math.isfinite(v) for v in box)
    return plain and 0 <= box[0] < classes and box[0] == int(box[0]) and box[4] >= 0 and box[5] >= 0
