"""The rules about a session as a whole: enough runs, whose trials and answers agree."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from reports.audit.figures import Figures
from reports.audit.judged import Judged, Rule, written
from reports.audit.reading import Run, by_sample
from reports.audit.rules import Values
from reports.audit.scores import answers

CHANGED, ACCURACY_STEP = 0.1, 0.01
"""So many answers may differ between speed and accuracy, if the accuracies differ by no more than the second."""
TRIED = {"execution_time_s": "performance", "active_power_w": "power", "average_power_w": "power"}
"""The figures whose trials must agree, and the runs that are their trials."""


def judge_session(runs: list[Run], values: Values, each: dict[str, Figures]) -> list[Rule]:
    """The rules about a session as a whole. ``each`` holds the plain figures of its runs by name, if they were made."""
    return written("", [*_counts(runs, values), *_trials(runs, values, each), *_answers(runs)])


def _counts(runs: list[Run], values: Values) -> Iterator[Judged]:
    purposes, whole = Counter(run.purpose for run in runs), values["session"]
    asked = {}
    if whole or len(runs) > 1:
        asked = {"performance": values["trials"]}
        asked |= {"power": values["trials"]} if whole or purposes["power"] else {}
    if whole and any("accuracy" in name for name in values["reports"]):
        asked["accuracy"] = 1
    for purpose, least in asked.items():
        yield f"runs for {purpose}", purposes[purpose], f"at least {least}", purposes[purpose] >= least


def _trials(runs: list[Run], values: Values, each: dict[str, Figures]) -> Iterator[Judged]:
    most = values["trial_tolerance"]
    for key, purpose in TRIED.items() if most is not None else ():
        figures = [each.get(run.path.name, {}).get(key) for run in runs if run.purpose == purpose]
        found = [figure.value for figure in figures if figure is not None]
        if len(found) > 1:
            mean = sum(found) / len(found)
            apart = max(abs(v - mean) for v in found) / abs(mean) if mean else math.inf
            yield f"{key} of each trial from the mean", f"{apart:.3%}", f"at most {most:.0%}", apart <= most


def _answers(runs: list[Run]) -> Iterator[Judged]:
    """Answers for speed are those for accuracy, but for a few that leave the accuracy as it is."""
    by_purpose: dict[str, dict[str, Any]] = defaultdict(dict)
    for run in runs:
        for sample, answer in answers(run):
            by_purpose[run.purpose].setdefault(sample, answer)
    speed, quality = by_purpose["performance"], by_purpose["accuracy"]
    both = [s for s in speed if s in quality]
    if not both:
        return
    label = by_sample(runs[0], "label")
    other = sum(speed[s] != quality[s] for s in both)
    step = abs(sum((speed[s] == label.get(s)) - (quality[s] == label.get(s)) for s in both)) / len(both)
    ok = other == 0 or (other <= CHANGED * len(both) and step <= ACCURACY_STEP)
    allowed = "0, or 10% with accuracies within 1%"
    yield "samples answered otherwise for speed than for accuracy", f"{other} of {len(both)}", allowed, ok
