"""A session as one result: times from its performance runs, accuracy from its accuracy run, power from its power

runs; the mean of the trials, and the rules that speak of several runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rig.analysis.quantity import Component, Quantity, linear
from rig.analysis.result import Result
from rig.analysis.service.queries import queries_of
from rig.analysis.validity import Check
from rig.recording.reader import Run
from rig.recording.session import SizeProbe

SCORES = ("accuracy", "balanced_accuracy")
NOISY = 0.1
"""Of the samples, that a chip's noise may have answered otherwise."""
ALIKE = 0.01
"""By which accuracies may differ, relative, where answers do (TEST01's second criterion)."""
CACHED = 0.9
"""A repeated sample answered in less than this part of its time among others speaks of a cache (TEST04: 10 %)."""


@dataclass(frozen=True)
class Part:
    """One run of a session, read and evaluated."""

    name: str
    purpose: str
    run: Run
    result: Result


def summarise(name: str, parts: Sequence[Part], tried: Sequence[SizeProbe] = ()) -> Result | None:
    """The session's result; of a search, that for the largest size it found. None when there is neither."""
    by = {p: [part for part in parts if part.purpose == p] for p in ("performance", "accuracy", "power", "compliance")}
    lead = next((by[p][0] for p in ("power", "performance", "accuracy") if by[p]), None)
    if lead is None:
        return _searched(name, parts, tried)
    figures = _figures(by)
    checks = [*_of_runs(parts), *_of_session(lead.run, by, figures)]
    validity = lead.result.validity
    return replace(
        lead.result,
        run_id=name,
        complete=all(part.result.complete for part in parts),
        simulated=any(part.result.simulated for part in parts),
        quantities=figures,
        refusals=tuple(dict.fromkeys(r for part in parts for r in part.result.refusals)),
        notes=tuple(dict.fromkeys([*_about(parts), *(n for part in by["power"] or [lead] for n in part.result.notes)])),
        series=replace(
            lead.result.series,
            **_served((by["performance"] or [lead])[0]),
        ),
        validity=None if validity is None else replace(validity, checks=tuple(checks)),
    )


def _searched(name: str, parts: Sequence[Part], tried: Sequence[SizeProbe]) -> Result | None:
    """The largest size of which a solution better than cost 0 was found, with what its own run gave."""
    solved = [(part, _nodes(part.run)) for part in parts if _solved(part)]
    if not tried or not solved:
        return None
    part, nodes = max(solved, key=lambda pair: pair[1])
    failed = [t for t in tried if not t.held and t.nodes > nodes]
    method = "largest tried of which a solution better than cost 0 was found"
    more = min(failed, key=lambda t: t.nodes, default=None)
    note = f"{more.nodes} nodes failed: {more.found}" if more else "The search was ended before a size failed"
    figures = {"largest_nodes": Quantity(float(nodes), "1", (), 0.0, len(tried), method)}
    kept = ("cost_best", "overrun_max_s", "execution_time_s")
    figures |= {n: part.result.quantities[n] for n in kept if n in part.result.quantities}
    about = f"A search over {', '.join(str(t.nodes) for t in tried)} nodes"
    return replace(
        part.result,
        run_id=name,
        quantities=figures,
        notes=(about, note, *part.result.notes),
        refusals=(),
        validity=None,
    )


def _nodes(run: Run) -> int:
    return run.start.workload.nodes or 0


def _solved(part: Part) -> bool:
    best = part.result.quantities.get("cost_best")
    return part.purpose == "probe" and best is not None and best.value < 0


def _served(part: Part) -> dict[str, Any]:
    series = part.result.series
    return {
        "asked_s": series.asked_s, "latency_s": series.latency_s, "execution_times_s": series.execution_times_s,
    }  # fmt: skip


def _about(parts: Sequence[Part]) -> Iterator[str]:
    yield "A session of " + ", ".join(f"{part.name} ({part.purpose})" for part in parts)


def _figures(by: Mapping[str, list[Part]]) -> dict[str, Quantity]:
    """Times from performance, scores from accuracy, watts and joules from power."""
    times = _over_trials([p.result.quantities for p in by["performance"]])
    power = _over_trials([p.result.quantities for p in by["power"]])
    scores = {n: q for p in by["accuracy"] for n, q in p.result.quantities.items() if n in SCORES}
    if not times:
        times = {n: q for n, q in power.items() if q.unit not in ("W", "J")}
    return times | scores | {n: q for n, q in power.items() if q.unit in ("W", "J") or n.startswith("peer.")}


def _over_trials(trials: Sequence[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    if len(trials) < 2:
        return dict(trials[0]) if trials else {}
    common = [name for name in trials[0] if all(name in t for t in trials)]
    return {name: _mean([t[name] for t in trials]) for name in common}


def _mean(values: Sequence[Quantity]) -> Quantity:
    """Mean of trials: what they share stays, and their scatter joins where it is more than they state."""
    n = len(values)
    mean = linear([(1.0 / n, q) for q in values], values[0].unit, f"{values[0].method}; mean of {n} trials")
    scatter = float(np.std([q.value for q in values], ddof=1)) / math.sqrt(n)
    more = math.sqrt(max(scatter**2 - mean.u**2, 0.0))
    if more == 0.0:
        return mean
    return replace(mean, components=(*mean.components, Component("scatter of trials", more, n - 1)))


# ---- rules that speak of more than one run -------------------------------------------------


def _of_runs(parts: Sequence[Part]) -> Iterator[Check]:
    for part in parts:
        if part.purpose != "probe" and part.result.validity is not None:
            for check in part.result.validity.checks:
                yield replace(check, rule=f"{part.name}: {check.rule}")


def _of_session(run: Run, by: Mapping[str, list[Part]], figures: Mapping[str, Quantity]) -> Iterator[Check]:
    rules = run.start.rules
    for purpose in ("performance", "power"):
        found = len(by[purpose])
        wanted = 1 if rules is None else rules.trials or 1
        if purpose == "power" and not found and not (rules and rules.submittable):
            continue  # on the bench one may leave the meter out
        yield Check(f"runs for {purpose}", str(found), f"at least {wanted}", found >= wanted)
    if rules is not None and rules.trial_tolerance is not None:
        yield from _within(by, rules.trial_tolerance)
    yield from _same_answers(by)
    yield from _no_cache(by)


def _within(by: Mapping[str, list[Part]], tolerance: float) -> Iterator[Check]:
    """Every trial near the mean of all, for the figures that are reported."""
    for purpose, name in (
        ("performance", "execution_time_s"),
        ("power", "active_power_w"),
        ("power", "average_power_w"),
    ):
        values = [p.result.quantities[name].value for p in by[purpose] if name in p.result.quantities]
        if len(values) > 1:
            mean = sum(values) / len(values)
            worst = max(abs(v - mean) for v in values) / abs(mean) if mean else 0.0
            yield Check(
                f"{name} of each trial from the mean", f"{worst:.3%}", f"at most {tolerance:.0%}", worst <= tolerance
            )


def _same_answers(by: Mapping[str, list[Part]]) -> Iterator[Check]:
    """What was answered for speed is what was answered for accuracy (as LoadGen's TEST01)."""
    if not (by["accuracy"] and by["performance"]):
        return
    expected = _answers(by["accuracy"][0].run)
    asked = differ = 0
    for part in by["performance"]:
        for sample, said in _answers(part.run).items():
            if sample in expected:
                asked += 1
                differ += not said <= expected[sample]
    if asked:
        few = differ <= NOISY * asked and _as_accurate([by["accuracy"][0], *by["performance"]])
        rule = "samples answered otherwise for speed than for accuracy"
        limit = f"0, or {NOISY:.0%} with accuracies within {ALIKE:.0%}"
        yield Check(rule, f"{differ} of {asked}", limit, differ == 0 or few)


def _as_accurate(parts: Sequence[Part]) -> bool:
    """Where a chip's noise changes an answer now and then, as many must be right."""
    found = [part.result.quantities.get("accuracy") for part in parts]
    values = [q.value for q in found if q is not None]
    return len(values) == len(parts) and max(values) - min(values) <= ALIKE * max(values)


def _answers(run: Run) -> dict[str, set[str]]:
    q = queries_of(run)
    ids = run.samples["id"].to_pylist()
    labels = [_decided(text) for text in q.outputs]
    out: dict[str, set[str]] = {}
    phases = run.start.device.phases
    ran = zip(run.replies["issue"].to_pylist(), run.replies["phase"].to_pylist(), strict=True)
    # what ran only an earlier phase has not decided anything
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
    """What was answered before must not be answered sooner than at first (as LoadGen's TEST04): one sample again

    and again against among others, and every sample, once it was asked for accuracy, against then.
    """
    repeated = by["compliance"]
    if not repeated or _apart(repeated[0].run):  # phases by themselves are quicker than all together
        return
    first, among, again = (_median_times(by[name]) for name in ("accuracy", "performance", "compliance"))
    for sample, seconds in again.items():
        # a stream's frames are no samples of the set: then the accuracy run, where each was asked once
        if before := (among or first).get(sample, first.get(sample)):
            yield _not_sooner(f"time of sample {sample} repeated, against its time among others", seconds / before)
    ratios = [seconds / first[sample] for sample, seconds in among.items() if first.get(sample)]
    if ratios:
        rule = "time of the samples asked again for speed, against when first asked"
        yield _not_sooner(rule, float(np.median(ratios)))


def _not_sooner(rule: str, ratio: float) -> Check:
    return Check(rule, f"{ratio:.3f}", f"at least {CACHED:g}", ratio >= CACHED)


def _apart(run: Run) -> bool:
    return run.start.scenario.per_phase


def _median_times(parts: Sequence[Part]) -> dict[str, float]:
    """Seconds from hand-over to answer, so that no queue counts: the median of each sample, by its id."""
    by_sample: dict[str, list[float]] = {}
    for part in parts:
        q, ids = queries_of(part.run), part.run.samples["id"].to_pylist()
        for sample, seconds in zip(q.sample.tolist(), (q.done_s - q.issued_s).tolist(), strict=True):
            if math.isfinite(seconds):
                by_sample.setdefault(ids[sample], []).append(seconds)
    return {name: float(np.median(times)) for name, times in by_sample.items()}
