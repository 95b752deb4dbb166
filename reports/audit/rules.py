"""Every rule of a named set, judged from the recording; the sets and their revisions stand in ``rule_sets.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr

from reports.audit.figures import (
    SLACK,
    Issue,
    answered,
    decided,
    early_stopping,
    issues,
    nearest_rank,
    solving,
    spans,
    waits_s,
)
from reports.audit.files import clean
from reports.audit.power import idle_windows
from reports.audit.reading import Run, column
from reports.audit.rule_sets import Values

BUDGET_S, BUDGET_SHARE = 1e-3, 0.01
"""A solve may exceed its budget by so many seconds and this part of it."""


@dataclass(frozen=True)
class Rule:
    """One rule: what was found against what is allowed. ``run`` is "" for a rule about a whole session."""

    run: str
    rule: str
    found: str
    allowed: str
    ok: bool

    @property
    def said(self) -> str:
        """In one line."""
        return f"{self.run + ': ' if self.run else ''}{self.rule} {self.found}, allowed {self.allowed}"


def judge_run(run: Run, values: Values) -> list[Rule]:
    """The rules about one run."""
    asked = [i for i in issues(run) if not i.warmup]
    found = list(_any_purpose(run, values, asked))
    if run.purpose in ("all", "performance", "power", "probe"):
        found += list(_played(run, values, asked))
    return found


def _rule(run: Run, rule: str, found: object, allowed: object, ok: object) -> Rule:
    return Rule(clean(run.path.name), clean(rule), clean(found), clean(allowed), bool(ok))


def _any_purpose(run: Run, values: Values, asked: list[Issue]) -> Iterator[Rule]:
    ended = run.stop is not None and run.stop.get("error") is None
    yield _rule(run, "the run", "to the end" if ended else "broken off", "to the end", ended)
    lost = sum(i.answered_s is None and i.issued_s is not None for i in asked)
    yield _rule(run, "samples without an answer", lost, 0, lost == 0)
    gaps = len(run.events["gap"])
    labels = set(column(run.tables["samples"], "label")) - {None}
    if labels:
        told = [answered(i.output) for i in decided(run) if not i.warmup and i.output is not None]
        odd = sum(a is not None and not (isinstance(a, str) and a in labels | classes_of(run)) for a in told)
        yield _rule(run, "answers that are no label of the workload", f"{odd} of {len(told)}", 0, odd == 0)
        some = sum(a is not None for a in told)
        yield _rule(run, "samples that the device answered", f"{some} of {len(told)}", "1 or more", some or not told)
    yield from _timed(run, asked, ended)
    yield _rule(run, "gaps in which the host did not run", gaps, 0, gaps == 0)
    if values["hardware_only"]:
        modes = modes_of(run)
        yield _rule(run, "device and meters", ", ".join(sorted(modes)), "hardware", modes == {"hardware"})
    if (values["whole_set"] and run.purpose != "probe") or run.purpose == "accuracy":
        whole = run.start["workload"].get("samples") or run.tables["samples"].num_rows
        done = len({i.sample for i in asked if i.answered_s is not None or i.output is not None})
        yield _rule(run, "samples of the set answered", done, whole, done >= whole)
    if values["benchmark"]:
        yield from _benchmark(run)
    if values["outline"]:
        yield from _outline(run)
    if values["preprocessing"]:
        yield _preprocessing(run)


def _timed(run: Run, asked: list[Issue], ended: bool) -> Iterator[Rule]:
    """Where spans are recorded, every declared phase ran and no other, and every answer has a span."""
    declared, ran = set(run.start["device"].get("phases") or []), {phase for i in asked for phase in i.phases}
    if not ran:
        return
    if declared and ended:
        yield _rule(run, "phases that ran", ", ".join(sorted(ran)), ", ".join(sorted(declared)), ran == declared)
    told = [i for i in asked if i.output is not None]
    untimed = sum(not i.phases for i in told)
    yield _rule(run, "answers without a span", f"{untimed} of {len(told)}", 0, untimed == 0)


def classes_of(run: Run) -> set[str]:
    """The labels that the workload declares."""
    classes = (run.start["workload"].get("details") or {}).get("classes")
    return {c for c in classes if isinstance(c, str)} if isinstance(classes, list) else set()


def modes_of(run: Run) -> set[str]:
    """The modes of the device and the meters; what is not stated is no hardware."""
    parts = [run.start["device"], *run.start["meters"]]
    return {part.get("mode") or "not stated" for part in parts}


def _benchmark(run: Run) -> Iterator[Rule]:
    declared = run.start["workload"].get("benchmark")
    yield _rule(run, "benchmark of the workload", "declared" if declared else "none", "declared", declared)
    if not isinstance(declared, dict):
        return
    scenario = run.start["scenario"].get("name")
    allowed = (declared.get("scenarios") or {}).get("allowed", [])
    yield _rule(run, "scenario of the benchmark", scenario, ", ".join(map(str, allowed)), scenario in allowed)
    for name, one in (declared.get("parameters") or {}).items():
        found = one.get("found", [])
        shown = ", ".join(map(str, one.get("allowed", [])))
        yield _rule(
            run, f"benchmark: {name}", ", ".join(map(str, found)), shown, found and set(found) <= set(one["allowed"])
        )
    options = run.start["scenario"].get("options") or {}
    for name, one in (declared.get("options") or {}).items():
        shown = ", ".join(map(str, one.get("allowed", [])))
        yield _rule(run, f"benchmark: option {name}", options.get(name), shown, options.get(name) in one["allowed"])


def _outline(run: Run) -> Iterator[Rule]:
    device = run.start["device"]
    own = device.get("algorithm") or {}
    parts = ("algorithm", "model", "network", "solver", "encoder")
    told = {
        "outline of the system architecture": device.get("description"),
        "outline of the algorithm": any(own.get(k) for k in parts),
        "outline of the tuning of the algorithm": own.get("tuning") or own.get("training") or own.get("parameters"),
    }
    for name, text in told.items():
        yield _rule(run, name, "declared" if text else "nothing", "declared", text)


def _preprocessing(run: Run) -> Rule:
    told = run.start["device"].get("preprocessing") or {}
    name, allowed = (
        "pre-processing, reported separately from inference",
        "measured by itself, or a reason why there is none",
    )
    if told.get("none"):
        return _rule(run, name, told["none"], allowed, True)
    phases, rails = told.get("phases") or [], told.get("rails") or []
    stamped = set(column(run.tables["replies"], "phase"))
    metered = {rail.get("name") for meter in run.start["meters"] for rail in meter.get("rails") or []}
    missing = [p for p in phases if p not in stamped] + [
        r for r in rails if r not in metered and run.purpose == "power"
    ]
    stated = bool(phases or rails)
    found = f"not measured: {', '.join(missing)}" if missing else ", ".join([*phases, *rails]) or "nothing declared"
    return _rule(run, name, found, allowed, stated and not missing)


def _played(run: Run, values: Values, asked: list[Issue]) -> Iterator[Rule]:
    """Rules about how samples were issued and answered."""
    if values["warmup"] is not None:
        warm = sum(i.warmup for i in issues(run))
        yield _rule(run, "warm-up samples", warm, f"at most {values['warmup']}", warm <= values["warmup"])
    done = [i for i in asked if i.answered_s is not None]
    yield _rule(run, "queries", len(asked), f"at least {values['min_queries']}", len(asked) >= values["min_queries"])
    latency = waits_s(done)
    if (least := values["min_duration_s"]) > 0:
        begins = [i.asked_s for i in asked if i.asked_s is not None]
        lasted = max((i.answered_s or 0.0 for i in done), default=0.0) - min(begins, default=0.0)
        yield _rule(run, "duration", f"{lasted:.6g} s", f"at least {least:g} s", lasted >= least)
    if run.start["meters"] or run.purpose == "power":
        shortest = min((float(b - a) for a, b in idle_windows(run)), default=0.0)
        enough = shortest >= values["idle_s"] * (1 - 1e-9)
        yield _rule(run, "shortest idle window", f"{shortest:.6g} s", f"at least {values['idle_s']:g} s", enough)
    if values["percentile"] is not None:
        yield from _percentile(run, values, latency)
    if values["in_time_share"] is not None:
        yield from _in_time(run, values, asked)
    if values["late_share"] is not None or values["gap_distance"] is not None:
        yield from _schedule(run, values, asked)
    if values["at_a_time"] is not None:
        most = _together(done)
        yield _rule(run, "samples at a time", most, f"at most {values['at_a_time']}", most <= values["at_a_time"])
    if run.start["workload"].get("task") == "qubo-mis":
        yield from _solves(run, values, asked)
    yield from _stamps(run)


def _percentile(run: Run, values: Values, latency: Any) -> Iterator[Rule]:
    share = values["percentile"]
    name = f"p{share * 100:g}"
    options = run.start["scenario"].get("options") or {}
    bound = options.get("latency_bound_s")
    if bound is None:
        if values["early_stopping"]:
            stated = len(latency) > 0 and early_stopping(latency, share)
            yield _rule(
                run, f"queries for {name} (early stopping)", len(latency), "as many as an estimate needs", stated
            )
        return
    found = nearest_rank(latency, share) if len(latency) else math.inf
    yield _rule(run, f"{name} of latency", f"{found:.6g} s", f"at most {bound:g} s", found <= bound)
    if values["early_stopping"]:
        over = int(np.sum(latency > bound))
        enough = len(latency) > 0 and float(bdtr(over, len(latency), 1 - share)) <= SLACK
        what = f"queries, with {over} over the bound, to trust {name} (early stopping)"
        yield _rule(run, what, len(latency), "as many as chance needs", enough)


def _in_time(run: Run, values: Values, asked: list[Issue]) -> Iterator[Rule]:
    options = run.start["scenario"].get("options") or {}
    stride, deadline = options.get("stride_s"), options.get("deadline_s") or options.get("stride_s")
    if not deadline:
        yield _rule(run, "deadline of a frame", "not recorded", "a time", False)
        return
    good = sum(i.answered_s is not None and i.due_s is not None and i.answered_s - i.due_s <= deadline for i in asked)
    share = good / len(asked) if asked else 0.0
    least = values["in_time_share"]
    yield _rule(run, f"frames answered within {deadline:g} s", f"{share:.2%}", f"at least {least:.0%}", share >= least)
    if values["deadline_strides"] is not None:
        strides = deadline / stride if stride else math.inf
        most = values["deadline_strides"]
        yield _rule(
            run, "deadline of a frame", f"{strides:g} strides", f"at most {most:g}", strides <= most * (1 + 1e-9)
        )


def _schedule(run: Run, values: Values, asked: list[Issue]) -> Iterator[Rule]:
    """How far the host kept its schedule: the delay of issues that nothing held up, and the gaps between them."""
    options = run.start["scenario"].get("options") or {}
    issued = [i for i in asked if i.due_s is not None and i.issued_s is not None]
    if not issued:
        return
    due = np.array([i.due_s for i in issued], dtype=np.float64)
    at = np.array([i.issued_s for i in issued], dtype=np.float64)
    ends = np.sort([i.answered_s for i in asked if i.answered_s is not None])
    before = np.searchsorted(ends, at, "right")
    free = np.where(before > 0, ends[np.maximum(before - 1, 0)], -np.inf) if len(ends) else np.full(len(at), -np.inf)
    bound = options.get("latency_bound_s") or options.get("deadline_s") or options.get("stride_s")
    if values["late_share"] is not None and bound:
        slip, most = nearest_rank(np.maximum(0.0, at - np.maximum(due, free)), 0.99), values["late_share"] * bound
        yield _rule(run, "p99 of the host's slip", f"{slip:.6g} s", f"at most {most:g} s", slip <= most)
    if values["gap_distance"] is not None and len(issued) > 2:
        held = np.maximum(due, free)
        ideal, kept = np.sort(np.diff(np.sort(held))), np.sort(np.diff(np.sort(at)))
        edges = np.concatenate([ideal, kept])
        one, two = (np.searchsorted(a, edges, "right") / len(a) for a in (ideal, kept))
        apart = float(np.max(np.abs(one - two)))
        most = values["gap_distance"]
        yield _rule(
            run,
            "Kolmogorov distance of gaps kept to gaps scheduled",
            f"{apart:.4g}",
            f"at most {most:g}",
            apart <= most,
        )


def _together(done: list[Issue]) -> int:
    """The most samples that waited for an answer at one time, by the stamps of the host."""
    steps = sorted(
        [(i.issued_s, 1) for i in done if i.issued_s is not None] + [(i.answered_s, -1) for i in done], key=_first
    )
    return max(np.cumsum([step for _, step in steps]), default=0)


def _first(step: tuple[float | None, int]) -> tuple[float, int]:
    return (step[0] or 0.0, step[1])  # an answer at the moment of the next issue comes first


def _solves(run: Run, values: Values, asked: list[Issue]) -> Iterator[Rule]:
    _, wrong = solving(run)
    yield _rule(run, "solves whose costs are not those of their solutions", len(wrong), 0, not wrong)
    budget = (run.start["scenario"].get("options") or {}).get("timeout_s")
    stamped = spans(run)
    solve = stamped.of(~stamped.warmup)
    if budget and len(solve.on):
        repeated = solve.inferences > 1
        late = int(np.sum((solve.off - solve.on > budget * (1 + BUDGET_SHARE) + BUDGET_S) & ~repeated))
        yield _rule(run, "solves past their budget by 1 ms and 1 %", late, 0, late == 0)
    outputs = [(i.sample, _object(i.output)) for i in asked if i.output]
    if values["fresh_seeds"]:
        seeds = [(sample, o["seed"]) for sample, o in outputs if o.get("seed") is not None]
        again = len(seeds) - len(set(seeds))
        yield _rule(run, "solves with a seed that their problem had before", again, 0, again == 0)
    if values["one_tuning"]:
        tunings = {json.dumps(o["tuning"], sort_keys=True) for _, o in outputs if o.get("tuning") is not None}
        yield _rule(run, "tunings of the solver in a run", len(tunings), "at most 1", len(tunings) <= 1)


def _object(output: str | None) -> dict[str, Any]:
    try:
        value = json.loads(output or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _stamps(run: Run) -> Iterator[Rule]:
    """Spans lie between the stamps of the host, within the round trips of the device's clock."""
    from reports.audit.figures import device_line

    clock, stamped = device_line(run), spans(run)
    times = {i.number: i for i in issues(run)}
    slack = clock.bound_s + clock.rate_bound * (float(np.ptp(stamped.on)) if len(stamped.on) else 0.0) + 1e-6
    early = late = 0
    for number, on, off in zip(stamped.issue, stamped.on, stamped.off, strict=True):
        one = times[number]
        early += one.issued_s is not None and on < one.issued_s - slack
        late += one.answered_s is not None and off > one.answered_s + slack
    yield _rule(run, "spans that begin before they were issued", early, 0, early == 0)
    yield _rule(run, "spans that end after their answer arrived", late, 0, late == 0)
