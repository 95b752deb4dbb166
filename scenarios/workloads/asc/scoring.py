"""Figures for labelled samples: how many of the replies name the right class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rig.errors import DataError
from rig.types import Reply


def score_labels(labels: Mapping[str, str | None], replies: Sequence[Reply]) -> dict[str, float]:
    """Figures for replies whose output is a label, or a mapping with one under ``label``.

    ``accuracy`` is the share of right replies, ``balanced_accuracy`` the mean of the classes'
    ``recall_*``, ``n`` the replies that count, ``unanswered`` the labelled samples without reply.
    Every reply counts, repeated ones too; samples without a label do not; None is a wrong answer.
    Without a reply that counts there is no accuracy, and it is left out. Raises DataError for a
    reply to an unknown sample or an output of any other form.
    """
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for reply in replies:
        if reply.sample_id not in labels:
            raise DataError(
                f"no sample is called {reply.sample_id!r}",
                field="sample_id",
                value=reply.sample_id,
                remedy="Score with the workload that was run",
            )
        truth, answer = labels[reply.sample_id], _answer(reply)
        if truth is not None:
            total[truth] += 1
            right[truth] += answer == truth
    answered = {reply.sample_id for reply in replies}
    unanswered = sum(truth is not None and key not in answered for key, truth in labels.items())
    figures = {"n": float(total.total()), "unanswered": float(unanswered)}
    if total:
        recalls = {label: right[label] / total[label] for label in sorted(total)}
        figures["accuracy"] = right.total() / total.total()
        figures["balanced_accuracy"] = sum(recalls.values()) / len(recalls)
        figures |= {f"recall_{label}": value for label, value in recalls.items()}
    return figures


def _answer(reply: Reply) -> str | None:
    answer = reply.output.get("label") if isinstance(reply.output, Mapping) else reply.output
    if answer is None or isinstance(answer, str):
        return answer
    raise DataError(
        f"the output for {reply.sample_id!r} is no label",
        field="output",
        value=reply.output,
        remedy="Reply with the label's text, or {'label': text}",
    )
