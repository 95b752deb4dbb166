"""The main figures of one run by plain methods. Each has a bound; a correct estimator must agree within it."""

import functools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr

from reports.audit.clocks import Line, line
from reports.audit.folder.reading import Run, by_sample, column, once, table, ticks
from reports.audit.tolerances import EXACT
from rig.types import Floats

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p97": 0.97, "p99": 0.99, "p99_9": 0.999}
NEVER = np.iinfo(np.int64).max
SLACK = 0.01
"""The probability, allowed by early stopping, that a stated percentile is too low."""


@dataclass(frozen=True)
class Plain:
    """A figure by a plain method. ``bound`` is absolute, in the figure's unit; ``why`` says where it comes from.

    ``ends`` is added to the bound: correct methods may differ in how they divide power at the ends of spans.
    """

    value: float
    bound: float
    method: str
    why: str = "counted"
    ends: float = 0.0


Figures = dict[str, Plain]


Table = np.recarray[Any, Any]
"""Rows whose columns are attributes; a selection of rows is again a table."""


@once
def issues(run: Run) -> Table:
    """Return one row for each issue (work handed to the device), by ``number``, joined from all its reply rows.

    Columns: ``sample``, ``warmup``, the first ``output`` (None if absent), ``phases`` as a tuple, and times in s of the
    run (NaN if absent): ``due_s``, ``issued_s``, ``answered_s``, and ``asked_s``: ``due_s``, or else ``issued_s``.
    ``times`` is how often the device executed the sample; it is above 1 in a loop.
    """
    replies, t0 = table(run, "replies"), int(run.start["t0_ns"])
    numbers = ticks(replies, "issue")[0]
    number, first = np.unique(numbers, return_index=True)
    output, phases = dict[int, str](), defaultdict[int, tuple[str, ...]](tuple)
    executed = defaultdict[int, Counter[str | None]](Counter)
    rows = (column(replies, name) for name in ("output", "phase", "executions"))
    for issue, text, phase, ran in zip(numbers, *rows, strict=True):
        output |= {issue: text} if text is not None and issue not in output else {}
        phases[issue] += () if phase is None else (phase,)
        executed[issue][phase] += ran or 1
    sample, warmup = (np.array(column(replies, name), dtype=object)[first] for name in ("sample_id", "warmup"))
    told = (np.fromiter(map(of, number), dtype=object, count=len(number)) for of in (output.get, phases.get))
    stamps = (ticks(replies, name) for name in ("due_ns", "issued_ns", "completed_ns"))
    due, issued, answered = (np.where(there, (ns - t0) * 1e-9, np.nan)[first] for ns, there in stamps)
    if not holds_one(run):
        (on, there), begun = ticks(replies, "on_tick"), np.full(len(number), NEVER)
        np.minimum.at(begun, np.searchsorted(number, numbers[there]), on[there])
        turn = _in_turn(sample, begun)
        due, issued = due[turn], issued[turn]
    asked = np.where(np.isnan(due), issued, due)
    times = np.array([max(executed[issue].values()) for issue in number], dtype=np.int64)
    names = ("number", "sample", "warmup", "output", "phases", "asked_s", "due_s", "issued_s", "answered_s", "times")
    return _table(names, [number, sample, warmup.astype(bool), *told, asked, due, issued, answered, times])


def holds_one(run: Run) -> bool:
    """Return whether the device holds one sample at a time."""
    return all((run.start["device"].get(most) or 1) == 1 for most in ("max_batch", "max_pending"))


def _in_turn(sample: Any, begun: Any) -> list[int]:
    """Return for each issue the issue whose request it answers.

    Of the issues of one sample, the first to begin answers the first request.
    """
    known = [k for k in range(len(sample)) if begun[k] < NEVER]
    asked, first = (sorted(known, key=lambda k: (sample[k], at[k], k)) for at in (range(len(sample)), begun))
    of = dict(zip(first, asked, strict=True))
    return [of.get(k, k) for k in range(len(sample))]


def _table(names: Iterable[str], columns: list[Any]) -> Table:
    kinds = [(name, column.dtype) for name, column in zip(names, columns, strict=True)]
    found = np.rec.fromarrays(columns, dtype=np.dtype(kinds))
    found.setflags(write=False)  # all callers share this array
    return found


def counted(run: Run) -> Table:
    """Return the issues of a run except warm-up."""
    every = issues(run)
    found: Table = every[~every.warmup]
    return found


@once
def device_line(run: Run) -> Line:
    """Return the line of the clock with which the device stamps."""
    clock = run.start["device"].get("clock")
    return line(run, clock["name"] if clock else None)


@once
def spans(run: Run) -> Table:
    """Return the spans that the device stamped, in the order of their begin.

    The columns are ``on`` and ``off`` in s of the run, ``issue``, ``phase``, ``inferences`` and ``warmup``.
    """
    replies, clock = table(run, "replies"), device_line(run)
    (on, there), (off, _), (issue, _) = (ticks(replies, name) for name in ("on_tick", "off_tick", "issue"))
    executed = zip(column(replies, "sample_id"), column(replies, "executions"), strict=True)
    each = by_sample(run, "inferences")
    inferences = np.array([(n or 1) * (each.get(sample) or 1) for sample, n in executed], dtype=np.float64)
    phase, warmup = (np.array(column(replies, name), dtype=object) for name in ("phase", "warmup"))
    columns = [clock.seconds(on), clock.seconds(off), issue, phase, inferences, warmup.astype(bool)]
    order = np.flatnonzero(there)[np.argsort(columns[0][there], kind="stable")]
    return _table(("on", "off", "issue", "phase", "inferences", "warmup"), [one[order] for one in columns])


def windows_of(stamped: Table) -> Floats:
    """Return begin and end of spans, float64 of shape (n, 2)."""
    return np.stack([stamped.on, stamped.off], axis=1)


def batches(of_phase: Table, holds: tuple[int, int] | None = None) -> tuple[Floats, Any, Floats]:
    """Join spans that overlap: return windows, float64 of shape (k, 2), and the first issue and the inferences of each.

    ``holds`` is the largest batch of the device, and the most samples that it holds in all. With ``holds``, only spans
    of one execution are joined. These are the spans of one issue if both numbers are 1, and the spans with the same
    begin and end if the device takes batches. Otherwise each span is an execution.
    """
    own = of_phase[np.lexsort((of_phase.off, of_phase.on))]
    apart = own.on[1:] >= np.maximum.accumulate(own.off)[:-1]
    if holds == (1, 1):
        apart |= np.diff(own.issue) != 0
    elif holds is not None:
        apart |= (holds[0] == 1) | (np.diff(own.on) != 0) | (np.diff(own.off) != 0)
    begins = np.flatnonzero(np.append(True, apart))
    window = np.stack([own.on[begins], np.maximum.reduceat(own.off, begins)], axis=1)
    return window, own.issue[begins], np.add.reduceat(own.inferences, begins)


def nearest_rank(values: Floats, share: float) -> float:
    """Return the smallest value such that at least ``share`` of all values do not exceed it."""
    return float(np.sort(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)])


def execution_times(run: Run) -> Figures:
    """Compute execution times from stamps only, and the busy time per inference if samples overlap.

    Overlapping phases of one sample count once.
    """
    stamped, device, found = spans(run), run.start["device"], Figures()
    stamped, clock = stamped[~stamped.warmup], device_line(run)
    if not len(stamped):
        return found
    holds = device.get("max_batch") or 1, device.get("max_pending") or 1
    own = None if holds == (1, 1) and run.start.get("imported") else holds
    mean_s, most, by_issue = 0.0, 0.0, defaultdict[int, list[tuple[float, float, float]]](list)
    phases = dict.fromkeys(stamped.phase)
    for phase in phases:
        window, number, inferences = batches(stamped[stamped.phase == phase], own)
        length, count = np.diff(window, axis=1)[:, 0], float(inferences.sum())
        found |= _times(f"phase.{phase}.", float(length.sum()) / count, length / inferences, clock)
        mean_s, most = mean_s + float(length.sum()) / count, max(most, count)
        for issue, (on, off), n in zip(number, window, inferences, strict=True):
            by_issue[issue].append((on, off, n))
    each_s = np.array([_union_s(of) for of in by_issue.values()])
    if not alone(run):  # an issue may lack a phase
        held = Counter[tuple[int, str]]()
        for issue, phase, n in zip(stamped.issue, stamped.phase, stamped.inferences, strict=True):
            held[issue, phase] += n
        most = sum(max(held[issue, phase] for phase in phases) for issue in np.unique(stamped.issue))
        mean_s = float(each_s.sum()) / most
    found |= _times("", mean_s, each_s / [max(n for *_, n in of) for of in by_issue.values()], clock)
    busy_s = length_s(batches(stamped, holds if (len(phases), *holds) == (1, 1, 1) else None)[0])
    if busy_s < each_s.sum() * (1 - EXACT):
        value, why = busy_s / most, "the rate of the clock"
        bound = (clock.rate_bound + EXACT) * value
        found["busy_time_per_inference_s"] = Plain(value, bound, "union of stamped spans over inferences", why)
    return found


def length_s(window: Floats) -> float:
    """Return the total length of all windows."""
    return float(np.sum(window[:, 1] - window[:, 0]))


def _union_s(spans_s: list[tuple[float, float, float]]) -> float:
    """Return the time (s) in which at least one of the spans ran."""
    total, reach = 0.0, -math.inf
    for on, off, _ in sorted(spans_s):
        total, reach = total + max(off - max(on, reach), 0.0), max(off, reach)
    return total


def _times(prefix: str, mean: float, each: Floats, clock: Line) -> Figures:
    why, rate = "the rate of the clock, from the quickest round trips at both ends, and one tick", clock.rate_bound
    found = {f"{prefix}execution_time_s": Plain(mean, (rate + EXACT) * mean, "stamps", why)}
    for name in ("p50", "p90", "p99"):
        value = nearest_rank(each, PERCENTILES[name])
        bound = rate * value + clock.s_per_tick
        found[f"{prefix}execution_time_{name}_s"] = Plain(value, bound, "stamps, nearest rank", why)
    if (count := len(each)) > 1:
        error = float(np.std(each, ddof=1)) / count**0.5
        bound = (rate + EXACT) * error + clock.s_per_tick
        found[f"{prefix}execution_time_se_s"] = Plain(error, bound, "deviation of stamps over root n", why)
    return found


def waits_s(asked: Table) -> Floats:
    """Return the seconds from ``asked_s`` to ``answered_s`` of the issues that have both.

    For an issue without a due time, these are the seconds of one execution in its loop. An issue with a due time and
    the answer null waits for ever.
    """
    waited = (asked.answered_s - asked.asked_s) / np.where(np.isnan(asked.due_s), asked.times, 1)
    waited = waited + np.where(refused(asked) & ~np.isnan(asked.due_s), np.inf, 0.0)
    return np.asarray(waited[~np.isnan(waited)])


def answers(run: Run) -> int:
    """Return how often samples were answered; a sample in a loop counts once for each execution."""
    asked = counted(run)
    return int(asked.times[~np.isnan(asked.answered_s) & ~refused(asked)].sum())


@functools.lru_cache(4096)
def parsed(output: str) -> Any:
    """Return the JSON value of an output; None if it is not JSON."""
    try:
        return json.loads(output or "null")
    except (ValueError, RecursionError):
        return None


def answer_in(value: Any) -> Any:
    """Return the answer in the value of an output: its field ``label``, or the whole value if it has none."""
    return value["label"] if isinstance(value, dict) and "label" in value else value


def refused(asked: Table) -> Any:
    """Return which issues were answered with null; none if no issue was answered with anything else."""
    told = np.array([output is not None for output in asked.output], dtype=bool)
    null = told & np.array([answer_in(parsed(output)) is None for output in asked.output], dtype=bool)
    return null & np.any(told & ~null)


def alone(run: Run) -> bool:
    """Return whether phases were issued alone: each issue ran one of them, and each sample ran all of them.

    With the option ``apart``, and in an import, phases may have different samples. If the device learns and has another
    phase, phases always count as issued alone.
    """
    asked, samples = counted(run), defaultdict[str, Counter[str]](Counter)
    for sample, told in zip(asked.sample, asked.phases, strict=True):
        for phase in set(told):
            samples[phase][sample] += 1
    if len(samples) < 2 or "learning" in samples:
        return len(samples) > 1
    if any(len(set(told)) > 1 for told in asked.phases):
        return False
    told_so = bool(run.options.get("apart") or run.start.get("imported"))
    return told_so or all(one == next(iter(samples.values())) for one in samples.values())


def answering(run: Run) -> list[Table]:
    """Return the issues that may answer: a table for each phase if phases were issued alone.

    Otherwise return one table without the issues that only learn, or an empty list if there are no such issues.
    """
    asked = counted(run)
    ran = {told for told in map(frozenset, asked.phases) if told}
    phases = sorted(frozenset[str]().union(*ran) - {"learning"})
    one_each = alone(run) and len(phases) > 1 and max(map(len, ran)) == 1
    groups = [{phase} for phase in phases] if one_each else [set(phases)] if frozenset(["learning"]) in ran else []
    held: list[Any] = [[bool(group & set(told)) for told in asked.phases] for group in groups]
    return [asked[of] for of in held]


def requested(run: Run) -> Floats:
    """Return the time from the first request to the last answer as a window of shape (1, 2); empty without answers.

    In a stream, the window ends at least one stride after the last frame is due.
    """
    asked = counted(run)
    begin, end = np.fmin.reduce(asked.asked_s, initial=np.inf), np.fmax.reduce(asked.answered_s, initial=-np.inf)
    if np.isfinite(end) and (stride := run.options.get("stride_s")):
        end = np.fmax.reduce(asked.due_s + stride, initial=end)
    return np.array([[begin, end]] if np.isfinite([begin, end]).all() else []).reshape(-1, 2)


def deadline_s(run: Run) -> float | None:
    """Return the deadline of a frame; if none is set, the time between frames."""
    return run.options.get("deadline_s") or run.options.get("stride_s")


def service(run: Run) -> Figures:
    """Compute latency from the host's stamps, duration, throughput, and shares of dropped and of timely samples."""
    asked = counted(run)
    due = not np.isnan(asked.due_s).all()
    found = {"dropped_share": Plain(float(np.isnan(asked.issued_s).mean()), EXACT, "counted")} if due else {}
    latency = waits_s(asked)
    if not len(latency):
        return found
    duration, apart = float(np.ptp(requested(run))), answering(run)
    each = [waits_s(group) for group in apart] or [latency]
    mean_s = float(sum(one[one < np.inf].mean() for one in each if len(one)))
    seconds = {"latency_mean_s": mean_s, "duration_s": duration}
    whole = {} if len(each) > 1 or not len(each[0]) else PERCENTILES
    seconds |= {f"latency_{name}_s": nearest_rank(each[0], share) for name, share in whole.items()}
    how = ("stamps of the host, nearest rank", "a nanosecond of the host's stamps")
    found |= {key: Plain(value, 2e-9, *how) for key, value in seconds.items()}
    if duration > 0 and not apart:
        rate = answers(run) / duration
        found["throughput_samples_hz"] = Plain(rate, 1e-6 * rate, "answers over duration", how[1])
    if due and (deadline := deadline_s(run)):
        found["in_time_share"] = Plain(float(np.sum(latency <= deadline)) / len(asked), EXACT, "counted")
    return found


def beyond_chance(over: int, count: int, share: float) -> bool:
    """Return whether chance (``SLACK``) hardly explains that only ``over`` of ``count`` queries exceed a percentile."""
    return float(bdtr(over, count, 1 - share)) <= SLACK


def mean_of(values: Iterable[float]) -> float:
    """Return the mean of one or more values."""
    held = list(values)
    return math.fsum(held) / len(held)


def together(parts: Iterable[Mapping[str, Plain]]) -> Figures:
    """Return the mean of each figure that all runs state."""
    each, found = list(parts), Figures()
    for key in each[0] if each else ():
        same = [figures[key] for figures in each if key in figures]
        if len(same) == len(each):
            value, bound, ends = (mean_of(getattr(p, of) for p in same) for of in ("value", "bound", "ends"))
            method = same[0].method + (f"; mean of {len(same)} runs" if len(same) > 1 else "")
            found[key] = Plain(value, bound, method, same[0].why, ends)
    return found
