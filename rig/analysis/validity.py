"""Whether a run keeps the rules it was played by: rule by rule, what was found against what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rig.analysis.quantity import Quantity
from rig.analysis.service.early_stopping import allowed, nearest_rank, needed
from rig.analysis.service.queries import Queries
from rig.analysis.service.serving import in_time_share, slips_s
from rig.recording.lines import ScenarioRecord
from rig.recording.reader import Run
from rig.types import Rules

HUNDRED = 0.99


@dataclass(frozen=True, slots=True)
class Check:
    """One rule: what was found, what is allowed, both as a person reads them, and whether it is kept."""

    rule: str
    found: str
    allowed: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Validity:
    """The verdict on one run. ``submittable`` says whether the set of rules is one to submit by."""

    rules: str
    source: str
    submittable: bool
    checks: tuple[Check, ...]

    @property
    def valid(self) -> bool:
        """Every rule was kept."""
        return all(check.ok for check in self.checks)

    @property
    def verdict(self) -> str:
        """VALID or INVALID."""
        return "VALID" if self.valid else "INVALID"


def judge(run: Run, q: Queries, figures: Mapping[str, Quantity]) -> Validity | None:
    """The verdict on a run; None when it names no rules. Which rules apply depends on its purpose."""
    rules = run.start.rules
    if rules is None:
        return None
    checks = [*_whole(run, q, rules)]
    if run.start.purpose not in ("accuracy", "compliance"):
        checks += [*_long_enough(run, q, rules), *_on_time(q, rules, run.start.scenario, figures)]
    return Validity(rules.name, rules.source, rules.submittable, tuple(checks))


def _whole(run: Run, q: Queries, rules: Rules) -> Iterator[Check]:
    ended = "to the end" if run.stop is not None and run.error is None else "broken off"
    yield Check("the run", ended, "to the end", ended == "to the end")
    lost = int(np.count_nonzero(~q.answered & ~q.dropped))
    yield Check("samples without an answer", str(lost), "0", lost == 0)
    if rules.hardware_only:
        modes = sorted(map(str, run.start.modes))
        yield Check("device and meters", ", ".join(modes), "hardware", modes == ["hardware"])
    if run.start.purpose == "accuracy" or rules.whole_set:
        asked, size = len(np.unique(q.sample[q.answered])), run.start.workload.samples
        yield Check("samples of the set answered", str(asked), str(size), asked >= size)


def _long_enough(run: Run, q: Queries, rules: Rules) -> Iterator[Check]:
    if rules.warmup is not None:
        done = len(set(run.replies.filter(run.replies["warmup"])["issue"].to_pylist()))
        yield Check("warm-up samples", str(done), f"at most {rules.warmup}", done <= rules.warmup)
    n, least = len(q), rules.min_queries or 1
    yield Check("queries", str(n), f"at least {least}", n >= least)
    on_s, off_s = q.window_s()
    # the last arrival falls where chance puts it: the schedule ran for as long as asked
    if rules.min_duration_s:
        lasted_s, least_s = round(off_s - on_s, 9), rules.min_duration_s
        yield Check("duration", f"{lasted_s:.6g} s", f"at least {least_s:g} s", lasted_s >= least_s)
    if run.start.meters:
        idle = run.idle_windows_ns()
        shortest = float(np.min(idle[:, 1] - idle[:, 0])) / 1e9 if len(idle) else 0.0
        # a window is stamped before and after the sleep, never short of it
        allowed_s = f"at least {rules.idle_s:g} s"
        yield Check("shortest idle window", f"{shortest:.6g} s", allowed_s, shortest >= rules.idle_s)


def _on_time(q: Queries, rules: Rules, scenario: ScenarioRecord, figures: Mapping[str, Quantity]) -> Iterator[Check]:
    if not np.any(q.answered):
        return
    p, bound_s, deadline_s = rules.percentile, scenario.latency_bound_s, scenario.deadline_s
    times = q.latency_s()
    if p is not None and bound_s is not None:
        over = int(np.count_nonzero(times > bound_s)) + int(np.count_nonzero(~q.answered))
        value = nearest_rank(np.sort(times), p)
        yield Check(f"p{100 * p:g} of latency", f"{value:.6g} s", f"at most {bound_s:g} s", value <= bound_s)
        if rules.early_stopping:
            least = needed(over, p)
            rule = f"queries, with {over} over the bound, to trust p{100 * p:g} (early stopping)"
            yield Check(rule, str(len(q)), f"at least {least}", len(q) >= least)
    elif p is not None and rules.early_stopping:
        enough = allowed(len(times), p) >= 1
        yield Check(f"queries for p{100 * p:g} (early stopping)", str(len(times)), f"at least {needed(1, p)}", enough)
    share = rules.in_time_share
    if share is not None and deadline_s is not None:
        met = in_time_share(q, deadline_s).value
        rule = f"frames answered within {deadline_s:g} s"
        yield Check(rule, f"{met:.2%}", f"at least {share:.0%}", met >= share)
    yield from _schedule_kept(q, rules, bound_s if bound_s is not None else deadline_s, figures)


def _schedule_kept(q: Queries, rules: Rules, limit_s: float | None, figures: Mapping[str, Quantity]) -> Iterator[Check]:
    """A host too slow to make the load must not be taken for a quick device."""
    if not q.scheduled or np.all(q.dropped):
        return
    if rules.late_share is not None and limit_s is not None:
        slip, most = nearest_rank(np.sort(slips_s(q)), HUNDRED), rules.late_share * limit_s
        yield Check("p99 of the host's slip", f"{slip:.3g} s", f"at most {most:.3g} s", slip <= most)
    distance = figures.get("arrival_gap_distance")
    if rules.gap_distance is not None and distance is not None:
        most = rules.gap_distance
        rule = "Kolmogorov distance of gaps kept to gaps scheduled"
        yield Check(rule, f"{distance.value:.3g}", f"at most {most:g}", distance.value <= most)
