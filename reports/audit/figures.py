"""The main figures of one run by plain methods, each with the bound within which a right estimator must agree."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr

from reports.audit.clocks import Line, line
from reports.audit.reading import Run, by_sample, column, ticks
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
        return Spans(*(part[chosen] for part in vars(self).values()))


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
    table = run.tables["replies"]
    on, there = ticks(table, "on_tick")
    off, _ = ticks(table, "off_tick")
    each, times = (
        by_sample(run, "inferences"),
        zip(column(table, "sample_id"), column(table, "executions"), strict=True),
    )
    inferences = np.array([(n or 1) * (each.get(sample) or 1) for sample, n in times], dtype=np.float64)
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
    found: Figures = {}
    mean_s, by_issue = 0.0, defaultdict[int, float](float)
    for phase in dict.fromkeys(counted.phase):
        window, number, inferences = batches(counted.of(counted.phase == phase))
        length = np.diff(window, axis=1)[:, 0]
        each = length / inferences
        mean = float(length.sum() / inferences.sum())
        mean_s += mean
        for first, s in zip(number, each, strict=True):
            by_issue[first] += float(s)
        found |= _times(f"phase.{phase}.", mean, each, clock)
    return found | _times("", mean_s, np.array(list(by_issue.values())), clock)


def _times(prefix: str, mean: float, each: Floats, clock: Line) -> Figures:
    why, rate = "the rate of the clock, from the quickest round trips at both ends, and one tick", clock.rate_bound
    found = {f"{prefix}execution_time_s": Plain(mean, (rate + EXACT) * mean, "stamps", why)}
    for name in ("p50", "p90", "p99"):
        value = nearest_rank(each, PERCENTILES[name])
        bound = rate * value + clock.s_per_tick
        found[f"{prefix}execution_time_{name}_s"] = Plain(value, bound, "stamps, nearest rank", why)
    return found


def waits_s(asked: Iterable[Issue]) -> Floats:
    """Seconds from asked to answered, of the issues that have both."""
    return np.array([i.answered_s - i.asked_s for i in asked if i.answered_s is not None and i.asked_s is not None])


def requested(run: Run) -> Floats:
    """From the first request to the last answer, as one window of shape (1, 2); none if nothing was answered."""
    asked = [i for i in issues(run) if not i.warmup]
    begins = [i.asked_s for i in asked if i.asked_s is not None]
    ends = [i.answered_s for i in asked if i.answered_s is not None]
    return np.array([[min(begins), max(ends)]] if begins and ends else []).reshape(-1, 2)


def deadline_s(run: Run) -> float | None:
    """The deadline of a frame; without one, the time between frames."""
    return run.options.get("deadline_s") or run.options.get("stride_s")


def service(run: Run) -> Figures:
    """Latency from the host's stamps, duration, throughput and the share of dropped samples."""
    asked = [i for i in issues(run) if not i.warmup]
    due = any(i.due_s is not None for i in asked)
    lost = sum(i.issued_s is None for i in asked)
    found = {"dropped_share": Plain(lost / len(asked), EXACT, "counted")} if due else {}
    latency = waits_s(asked)
    if not len(latency):
        return found
    duration = float(np.ptp(requested(run)))
    seconds = {"latency_mean_s": float(latency.mean()), "duration_s": duration}
    seconds |= {f"latency_{name}_s": nearest_rank(latency, share) for name, share in PERCENTILES.items()}
    how = ("stamps of the host, nearest rank", "a nanosecond of the host's stamps")
    found |= {key: Plain(value, 2e-9, *how) for key, value in seconds.items()}
    if duration > 0:
        rate = len(latency) / duration
        found["throughput_samples_hz"] = Plain(rate, 1e-6 * rate, "answers over duration", how[1])
    if due and (deadline := deadline_s(run)):
        found["in_time_share"] = Plain(float(np.sum(latency <= deadline)) / len(asked), EXACT, "counted")
    return found


def by_chance(over: int, count: int, share: float) -> bool:
    """Whether chance puts so few of all queries over a percentile only with probability ``SLACK``."""
    return float(bdtr(over, count, 1 - share)) <= SLACK


def early_stopping(latency: Floats, share: float) -> float | None:
    """MLPerf's estimate of a percentile: with t queries over it, chance explains n only with probability ``SLACK``.

    The largest such t is taken, and the t - 1 slowest queries are left out; None if n is too small. Source: MLPerf
    Inference, ``early_stopping.adoc``.
    """
    n, over = len(latency), 0
    while over < n and by_chance(over + 1, n, share):
        over += 1
    return float(np.sort(latency)[n - over]) if over else None


def mean_of(values: Iterable[float]) -> float:
    """The mean of one or more values."""
    held = list(values)
    return math.fsum(held) / len(held)


def together(parts: Iterable[Mapping[str, Plain]]) -> Figures:
    """The mean of each figure over runs that all state it."""
    each, found = list(parts), Figures()
    for key in each[0] if each else ():
        same = [figures[key] for figures in each if key in figures]
        if len(same) == len(each):
            value, bound = mean_of(p.value for p in same), mean_of(p.bound for p in same)
            method = same[0].method + (f"; mean of {len(same)} runs" if len(same) > 1 else "")
            found[key] = Plain(value, bound, method, same[0].why)
    return found
