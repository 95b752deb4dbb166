"""Accuracy: outputs are compared with the labels of the workload."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.proportion import mean_proportion, proportion
from rig.analysis.verdict import Check
from rig.recording.reader import Run

Answer = tuple[str, str, object]
"""The sample, its label, and what was answered."""


def accuracy_figures(run: Run) -> Figures:
    """Return accuracy and the mean recall by class.

    An issue that ran only an earlier phase does not count. A sample that was asked several times counts once in the
    interval, with the share of its answers that are right: to ask again tells nothing of other samples.
    """
    hits = _hits(run)
    if not hits:
        return Figures()
    by_class: dict[str, list[float]] = {}
    for (label, _), right in hits.items():
        by_class.setdefault(label, []).append(sum(right) / len(right))
    each = [share for shares in by_class.values() for share in shares]
    method = "outputs equal to labels, counted"
    if (asked := sum(map(len, hits.values()))) > len(each):
        method = f"{asked} outputs equal to labels, counted by sample"
    recalls = [(sum(shares), len(shares)) for shares in by_class.values()]
    return Figures({
        FigureKey("accuracy"): proportion(sum(each), len(each), method),
        FigureKey("balanced_accuracy"): mean_proportion(recalls, "mean recall by class"),
    })  # fmt: skip


def right_of(run: Run) -> dict[str, bool]:
    """Return by sample whether its answers are right; a sample that was answered both ways is left out."""
    return {sample: each[0] for (_, sample), each in _hits(run).items() if len(set(each)) == 1}


def answer_checks(run: Run) -> Iterator[Check]:
    """Yield a failed check if answers are outside the labels of the workload.

    Its labels are those of its samples and those in its ``classes``. No answer (null) is only wrong, unless there is
    no other.
    """
    told = [answer for _, _, answer in _answers(run)]
    declared = run.start.workload.details.get("classes")
    known = {label for label in run.samples["label"].to_pylist() if label is not None}
    known |= {name for name in declared if isinstance(name, str)} if isinstance(declared, list) else set()
    odd = [a for a in told if a is not None and not (isinstance(a, str) and a in known)]
    odd = odd if any(a is not None for a in told) else told
    if odd:
        found = f"{len(odd)} of {len(told)}, such as {json.dumps(odd[0])[:60]}"
        yield Check("answers that are no label of the workload", found, "0", False)


def seen_checks(run: Run) -> Iterator[Check]:
    """Yield a check if the network declares that it was trained on the data set of this run.

    A training names the set by its ``source`` and, for a folder, by the digest of its list. A set is unseen if it is
    the test split, and of a folder the same fold as was left out of the training. Of other data nothing is known.
    """
    training, own = run.start.device.algorithm.training, run.start.workload.details
    told = training.get("data") if isinstance(training, dict) else None
    if not isinstance(told, dict) or any(told.get(k) != own.get(k) for k in ("source", "listing_sha256")):
        return
    folder = own.get("listing_sha256") is not None
    left_out = told.get("split") == "train" and told.get("fold") == own.get("fold")
    apart = left_out and own.get("split") == "test" and not (folder and own.get("fold") is None)
    said = [f"{part.get('split')} {part['fold'] if part.get('fold') else ''}".strip() for part in (told, own)]
    yield Check("data on which the network was trained", f"{said[0]}, measured on {said[1]}", "other samples", apart)


def _hits(run: Run) -> dict[tuple[str, str], list[bool]]:
    """By label and sample, which of its answers are right."""
    hits: dict[tuple[str, str], list[bool]] = {}
    for sample, label, answer in _answers(run):
        hits.setdefault((label, sample), []).append(answer == label)
    return hits


def _answers(run: Run) -> Iterator[Answer]:
    """Every answer to a sample with a label, without warm-up and without issues that ran only an earlier phase."""
    labels = dict(zip(run.samples["id"].to_pylist(), run.samples["label"].to_pylist(), strict=True))
    rows = run.replies.select(["issue", "sample_id", "phase", "output", "warmup"]).to_pylist()
    phases = run.start.device.phases
    decided = {row["issue"] for row in rows if not phases or row["phase"] in (phases[-1], None)}
    for row in rows:
        label = labels.get(row["sample_id"])
        if label is not None and row["output"] is not None and not row["warmup"] and row["issue"] in decided:
            yield row["sample_id"], label, answer_in(json.loads(row["output"]))


def answer_in(output: object) -> object:
    """Return the answer in an output: the value of ``label`` if the output is an object with it, else the output."""
    return output["label"] if isinstance(output, dict) and "label" in output else output
