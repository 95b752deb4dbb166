"""Compute accuracy by comparing outputs with the labels of the workload."""

import json
from collections.abc import Iterator, Mapping, Sequence

from rig.analysis.result.finding import Finding, note
from rig.analysis.result.proportion import independent, mean_proportion, proportion
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.scores.answers import Answer, answer_in, answers_of, data_of
from rig.analysis.warmup import counted_replies
from rig.recording.columns.buffers import array_of, valid
from rig.recording.reader import Run


def accuracy_figures(run: Run, answers: Sequence[Answer]) -> Figures:
    """Return accuracy and the mean recall by class.

    Dropped samples do not count, nor do issues (requests to the device) that ran only an earlier phase. A sample that
    was issued several times counts once, with its share of right answers. In the interval, samples with the same data
    or from one clip count as one, because they say little about other samples.
    """
    shares, data, labels = _shares(run, answers), data_of(run), run.by_sample("label")
    if not shares:
        return Figures()
    by_class: dict[str, dict[str, float]] = {}
    for sample, share in shares.items():
        by_class.setdefault(labels[sample], {})[sample] = share
    asked = [answer.sample_id for answer in answers if answer.decided]
    method, held = "outputs equal to labels, counted", {data[sample] for sample in shares}
    if (several := sum(map(shares.__contains__, asked))) > len(shares):
        method = f"{several} outputs equal to labels, counted by sample"
    if len(held) < len(shares):
        method += f", {len(shares)} samples of {len(held)} distinct clips or data"
    if unlabelled := len(set(asked) - shares.keys()):
        method += f", without {unlabelled} samples that have no label"
    if dropped := run.replies["issued_ns"].null_count:
        method += f", without {dropped} samples that were dropped"
    recalls = [_counted(own, data) for own in by_class.values()]
    return Figures({
        FigureKey("accuracy"): proportion(*_counted(shares, data), method),
        FigureKey("balanced_accuracy"): mean_proportion(recalls, "mean recall by class"),
    })  # fmt: skip


def session_figures(run: Run, answers: Sequence[Answer]) -> Figures:
    """Return the accuracy after each session of learning, for all, old and new words, and the mean over sessions.

    The ids of old and new words begin with ``SESSION/old/`` or ``SESSION/new/`` (workload ``mswc-fscil``).
    """
    if not run.start.workload.details.get("incremental") or not (right := _shares(run, answers)):
        return Figures()
    of: dict[tuple[str, str], dict[str, float]] = {}
    for sample, share in right.items():
        session, kind, _ = [*sample.split("/", 2), "", ""][:3]
        for name in ("", f"_{kind}"):
            of.setdefault((session, f"session_accuracy{name}"), {})[sample] = share
    method, data = "outputs equal to labels, of the words asked after the session", data_of(run)
    counts = {key: _counted(shares, data) for key, shares in sorted(of.items())}
    found = {
        FigureKey(name, sample=f"session {session}"): proportion(*count, method)
        for (session, name), count in counts.items()
    }
    whole = [own for (_, name), own in of.items() if name == "session_accuracy"]
    asked = [(share, data[sample], 1.0 / len(own)) for own in whole for sample, share in own.items()]
    mean = proportion(*independent(*zip(*asked, strict=True)), "mean over sessions")
    return Figures({FigureKey("session_accuracy_mean"): mean, **found})


def right_of(run: Run) -> dict[str, bool]:
    """Return for each sample whether its answers are right; a sample with right and wrong answers is left out."""
    return {sample: share == 1.0 for sample, share in _shares(run, answers_of(run)).items() if share in (0.0, 1.0)}


def answer_checks(run: Run, answers: Sequence[Answer]) -> Iterator[Finding]:
    """Yield a failed check if answers are outside the labels of the workload, or if no sample was answered.

    The labels are those of its samples and those in its ``classes``. A missing answer (null) counts as wrong: it is a
    note, and fails the check only if all answers are null.
    """
    told = [answer for _, _, answer in _labelled(run, answers)]
    declared = run.start.workload.details.get("classes")
    known = {label for label in run.samples["label"].to_pylist() if label is not None}
    known |= {name for name in declared if isinstance(name, str)} if isinstance(declared, list) else set()
    odd = [a for a in told if a is not None and not (isinstance(a, str) and a in known)]
    if 0 < told.count(None) < len(told):
        without = f"{told.count(None)} of {len(told)} answers are null. They count as wrong"
        yield note(f"{without}, and their times and energies are in the figures")
    elif told and told[0] is None:
        yield Finding("samples that the device answered", f"0 of {len(told)}: each answer is null", "1 or more", False)
    rows, held = counted_replies(run, "issue", "output", "completed_ns"), ("completed_ns", "output")
    ended, spoken = (set(array_of(rows["issue"])[valid(rows[name])].tolist()) for name in held)
    if told and (blank := ended - spoken):
        yield note(f"{len(blank)} completed requests have no output, and accuracy leaves them out")
    if odd:
        kind = "" if isinstance(odd[0], str) else ", which is no text"
        found = f"{len(odd)} of {len(told)}, such as {json.dumps(odd[0])[:60]}{kind}"
        yield Finding("answers that are no label of the workload", found, "0", False)


def span_checks(run: Run) -> Iterator[Finding]:
    """Yield a failed check if only some answers have spans, or if a complete run lacks a declared phase or has another.

    An answer without a span counts for accuracy, but its time is in no figure. A run without any span passes this
    check: its times are refused elsewhere.
    """
    rows = counted_replies(run, "issue", "phase", "output").to_pylist()
    timed = {row["issue"] for row in rows if row["phase"] is not None}
    if not timed:
        return
    declared, ran = run.start.device.phases, dict.fromkeys(row["phase"] for row in rows if row["phase"] is not None)
    if declared and set(ran) != set(declared) and run.complete:
        yield Finding("phases that ran", ", ".join(ran), ", ".join(declared), False)
    answered = {row["issue"] for row in rows if row["output"] is not None}
    if untimed := answered - timed:
        yield Finding("answers without a span", f"{len(untimed)} of {len(answered)}", "0", False)


def seen_checks(run: Run) -> Iterator[Finding]:
    """Yield a check if the network declares that its training used the data set of this run.

    A training names the set by its ``source`` and, for a folder, by the digest of its list. The check passes if the
    network was trained on the train split and this run plays the test split of the same fold. A folder must name its
    fold. Other data are not checked, nor are data without a ``source``.
    """
    training, own = run.start.device.algorithm.training, run.start.workload.details
    told = training.get("data") if isinstance(training, dict) else None
    if not isinstance(told, dict) or own.get("source") is None:
        return
    if any(told.get(k) != own.get(k) for k in ("source", "listing_sha256")):
        return
    left_out = told.get("split") == "train" and told.get("fold") == own.get("fold")
    apart = left_out and own.get("split") == "test" and not (own.get("listing_sha256") and own.get("fold") is None)
    said = [f"{part.get('split')} {part['fold'] if part.get('fold') else ''}".strip() for part in (told, own)]
    yield Finding("data on which the network was trained", f"{said[0]}, measured on {said[1]}", "other samples", apart)


def _shares(run: Run, answers: Sequence[Answer]) -> dict[str, float]:
    """Return, by sample, the share of its answers that are right."""
    hits: dict[str, list[bool]] = {}
    for sample, label, answer in _labelled(run, answers):
        hits.setdefault(sample, []).append(answer == label)
    return {sample: sum(right) / len(right) for sample, right in hits.items()}


def _counted(shares: Mapping[str, float], data: Mapping[str, str]) -> tuple[float, float]:
    return independent(list(shares.values()), [data[sample] for sample in shares])


def _labelled(run: Run, answers: Sequence[Answer]) -> Iterator[tuple[str, str, object]]:
    """Yield sample, label and answer, for every answer to a sample with a label."""
    labels = run.by_sample("label")
    for answer in answers:
        label = labels.get(answer.sample_id)
        if label is not None and answer.decided:
            yield answer.sample_id, label, answer_in(answer.output)
