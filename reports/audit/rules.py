"""Judge every rule of a named set from the recording; the sets and their revisions are in ``rule_sets.json``.

Some rules are about a session as a whole: it has enough runs, and their trials and answers agree.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import bdtrc
from scipy.stats import ks_2samp, t

from reports.audit import figures
from reports.audit.benchmarks import benchmark
from reports.audit.figures import SLACK, Figures, Table, counted, device_line, issues, spans
from reports.audit.folder.reading import Run, by_sample, column, held, table
from reports.audit.judged import ROUNDING, Judged, Rule, at_most, none, written
from reports.audit.power.estimate import idle_windows
from reports.audit.scores import answers, is_solving, outputs, solving
from rig.types import Floats

BUDGET_S, BUDGET_SHARE = 1e-3, 0.01
"""A solve is late if it is over its budget by more than ``BUDGET_S`` and more than ``BUDGET_SHARE`` of the budget."""
OUTLINED = {
    "algorithm": ("algorithm", "model", "network", "solver"),
    "tuning of the algorithm": ("tuning", "training", "parameters"),
}
Values = dict[str, Any]
SETS = "rule_sets.json"
CHANGED, ACCURACY_STEP = 0.1, 0.01
"""The largest share of answers in which speed and accuracy runs may differ, and the largest change of accuracy."""
OTHERWISE, CHANCE = "samples answered otherwise", "more than 10% by chance"
TRIED = {"execution_time_s": "performance", "active_power_w": "power", "average_power_w": "power"}
"""The figures whose trials must agree, and the runs that are their trials."""
SPEED, EXPLAINED = "execution time of the {} runs, against the performance runs", "within 1% or chance"
SAMPLES = "samples that not every run holds"
APART, NEAR, BEYOND = 0.05, 0.01, 0.9995
"""Times of runs may differ by the share ``APART``, or by the tolerance of the rules. A share over ``NEAR`` is stated.
The scatter of executions is subtracted, up to the quantile ``BEYOND`` of Student's t. For two samples this quantile is
so large that no honest session fails."""
COMPARED = {"performance": "speed", "power": "power"}
"""Purposes whose runs must answer like accuracy runs, with their names in the rule."""


def known_values(name: str, scenario: str) -> list[Values]:
    """Return the values of each revision of a set for a scenario, newest last; none if the set does not cover it."""
    found = []
    for revision in held(SETS)["sets"].get(name, []):
        by_scenario = revision["scenarios"]
        if own := by_scenario.get(scenario, by_scenario.get("*")):
            found.append({**held(SETS)["defaults"], **own})
    return found


def differences(recorded: Values, values: Values) -> list[str]:
    """Return the values in which recorded rules differ from the rules of a set."""
    defaults = held(SETS)["defaults"]
    pairs = {key: (recorded.get(key, defaults.get(key)), value) for key, value in values.items()}
    return [f"{key} is {json.dumps(a)}, not {json.dumps(b)}" for key, (a, b) in pairs.items() if a != b]


def values_of(run: Run) -> tuple[Values | None, list[str]]:
    """Return the values for judging a run, and how its recorded rules differ from every revision of their set.

    A run is judged by the revision that it recorded; if it recorded no known revision, by the newest.
    """
    recorded = run.start.get("rules") or {}
    revisions = known_values(str(recorded.get("name")), str(recorded.get("scenario")))
    if not revisions:
        return None, [f"the auditor knows no rules {recorded.get('name')!r} of {recorded.get('scenario')!r}"]
    same = [values for values in revisions if not differences(recorded, values)]
    values = (same or revisions)[-1]
    return values, differences(recorded, values)


def judge_run(run: Run, values: Values) -> list[Rule]:
    """Return the rules about one run."""
    asked = counted(run)
    found = list(_any_purpose(run, values, asked))
    if run.purpose in ("all", "performance", "power", "probe"):
        found += _played(run, values, asked)
    return written(run.path.name, found)


def _any_purpose(run: Run, values: Values, asked: Table) -> Iterator[Judged]:
    yield from to_the_end(run)
    if labels := set(column(table(run, "samples"), "label")) - {None}:
        told = [answer for _, answer in answers(run)]
        given = [a for a in told if a is not None]
        classes = run.details.get("classes")
        known = labels.union(c for c in (classes if isinstance(classes, list) else ()) if isinstance(c, str))
        odd = sum(not (isinstance(a, str) and a in known) for a in given)
        yield none("answers that are no label of the workload", odd, len(told))
        yield "samples that the device answered", f"{len(given)} of {len(told)}", "1 or more", given or not told
    yield from _timed(run, asked)
    if values["hardware_only"]:
        modes = modes_of(run)
        yield "device and meters", ", ".join(sorted(modes)), "hardware", modes == {"hardware"}
    if (values["whole_set"] and run.purpose not in ("probe", "compliance")) or run.purpose == "accuracy":
        whole = run.start["workload"].get("samples") or table(run, "samples").num_rows
        said = [output is not None for output in asked.output]
        done = len({*asked.sample[~np.isnan(asked.answered_s) | np.array(said, dtype=bool)]})
        yield "samples of the set answered", done, whole, done >= whole
    if values["benchmark"] and run.purpose != "probe":
        yield from benchmark(run)
    if values["outline"]:
        own = run.start["device"].get("algorithm") or {}
        told_of = {"system architecture": run.start["device"].get("description")}
        told_of |= {what: any(own.get(key) for key in keys) for what, keys in OUTLINED.items()}
        for what, text in told_of.items():
            yield f"outline of the {what}", "declared" if text else "nothing", "declared", text
    if values["preprocessing"]:
        yield _preprocessing(run)


def to_the_end(run: Run) -> Iterator[Judged]:
    """Judge the rules of every run, with any set: it ended well, samples were answered, and the host never paused."""
    error = None if run.stop is None else run.stop.error
    how = "to the end" if run.ended else "no stop line" if error is None else f"broken off by {error.error}"
    yield "the run", how, "to the end", run.ended
    asked = counted(run)
    bound = run.purpose != "accuracy" and run.options.get("latency_bound_s") is not None
    lost = int(np.sum((np.isnan(asked.answered_s) | bound & figures.refused(asked)) & ~np.isnan(asked.issued_s)))
    yield none("samples without an answer", 0 if run.start.get("imported") else lost)
    yield none("gaps in which the host did not run", run.gaps)


def _timed(run: Run, asked: Table) -> Iterator[Judged]:
    """Judge the spans, if any are recorded: all declared phases ran and no others, and every answer has a span."""
    declared, ran = set(run.start["device"].get("phases") or []), set().union(*map(set, {*asked.phases}))
    if not ran:
        return
    if declared and run.ended:
        yield "phases that ran", ", ".join(sorted(ran)), ", ".join(sorted(declared)), ran == declared
    told = [phases for phases, output in zip(asked.phases, asked.output, strict=True) if output is not None]
    yield none("answers without a span", sum(not phases for phases in told), len(told))


def modes_of(run: Run) -> set[str]:
    """Return the modes of the device and the meters; a mode that is not stated is not hardware."""
    return {part.get("mode") or "not stated" for part in (run.start["device"], *run.start["meters"])}


def _preprocessing(run: Run) -> Judged:
    told = run.start["device"].get("preprocessing") or {}
    allowed = "measured by itself, or a reason why there is none"
    phases, rails = told.get("phases") or [], told.get("rails") or []
    metered = {rail.get("name") for meter in run.start["meters"] for rail in meter.get("rails") or []}
    missing = [p for p in phases if p not in set(column(table(run, "replies"), "phase"))]
    missing += [r for r in rails if r not in metered and run.purpose == "power"]
    found = f"not measured: {', '.join(missing)}" if missing else ", ".join([*phases, *rails]) or "nothing declared"
    ok = told.get("none") or ((phases or rails) and not missing)
    return "pre-processing, reported separately from inference", told.get("none") or found, allowed, ok


def _played(run: Run, values: Values, asked: Table) -> Iterator[Judged]:
    """Judge how samples were issued and answered."""
    if values["warmup"] is not None:
        yield at_most("warm-up samples", int(issues(run).warmup.sum()), values["warmup"])
    done = asked[~np.isnan(asked.answered_s)]
    yield "queries", len(asked), f"at least {values['min_queries']}", len(asked) >= values["min_queries"]
    if (least := values["min_duration_s"]) > 0:
        lasted = float(np.sum(np.diff(figures.requested(run))))
        yield "duration", f"{lasted:.6g} s", f"at least {least:g} s", lasted >= least
    if run.start["meters"] or run.purpose == "power":
        shortest = min((float(b - a) for a, b in idle_windows(run)), default=0.0)
        ok, least = shortest >= values["idle_s"] * (1 - ROUNDING), f"at least {values['idle_s']:g} s"
        yield "shortest idle window", f"{shortest:.6g} s", least, ok
    if values["percentile"] is not None:
        yield from _percentile(run, values, figures.waits_s(done))
    if values["in_time_share"] is not None:
        yield from _in_time(run, values, asked)
    if values["late_share"] is not None or values["gap_distance"] is not None:
        yield from _schedule(run, values, asked)
    if values["at_a_time"] is not None:
        yield at_most("samples at a time", _together(done), values["at_a_time"])
    if is_solving(run):
        yield from _solves(run, values)
    yield from _stamps(run)


def _percentile(run: Run, values: Values, latency: Floats) -> Iterator[Judged]:
    share, bound, count = values["percentile"], run.options.get("latency_bound_s"), len(latency)
    name = f"p{share * 100:g}"
    if bound is None:
        if values["early_stopping"]:
            stated = count > 0 and figures.beyond_chance(1, count, share)
            yield f"queries for {name} (early stopping)", count, "as many as an estimate needs", stated
        return
    yield at_most(f"{name} of latency", figures.nearest_rank(latency, share) if count else math.inf, bound, " s")
    if values["early_stopping"]:
        over = int(np.sum(latency > bound))
        what = f"queries, with {over} over the bound, to trust {name} (early stopping)"
        yield what, count, "enough to rule out chance", count > 0 and figures.beyond_chance(over, count, share)


def _in_time(run: Run, values: Values, asked: Table) -> Iterator[Judged]:
    stride, deadline = run.options.get("stride_s"), figures.deadline_s(run)
    if not deadline:
        yield "deadline of a frame", "not recorded", "a time", False
        return
    share, least = np.sum(figures.waits_s(asked) <= deadline) / max(len(asked), 1), values["in_time_share"]
    yield f"frames answered within {deadline:g} s", f"{share:.2%}", f"at least {least:.0%}", share >= least
    if (most := values["deadline_strides"]) is not None:
        strides = deadline / stride if stride else math.inf
        yield "deadline of a frame", f"{strides:g} strides", f"at most {most:g}", strides <= most * (1 + ROUNDING)


def _schedule(run: Run, values: Values, asked: Table) -> Iterator[Judged]:
    """Judge how well the host kept its schedule: its delay, and the gaps between issues.

    The delay counts from the due time, or from the last answer before the issue if this is later.
    """
    known = asked[~np.isnan(asked.due_s + asked.issued_s)]
    if not len(known):
        return
    due, at = known.due_s, known.issued_s
    ends = np.sort([-np.inf, *asked.answered_s[~np.isnan(asked.answered_s)]])
    held = np.maximum(due, ends[np.searchsorted(ends, at, "right") - 1])
    bound = run.options.get("latency_bound_s") or figures.deadline_s(run)
    if values["late_share"] is not None and bound:
        slip = figures.nearest_rank(np.maximum(0.0, at - held), 0.99)
        yield at_most("p99 of the host's slip", slip, values["late_share"] * bound, " s")
    if (most := values["gap_distance"]) is not None and len(at) > 2:
        apart = ks_2samp(np.diff(np.sort(held)), np.diff(np.sort(at)), method="asymp").statistic
        yield at_most("Kolmogorov distance of gaps kept to gaps scheduled", apart, most)


def _together(done: Table) -> int:
    """Return the largest number of samples that waited for an answer at one time, by the stamps of the host."""
    steps = [(at, 1) for at in done.issued_s if not np.isnan(at)] + [(at, -1) for at in done.answered_s]
    return max(np.cumsum([step for _, step in sorted(steps)]), default=0)  # at equal times, answers come first


def _solves(run: Run, values: Values) -> Iterator[Judged]:
    yield none("solves whose costs are not those of their solutions", len(solving(run)[1]))
    stamped, told = spans(run), list(outputs(run))
    solve, stated = stamped[~stamped.warmup], {issue.number: fields.get("overrun_s") or 0.0 for issue, fields in told}
    if (budget := run.options.get("timeout_s")) and len(solve):
        worst = np.array([stated.get(issue, 0.0) for issue in solve.issue])
        over = np.fmax((solve.off - solve.on) / solve.inferences - budget, np.where(solve.inferences > 1, worst, 0.0))
        yield none("solves past their budget by 1 ms and 1 %", int(np.sum(over > max(BUDGET_S, BUDGET_SHARE * budget))))
    if values["fresh_seeds"]:
        seeds = [(issue.sample, o["seed"]) for issue, o in told if o.get("seed") is not None]
        yield none("solves with a seed that their problem had before", len(seeds) - len(set(seeds)))
    if values["one_tuning"]:
        tunings = {json.dumps(o["tuning"], sort_keys=True) for _, o in told if o.get("tuning") is not None}
        yield at_most("tunings of the solver in a run", len(tunings), 1)


def _stamps(run: Run) -> Iterator[Judged]:
    """Judge whether spans are between the stamps of the host, as far as the device's clock is known."""
    clock, stamped, every = figures.device_line(run), spans(run), issues(run)
    lasts_s = float(np.ptp(stamped.on)) if len(stamped) else 0.0
    slack = clock.bound_s + clock.rate_bound * lasts_s + 1e-6
    own = every[np.searchsorted(every.number, stamped.issue)]
    early = stamped.on < own.issued_s - slack - clock.wander_s(stamped.on)
    late = stamped.off > own.answered_s + slack + clock.wander_s(stamped.off)
    yield none("spans that begin before they were issued", int(np.sum(early)))
    yield none("spans that end after their answer arrived", int(np.sum(late)))


# ---- a session as a whole ----------------------------------------------------------------


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
    """Judge whether the runs of time and power hold the same samples. Longer sequences are compared separately."""
    for longer in (False, True):
        alike = [run for run in runs if run.purpose in COMPARED and bool(_amortised(run)) == longer]
        held = {run.path.name: set(counted(run).sample) for run in alike}
        every = set[str]().union(*held.values())
        lost = [f"{len(every - own)} not in {name}" for name, own in held.items() if own != every]
        if len(held) > 1:
            yield SAMPLES, "; ".join(lost) or "none", "none", not lost


def _one_speed(runs: list[Run], values: Values) -> Iterator[Judged]:
    """Judge whether power and accuracy runs are as quick as performance runs: all must be at one operating point.

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
    """Return seconds per inference, by sample, phase, and number of earlier executions of this sample and phase."""
    own, asked = spans(run), issues(run)
    own = own[~own.warmup]
    sample = dict(zip(asked.number, asked.sample, strict=True))
    by = pd.DataFrame({"sample": [sample[issue] for issue in own.issue], "phase": own.phase})
    seconds = pd.Series((own.off - own.on) / own.inferences, dtype=float)
    return seconds.set_axis(pd.MultiIndex.from_arrays([by["sample"], by["phase"], by.groupby([*by]).cumcount()]))


def _own_time(run: Run) -> bool:
    """Return whether the times of a run differ on purpose: by longer sequences, batches, phases alone or repeats."""
    many, options = (run.start["device"].get("max_batch") or 1) > 1, run.options
    if run.purpose == "accuracy":
        return many or bool(options.get("apart")) or (options.get("repeat") or 1) > 1
    return bool(_amortised(run)) or (many and not np.isnan(counted(run).due_s).all())


def _amortised(run: Run) -> object:
    return run.start["scenario"].get("amortise_s")


def _answers(runs: list[Run]) -> Iterator[Judged]:
    """Judge whether speed and power runs answer like accuracy runs. A few answers may differ if accuracy agrees."""
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
    """Return the answers of a run to each sample; null for a sample that it completed without an output."""
    found = defaultdict[str, set[str]](set)
    for sample, answer in answers(run, silent=True):
        found[sample].add(json.dumps(answer, sort_keys=True))
    return found
