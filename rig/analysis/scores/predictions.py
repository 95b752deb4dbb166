"""Score predictions: the error of forecasts, the variance that a regression explains, and the precision of boxes.

The truth is in the payloads that are stored with the recording, and for boxes in the details of the workload. A sample
that was issued several times counts once, by the mean of its scores; for boxes, only its first answer counts. A
forecast or regression without a list of numbers is as wrong as a list of nulls. If some answers cannot be judged, no
mean is stated, because leaving answers out could improve it. COCO's mean average precision of object boxes is computed
with the package faster-coco-eval (extra ``detection``).
"""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from rig.analysis.result.figure_catalogue import figure
from rig.analysis.result.finding import Finding, refusal
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.scores.answers import Answer
from rig.recording.reader import Run
from rig.types import Floats

WORST = 200.0
PERCENTILES = (25.0, 50.0, 75.0)
NOTHING = np.zeros(0)
MAP = FigureKey("map")


def predictions_of(run: Run, answers: Sequence[Answer]) -> tuple[Figures, list[Finding]]:
    """Return the scores of every prediction, if the workload declares what to predict, and failed checks.

    If the workload's details hold ``forecast_from``, each series must be predicted from that point on, and the answer
    is an output with ``forecast``. If they hold ``regress`` and ``regress_from``, the field ``regress`` of each sample
    must be predicted from the step that ``regress_from`` names for the sample, and the answer is an output with
    ``prediction``. For ``detect``, see ``detections_of``.
    """
    details = run.start.workload.details
    first, field, each_first = (details.get(key) for key in ("forecast_from", "regress", "regress_from"))
    if _counts(first):
        return _forecasts(run, answers, first)
    if isinstance(field, str) and isinstance(each_first, dict):
        return _regressions(run, answers, field, each_first)
    if isinstance(details.get("detect"), dict):
        return detections_of(run, answers, details["detect"])
    return Figures(), []


def smape(wanted: Floats, forecast: Floats) -> float:
    """Return sMAPE in percent, 0 to 200 (NeuroBench, equation 5), of arrays of shape (n,).

    A point of the forecast that is not a finite number has the largest error. A 0 that was forecast as 0 has no error.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        both = np.abs(wanted) + np.abs(forecast)
        share = np.where(both > 0, np.abs(wanted - forecast) / np.where(both > 0, both, 1.0), 0.0)
    return WORST * float(np.mean(np.where(np.isfinite(share) & np.isfinite(forecast), share, 1.0)))


def r2(wanted: Floats, found: Floats) -> float | None:
    """Return the mean coefficient of determination (NeuroBench, equation 3) of the columns of (n, columns) arrays.

    It is None if a column does not vary or a prediction is not finite.
    """
    around = np.sum((wanted - wanted.mean(axis=0)) ** 2, axis=0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        score = float(np.mean(1.0 - np.sum((wanted - found) ** 2, axis=0) / around))
    return score if np.isfinite(score) else None


def _forecasts(run: Run, answers: Sequence[Answer], first: int) -> tuple[Figures, list[Finding]]:
    def truth(sample_id: str) -> Floats:
        series = run.payload(sample_id)
        return NOTHING if series is None or series.ndim != 1 or series.dtype.names else _floats(series[first:])

    scores, checks = _scored(answers, "forecast", truth, smape, "forecasts of the whole series")
    found, each = Figures(), np.array(list(scores.values()))
    if scores and not checks:
        told = f"by the definition of NeuroBench, over {len(each)} series; no interval, because starts overlap"
        found |= figure("smape_mean", each.mean(), told, len(each))
        for p in PERCENTILES:
            found |= figure("smape_p{percentile}", np.percentile(each, p), told, len(each), percentile=p)
    return found, checks


def _regressions(
    run: Run, answers: Sequence[Answer], field: str, first: dict[str, Any]
) -> tuple[Figures, list[Finding]]:
    def truth(sample_id: str) -> Floats:
        payload, begin = run.payload(sample_id), first.get(sample_id)
        known = payload is not None and field in (payload.dtype.names or ()) and _counts(begin)
        return _floats(payload[field][begin:]) if payload is not None and known else NOTHING

    scores, checks = _scored(answers, "prediction", truth, r2, "predictions of every step, and a truth that varies")
    found, told = Figures(), "by the definition of NeuroBench; no interval, because steps follow one another"
    if scores and not checks:
        found |= figure("r2", float(np.mean(list(scores.values()))), f"mean over sessions, {told}", len(scores))
    for name, one in scores.items():
        found |= figure("r2", one, told, 1, sample=name)
    return found, checks


def _scored(
    answers: Sequence[Answer],
    key: str,
    truth: Callable[[str], Floats],
    score: Callable[[Floats, Floats], float | None],
    rule: str,
) -> tuple[dict[str, float], list[Finding]]:
    """Return the score of each sample whose answers can be judged, and a failed check on the others."""
    scores: dict[str, list[float]] = {}
    odd: dict[str, str] = {}
    for sample_id, output in ((answer.sample_id, answer.output) for answer in answers if answer.decided):
        points, wanted = output.get(key) if isinstance(output, dict) else None, truth(sample_id)
        found = _floats(points) if isinstance(points, list) else np.full_like(wanted, np.nan)
        fits = len(wanted) > 0 and wanted.shape == found.shape and bool(np.all(np.isfinite(wanted)))
        if (value := score(wanted, found) if fits else None) is not None:
            scores.setdefault(sample_id, []).append(value)
        else:
            odd[sample_id] = f"{np.isfinite(found).sum()} numbers for {sample_id}, where {wanted.size} are known"
    checks = [Finding(rule, f"{len(odd)}, such as {next(iter(odd.values()))}", "0")] if odd else []
    return {name: float(np.mean(values)) for name, values in scores.items() if name not in odd}, checks


def _floats(values: Any) -> Floats:
    """Return numbers as float64, with null as NaN; return ``NOTHING`` if they are not an array of numbers."""
    try:
        found = np.asarray(values)  # lists of different lengths are refused here
        return NOTHING if found.dtype.kind in "US" else np.asarray(found, np.float64)
    except (TypeError, ValueError, OverflowError):
        return NOTHING


def _counts(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def detections_of(run: Run, answers: Sequence[Answer], wanted: dict[str, Any]) -> tuple[Figures, list[Finding]]:
    """Return the mean average precision over frames, or a failed check or a refusal; nothing if no frame has a box.

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
    frames = f"{len(judged)} answered frames of {len(wanted['boxes'])}"
    method = f"COCO, IoU 0.50 to 0.95, {frames}; no interval, because frames follow one another"
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
