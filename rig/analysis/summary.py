"""The summary makes one result of a session: figures by purpose, means of trials, and rules over several runs.

Times come from the performance runs, accuracy from the accuracy run, power from the power runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.catalogue import CATALOGUE
from rig.analysis.figure_key import PEER, FigureKey, Figures
from rig.analysis.quantity import Component, Quantity, linear
from rig.analysis.refusal import Refusal
from rig.analysis.result import Result
from rig.analysis.service.queries import queries_of
from rig.analysis.validity import named
from rig.analysis.verdict import Check
from rig.recording.reader import Run
from rig.recording.session import SizeProbe
from rig.types import Rules

PURPOSES = ("performance", "accuracy", "power", "compliance")
ACCURACY = "accuracy"
SCORES = (FigureKey(ACCURACY), FigureKey("balanced_accuracy"))
NOISY = 0.1
"""Largest share of the samples whose answers may differ because of the noise of a chip."""
ALIKE = 0.01
"""Relative difference of accuracies that is allowed where answers differ (TEST01's second criterion)."""
CACHED = 0.9
"""A repeated sample shows a cache if it takes less than this share of its time among others (TEST04: 10 %)."""


@dataclass(frozen=True)
class Part:
    """One run of a session, read and evaluated."""

    name: str
    purpose: str
    run: Run
    result: Result


def summarise(name: str, parts: Sequence[Part], probes: Sequence[SizeProbe] = ()) -> Result | None:
    """Return the result of a session, or None if there is none.

    The result of a search is that of the largest size found.
    """
    by = _by_purpose(parts)
    lead = next((by[p][0] for p in ("power", "performance", "accuracy") if by[p]), None)
    if lead is None:
        return _searched(name, parts, probes)
    by = _by_purpose([p for p in parts if _configuration(p) == _configuration(lead)])
    figures = _figures(by)
    refusals = tuple(dict.fromkeys(r for part in parts for r in part.result.refusals))
    validity, rules = lead.result.validity, lead.run.start.rules
    if validity is not None and rules is not None:
        checks = [*_of_session(lead.run, by), *_one_system(parts, rules), *_reported(figures, refusals, rules)]
        checks = [*_of_runs(parts), *named(checks, rules)]
        validity = replace(validity, checks=tuple(checks), submittable=rules.submittable)
    about = "A session of " + ", ".join(f"{part.name} ({part.purpose})" for part in parts)
    own = (note for part in by["power"] or [lead] for note in part.result.notes)
    served = (by["performance"] or [lead])[0].result.series
    return replace(
        lead.result,
        run_id=name,
        complete=all(part.result.complete for part in parts),
        simulated=any(part.result.simulated for part in parts),
        quantities=figures,
        refusals=refusals,
        notes=tuple(dict.fromkeys([about, *own])),
        series=replace(
            lead.result.series,
            requested_s=served.requested_s,
            latency_s=served.latency_s,
            execution_times_s=served.execution_times_s,
        ),
        validity=validity,
    )


def _by_purpose(parts: Sequence[Part]) -> dict[str, list[Part]]:
    return {p: [part for part in parts if part.purpose == p] for p in PURPOSES}


def _configuration(part: Part) -> str:
    return part.run.start.configuration


def _searched(name: str, parts: Sequence[Part], probes: Sequence[SizeProbe]) -> Result | None:
    """The largest size for which a solution better than cost 0 was found, with figures of its own run."""
    solved = [(part, part.run.start.workload.nodes or 0) for part in parts if _solved(part)]
    if not probes or not solved:
        return None
    part, nodes = max(solved, key=lambda pair: pair[1])
    failed = [t for t in probes if not t.held and t.nodes > nodes]
    method = "largest tried of which a solution better than cost 0 was found"
    more = min(failed, key=lambda t: t.nodes, default=None)
    note = f"{more.nodes} nodes failed: {more.found}" if more else "The search was ended before a size failed"
    figures = {FigureKey("largest_nodes"): Quantity(float(nodes), "1", (), 0.0, len(probes), method)}
    own = (FigureKey("cost_best"), FigureKey("overrun_max_s"), FigureKey("execution_time_s"))
    figures |= {key: part.result.quantities[key] for key in own if key in part.result.quantities}
    about = f"A search over {', '.join(str(t.nodes) for t in probes)} nodes"
    return replace(
        part.result,
        run_id=name,
        quantities=Figures(figures),
        notes=(about, note, *part.result.notes),
        refusals=(),
        validity=None,
    )


def _solved(part: Part) -> bool:
    best = part.result.quantities.get(FigureKey("cost_best"))
    return part.purpose == "probe" and best is not None and best.value < 0


def _figures(by: Mapping[str, list[Part]]) -> Figures:
    """Times from performance runs, accuracy from the accuracy run, watts and joules from power runs."""
    times = _over_trials([p.result.quantities for p in by["performance"]])
    power = _over_trials([p.result.quantities for p in by["power"]])
    scores = {k: q for p in by["accuracy"] for k, q in p.result.quantities.items() if k in SCORES}
    if by["accuracy"]:
        times = {k: q for k, q in times.items() if k not in SCORES}
    if not times:
        times = {k: q for k, q in power.items() if q.unit not in ("W", "J")}
    own = {k: q for k, q in power.items() if q.unit in ("W", "J") or k.method == PEER}
    return Figures(times | scores | own)


def _over_trials(trials: Sequence[Figures]) -> dict[FigureKey, Quantity]:
    if len(trials) < 2:
        return dict(trials[0]) if trials else {}
    common = [key for key in trials[0] if all(key in t for t in trials)]
    return {key: _mean([t[key] for t in trials]) for key in common}


def _mean(values: Sequence[Quantity]) -> Quantity:
    """Mean of trials; their scatter becomes a component if it is more than their stated uncertainty."""
    n = len(values)
    mean = linear([(1.0 / n, q) for q in values], values[0].unit, f"{values[0].method}; mean of {n} trials")
    scatter = float(np.std([q.value for q in values], ddof=1)) / math.sqrt(n)
    more = math.sqrt(max(scatter**2 - mean.u**2, 0.0))
    if more == 0.0:
        return mean
    return replace(mean, components=(*mean.components, Component("scatter of trials", more, n - 1)))


# ---- rules over several runs ---------------------------------------------------------------


def _of_runs(parts: Sequence[Part]) -> Iterator[Check]:
    for part in parts:
        if part.purpose != "probe" and part.result.validity is not None:
            for check in part.result.validity.checks:
                yield replace(check, rule=f"{part.name}: {check.rule}")


def _of_session(run: Run, by: Mapping[str, list[Part]]) -> Iterator[Check]:
    rules = run.start.rules
    for purpose in ("performance", "power"):
        found = len(by[purpose])
        wanted = 1 if rules is None else rules.trials or 1
        if purpose == "power" and not found and not (rules and rules.submittable):
            continue  # a session that cannot be submitted needs no meter
        source = "" if rules is None else rules.source_of("trials")
        yield Check(f"runs for {purpose}", str(found), f"at least {wanted}", found >= wanted, source)
    if rules is not None and ACCURACY in rules.reports:
        found, source = len(by["accuracy"]), rules.source_of(ACCURACY)
        yield Check("runs for accuracy", str(found), "at least 1", found >= 1, source)
    if rules is not None and rules.trial_tolerance is not None:
        source = rules.source_of("trial_tolerance")
        yield from (replace(check, source=source) for check in _within(by, rules.trial_tolerance))
    yield from _same_answers(by)
    yield from _no_cache(by)


def _one_system(parts: Sequence[Part], rules: Rules) -> Iterator[Check]:
    """A result is of one system in one configuration: its time and its power are of the same thing."""
    if not rules.session:
        return
    named_, source = sorted({_configuration(part) for part in parts}), rules.source_of("session")
    found = ", ".join(name or "not named" for name in named_)
    yield Check("configurations of the runs", found, "one", len(named_) == 1, source)
    devices = len({json.dumps(part.run.start.as_recorded.get("device"), sort_keys=True) for part in parts})
    yield Check("devices, as they were declared in the runs", str(devices), "1", devices == 1, source)


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
    for purpose, name in (
        ("performance", "execution_time_s"),
        ("power", "active_power_w"),
        ("power", "average_power_w"),
    ):
        key = FigureKey(name)
        values = [p.result.quantities[key].value for p in by[purpose] if key in p.result.quantities]
        if len(values) > 1:
            mean = sum(values) / len(values)
            worst = max(abs(v - mean) for v in values) / abs(mean) if mean else 0.0
            yield Check(
                f"{name} of each trial from the mean", f"{worst:.3%}", f"at most {tolerance:.0%}", worst <= tolerance
            )


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
    phases = run.start.device.phases
    ran = zip(run.replies["issue"].to_pylist(), run.replies["phase"].to_pylist(), strict=True)
    # an issue that ran only an earlier phase has no decision
    decided = [issue for issue, phase in ran if not phases or phase in (phases[-1], None)]
    use = np.isin(q.issue, decided) & (q.output >= 0)
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
            if math.isfinite(seconds):
                by_sample.setdefault(ids[sample], []).append(seconds)
    return {name: float(np.median(times)) for name, times in by_sample.items()}
