"""Accuracy: outputs are compared with the labels of the workload."""

from __future__ import annotations

import json

from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.quantity import Quantity
from rig.recording.reader import Run


def accuracy_figures(run: Run) -> Figures:
    """Return accuracy and the mean recall by class.

    An issue that ran only an earlier phase does not count.
    """
    labels = dict(zip(run.samples["id"].to_pylist(), run.samples["label"].to_pylist(), strict=True))
    rows = run.replies.select(["issue", "sample_id", "phase", "output", "warmup"]).to_pylist()
    phases = run.start.device.phases
    decided = {row["issue"] for row in rows if not phases or row["phase"] in (phases[-1], None)}
    hits: dict[str, list[bool]] = {}
    for row in rows:
        label = labels.get(row["sample_id"])
        if label is None or row["output"] is None or row["warmup"] or row["issue"] not in decided:
            continue
        hits.setdefault(label, []).append(answer_of(row["output"]) == label)
    flat = [h for hs in hits.values() for h in hs]
    if not flat:
        return Figures()
    recall = [sum(h) / len(h) for h in hits.values()]
    method = "outputs equal to labels, counted"
    return Figures({
        FigureKey("accuracy"): Quantity(sum(flat) / len(flat), "1", (), 0.0, len(flat), method),
        FigureKey("balanced_accuracy"): Quantity(
            sum(recall) / len(recall), "1", (), 0.0, len(flat), "mean recall by class"
        ),
    })  # fmt: skip


def answer_of(output: str) -> object:
    """Return the answer in an output: the value of ``label`` if the output is an object, otherwise the whole output."""
    found = json.loads(output)
    return found.get("label") if isinstance(found, dict) else found
