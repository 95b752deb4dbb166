"""The rules about a session as a whole: it has enough runs, and their trials and answers agree."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

import numpy as np
from scipy.special import bdtrc
from scipy.stats import sem, t

from reports.audit.figures import SLACK, Figures, counted, together
from reports.audit.folder.reading import Run, by_sample
from reports.audit.judged import Judged, Rule, written
from reports.audit.rules import Values
from reports.audit.scores import answers

CHANGED, ACCURACY_STEP = 0.1, 0.01
"""Answers of speed and accuracy runs may differ by this share, if accuracies differ by at most ``ACCURACY_STEP``."""
OTHERWISE, CHANCE = "samples answered otherwise", "more than 10% by chance"
TRIED = {"execution_time_s": "performance", "active_power_w": "power", "average_power_w": "power"}
"""The figures whose trials must agree, and the runs that are their trials."""
SPEED, EXPLAINED = "execution time of the power runs, against the performance runs", "within intervals"
TIME, TIME_SE = "execution_time_s", "execution_time_se_s"
COMPARED = {"performance": "speed", "power": "power"}
"""Purposes whose runs must answer like accuracy runs, with their names in the rule."""


def judge_session(runs: list[Run], values: Values, each: dict[str, Figures]) -> list[Rule]:
    """Judge the rules about a session as a whole. ``each`` has the plain figures of its runs by name, if computed."""
    found = (_counts(runs, values), _trials(runs, values, each), _one_speed(runs, values, each), _answers(runs))
    return written("", [*chain(*found)])


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


def _one_speed(runs: list[Run], values: Values, each: dict[str, Figures]) -> Iterator[Judged]:
    """Judge whether power runs are as quick as performance runs: power and time must be of one operating point.

    Ignored are differences within clock bounds, two standard errors of both times, and the scatter of trials. Left out
    are runs with ``amortise_s``, and runs in which arrivals decide how many samples the device takes together.
    """
    most = values["trial_tolerance"]
    timed = {
        p: [f for r in runs if r.purpose == p and TIME in (f := each.get(r.path.name, {})) and not _own_time(r)]
        for p in ("performance", "power")
    }
    if most is None or not all(timed.values()):
        return
    speed = together(timed["performance"])
    mean, count, unsure = speed[TIME].value, len(timed["performance"]), _unsure_s(speed)
    if count > 1:
        unsure = max(unsure, t.ppf(0.975, count - 1) * sem([own[TIME].value for own in timed["performance"]]))
    beyond = max(abs(own[TIME].value - mean) - _unsure_s(own) - unsure for own in timed["power"])
    share = max(0.0, beyond) / mean if mean else 0.0
    yield SPEED, f"{share:.3%} beyond intervals" if share else EXPLAINED, f"at most {most:.0%}", share <= most


def _own_time(run: Run) -> bool:
    many = (run.start["device"].get("max_batch") or 1) > 1
    return bool(run.start["scenario"].get("amortise_s")) or (many and not np.isnan(counted(run).due_s).all())


def _unsure_s(own: Figures) -> float:
    return own[TIME].bound + 2 * (own[TIME_SE].value if TIME_SE in own else 0.0)


def _answers(runs: list[Run]) -> Iterator[Judged]:
    """Judge whether speed and power runs answer like accuracy runs, but for a few answers that keep accuracy."""
    wanted = dict[str, set[str]]()
    for run in runs:
        for sample, said in _said(run).items() if run.purpose == "accuracy" else ():
            wanted.setdefault(sample, set()).update(said)
    label = {sample: json.dumps(text) for sample, text in by_sample(runs[0], "label").items()}
    for purpose, what in COMPARED.items():
        each = [_said(run).items() for run in runs if run.purpose == purpose]
        runs_of = [[(said, wanted[one], label.get(one)) for one, said in told if one in wanted] for told in each]
        both = [*chain(*runs_of)]
        if not both:
            continue
        others = [sum(not said <= known for said, known, _ in told) for told in runs_of]
        other, share = sum(others), sum(others) / len(both)
        step = abs(sum((right in said) - (right in known) for said, known, right in both)) / len(both)
        chance = all(bdtrc(n - 1, len(told), CHANGED) > SLACK for n, told in zip(others, runs_of, strict=True) if n)
        alike = step <= max(ACCURACY_STEP, 3 * math.sqrt(other * len(each)) / len(both))  # runs may share their samples
        ok = other == 0 or (chance and alike)
        found = f"{other} of {len(both)}" + (f", {CHANCE}" if ok and share > CHANGED else "")
        allowed = "0, or 10% plus chance, if accuracies agree within 1% or within chance"
        yield f"{OTHERWISE} for {what} than for accuracy", found, allowed, ok


def _said(run: Run) -> dict[str, set[str]]:
    """Return the answers of a run to each sample; null if it completed a sample without an output."""
    found = defaultdict[str, set[str]](set)
    for sample, answer in answers(run, silent=True):
        found[sample].add(json.dumps(answer, sort_keys=True))
    return found
