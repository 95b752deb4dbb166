"""Check whether a run follows its rules: for each rule, what was found and what is allowed.

The rules in a recording must equal the rig's own set of the same name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields

import numpy as np
from msgspec.structs import replace

from rig.analysis.result.finding import Finding, at_least, at_most
from rig.analysis.result.order_statistics import nearest_rank
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.result.verdict import Ruling
from rig.analysis.service.early_stopping import needed
from rig.analysis.service.queries import Queries
from rig.analysis.service.serving import in_time, scheduling_delays_s
from rig.analysis.verdict.benchmark import benchmark_checks
from rig.analysis.verdict.rule_remedies import remedy_of
from rig.analysis.warmup import warmup_issues
from rig.errors import RigError
from rig.plugins import load, names
from rig.recording.events import Start
from rig.recording.reader import Run
from rig.recording.records import ScenarioRecord
from rig.types import Rules

HUNDRED = 0.99
_TEXTS = ("name", "scenario", "source", "sources")


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
    """Return findings; a check without a source or a remedy gets the source or remedy of its rule."""
    return tuple(_named(f, rules) if f.effect == "check" else f for f in findings)


def _named(check: Finding, rules: Rules | None) -> Finding:
    source = "" if rules is None else rules.source_of(check.by)
    remedy = check.remedy or ("" if check.ok else remedy_of(check.rule))
    return replace(check, source=check.source or source, remedy=remedy)


def _whole(run: Run, q: Queries, rules: Rules) -> Iterator[Finding]:
    start, whole = run.start, run.complete
    yield Finding("the run", "to the end" if whole else "broken off", "to the end", whole, remedy=_mend(run))
    # with a latency bound, a device could send null to save time, so null does not count as an answer
    bound = start.purpose != "accuracy" and start.scenario.latency_bound_s is not None
    lost = int(np.count_nonzero(~(q.answered if bound else q.completed) & ~q.dropped))
    yield Finding("samples without an answer", str(lost), "0", lost == 0)
    if rules.hardware_only:
        modes = sorted(map(str, start.modes))
        yield Finding("device and meters", ", ".join(modes), "hardware", modes == ["hardware"], by="hardware_only")
    if start.purpose == "accuracy" or (rules.whole_set and start.purpose != "compliance"):
        found, wanted = len(np.unique(q.sample[q.completed])), start.workload.samples
        yield Finding("samples of the set answered", str(found), str(wanted), found >= wanted, by="whole_set")


def _mend(run: Run) -> str:
    """Return what broke a run off and what to do, from its last line; "" if nothing did."""
    if run.error is None:
        return ""
    return f"{run.error.error} broke it off: {run.error.message.rstrip('.')}. {run.error.remedy or ''}".rstrip()


def _of_benchmark(start: Start, q: Queries, rules: Rules) -> Iterator[Finding]:
    if rules.session and start.purpose == "all":
        yield Finding("mode", "together", "a session of runs", False, by="session")
    if rules.benchmark and start.purpose != "probe":  # a search works with any workload
        yield from benchmark_checks(start.workload.benchmark, start.scenario)
    if rules.at_a_time is not None:
        yield at_most("samples at a time", most_at_a_time(q), rules.at_a_time, "at_a_time")


def most_at_a_time(q: Queries) -> int:
    """Return the largest number of pending samples at any moment; at equal times, answers come before issues."""
    held = q.completed & ~q.dropped
    at_s = np.concatenate([q.issued_s[held], q.completed_s[held]])
    steps = np.repeat([1, -1], np.count_nonzero(held))
    return int(np.cumsum(steps[np.lexsort((steps, at_s))]).max(initial=0))


def _long_enough(run: Run, q: Queries, rules: Rules) -> Iterator[Finding]:
    if rules.warmup is not None:
        yield at_most("warm-up samples", len(warmup_issues(run)), rules.warmup, "warmup")
    yield at_least("queries", len(q), rules.min_queries or 1, "min_queries")
    on_s, off_s = q.window_s()
    if rules.min_duration_s:
        yield at_least("duration", round(off_s - on_s, 9), rules.min_duration_s, "min_duration_s", "{:g} s")
    if run.start.meters:
        idle_ns = run.idle_windows_ns()
        # a window is stamped before and after the sleep, so it is never shorter than the sleep
        shortest_s = float(np.min(idle_ns[:, 1] - idle_ns[:, 0])) / 1e9 if len(idle_ns) else 0.0
        yield at_least("shortest idle window", shortest_s, rules.idle_s, "idle_s", "{:g} s")


def _on_time(scenario: ScenarioRecord, q: Queries, rules: Rules, figures: Figures) -> Iterator[Finding]:
    if not np.any(q.completed):
        return
    p, bound_s, deadline_s = rules.percentile, scenario.latency_bound_s, scenario.deadline_s
    times = q.served_s()
    if p is not None and bound_s is not None:
        yield at_most(f"p{100 * p:g} of latency", nearest_rank(np.sort(times), p), bound_s, "percentile", "{:g} s")
        if rules.early_stopping:
            over = int(np.count_nonzero(times > bound_s)) + int(np.count_nonzero(~q.completed))
            rule = f"queries, with {over} over the bound, to trust p{100 * p:g} (early stopping)"
            yield at_least(rule, len(q), needed(over, p), "early_stopping")
    elif p is not None and rules.early_stopping:
        yield at_least(f"queries for p{100 * p:g} (early stopping)", len(times), needed(1, p), "early_stopping")
    share = rules.in_time_share
    if share is not None and deadline_s is not None:
        rule = f"frames answered within {deadline_s:g} s"
        met = float(np.mean(in_time(q, deadline_s)))
        yield Finding(rule, f"{met:.2%}", f"at least {share:.0%}", met >= share, by="in_time_share")
    if rules.deadline_strides is not None and deadline_s is not None and scenario.stride_s:
        most_s = rules.deadline_strides * scenario.stride_s
        yield at_most("deadline of a frame", deadline_s, most_s, "deadline_strides", "{:g} s")
    yield from _schedule_kept(q, rules, bound_s if bound_s is not None else deadline_s, figures)


def _schedule_kept(q: Queries, rules: Rules, limit_s: float | None, figures: Figures) -> Iterator[Finding]:
    """Check the host's schedule: a host too slow to make the load must not look like a quick device."""
    if not q.scheduled or np.all(q.dropped):
        return
    if rules.late_share is not None and limit_s is not None:
        delay_s = nearest_rank(np.sort(scheduling_delays_s(q)), HUNDRED)
        yield at_most("p99 of the host's slip", delay_s, rules.late_share * limit_s, "late_share", "{:.3g} s")
    distance, most = figures.get(FigureKey("arrival_gap_distance")), rules.gap_distance
    if most is not None and distance is not None:
        rule = "Kolmogorov distance of gaps kept to gaps scheduled"
        yield Finding(rule, f"{distance.value:.3g}", f"at most {most:g}", distance.value <= most, by="gap_distance")


def is_known(rules: Rules) -> bool:
    """Return whether the rig has a set of rules of this name; only results by such a set can be submitted."""
    return rules.name in names("rules")


def differing_rules(rules: Rules, scenario: str) -> Iterator[Finding]:
    """Yield a failed check if recorded rules differ from the rig's own set of their name and scenario."""
    if not is_known(rules):
        return
    rule, allowed = f"the rules are those of {rules.name}", "as the set has it"
    try:
        own: Rules = load("rules", rules.name)(rules.scenario)
    except RigError as error:
        yield Finding(rule, error.message, allowed, False)
        return
    if rules.scenario != scenario:
        yield Finding(rule, f"for {rules.scenario}, and the scenario is {scenario}", allowed, False)
    for field in fields(Rules):
        found, wanted = getattr(rules, field.name), getattr(own, field.name)
        if found != wanted and field.name not in _TEXTS:
            yield Finding(rule, f"{field.name} is {found}, not {wanted}", allowed, False)
