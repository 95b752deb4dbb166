"""The rules about a session as a whole: it has enough runs, and their trials and answers agree."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pandas as pd
from scipy.special import bdtrc
from scipy.stats import t

from reports.audit.figures import SLACK, Figures, counted, device_line, issues, spans
from reports.audit.folder.reading import Run, by_sample
from reports.audit.judged import Judged, Rule, written
from reports.audit.rules import Values
from reports.audit.scores import answers

CHANGED, ACCURACY_STEP = 0.1, 0.01
"""The largest share of answers in which speed and accuracy runs may differ, and the largest change of accuracy."""
OTHERWISE, CHANCE = "samples answered otherwise", "more than 10% by chance"
TRIED = {"execution_time_s": "performance", "active_power_w": "power", "average_power_w": "power"}
"""The figures whose trials must agree, and the runs that are their trials."""
SPEED, EXPLAINED = "execution time of the {} runs, against the performance runs", "within 1% or chance"
SAMPLES = "samples that not every run holds"
APART, NEAR, BEYOND = 0.05, 0.01, 0.9995
"""Times of runs may differ by the share ``APART``, unless the rules have a tolerance. A share over ``NEAR`` is stated.
The scatter of executions is subtracted, up to the quantile ``BEYOND`` of Student's t. For two samples this quantile is
so large that no honest session fails."""
COMPARED = {"performance": "speed", "power": "power"}
"""Purposes whose runs must answer like accuracy runs, with their names in the rule."""


def judge_session(runs: list[Run], values: Values, each: dict[str, Figures]) -> list[Rule]:
    """Judge the rules about a session as a whole. ``each`` has the plain figures of its runs by name, if computed."""
    found = (_counts(runs, values), _trials(runs, values, each), _same_samples(runs), _one_speed(runs, values))
    return written("", [*chain(*found, _answers(runs))])


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


def _same_samples(runs: list[Run]) -> Iterator[Judged]:
    """Judge whether the runs of time and power hold the same samples. Runs of longer sequences are compared apart."""
    for longer in (False, True):
        alike = [run for run in runs if run.purpose in COMPARED and bool(_amortised(run)) == longer]
        held = {run.path.name: set(counted(run).sample) for run in alike}
        every = set[str]().union(*held.values())
        lost = [f"{len(every - own)} not in {name}" for name, own in held.items() if own != every]
        if len(held) > 1:
            yield SAMPLES, "; ".join(lost) or "none", "none", not lost


def _one_speed(runs: list[Run], values: Values) -> Iterator[Judged]:
    """Judge whether power and accuracy runs are as quick as performance runs: all must be of one operating point.

    The executions of each sample are compared one by one. Differences within the bounds of both clocks and the scatter
    of executions do not count. The scatter follows from leaving out one execution at a time (the jackknife).
    """
    most = APART if values["trial_tolerance"] is None else values["trial_tolerance"]
    quick = [run for run in runs if run.purpose == "performance"]
    if not quick:
        return
    speed = pd.concat([_executions(run) for run in quick]).groupby(level=[0, 1, 2]).mean()
    for purpose in ("power", "accuracy"):
        beyond = []
        for run in (one for one in runs if one.purpose == purpose and not _own_time(one)):
            own, wanted = pd.concat([_executions(run), speed], axis=1, join="inner").to_numpy(dtype=float).T
            if (n := len(own)) < 2 or not (total := wanted.sum()) > wanted.max():
                continue
            left = (own.sum() - own) / (total - wanted)
            lines = (device_line(run), device_line(quick[0]))
            clocks = sum(line.rate_bound + line.s_per_tick * n / total for line in lines)
            unsure = t.ppf(BEYOND, n - 1) * left.std() * math.sqrt(n - 1) + clocks
            beyond.append(max(0.0, abs(own.sum() / total - 1) - unsure))
        if beyond:
            share = max(beyond)
            found = f"{share:.3%} beyond intervals" if share > NEAR else EXPLAINED
            yield SPEED.format(purpose), found, f"at most {most:.0%}", share <= most


def _executions(run: Run) -> pd.Series[float]:
    """Return seconds per inference, by sample, phase, and number of earlier executions of both in the run."""
    own, asked = spans(run), issues(run)
    own = own[~own.warmup]
    sample = dict(zip(asked.number, asked.sample, strict=True))
    by = pd.DataFrame({"sample": [sample[issue] for issue in own.issue], "phase": own.phase})
    seconds = pd.Series((own.off - own.on) / own.inferences, dtype=float)
    return seconds.set_axis(pd.MultiIndex.from_arrays([by["sample"], by["phase"], by.groupby([*by]).cumcount()]))


def _own_time(run: Run) -> bool:
    """Return whether a run may take another time on purpose: by longer sequences, batches, phases alone or repeats."""
    many, options = (run.start["device"].get("max_batch") or 1) > 1, run.options
    if run.purpose == "accuracy":
        return many or bool(options.get("apart")) or (options.get("repeat") or 1) > 1
    return bool(_amortised(run)) or (many and not np.isnan(counted(run).due_s).all())


def _amortised(run: Run) -> object:
    return run.start["scenario"].get("amortise_s")


def _answers(runs: list[Run]) -> Iterator[Judged]:
    """Judge whether speed and power runs answer like accuracy runs, except for a few that do not change accuracy."""
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
