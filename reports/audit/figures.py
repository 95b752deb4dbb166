"""The main figures of one run by plain methods, each with the bound within which a right estimator must agree."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr

from reports.audit.clocks import Line, line
from reports.audit.files import clean
from reports.audit.reading import Run, column, ticks
from rig.types import Floats

EXACT = 1e-9
"""The relative bound of figures that are counted, or subtracted between stamps of one clock."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p97": 0.97, "p99": 0.99, "p99_9": 0.999}
SLACK = 0.01
"""The chance that early stopping allows for a percentile that is stated too low."""


@dataclass(frozen=True)
class Plain:
    """A figure by a plain method. ``bound`` is absolute, in the figure's unit; ``why`` says where it comes from."""

    value: float
    bound: float
    method: str
    why: str = "counted"


Figures = dict[str, Plain]


@dataclass(frozen=True)
class Issue:
    """One sample handed to the device once: its rows of ``replies.arrows`` put together. Times in s of the run."""

    number: int
    sample: str
    warmup: bool
    asked_s: float | None
    issued_s: float | None
    due_s: float | None
    answered_s: float | None
    output: str | None
    phases: tuple[str, ...]


@dataclass(frozen=True)
class Spans:
    """Every stamped span in seconds of the run: float64 ``on`` and ``off`` of shape (n,)."""

    on: Floats
    off: Floats
    issue: Any
    phase: Any
    inferences: Floats
    warmup: Any

    def of(self, chosen: Any) -> Spans:
        """The spans where ``chosen`` is true."""
        return Spans(
            *(part[chosen] for part in (self.on, self.off, self.issue, self.phase, self.inferences, self.warmup))
        )


def issues(run: Run) -> list[Issue]:
    """The issues of a run in order of their number."""
    table, t0 = run.tables["replies"], int(run.start["t0_ns"])
    names = ("issue", "sample_id", "phase", "due_ns", "issued_ns", "completed_ns", "output", "warmup")
    rows: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in zip(*(column(table, name) for name in names), strict=True):
        rows[row[0]].append(row)

    def seconds(ns: int | None) -> float | None:
        return None if ns is None else (ns - t0) * 1e-9

    found = []
    for number, same in sorted(rows.items()):
        first = same[0]
        due, issued, answered = (seconds(first[k]) for k in (3, 4, 5))
        output = next((row[6] for row in same if row[6] is not None), None)
        phases = tuple(row[2] for row in same if row[2] is not None)
        asked = due if due is not None else issued
        found.append(Issue(number, first[1], bool(first[7]), asked, issued, due, answered, output, phases))
    return found


def device_line(run: Run) -> Line:
    """The line of the clock on which the device stamps."""
    clock = run.start["device"].get("clock")
    return line(run, clock["name"] if clock else None)


def spans(run: Run) -> Spans:
    """The spans that the device stamped, in the order of their begin."""
    table, samples = run.tables["replies"], run.tables["samples"]
    on, there = ticks(table, "on_tick")
    off, _ = ticks(table, "off_tick")
    each = dict(zip(column(samples, "id"), column(samples, "inferences"), strict=True))
    pairs = zip(column(table, "executions"), column(table, "sample_id"), strict=True)
    inferences = np.array([(e or 1) * (each.get(s) or 1) for e, s in pairs], dtype=np.float64)
    clock = device_line(run)
    issue = ticks(table, "issue")[0]
    phase, warmup = (np.array(column(table, name), dtype=object) for name in ("phase", "warmup"))
    whole = Spans(clock.seconds(on), clock.seconds(off), issue, phase, inferences, warmup.astype(bool))
    return whole.of(np.flatnonzero(there)[np.argsort(whole.on[there], kind="stable")])


def batches(of_phase: Spans) -> tuple[Floats, Any, Floats]:
    """Windows of spans that overlap, float64 of shape (k, 2), the first issue of each, and its inferences."""
    begins = np.flatnonzero(np.concatenate([[True], of_phase.on[1:] >= np.maximum.accumulate(of_phase.off)[:-1]]))
    ends = np.maximum.reduceat(of_phase.off, begins)
    window = np.stack([of_phase.on[begins], ends], axis=1)
    return window, of_phase.issue[begins], np.add.reduceat(of_phase.inferences, begins)


def nearest_rank(values: Floats, share: float) -> float:
    """The smallest value that at least ``share`` of all do not exceed."""
    return float(np.sort(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)])


def execution_times(run: Run) -> Figures:
    """Execution times from stamps alone."""
    counted = spans(run)
    counted = counted.of(~counted.warmup)
    clock = device_line(run)
    if not len(counted.on):
        return {}
    tick = clock.s_per_tick
    found: Figures = {}
    means: list[float] = []
    by_issue: dict[int, float] = defaultdict(float)
    for phase in dict.fromkeys(counted.phase):
        window, number, inferences = batches(counted.of(counted.phase == phase))
        length = np.diff(window, axis=1)[:, 0]
        each = length / inferences
        means.append(float(length.sum() / inferences.sum()))
        for first, s in zip(number, each, strict=True):
            by_issue[first] += float(s)
        found |= _times(f"phase.{phase}.", means[-1], each, clock.rate_bound, tick)
    whole = np.array(list(by_issue.values()))
    return found | _times("", sum(means), whole, clock.rate_bound, tick)


def _times(prefix: str, mean: float, each: Floats, rate: float, tick: float) -> Figures:
    why = "the rate of the clock, from the quickest round trips at both ends, and one tick"
    found = {f"{prefix}execution_time_s": Plain(mean, rate * mean + EXACT * mean, "stamps", why)}
    for name in ("p50", "p90", "p99"):
        value = nearest_rank(each, PERCENTILES[name])
        found[f"{prefix}execution_time_{name}_s"] = Plain(value, rate * value + tick, "stamps, nearest rank", why)
    return found


def waits_s(asked: Iterable[Issue]) -> Floats:
    """Seconds from asked to answered, of the issues that have both."""
    return np.array([i.answered_s - i.asked_s for i in asked if i.answered_s is not None and i.asked_s is not None])


def service(run: Run) -> Figures:
    """Latency from the host's stamps, duration, throughput and the share of dropped samples."""
    asked = [i for i in issues(run) if not i.warmup]
    done = [i for i in asked if i.answered_s is not None and i.asked_s is not None]
    found: Figures = {}
    if any(i.due_s is not None for i in asked):
        lost = sum(i.issued_s is None for i in asked)
        found["dropped_share"] = Plain(lost / len(asked), EXACT, "counted")
    if not done:
        return found
    latency = waits_s(done)
    first = min(i.asked_s for i in asked if i.asked_s is not None)
    duration = max(i.answered_s for i in done if i.answered_s is not None) - first
    why = "a nanosecond of the host's stamps"
    found["latency_mean_s"] = Plain(float(latency.mean()), 2e-9, "stamps of the host", why)
    for name, share in PERCENTILES.items():
        found[f"latency_{name}_s"] = Plain(nearest_rank(latency, share), 2e-9, "stamps of the host, nearest rank", why)
    found["duration_s"] = Plain(duration, 2e-9, "stamps of the host", why)
    if duration > 0:
        rate = len(done) / duration
        found["throughput_samples_hz"] = Plain(rate, 1e-6 * rate, "answers over duration", why)
    options = run.start["scenario"].get("options") or {}
    if deadline := options.get("deadline_s") or options.get("stride_s"):
        good = sum(1 for s in latency if s <= deadline)
        if any(i.due_s is not None for i in asked):
            found["in_time_share"] = Plain(good / len(asked), EXACT, "counted")
    return found


def early_stopping(latency: Floats, share: float) -> float | None:
    """MLPerf's estimate of a percentile: with t queries over it, chance explains n only with probability ``SLACK``.

    The largest such t is taken, and the t - 1 slowest queries are left out; None if n is too small. Source: MLPerf
    Inference, ``early_stopping.adoc``.
    """
    n, over = len(latency), 0
    while over < n and float(bdtr(over + 1, n, 1 - share)) <= SLACK:
        over += 1
    return float(np.sort(latency)[n - over]) if over else None


def accuracy(run: Run) -> Figures:
    """Accuracy from the recorded outputs: each sample once, and the mean over classes."""
    samples = run.tables["samples"]
    label = dict(zip(column(samples, "id"), column(samples, "label"), strict=True))
    right: dict[str, list[bool]] = defaultdict(list)
    for issue in decided(run):
        wanted = label.get(issue.sample)
        if issue.warmup or wanted is None or issue.output is None:
            continue
        right[issue.sample].append(answered(issue.output) == wanted)
    if not right:
        return {}
    share = {name: sum(found) / len(found) for name, found in right.items()}
    classes: dict[str, list[float]] = defaultdict(list)
    for name, found in share.items():
        classes[str(label[name])].append(found)
    recall = [sum(found) / len(found) for found in classes.values()]
    return {
        "accuracy": Plain(sum(share.values()) / len(share), EXACT, "outputs equal to labels"),
        "balanced_accuracy": Plain(sum(recall) / len(recall), EXACT, "mean over classes"),
    }


def decided(run: Run) -> list[Issue]:
    """The issues whose output is an answer; one of an earlier phase alone is none, if the last ran alone elsewhere."""
    phases, every = run.start["device"].get("phases") or [], issues(run)
    last = phases[-1:]
    told = bool((run.start["scenario"].get("options") or {}).get("apart"))
    if len(phases) < 2 or not (told or any(list(dict.fromkeys(i.phases)) == last for i in every)):
        return every
    return [i for i in every if not i.phases or last[0] in i.phases]


def answered(output: str) -> Any:
    """What an output answers: its field ``label`` if it has one, else the output itself; None if it is no JSON."""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return value["label"] if isinstance(value, dict) and "label" in value else value


def solving(run: Run) -> tuple[Figures, list[str]]:
    """Costs and gaps of recorded solutions of independent-set problems, and what of the claims is not so."""
    from reports.audit.qubo import cost_of, problem, problem_names

    samples = run.tables["samples"]
    if run.start["workload"].get("task") != "qubo-mis":
        return {}, []
    wrong: list[str] = []
    known = problem_names(run)
    targets = {"official": dict(zip(column(samples, "id"), column(samples, "target_cost"), strict=True))}
    targets |= run.start["workload"].get("targets") or {}
    costs: list[tuple[str, float]] = []
    for issue in issues(run):
        if issue.warmup or issue.output is None:
            continue
        value = json.loads(issue.output) if issue.output[:1] == "{" else {}
        text = value.get("solution") if isinstance(value, dict) else None
        if issue.sample not in known or not isinstance(text, str):
            wrong.append(f"issue {issue.number}: no solution of a recorded problem")
            continue
        cost = cost_of(problem(run, issue.sample), text)
        if cost is None or value.get("cost") not in (None, cost):
            wrong.append(clean(f"issue {issue.number}: the cost is {cost}, not {value.get('cost')}"))
        if cost is not None:
            costs.append((issue.sample, cost))
    found: Figures = {}
    if costs:
        found["cost_mean"] = Plain(sum(c for _, c in costs) / len(costs), 1e-9, "x^T Q x of each solution")
        found["cost_best"] = Plain(min(c for _, c in costs), 1e-9, "x^T Q x of each solution")
    for name, cost_by_sample in targets.items():
        gaps = [(c - t) / abs(t) for s, c in costs if (t := cost_by_sample.get(s))]
        if gaps:
            found[f"gap_{name}_mean"] = Plain(sum(gaps) / len(gaps), 1e-9, "(c - c_target) / |c_target|")
    return found, wrong


def together(parts: Iterable[Mapping[str, Plain]]) -> Figures:
    """The mean of each figure over runs that all state it."""
    each = list(parts)
    found: Figures = {}
    for key in each[0] if each else ():
        same = [figures[key] for figures in each if key in figures]
        if len(same) == len(each):
            value, bound = (sum(getattr(p, k) for p in same) / len(same) for k in ("value", "bound"))
            method = same[0].method + (f"; mean of {len(same)} runs" if len(same) > 1 else "")
            found[key] = Plain(value, bound, method, same[0].why)
    return found
