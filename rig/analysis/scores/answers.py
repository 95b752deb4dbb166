"""The answers of the device: every output of a run, decoded, with its sample."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rig.recording.reader import Run


@dataclass(frozen=True, slots=True)
class Answer:
    """One output that counts. It is ``decided`` unless it comes from an earlier phase alone."""

    issue: int
    sample_id: str
    output: Any
    decided: bool


def decoded(text: str) -> Any:
    """Return an output as it was recorded, which is JSON."""
    return json.loads(text)


def answers_of(run: Run) -> list[Answer]:
    """Return every output of a run in order, without those of warm-up; each text is decoded once."""
    decided = decided_issues(run)
    rows = run.replies.select(["issue", "sample_id", "output", "warmup"]).to_pylist()
    rows = [row for row in rows if row["output"] is not None and not row["warmup"]]
    said = {text: decoded(text) for text in {row["output"] for row in rows}}
    return [Answer(r["issue"], r["sample_id"], said[r["output"]], r["issue"] in decided) for r in rows]


def decided_issues(run: Run) -> set[int]:
    """Return the issues whose output is an answer: all but those of an earlier phase alone.

    Phases were issued alone if the scenario says so, or if the last phase ran in an issue without the others.
    """
    phases = run.start.device.phases
    ran: dict[int, set[str | None]] = {}
    for row in run.replies.select(["issue", "phase"]).to_pylist():
        ran.setdefault(row["issue"], set()).add(row["phase"])
    last = set(phases[-1:])
    apart = len(phases) > 1 and (run.start.scenario.per_phase or last in ran.values())
    return {issue for issue, found in ran.items() if not apart or found & {*last, None}}


def answer_in(output: object) -> object:
    """Return the answer in an output: the value of ``label`` if the output is an object with it, else the output."""
    return output["label"] if isinstance(output, dict) and "label" in output else output
