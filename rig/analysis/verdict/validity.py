"""Check whether a run follows its rules: for each rule, what was found and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from rig.analysis.result.figure_key import FigureKey, Figures
from rig.analysis.result.finding import Finding, Ruling
from rig.analysis.result.order_statistics import nearest_rank
from rig.analysis.service.early_stopping import allowed, needed
from rig.analysis.service.queries import Queries
from rig.analysis.service.serving import in_time_share, scheduling_delays_s
from rig.analysis.verdict.benchmark import benchmark_checks
from rig.analysis.verdict.missing import ended_well
from rig.analysis.verdict.remedies import remedy_of
from rig.analysis.verdict.rule_set import differing_rules, is_known
from rig.recording.events import Start
from rig.recording.reader import Run
from rig.recording.records import ScenarioRecord
from rig.types import Rules

HUNDRED = 0.99


def ruling_of(rules: Rules | None) -> Ruling | None:
    """Return the rules by which a run is judged, or None if it names none."""
    if rules is None:
        return None
    return Ruling(rules.name, rules.source, rules.submittable and is_known(rules) and not rules.session)


def checks_of(rules: Rules, run: Run, q: Queries, figures: Figures) -> list[Finding]:
    """Return the checks of a run by its rules; its purpose decides which of them apply."""
    start = run.start
    checks = [*differing_rules(rules, start.scenario.name), *_whole(run, q, rules), *_of_benchmark(start, q, rules)]
    if start.purpose not in ("accuracy", "compliance"):
        checks += [*_long_enough(run, q, rules), *_on_time(start.scenario, q, rules, figures)]
    return checks


def named(findings: Iterable[Finding], rules: Rules | None) -> tuple[Finding, ...]:
    """Return findings; checks without a source or remedy get that of their rule."""
    source = "" if rules is None else rules.source_of()
    return tuple(_named(f, source) if f.effect == "check" else f for f in findings)


def _named(check: Finding, source: str) -> Finding:
    remedy = check.remedy or ("" if check.ok else remedy_of(check.rule))
    return replace(check, source=check.source or source, remedy=remedy)


def _whole(run: Run, q: Queries, rules: Rules) -> Iterator[Finding]:
    start, whole = run.start, ended_well(run)
    yield Finding("the run", "to the end" if whole else "broken off", "to the end", whole, remedy=_mend(run))
    lost = int(np.count_nonzero(~q.completed & ~q.dropped))
    yield Finding("samples without an answer", str(lost), "0", lost == 0)
    if rules.hardware_only:
        modes = sorted(map(str, start.modes))
        source = rules.source_of("hardware_only")
        yield Finding("device and meters", ", ".join(modes), "hardware", modes == ["hardware"], source)
    if start.purpose == "accuracy" or (rules.whole_set and start.purpose != "compliance"):
        completed = len(np.unique(q.sample[q.completed]))
        found, wanted, source = str(completed), str(start.workload.samples), rules.source_of("whole_set")
        yield Finding("samples of the set answered", found, wanted, completed >= start.workload.samples, source)


def _mend(run: Run) -> str:
    """Return what broke a run off and what to do, from its last line; "" if nothing did."""
    if run.error is None:
        return ""
    return f"{run.error.error} broke it off: {run.error.message.rstrip('.')}. {run.error.remedy or ''}".rstrip()


def _of_benchmark(start: Start, q: Queries, rules: Rules) -> Iterator[Finding]:
    if rules.session and start.purpose == "all":
        yield Finding("mode", "together", "a session of runs", False, rules.source_of("session"))
    if rules.benchmark and start.purpose != "probe":  # a search must be able to pass with any workload
        yield from benchmark_checks(start.workload.benchmark, start.scenario, rules.source_of("benchmark"))
    if (most := rules.at_a_time) is not None:
        found, source = most_at_a_time(q), rules.source_of("at_a_time")
        yield Finding("samples at a time", str(found), f"at most {most}", found <= most, source)


def most_at_a_time(q: Queries) -> int:
    """Return the largest number of pending samples at any moment; at equal times, answers come before issues."""
    held = q.completed & ~q.dropped
    at_s = np.concatenate([q.issued_s[held], q.completed_s[held]])
    steps = np.repeat([1, -1], np.count_nonzero(held))
    return int(np.cumsum(steps[np.lexsort((steps, at_s))]).max(initial=0))


def _long_enough(run: Run, q: Queries, rules: Rules) -> Iterator[Finding]:
    if (most := rules.warmup) is not None:
        warm = len(run.replies.filter(run.replies["warmup"])["issue"].unique())
        yield Finding("warm-up samples", str(warm), f"at most {most}", warm <= most, rules.source_of("warmup"))
    n, least = len(q), rules.min_queries or 1
    yield Finding("queries", str(n), f"at least {least}", n >= least, rules.source_of("min_queries"))
    on_s, off_s = q.window_s()
    # the last random arrival comes before the end of the schedule, which ran for as long as required
    required_s = rules.min_duration_s
    if required_s:
        lasted_s, source = round(off_s - on_s, 9), rules.source_of("min_duration_s")
        yield Finding("duration", f"{lasted_s:.6g} s", f"at least {required_s:g} s", lasted_s >= required_s, source)
    if run.start.meters:
        idle_ns, wanted_s = run.idle_windows_ns(), rules.idle_s
        shortest_s = float(np.min(idle_ns[:, 1] - idle_ns[:, 0])) / 1e9 if len(idle_ns) else 0.0
        # a window is stamped before and after the sleep, so it is never shorter than that
        found, wanted = f"{shortest_s:.6g} s", f"at least {wanted_s:g} s"
        yield Finding("shortest idle window", found, wanted, shortest_s >= wanted_s, rules.source_of("idle_s"))


def _on_time(scenario: ScenarioRecord, q: Queries, rules: Rules, figures: Figures) -> Iterator[Finding]:
    if not np.any(q.completed):
        return
    p, bound_s, deadline_s = rules.percentile, scenario.latency_bound_s, scenario.deadline_s
    times = q.latency_s()
    if p is not None and bound_s is not None:
        over = int(np.count_nonzero(times > bound_s)) + int(np.count_nonzero(~q.completed))
        value = nearest_rank(np.sort(times), p)
        source = rules.source_of("percentile")
        yield Finding(f"p{100 * p:g} of latency", f"{value:.6g} s", f"at most {bound_s:g} s", value <= bound_s, source)
        if rules.early_stopping:
            least = needed(over, p)
            rule = f"queries, with {over} over the bound, to trust p{100 * p:g} (early stopping)"
            source = rules.source_of("early_stopping")
            yield Finding(rule, str(len(q)), f"at least {least}", len(q) >= least, source)
    elif p is not None and rules.early_stopping:
        enough, source = allowed(len(times), p) >= 1, rules.source_of("early_stopping")
        rule = f"queries for p{100 * p:g} (early stopping)"
        yield Finding(rule, str(len(times)), f"at least {needed(1, p)}", enough, source)
    share = rules.in_time_share
    if share is not None and deadline_s is not None:
        met = in_time_share(q, deadline_s).value
        rule = f"frames answered within {deadline_s:g} s"
        yield Finding(rule, f"{met:.2%}", f"at least {share:.0%}", met >= share, rules.source_of("in_time_share"))
    stride_s = scenario.options.get("stride_s")
    if rules.deadline_strides is not None and deadline_s is not None and stride_s:
        most_s, source = rules.deadline_strides * stride_s, rules.source_of("deadline_strides")
        yield Finding("deadline of a frame", f"{deadline_s:g} s", f"at most {most_s:g} s", deadline_s <= most_s, source)
    yield from _schedule_kept(q, rules, bound_s if bound_s is not None else deadline_s, figures)


def _schedule_kept(q: Queries, rules: Rules, limit_s: float | None, figures: Figures) -> Iterator[Finding]:
    """Check the host's schedule: a host too slow to make the load must not look like a quick device."""
    if not q.scheduled or np.all(q.dropped):
        return
    if rules.late_share is not None and limit_s is not None:
        delay_s = nearest_rank(np.sort(scheduling_delays_s(q)), HUNDRED)
        most_s = rules.late_share * limit_s
        source = rules.source_of("late_share")
        yield Finding(
            "p99 of the host's slip", f"{delay_s:.3g} s", f"at most {most_s:.3g} s", delay_s <= most_s, source
        )
    distance = figures.get(FigureKey("arrival_gap_distance"))
    if rules.gap_distance is not None and distance is not None:
        most = rules.gap_distance
        rule = "Kolmogorov distance of gaps kept to gaps scheduled"
        source = rules.source_of("gap_distance")
        yield Finding(rule, f"{distance.value:.3g}", f"at most {most:g}", distance.value <= most, source)
