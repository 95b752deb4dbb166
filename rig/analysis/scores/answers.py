"""Decode the answers of the device."""

import json
from typing import Any

from msgspec import Struct

from rig.analysis.timing.counted_spans import one_at_a_time
from rig.analysis.warmup import counted_replies
from rig.recording.reader import Run


class Answer(Struct, frozen=True):
    """One output outside warm-up. It is ``decided`` unless its request to the device ran only earlier phases.

    ``issue`` is the number of the request. ``on_tick`` and ``off_tick`` bound its span, which holds ``times``
    executions; they are None without a span.
    """

    issue: int
    sample_id: str
    output: Any
    decided: bool
    on_tick: int | None
    off_tick: int | None
    times: int


def answers_of(run: Run) -> list[Answer]:
    """Return every output of a run in order, without those of warm-up; each text is decoded once."""
    decided = decided_issues(run)
    table = counted_replies(run, "output", "issue", "sample_id", "on_tick", "off_tick", "executions")
    every = zip(*(column.to_pylist() for column in table.columns), strict=True)
    rows = [row for row in every if row[0] is not None]
    said = {text: json.loads(text) for text in {row[0] for row in rows}}
    return [
        Answer(issue, sample_id, said[text], issue in decided, on_tick, off_tick, times or 1)
        for text, issue, sample_id, on_tick, off_tick, times in rows
    ]


def data_of(run: Run) -> dict[str, str]:
    """Return, by sample, a text that is equal for samples that are cut from one clip or have equal data.

    It is the name of the clip, or else a digest of the data, or else the data set and the id.
    """
    digests, of, clips = run.by_sample("payload_sha256"), run.start.workload.digest_sha256, run.by_sample("cut_from")
    return {name: clips[name] or digest or f"{of} {name}" for name, digest in digests.items()}


def decided_issues(run: Run) -> set[int]:
    """Return the issues (requests) whose output is an answer.

    If phases were issued one at a time, these are the issues of the last phase, and those without a phase.
    """
    ran: dict[int, set[str | None]] = {}
    for row in run.replies.select(["issue", "phase"]).to_pylist():
        ran.setdefault(row["issue"], set()).add(row["phase"])
    last = set(run.start.device.phases[-1:])
    apart = run.start.scenario.per_phase or one_at_a_time(run)
    return {issue for issue, found in ran.items() if not apart or found & {*last, None}}


def answer_in(output: object) -> object:
    """Return the answer in an output: the value of ``label`` if the output is an object with it, else the output."""
    return output["label"] if isinstance(output, dict) and "label" in output else output
