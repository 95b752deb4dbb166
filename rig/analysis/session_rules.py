"""Rules over the several runs of a session: enough of them, alike, of one system, with the figures that are asked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.accuracy import decided_issues
from rig.analysis.catalogue import CATALOGUE
from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.quantity import Quantity
from rig.analysis.refusal import Refusal
from rig.analysis.result import Result
from rig.analysis.service.queries import queries_of
from rig.analysis.validity import named
from rig.analysis.verdict import Check
from rig.recording.reader import Run
from rig.types import Rules

ACCURACY = "accuracy"
NOISY = 0.1
"""Largest share of the samples whose answers may differ because of the noise of a chip."""
ALIKE = 0.01
"""Relative difference of accuracies that is allowed where answers differ (TEST01's second criterion)."""
COMPARED = (
    ("performance", FigureKey("execution_time_s")),
    ("power", FigureKey("active_power_w")),
    ("power", FigureKey("average_power_w")),
)
"""The figures that are compared between trials, with the purpose of the runs that give them."""
CACHED = 0.9
"""A repeated sample shows a cache if it takes less than this share of its time among others (TEST04: 10 %)."""


PURPOSES = ("performance", "accuracy", "power", "compliance")


@dataclass(frozen=True)
class Part:
    """One run of a session, read and evaluated."""

    name: str
    purpose: str
    run: Run
    result: Result


def configuration_of(part: Part) -> str:
    """Return the configuration of the system in a run."""
    return part.run.start.configuration


def session_checks(
    parts: Sequence[Part], by: Mapping[str, list[Part]], rules: Rules, figures: Figures, refusals: Sequence[Refusal]
) -> tuple[Check, ...]:
    """Return the checks of every run, and those of the session.

    ``figures`` are those of the session. ``by`` holds the runs from which they are, by purpose.
    """
    checks = [*_whole_session(parts), *_enough(by, rules), *_one_system(parts, rules), *_outlined(parts[0].run, rules)]
    checks += [*_reported(figures, refusals, rules), *_same_answers(by), *_no_cache(by)]
    return (*_of_runs(parts), *named(checks, rules))


def by_purpose(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """Return the runs of each purpose that a session combines."""
    return {p: [part for part in parts if part.purpose == p] for p in PURPOSES}


def _whole_session(parts: Sequence[Part]) -> Iterator[Check]:
    """Whether every run is there that the runs themselves announce."""
    announced = [link.of for part in parts if (link := part.run.start.session) is not None and link.of is not None]
    if announced or any(part.run.start.session for part in parts):
        wanted = max(announced, default=len(parts) + 1)
        yield Check("runs of the session", str(len(parts)), str(wanted) if announced else "more", len(parts) == wanted)


def _of_runs(parts: Sequence[Part]) -> Iterator[Check]:
    for part in parts:
        if part.purpose != "probe" and part.result.validity is not None:
            for check in part.result.validity.checks:
                yield replace(check, rule=f"{part.name}: {check.rule}")


def trial_checks(by: Mapping[str, list[Part]], rules: Rules) -> tuple[Check, ...]:
    """Return the checks of trials: as many runs of each purpose as the rules ask for, and each near the mean of all."""
    return named(list(_enough(by, rules)), rules)


def _enough(by: Mapping[str, list[Part]], rules: Rules) -> Iterator[Check]:
    """As many runs of each purpose as the rules ask for, and each near the mean of all."""
    wanted = {"performance": rules.trials or 1, "power": rules.trials or 1, "accuracy": int(ACCURACY in rules.reports)}
    if not (by["power"] or rules.submittable):
        del wanted["power"]  # a session that cannot be submitted needs no meter
    for purpose, least in wanted.items():
        if least:
            found, source = len(by[purpose]), rules.source_of(ACCURACY if purpose == "accuracy" else "trials")
            yield Check(f"runs for {purpose}", str(found), f"at least {least}", found >= least, source)
    if rules.trial_tolerance is not None:
        source = rules.source_of("trial_tolerance")
        yield from (replace(check, source=source) for check in _within(by, rules.trial_tolerance))


def _one_system(parts: Sequence[Part], rules: Rules) -> Iterator[Check]:
    """A result is of one system in one configuration: its time and its power are of the same thing."""
    if not rules.session:
        return
    names, source = sorted({configuration_of(part) for part in parts}), rules.source_of("session")
    found = ", ".join(name or "not named" for name in names)
    yield Check("configurations of the runs", found, "one", len(names) == 1, source)
    devices = len({json.dumps(part.run.start.as_recorded.get("device"), sort_keys=True) for part in parts})
    yield Check("devices, as they were declared in the runs", str(devices), "1", devices == 1, source)


def _outlined(run: Run, rules: Rules) -> Iterator[Check]:
    """The device declares what the outlines of the report are made of."""
    if not rules.outline:
        return
    device, source = run.start.device, rules.source_of("outline")
    outlines = {
        "system architecture": device.description,
        "algorithm": device.algorithm.outline,
        "tuning of the algorithm": device.algorithm.tuned,
    }
    for what, said in outlines.items():
        yield Check(f"outline of the {what}", "declared" if said else "not stated", "declared", bool(said), source)


def _reported(figures: Figures, refusals: Sequence[Refusal], rules: Rules) -> Iterator[Check]:
    """Every figure that the rules name is stated."""
    stated = {key.quantity for key in figures if key.of_whole}
    refused = {r.scope.quantity for r in refusals if isinstance(r.scope, FigureKey)}
    for name in rules.reports:
        found = "stated" if name in stated else "refused" if name in refused else "absent"
        title = CATALOGUE[name].title.format(target="target's", threshold="threshold", percentile="percentile")
        yield Check(f"{title} reported", found, "stated", found == "stated", rules.source_of(name))


def _within(by: Mapping[str, list[Part]], tolerance: float) -> Iterator[Check]:
    """Every trial is near the mean of all, for the figures that are reported."""
    for key, trials in trial_figures(by).items():
        values = [q.value for q in trials]
        mean = sum(values) / len(values)
        worst = max(abs(v - mean) for v in values) / abs(mean) if mean else 0.0
        rule = f"{key} of each trial from the mean"
        yield Check(rule, f"{worst:.3%}", f"at most {tolerance:.0%}", worst <= tolerance)


def trial_figures(by: Mapping[str, list[Part]]) -> dict[FigureKey, tuple[Quantity, ...]]:
    """Return the figures that are compared between trials, of each trial, where there are several."""
    figures = {name: [part.result.quantities for part in parts] for name, parts in by.items()}
    found = {key: tuple(f[key] for f in figures[purpose] if key in f) for purpose, key in COMPARED}
    return {key: trials for key, trials in found.items() if len(trials) > 1}


def _same_answers(by: Mapping[str, list[Part]]) -> Iterator[Check]:
    """Answers in the performance runs are those of the accuracy run (as LoadGen's TEST01)."""
    if not (by["accuracy"] and by["performance"]):
        return
    expected = _answers(by["accuracy"][0].run)
    compared = differ = 0
    for part in by["performance"]:
        for sample, said in _answers(part.run).items():
            if sample in expected:
                compared += 1
                differ += not said <= expected[sample]
    if compared:
        few = differ <= NOISY * compared and _as_accurate([by["accuracy"][0], *by["performance"]])
        rule = "samples answered otherwise for speed than for accuracy"
        limit = f"0, or {NOISY:.0%} with accuracies within {ALIKE:.0%}"
        yield Check(rule, f"{differ} of {compared}", limit, differ == 0 or few)


def _as_accurate(parts: Sequence[Part]) -> bool:
    """Whether as many answers are right in every run, although the noise of a chip changes some of them."""
    found = [part.result.quantities.get(FigureKey("accuracy")) for part in parts]
    values = [q.value for q in found if q is not None]
    return len(values) == len(parts) and max(values) - min(values) <= ALIKE * max(values)


def _answers(run: Run) -> dict[str, set[str]]:
    q = queries_of(run)
    ids = run.samples["id"].to_pylist()
    labels = [_decided(text) for text in q.outputs]
    out: dict[str, set[str]] = {}
    use = np.isin(q.issue, list(decided_issues(run))) & (q.output >= 0) & (q.sample >= 0)
    pairs = np.unique(np.column_stack([q.sample, q.output])[use], axis=0)
    for sample, output in pairs.tolist():
        out.setdefault(ids[sample], set()).add(labels[output])
    return out


def _decided(text: str) -> str:
    """The decision in an output: its label where it has one, else all of it."""
    said = json.loads(text)
    return json.dumps(said["label"]) if isinstance(said, dict) and "label" in said else text


def _no_cache(by: Mapping[str, list[Part]]) -> Iterator[Check]:
    """A sample that comes again must not be answered sooner than at first (as LoadGen's TEST04).

    One sample repeated is compared with the same sample among others, and every sample of the performance runs with
    its time in the accuracy run.
    """
    repeated = by["compliance"]
    if not repeated or repeated[0].run.start.scenario.per_phase:  # one phase is quicker than all of them
        return
    first, among, again = (_median_times(by[name]) for name in ("accuracy", "performance", "compliance"))
    for sample, seconds in again.items():
        # the frames of a stream are not samples of the set; the accuracy run holds each of them once
        if before := (among or first).get(sample, first.get(sample)):
            yield _not_sooner(f"time of sample {sample} repeated, against its time among others", seconds / before)
    ratios = [seconds / first[sample] for sample, seconds in among.items() if first.get(sample)]
    if ratios:
        rule = "time of the samples asked again for speed, against when first asked"
        yield _not_sooner(rule, float(np.median(ratios)))


def _not_sooner(rule: str, ratio: float) -> Check:
    return Check(rule, f"{ratio:.3f}", f"at least {CACHED:g}", ratio >= CACHED)


def _median_times(parts: Sequence[Part]) -> dict[str, float]:
    """Median seconds from issue to completion by sample id, so that no queue counts."""
    by_sample: dict[str, list[float]] = {}
    for part in parts:
        q, ids = queries_of(part.run), part.run.samples["id"].to_pylist()
        for sample, seconds in zip(q.sample.tolist(), (q.completed_s - q.issued_s).tolist(), strict=True):
            if math.isfinite(seconds) and sample >= 0:
                by_sample.setdefault(ids[sample], []).append(seconds)
    return {name: float(np.median(times)) for name, times in by_sample.items()}
