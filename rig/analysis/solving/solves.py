"""Judge the solves of a run: costs computed from their solutions, gaps to the targets, and times."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from rig.analysis.result.figure_catalogue import figure
from rig.analysis.result.finding import Finding, at_most, note
from rig.analysis.result.proportion import proportion
from rig.analysis.result.quantity import LITERAL, Component, FigureKey, Figures, Quantity, product
from rig.analysis.result.series import Solve
from rig.analysis.scores.answers import Answer
from rig.analysis.solving.gap_to_target import OFFICIAL, THRESHOLDS, by_preference, gap
from rig.analysis.timing.timebase import Timebase
from rig.errors import DataError
from rig.plugins import problem_factory
from rig.recording.reader import Run
from rig.types import Floats, Problem

OVERRUN_S, OVERRUN_SHARE = 1e-3, 0.01
"""A solve is late if it ends past its budget by more than this time and by more than this part of the budget."""
RUNTIME = FigureKey("runtime_power_w")
_BUSY = "Measure again on an idle host if this one was busy. If the solver waits for a program, let it stop earlier"
_ENERGIES = {
    "time_to_gap_{target}_{threshold}_s": "energy_to_gap_{target}_{threshold}_j",
    "time_to_gap_{target}_{threshold}_official_s": "energy_to_gap_{target}_{threshold}_official_j",
}


def solves_of(run: Run, answers: Sequence[Answer], device: Timebase) -> list[Solve]:
    """Return every solve of a run in order, or nothing if its replies are not solutions.

    An answer without a span has no time, so it does not count as a solve.
    """
    said = [answer for answer in answers if answer.on_tick is not None and _is_solution(answer.output)]
    if not said:
        return []
    progress = defaultdict[int, list[Mapping[str, Any]]](list)
    for step in run.progress.to_pylist():
        progress[step["issue"]].append(step)
    problems, targets = _problems(run, {answer.sample_id for answer in said}), _targets(run)
    budget_s = run.start.scenario.timeout_s or math.nan
    return [
        _solve(a, progress[a.issue], problems.get(a.sample_id), targets.get(a.sample_id, {}), device, budget_s)
        for a in said
    ]


def _is_solution(out: Any) -> bool:
    """Return whether an output has a cost and a solution; if it has other costs or an overrun, they must be numbers."""
    return (
        isinstance(out, dict)
        and isinstance(out.get("solution"), str)
        and isinstance(out.get("cost"), (int, float))
        and all(isinstance(out.get(name) or 0.0, (int, float)) for name in ("overrun_s", "late_cost"))
        and isinstance(out.get("stated_cost", 0.0), (int, float))
    )


def _solve(
    answer: Answer, steps: Sequence[Mapping[str, Any]], problem: Problem | None, targets: Mapping[str, float],
    device: Timebase, budget_s: float,
) -> Solve:  # fmt: skip
    out, times = answer.output, answer.times
    claimed, cost, conflicts, honest = float(out["cost"]), math.nan, None, True
    if problem is not None:
        cost, conflicts = problem.judge(out["solution"])
        honest = _same(cost, claimed)
        honest &= all(_same(problem.judge((s["solution"] or b"").hex())[0], s["cost"]) for s in steps)
        claimed = float(out.get("stated_cost", claimed))
    ticks = np.array([answer.on_tick, answer.off_tick, *(s["tick"] for s in steps)], dtype=np.int64)
    on_s, off_s, *at_s = device.seconds(ticks).tolist()
    seconds, worked_s = (off_s - on_s) / times, out.get("processor_s")
    worst_s = float(out.get("overrun_s") or 0.0) if times > 1 else 0.0
    claims = np.array([(at - on_s, s["cost"]) for at, s in zip(at_s, steps, strict=True)]).reshape(-1, 2)
    astray = bool(np.any((claims[:, 0] < 0.0) | (claims[:, 0] > off_s - on_s)))
    claims = claims[~(claims[:, 0] > budget_s + _allowed_s(budget_s))]
    best = float(claims[:, 1].min(initial=math.inf))
    astray |= best < float(out["cost"]) and not _same(best, float(out["cost"]))
    over_s = max(seconds - budget_s, worst_s, 0.0)
    processor_s = worked_s / times if isinstance(worked_s, float) else math.nan
    return Solve(
        answer.sample_id, seconds, budget_s, claimed, float(cost), conflicts, honest, claims[:, 0], claims[:, 1],
        targets, over_s, processor_s, astray,
        math.inf if out.get("late_cost") is None else float(out["late_cost"]), on_s if times == 1 else math.nan,
    )  # fmt: skip


def _allowed_s(budget_s: float) -> float:
    """Return by how much a solve may end past its budget."""
    return max(OVERRUN_S, OVERRUN_SHARE * budget_s)


def _problems(run: Run, sample_ids: Iterable[str]) -> dict[str, Problem]:
    """Return the problem of each sample whose payload is stored with the recording.

    There are none if no problem is registered under the workload's name or task.
    """
    problem_of: Callable[[Any], Problem] | None = problem_factory(run.start.workload.name, run.start.workload.task)
    found: dict[str, Problem] = {}
    if problem_of is None:
        return found
    for sample_id in sample_ids:
        try:
            if (stored := run.payload(sample_id)) is not None:
                found[sample_id] = problem_of(stored)
        except ValueError as error:
            what = f"the payload of {sample_id} holds no problem: {error}"
            raise DataError(what, field="payload", value=sample_id, remedy="Restore the recording") from error
    return found


def _targets(run: Run) -> dict[str, dict[str, float]]:
    """Return for each sample the official target, and any other target that the workload names."""
    official = run.by_sample("target_cost")
    named = [(OFFICIAL, official), *run.start.workload.targets.items()]
    return {s: {name: cost for name, by in named if (cost := by.get(s)) is not None} for s in official}


def _same(cost: float, claimed: float) -> bool:
    """Return whether a claimed cost equals a solution's, up to the rounding of sums in another order."""
    return math.isclose(cost, claimed, rel_tol=1e-9, abs_tol=1e-12)


# ---- figures ------------------------------------------------------------------------------


def solving_figures(solves: Sequence[Solve], timed: bool, to_gap: float | None = None) -> Figures:
    """Return costs, gaps to each target and overruns, and if ``timed`` also the time to each gap.

    ``timed`` is True if the solver's schedule does not depend on the budget, or if solves stopped at the gap
    ``to_gap``. In the second case gaps to lower costs have no figures, because the solves stopped before them.
    """
    judged = [s for s in solves if math.isfinite(s.cost)]
    if not judged:
        return Figures()
    method = "x^T Q x of the solutions given"
    figures = Figures({FigureKey("cost_mean"): _scattered(judged, [s.cost for s in judged], "1", method)})
    figures |= figure("cost_best", min(s.cost for s in judged), method, len(judged))
    if known := [s for s in solves if s.conflicts is not None]:
        share = _share(known, [s.conflicts == 0 for s in known], "solutions that are independent sets")
        figures |= {FigureKey("feasible_share"): share}
    over = np.array([s.over_s for s in solves])
    if np.all(np.isfinite(over)):
        method = "time from the end of the budget to the end of the span; 0 if the span ended in time"
        figures |= figure("overrun_mean_s", over.mean(), method, len(over))
        figures |= figure("overrun_max_s", over.max(), method, len(over))
    for target in sorted({name for s in solves for name in s.targets}):
        costs = {s.sample_id: s.targets[target] for s in solves if target in s.targets}
        mean, method = sum(costs.values()) / len(costs), f"mean of the {target} target costs of {len(costs)} problems"
        figures |= figure("target_{target}_mean", mean, method, len(costs), target=target)
        figures |= _gaps([s for s in judged if target in s.targets], target)
        if timed:
            figures |= _times_to([s for s in solves if target in s.targets], target, to_gap)
    return figures


def _gaps(solves: Sequence[Solve], target: str) -> Figures:
    """Return the mean gap, its spread between problems, and its spread between solves of one problem."""
    own = [s for s in solves if s.targets[target]]
    if not own:
        return Figures()
    gaps, by_problem = [gap(s.cost, s.targets[target]) for s in own], defaultdict[str, list[float]](list)
    for s, found in zip(own, gaps, strict=True):
        by_problem[s.sample_id].append(found)
    means = [sum(g) / len(g) for g in by_problem.values()]
    within = [np.var(g, ddof=1) for g in by_problem.values() if len(g) > 1]
    method = f"(c - c_target)/|c_target| to the {target} target: worse is positive"
    out = Figures({FigureKey("gap_{target}_mean", target=target): _scattered(own, gaps, "1", method)})
    if len(means) > 1:
        spread, method = float(np.std(means, ddof=1)), "deviation of problems' means"
        out |= figure("gap_{target}_spread_problems", spread, method, len(means), target=target)
    if within:
        spread, method = math.sqrt(np.mean(within)), "deviation within a problem, pooled"
        out |= figure("gap_{target}_spread_solves", spread, method, len(solves), target=target)
    return out


def _times_to(solves: Sequence[Solve], target: str, to_gap: float | None) -> dict[FigureKey, Quantity]:
    """Return time to each gap, and the share of solves that reached it; the official time needs all to reach it."""
    out: dict[FigureKey, Quantity] = {}
    for threshold in (t for t in THRESHOLDS if all(_sought(s, target, t, to_gap) for s in solves)):
        times_s = [_time_to(s, s.targets[target], threshold) for s in solves]
        reached = [(s, at_s) for s, at_s in zip(solves, times_s, strict=True) if math.isfinite(at_s)]
        time_key = FigureKey("time_to_gap_{target}_{threshold}_s", target=target, threshold=threshold)
        share = _share(solves, [math.isfinite(at_s) for at_s in times_s], "solves that reached the gap")
        out[replace(time_key, quantity="reached_gap_{target}_{threshold}_share")] = share
        if not reached:
            continue
        found, seconds = zip(*reached, strict=True)
        out[time_key] = _scattered(found, seconds, "s", "mean of solves that reached the gap, from the loaded graph")
        if len(reached) == len(solves):
            every = replace(out[time_key], method="mean of all solves: each reached the gap")
            out[replace(time_key, quantity="time_to_gap_{target}_{threshold}_official_s")] = every
    return out


def _sought(solve: Solve, target: str, threshold: float, to_gap: float | None) -> bool:
    """Return whether a gap needs no lower cost than the one at ``to_gap``, where the solve stopped."""
    stop, wanted = solve.targets[by_preference(sorted(solve.targets))[0]], solve.targets[target]
    return to_gap is None or wanted + threshold * abs(wanted) >= stop + to_gap * abs(stop)


def runtime_power(powers: Figures) -> Figures:
    """Return the average power over the runtime, which is the time of the solves after loading (NeuroBench, QUBO)."""
    power = powers.get(FigureKey("active_power_w", method=LITERAL)) or powers.get(FigureKey("active_power_w"))
    return Figures() if power is None else Figures({RUNTIME: replace(power, method=f"{power.method} of the solves")})


def gap_energies(
    solves: Sequence[Solve], times: Mapping[FigureKey, Quantity], power: Quantity,
    until: Callable[[Floats], Quantity | None],
) -> Figures:  # fmt: skip
    """Return the energy of a solve until each gap: the power until then times the time to the gap.

    ``until`` returns the active power in windows of the run, shape (k, 2). If it returns None, the energy is computed
    with ``power``, the power over the whole runtime, and has no uncertainty.
    """
    out, known = Figures(), dict[tuple[str, float], Quantity | None]()
    for key, time_s in times.items():
        if key.quantity not in _ENERGIES:
            continue
        of = target, threshold = key.target, key.threshold
        if of not in known:
            each = [(s.on_s, _time_to(s, s.targets[target], threshold)) for s in solves if target in s.targets]
            known[of] = until(np.array([(on_s, on_s + at_s) for on_s, at_s in each if at_s < math.inf]))
        own = known[of]
        energy = product(own or power, time_s, "J", f"power until then x time, {time_s.method}")
        energy = replace(energy, positive=True)
        if own is None:
            told = f"power over the runtime x time, {time_s.method}; the power until then is not known"
            energy = replace(energy, components=(), bias=0.0, method=told)
        out |= {replace(key, quantity=_ENERGIES[key.quantity]): energy}
    return out


def _time_to(solve: Solve, target: float, threshold: float) -> float:
    close = np.flatnonzero([c <= target or (target != 0 and gap(c, target) <= threshold) for c in solve.cost_at])
    return float(solve.at_s[close[0]]) if len(close) else math.inf


def _share(solves: Sequence[Solve], holds: Sequence[bool], method: str) -> Quantity:
    """Return the share of solves marked in ``holds``; the interval counts each of several problems once.

    Solves of one problem are not independent samples of such problems.
    """
    problems = len({s.sample_id for s in solves})
    cases, share = problems if problems > 1 else len(solves), sum(holds) / len(solves)
    return replace(proportion(cases * share, cases, method), n=len(solves))


def _scattered(solves: Sequence[Solve], values: Sequence[float], unit: str, method: str) -> Quantity:
    """Return the mean of one value per solve, with its uncertainty from the scatter of the values.

    Solves of one problem are not independent samples of such problems. So if there are several problems, the residuals
    are added up for each problem, and the scatter of these sums is used (cluster-robust variance, with P/(P - 1) for P
    problems; Liang and Zeger, Biometrika 73, 1986). If all problems have equally many solves, this is the scatter of
    the problems' means.
    """
    n, mean = len(values), sum(values) / len(values)
    of, residual = np.unique([s.sample_id for s in solves], return_inverse=True)[1], np.array(values) - mean
    sums = np.bincount(of, residual) if of.any() else residual
    groups = len(sums)
    u = math.sqrt(groups / (groups - 1.0) * float(sums @ sums)) / n if groups > 1 else 0.0
    source = "finite sample" if of.any() else "scatter"  # the problems are the same in every trial, the seeds are not
    parts = (Component(source, u, groups - 1),) if u else ()
    return Quantity(mean, unit, parts, 0.0, n, method, positive=unit == "s")


def gap_times_known(run: Run) -> bool:
    """Return whether the record of progress shows when a solver reached a gap."""
    return run.start.scenario.to_gap is not None or run.start.device.schedule_depends_on_budget is False


def asks_solutions(run: Run) -> bool:
    """Return whether the samples of a run are problems, so that a device must answer with solutions."""
    workload = run.start.workload
    return run.start.scenario.name == "optimization" or problem_factory(workload.name, workload.task) is not None


def solving_findings(
    solves: Sequence[Solve],
    answers: int,
    timed: bool,
    to_gap: float | None = None,
    told: Sequence[str] = (),
    asked: bool = False,
) -> Iterator[Finding]:
    """Yield checks that each answer is a solution, that costs are true and budgets kept, and notes on missing figures.

    These notes say why there is no gap, or no time to a gap. ``told`` are the notes of the workload, which may already
    say so. Without any solve, there is a check only if the device was ``asked`` for solutions.
    """
    if not solves:
        if asked and answers:
            yield Finding("solutions that could be checked", "0", str(answers), False)
        return
    yield from map(note, (*_odd_solutions(solves), *_odd_targets(solves), *told))
    n, unjudged = len(solves), sum(math.isnan(s.cost) for s in solves)
    if unjudged:
        yield note(
            f"{unjudged} solutions have no cost: the workload holds no problem that the rig can judge. Make it with "
            "rig.qubo(models), or read it with --workload qubo"
        )
    if not any(s.targets for s in solves):
        if not told:
            yield note("No target is known for these problems, so no gap is stated (`rig targets` computes targets)")
    elif not timed:
        yield note(
            "The time to a gap is not stated. The schedule of this solver may depend on its budget, so a solver that "
            "is told to stop at the gap may need another time: measure with --option to_gap=GAP"
        )
    elif to_gap is not None:
        yield note(f"The solver was told to stop at a gap of {to_gap:g}, so smaller gaps are not stated")
    checked = str(n - unjudged)
    yield Finding("solutions that could be checked", checked, str(answers), checked == str(answers))
    lies = sum(not s.honest for s in solves)
    yield Finding("solves whose costs are not those of their solutions", str(lies), "0", lies == 0)
    astray = sum(s.astray for s in solves)
    yield Finding("solves whose claims lie outside of their span, or beat their answer", str(astray), "0", not astray)
    if math.isfinite(solves[0].budget_s):
        late = sum(s.over_s > _allowed_s(s.budget_s) for s in solves)
        worst, found = max(solves, key=lambda s: s.over_s), f"{late} of {n}"
        if late and math.isfinite(worst.processor_s):
            had = f"its own thread had a processor for {worst.processor_s:.3g} of {worst.seconds:.3g} s"
            found += f", by {worst.over_s * 1e3:.3g} ms at most; {had}"
        remedy = _BUSY if late and worst.seconds - worst.processor_s > worst.over_s else ""
        yield Finding("solves past their budget by 1 ms and 1 %", found, "0", late == 0, remedy=remedy)


def repeat_checks(run: Run, answers: Sequence[Answer]) -> Iterator[Finding]:
    """Yield a failed check if a solver has several phases, and the checks of seeds and tuning that the rules demand."""
    rules, phases = run.start.rules, run.start.device.phases
    if asks_solutions(run) and len(phases) > 1:
        yield Finding("phases of the solver", ", ".join(phases), "1", False)
    if rules is None or not (rules.fresh_seeds or rules.one_tuning):
        return
    said = [(answer.sample_id, answer.output) for answer in answers if isinstance(answer.output, dict)]
    if rules.fresh_seeds:
        seeds = [(sample_id, str(output["seed"])) for sample_id, output in said if "seed" in output]
        again = len(seeds) - len(set(seeds))
        yield Finding("solves with a seed that their problem had before", str(again), "0", not again, by="fresh_seeds")
    if rules.one_tuning:
        tunings = {json.dumps(output.get("tuning"), sort_keys=True) for _, output in said}
        yield at_most("tunings of the solver in a run", len(tunings), 1, "one_tuning")


def _odd_targets(solves: Sequence[Solve]) -> Iterator[str]:
    """Yield notes on targets that solutions beat, which may have the sign of a maximum, and on targets of 0."""
    for target in sorted({name for s in solves for name in s.targets}):
        own = [(s.cost, s.targets[target]) for s in solves if target in s.targets]
        if beaten := [pair for pair in own if pair[0] < pair[1] and not _same(*pair)]:
            example = "{:.6g} for {:.6g}".format(*beaten[0])
            yield (
                f"{len(beaten)} of {len(own)} solves beat the {target} target, such as {example}. So it is not the "
                "least cost. Costs are minimised: the target of a problem to be maximised is negative"
            )
        if zeros := sum(wanted == 0 for _, wanted in own):
            yield f"{zeros} of {len(own)} solves have a {target} target of 0, to which no gap is defined"


def _odd_solutions(solves: Sequence[Solve]) -> Iterator[str]:
    """Yield notes on costs: stated costs that differ, better solutions that were too late, and sets with conflicts."""
    n = len(solves)
    if other := [s for s in solves if s.honest and not math.isnan(s.cost) and not _same(s.cost, s.claimed)]:
        example = f"{other[0].claimed:.6g} for {other[0].cost:.6g}"
        yield (
            f"{len(other)} of {n} solves stated another cost than that of their solution, such as {example}; the "
            "figures are of the solutions"
        )
    if late := [s for s in solves if s.late_cost < s.claimed]:
        yield (
            f"{len(late)} of {n} solves found a better solution after their time, such as {late[0].late_cost:.6g} for "
            f"{late[0].claimed:.6g}. It does not count: let the solver stop earlier"
        )
    if conflicts := [s.conflicts for s in solves if s.conflicts]:
        yield (
            f"{len(conflicts)} of {n} solutions are no independent sets (conflicts: {max(conflicts)} at most). "
            "NeuroBench judges every solution by its cost, so these count too"
        )
