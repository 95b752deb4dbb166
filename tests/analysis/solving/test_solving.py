"""Figures of solvers: means with the uncertainty of their scatter, times to a gap, overruns, and refusals.

Rig and audit agree that a solve is late by its stamped span and the scenario's budget."""

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from benchmarks.faults.forge import hash_again, read, store
from reports.audit.audit import audit
from rig.analysis.evaluate import evaluate
from rig.analysis.result.finding import Finding
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.series import Solve
from rig.analysis.solving.solves import gap_energies, solving_figures, solving_findings
from rig.errors import DataError, StoreError
from rig.recording.reader import open_run
from rig.types import Issue, Rules, Workload
from scenarios.optimization import optimization
from scenarios.rules import quick
from tests.golden.test_golden import unpacked
from tests.support.hardware_clothes import Document, recorded
from tests.support.raised import raised
from tests.support.run_by_hand import rewritten

FLAT = Quantity(2.0, "W", (), 0.0, 1, "")


def solve(problem: str, cost: float = -40.0, closing: dict[float, float] | None = None, over_s: float = 0.0) -> Solve:
    """Return a solve of 1 s with target -50; ``closing`` is its cost at each time."""
    found = closing or {0.5: cost}
    at_s, costs = np.array(list(found)), np.array(list(found.values()))
    return Solve(problem, 1.0 + over_s, 1.0, cost, cost, 0, True, at_s, costs, {"official": -50.0}, over_s)


@given(st.lists(st.lists(st.floats(-60, -1), min_size=3, max_size=3), min_size=2, max_size=6))
def test_solves_of_one_problem_count_as_one_among_several_problems(costs: list[list[float]]) -> None:
    figure = solving_figures([solve(f"p{k}", c) for k, own in enumerate(costs) for c in own], False)["cost_mean"]
    means = [float(np.mean(own)) for own in costs]
    assert figure.value == pytest.approx(float(np.mean(means)))
    assert figure.u == pytest.approx(float(np.std(means, ddof=1)) / math.sqrt(len(means)), abs=1e-9)


def test_one_problem_has_the_scatter_of_its_solves() -> None:
    figure = solving_figures([solve("p", c) for c in (-40.0, -42.0, -44.0)], False)["cost_mean"]
    assert (figure.value, figure.u) == (-42.0, pytest.approx(2.0 / math.sqrt(3.0)))


def test_time_to_gap_uncertainty_is_the_scatter_of_solve_times() -> None:
    solves = [solve(f"p{k}", -50.0, {0.1 * (k + 1): -46.0, 0.9: -50.0}) for k in range(3)]
    figures = solving_figures(solves, True)
    figures |= gap_energies(solves, figures, FLAT, lambda windows_s: FLAT)
    time_s, energy_j = figures["time_to_gap_official_0_1_official_s"], figures["energy_to_gap_official_0_1_official_j"]
    assert time_s.value == pytest.approx(0.2)
    assert time_s.u == pytest.approx(0.1 / math.sqrt(3.0))
    assert energy_j.u / energy_j.value == pytest.approx(time_s.u / time_s.value)
    assert time_s.half_width() > time_s.value  # and yet neither interval reaches below zero
    assert time_s.interval()[0] > 0.0 and energy_j.interval()[0] > 0.0


def test_a_share_of_solves_counts_each_problem_once() -> None:
    away, close = {0.1: -10.0}, {0.1: -50.0}
    several = solving_figures([solve(f"p{k}", closing=(away, close)[k % 2]) for k in range(4)] * 10, True)
    alone = solving_figures([solve("p", closing=closing) for closing in (away, close)] * 20, True)
    assert several["reached_gap_official_0_1_share"].interval() == pytest.approx((0.068, 0.932), abs=1e-3)
    assert alone["reached_gap_official_0_1_share"].interval() == pytest.approx((0.338, 0.662), abs=1e-3)


def test_a_target_of_zero_is_reached_at_zero() -> None:
    found = [replace(solve("p", c, {0.1: 5.0, 0.2: c}), targets={"official": 0.0}) for c in (0.0, 1.0)]
    figures = solving_figures([*found, solve("q", -50.0)], True)
    assert figures["reached_gap_official_0_01_share"].value == pytest.approx(2 / 3)
    assert figures["gap_official_mean"].n == 1


def test_one_solve_outside_the_gap_withholds_official_figures() -> None:
    solves = [solve("p", -50.0, {0.1: -46.0}), solve("r", -50.0, {0.3: -46.0}), solve("q", -10.0, {0.1: -10.0})]
    figures = solving_figures(solves, True)
    figures |= gap_energies(solves, figures, FLAT, lambda windows_s: None)
    time_s, energy_j = figures["time_to_gap_official_0_1_s"], figures["energy_to_gap_official_0_1_j"]
    assert figures["reached_gap_official_0_1_share"].value == pytest.approx(2 / 3)
    assert time_s.n == 2 and time_s.stated
    assert energy_j.value == FLAT.value * time_s.value and not energy_j.stated
    assert not [key for key in map(str, figures) if key.endswith(("_official_s", "_official_j"))]


def test_gaps_below_the_stopping_gap_are_not_reported() -> None:
    found = replace(solve("p", -50.0), targets={"best": -52.0, "official": -50.0})
    told = {str(key) for key in solving_figures([found], True, to_gap=0.05) if key.quantity.startswith("reached_gap")}
    assert told == {"reached_gap_official_0_1_share", "reached_gap_official_0_05_share", "reached_gap_best_0_1_share"}


def untimed(seconds: float, budget_s: float = 1.0, overrun_s: float = 0.0) -> Solve:
    """Return a solve of a problem without a target."""
    return Solve("p", seconds, budget_s, -4.0, -4.0, 0, True, np.zeros(0), np.zeros(0), {}, overrun_s)


def test_the_worst_overrun_is_judged_and_not_the_mean() -> None:
    figures = solving_figures([untimed(0.2), solve("p", over_s=0.1)], False)
    assert (figures["overrun_mean_s"].value, figures["overrun_max_s"].value) == (0.05, 0.1)
    looped = untimed(1e-3, 1e-3, 0.0279)
    assert solving_figures([looped], False)["overrun_max_s"].value == 0.0279
    (late,) = [check for check in solving_findings([looped], 1, False) if "past their budget" in check.rule]
    assert not late.ok


def test_misstated_costs_and_conflicting_sets_are_reported() -> None:
    liar, clashing = replace(solve("p", 0.0), claimed=-999.0), replace(solve("q", 95.0), conflicts=12)
    first, second, *_ = [f.text for f in solving_findings([liar, clashing], 2, True) if f.effect == "note"]
    assert "1 of 2 solves stated another cost" in first and "-999 for 0" in first
    assert "1 of 2 solutions are no independent sets" in second
    (late,) = [f.text for f in solving_findings([replace(solve("p"), late_cost=-50.0)], 1, True) if f.effect == "note"]
    assert "1 of 1 solves found a better solution after their time, such as -50 for -40" in late


@pytest.mark.parametrize(("solves", "timed", "to_gap", "why"), [
    ([solve("p")], False, None, "may depend on its budget"), ([untimed(1.0)], True, None, "No target is known"),
    ([solve("p")], True, 0.05, "a gap of 0.05"), ([solve("p")], True, None, ""),
    ([replace(solve("p"), targets={"given": 50.0})], True, None, "beat the given target, such as -40 for 50"),
    ([replace(solve("p", 3.0), targets={"given": 0.0})], True, None, "1 of 1 solves have a given target of 0"),
])  # fmt: skip
def test_odd_targets_and_missing_times_to_gap_are_explained(
    solves: list[Solve], timed: bool, to_gap: float | None, why: str
) -> None:
    notes = [f.text for f in solving_findings(solves, 1, timed, to_gap) if f.effect == "note"]
    assert any(why in note for note in notes) if why else not notes


def test_an_impossible_span_spoils_only_its_own_solve(tmp_path: Path) -> None:
    path, _ = unpacked("qubo-cpu-tabu", tmp_path)
    whole = evaluate(open_run(path))
    table = read(path / "replies.arrows")
    rows = table.to_pylist()
    rows[-1]["executions"] = 0
    store(path / "replies.arrows", pa.Table.from_pylist(rows, table.schema))
    hash_again(path)
    spoilt = evaluate(open_run(path))
    assert set(spoilt.quantities) <= set(whole.quantities)
    assert any("the span of sample" in note for note in spoilt.notes)


@pytest.mark.parametrize(("by_s", "below", "counts"), [
    (-0.1, 0.0, True), (5.0, 0.0, False), (0.0, 1.0, True),
], ids=["before the span", "after the deadline", "better than the answer"])  # fmt: skip
def test_a_contradicted_or_late_claim_reaches_no_gap(tmp_path: Path, by_s: float, below: float, counts: bool) -> None:
    path, _ = unpacked("qubo-cpu-tabu", tmp_path)
    table = read(path / "progress.arrows")
    moved = [{"tick": row["tick"] + round(by_s * 1e9), "cost": row["cost"] - below} for row in table.to_pylist()]
    rows = [row | change for row, change in zip(table.to_pylist(), moved, strict=True)]
    store(path / "progress.arrows", pa.Table.from_pylist(rows, table.schema))
    hash_again(path)
    result = evaluate(open_run(path))
    (check,) = [f for f in result.findings if f.rule.startswith("solves whose claims lie outside")]
    assert not check.ok
    assert {len(s.at_s) > 0 for s in result.series.solves} == {counts}


# ---- budgets too short for a meter -----------------------------------------------------------


def issues(workload: Workload, metered: bool, **options: Any) -> list[Issue]:
    rules: Rules = quick("optimization")
    return [step for step in optimization(workload, rules, metered, **options) if isinstance(step, Issue)]


@given(timeout_s=st.floats(1e-3, 100.0), window_s=st.floats(0.05, 5.0))
def test_a_short_budget_is_looped_to_fill_a_power_window(timeout_s: float, window_s: float) -> None:
    workload = cube()
    given = {"timeout_s": timeout_s, "window_s": window_s, "solves": 1}
    assert {i.repeat for i in issues(workload, False, **given)} == {1}
    (repeat,) = {i.repeat for i in issues(workload, True, **given)}
    assert repeat * timeout_s >= window_s * (1 - 1e-12)
    assert (repeat - 1) * timeout_s < window_s
    assert {i.repeat for i in issues(workload, True, repeat=3, **given)} == {3}


def cube() -> Workload:
    from scenarios.workloads.qubo_mis.workload import open_workload

    return open_workload(nodes=8, density=0.5, seeds="0")


# ---- late solves -------------------------------------------------------------------------------

RULE = "solves past their budget by 1 ms and 1 %"
SINGLE, LONG, LOOP = ("performance", "timeout_s=0.1"), ("performance", "timeout_s=1.0"), ("power", "window_s=0.5")
"""25 solves that take exactly their budget of 0.1 s or 1 s, singly or in loops of five."""
Solved = Callable[[tuple[str, str]], Path]


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    @cache
    def of(how: tuple[str, str]) -> Path:
        mode, option = how
        return recorded("optimization", tmp_path_factory.mktemp("solves"), option, mode=mode).parts[0].run.path

    return of


def check_of(path: Path) -> Finding:
    """Return the rig's check of solves that exceed their budget; the audit counts as many."""
    validity = evaluate(open_run(path)).validity
    assert validity is not None
    (found,) = [check for check in validity.checks if check.rule == RULE]
    (audited,) = [rule.found for rule in audit(path, quick=True).rules if rule.rule == RULE]
    assert audited == found.found.partition(" ")[0]
    return found


def changed(run: Path, to: Path, budget: Any, answer: Mapping[str, Any] | None = None) -> Path:
    """Return the run with another budget or none, and with answers that state this and nothing else about time."""

    def edit(events: list[Document], tables: dict[str, pa.Table]) -> None:
        options = events[0]["scenario"]["options"]
        events[0]["scenario"]["options"] = {k: v for k, v in options.items() if k != "timeout_s"}
        if budget is not None:
            events[0]["scenario"]["options"]["timeout_s"] = budget
        rows = tables["replies.arrows"].to_pylist()
        for row in rows:
            said = {key: value for key, value in json.loads(row["output"]).items() if not key.endswith("_s")}
            row["output"] = json.dumps(said | dict(answer or {}))
        tables["replies.arrows"] = pa.Table.from_pylist(rows, tables["replies.arrows"].schema)

    return rewritten(run, to, edit)


ODD: list[Any] = [None, "all", float("nan"), []]
GIVEN = "25 of 25, by {} ms at most; its own thread had a processor for {} of 0.1 s"


@pytest.mark.parametrize(("how", "budget_s", "answer", "found", "remedy"), [
    # a solve is late by its stamps, whatever its answer says: 1.1 ms exceeds 1 ms and 1 %, 8 ms of 1 s does not
    (SINGLE, 0.0989, {}, "25 of 25", ""), (SINGLE, 0.0989, {"budget_s": 9.0, "overrun_s": 0.0}, "25 of 25", ""),
    (SINGLE, 0.0991, {}, "0 of 25", ""), (SINGLE, 0.0991, {"budget_s": 0.01, "overrun_s": 9.0}, "0 of 25", ""),
    (LONG, 0.9895, {}, "25 of 25", ""), (LONG, 0.9895, {"budget_s": 9.0, "overrun_s": 0.0}, "25 of 25", ""),
    (LONG, 0.9920, {}, "0 of 25", ""), (LONG, 0.9920, {"budget_s": 0.01, "overrun_s": 9.0}, "0 of 25", ""),
    # a loop is judged by the worst solve that the answer states, or else by the mean
    (LOOP, 0.1, {"overrun_s": 0.0}, "0 of 25", ""), (LOOP, 0.1, {"overrun_s": 0.0009}, "0 of 25", ""),
    (LOOP, 0.1, {"overrun_s": 0.0011}, "25 of 25", ""), (LOOP, 0.09, {}, "25 of 25", ""),
    (LOOP, 0.1, {"overrun_s": 0.02, "processor_s": 0.4}, GIVEN.format(20, 0.08), ""),
    # a late solver's processor time distinguishes a busy host from a solver that does not stop
    (SINGLE, 0.088, {"processor_s": 0.07}, GIVEN.format(12, 0.07), "Measure again on an idle host"),
    (SINGLE, 0.088, {"processor_s": 0.099}, GIVEN.format(12, 0.099), "Let the solver stop at its budget"),
    *((SINGLE, 0.088, {"processor_s": odd}, "25 of 25", "") for odd in ODD),
    (SINGLE, 0.1, {"processor_s": 0.07}, "0 of 25", ""),
])  # fmt: skip
def test_lateness_follows_the_stamps_and_the_scenario_budget(
    solved: Solved, tmp_path: Path, how: tuple[str, str], budget_s: float, answer: Any, found: str, remedy: str
) -> None:
    check = check_of(changed(solved(how), tmp_path / "run", budget_s, answer))
    assert check.found.startswith(found)
    assert check.remedy.startswith(remedy)


def test_no_solve_is_late_without_a_scenario_budget(solved: Solved, tmp_path: Path) -> None:
    path = changed(solved(SINGLE), tmp_path / "run", None)
    result = evaluate(open_run(path))
    assert "overrun_max_s" not in result.quantities
    assert result.validity is not None
    assert RULE not in {check.rule for check in result.validity.checks} | {r.rule for r in audit(path).rules}


@pytest.mark.parametrize("budget", ["1 s", [], 10**350])
def test_a_non_numeric_budget_is_refused(solved: Solved, tmp_path: Path, budget: object) -> None:
    path = changed(solved(SINGLE), tmp_path / "run", budget)
    raised(DataError, evaluate, open_run(path), says="the scenario's option timeout_s is")
    raised(StoreError, audit, path)
