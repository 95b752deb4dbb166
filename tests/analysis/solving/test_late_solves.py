"""Rig and audit agree that a solve is late by its stamped span and the scenario's budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reports.audit.audit import audit
from rig.analysis.evaluate import evaluate
from rig.analysis.result.finding import Finding
from rig.errors import DataError, StoreError
from rig.recording.reader import open_run
from tests.support.hardware_clothes import Document, recorded
from tests.support.raised import raised
from tests.support.run_by_hand import rewritten

RULE = "solves past their budget by 1 ms and 1 %"
SINGLE, LONG, LOOP = ("performance", "timeout_s=0.1"), ("performance", "timeout_s=1.0"), ("power", "window_s=0.5")
"""25 solves that take exactly their budget of 0.1 s or 1 s, singly or in loops of five."""
Solved = Callable[[tuple[str, str]], Path]


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    made: dict[tuple[str, str], Path] = {}

    def of(how: tuple[str, str]) -> Path:
        if how not in made:
            mode, option = how
            made[how] = recorded("optimization", tmp_path_factory.mktemp("solves"), option, mode=mode).parts[0].run.path
        return made[how]

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
GIVEN = "25 of 25, by {} ms at most; the host gave that solver {} of 0.1 s"


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
def test_a_solve_is_late_by_its_stamps_and_the_budget_of_the_scenario(
    solved: Solved, tmp_path: Path, how: tuple[str, str], budget_s: float, answer: Any, found: str, remedy: str
) -> None:
    check = check_of(changed(solved(how), tmp_path / "run", budget_s, answer))
    assert check.found.startswith(found)
    assert check.remedy.startswith(remedy)


def test_without_a_budget_of_the_scenario_no_solve_is_late(solved: Solved, tmp_path: Path) -> None:
    path = changed(solved(SINGLE), tmp_path / "run", None)
    result = evaluate(open_run(path))
    assert "overrun_max_s" not in result.quantities
    assert result.validity is not None
    assert RULE not in {check.rule for check in result.validity.checks} | {r.rule for r in audit(path).rules}


@pytest.mark.parametrize("budget", ["1 s", [], 10**350])
def test_a_budget_that_is_no_number_is_refused_by_its_name(solved: Solved, tmp_path: Path, budget: object) -> None:
    path = changed(solved(SINGLE), tmp_path / "run", budget)
    raised(DataError, evaluate, open_run(path), says="the scenario's option timeout_s is")
    raised(StoreError, audit, path)
