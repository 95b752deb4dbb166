"""The rules about a session as a whole: enough runs, of one system, whose trials and answers agree."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from typing import Any

from reports.audit.figures import Figures, answered, decided
from reports.audit.files import clean
from reports.audit.reading import Run, column
from reports.audit.rule_sets import Values
from reports.audit.rules import Rule

CHANGED, ACCURACY_STEP = 0.1, 0.01
"""So many answers may differ between speed and accuracy, if the accuracies differ by no more than the second."""


def judge_session(runs: list[Run], values: Values, each: dict[str, Figures]) -> list[Rule]:
    """The rules about a session as a whole. ``each`` holds the plain figures of its runs by name, if they were made."""
    found: list[Rule] = []
    purposes = Counter(run.purpose for run in runs)
    if values["session"] or len(runs) > 1:
        asked = ("performance", "power") if values["session"] or purposes["power"] else ("performance",)
        for purpose in asked:
            count = purposes[purpose]
            found.append(
                Rule("", f"runs for {purpose}", str(count), f"at least {values['trials']}", count >= values["trials"])
            )
    if values["session"] and any("accuracy" in name for name in values["reports"]):
        count = purposes["accuracy"]
        found.append(Rule("", "runs for accuracy", str(count), "at least 1", count >= 1))
    names = {str(run.start.get("configuration", "")) for run in runs}
    found.append(
        Rule("", "configurations of the runs", clean(", ".join(sorted(names)) or "none"), "one", len(names) == 1)
    )
    devices = {json.dumps(run.start["device"], sort_keys=True) for run in runs}
    found.append(Rule("", "devices, as they were declared in the runs", str(len(devices)), "one", len(devices) == 1))
    if values["trial_tolerance"] is not None:
        found += _trials(runs, values["trial_tolerance"], each)
    return found + _answers(runs)


TRIED: dict[str, tuple[str, ...]] = {
    "execution_time_s": ("performance",),
    "active_power_w": ("power",),
    "average_power_w": ("power",),
}


def _trials(runs: list[Run], most: float, each: dict[str, Figures]) -> list[Rule]:
    found = []
    for key, purposes in TRIED.items():
        values = [
            each[r.path.name][key].value for r in runs if r.purpose in purposes and key in each.get(r.path.name, {})
        ]
        if len(values) > 1:
            mean = sum(values) / len(values)
            apart = max(abs(v - mean) for v in values) / abs(mean) if mean else math.inf
            found.append(
                Rule("", f"{key} of each trial from the mean", f"{apart:.3%}", f"at most {most:.0%}", apart <= most)
            )
    return found


def _answers(runs: list[Run]) -> list[Rule]:
    """Answers for speed are those for accuracy, but for a few that leave the accuracy as it is."""
    by_purpose: dict[str, dict[str, Any]] = defaultdict(dict)
    for run in runs:
        for issue in decided(run):
            if not issue.warmup and issue.output is not None:
                by_purpose[run.purpose].setdefault(issue.sample, answered(issue.output))
    speed, quality = by_purpose["performance"], by_purpose["accuracy"]
    both = [s for s in speed if s in quality]
    if not both:
        return []
    label = dict(zip(*(column(runs[0].tables["samples"], name) for name in ("id", "label")), strict=True))
    other = sum(speed[s] != quality[s] for s in both)
    step = abs(sum((speed[s] == label.get(s)) - (quality[s] == label.get(s)) for s in both)) / len(both)
    ok = other == 0 or (other <= CHANGED * len(both) and step <= ACCURACY_STEP)
    allowed = "0, or 10% with accuracies within 1%"
    return [Rule("", "samples answered otherwise for speed than for accuracy", f"{other} of {len(both)}", allowed, ok)]
