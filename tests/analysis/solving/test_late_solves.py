"""Rig and audit agree that a solve is late by its stamped span and the scenario's budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from reports.audit.audit import audit
from rig.analysis.evaluate import evaluate
from rig.analysis.result.finding import Finding
from rig.errors import DataError, StoreError
from rig.recording.reader import open_run
from tests.support.hardware_clothes import Document, recorded
from tests.support.run_by_hand import rewritten

RULE = "solves past their budget by 1 ms and 1 %"
Answer = dict[str, object]


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A run of 25 solves that take exactly their budget, in one loop of five or singly."""
    made: dict[tuple[str, ...], Path] = {}

    def of(mode: str, *options: str) -> Path:
        if (mode, *options) not in made:
            folder = tmp_path_factory.mktemp("solves")
            made[mode, *options] = recorded("optimization", folder, *options, mode=mode).parts[0].run.path
        return made[mode, *options]

    return of


def late(path: Path) -> tuple[str, str]:
    """Return how many solves are late, by the rig and by the audit."""
    validity = evaluate(open_run(path)).validity
    assert validity is not None
    (told,) = [check.found.partition(" ")[0] for check in validity.checks if check.rule == RULE]
    (audited,) = [rule.found for rule in audit(path, quick=True).rules if rule.rule == RULE]
    return told, audited


def changed(run: Path, to: Path, budget_s: float, answer: Callable[[Answer], Answer]) -> Path:
    """Return the run with another budget, and with other answers."""

    def edit(events: list[Document], tables: dict[str, pa.Table]) -> None:
        events[0]["scenario"]["options"]["timeout_s"] = budget_s
        rows = tables["replies.arrows"].to_pylist()
        told = [row | {"output": json.dumps(answer(json.loads(row["output"])))} for row in rows]
        tables["replies.arrows"] = pa.Table.from_pylist(told, tables["replies.arrows"].schema)

    return rewritten(run, to, edit)


def silent(answer: Answer) -> Answer:
    """Return an answer that states nothing about its budget."""
    return {key: value for key, value in answer.items() if not key.endswith("_s")}


@pytest.mark.parametrize(
    ("lasted_s", "budget_s", "count"),
    [
        (0.1, 0.0989, 25),  # 1.1 ms exceeds 1 ms and 1 %
        (0.1, 0.0991, 0),
        (1.0, 0.9895, 25),  # 10.5 ms is more than 1 ms and than 1 %
        (1.0, 0.9920, 0),  # 8 ms is more than 1 ms, and less than 1 %
    ],
)
def test_a_solve_is_late_by_its_stamps_whatever_its_answer_says(
    solved: Callable[..., Path], tmp_path: Path, lasted_s: float, budget_s: float, count: int
) -> None:
    run = solved("performance", f"timeout_s={lasted_s}")
    untrue: Answer = {"budget_s": 9.0, "overrun_s": 0.0} if count else {"budget_s": 0.01, "overrun_s": 9.0}
    for name, answer in (("untrue", lambda a: a | untrue), ("silent", silent)):
        assert late(changed(run, tmp_path / name, budget_s, answer)) == (str(count), str(count))


@pytest.mark.parametrize(("overrun_s", "count"), [(0.0, 0), (0.0009, 0), (0.0011, 25)])
def test_of_a_loop_the_worst_solve_counts_that_the_answer_states(
    solved: Callable[..., Path], tmp_path: Path, overrun_s: float, count: int
) -> None:
    run = solved("power", "window_s=0.5")
    path = changed(run, tmp_path / "run", 0.1, lambda answer: answer | {"overrun_s": overrun_s})
    assert late(path) == (str(count), str(count))


def test_a_loop_whose_mean_is_late_is_late(solved: Callable[..., Path], tmp_path: Path) -> None:
    assert late(changed(solved("power", "window_s=0.5"), tmp_path / "run", 0.09, silent)) == ("25", "25")


def test_without_a_budget_of_the_scenario_no_solve_is_late(solved: Callable[..., Path], tmp_path: Path) -> None:
    def unbounded(events: list[Document], tables: dict[str, pa.Table]) -> None:
        del events[0]["scenario"]["options"]["timeout_s"]

    path = rewritten(solved("performance", "timeout_s=0.1"), tmp_path / "run", unbounded)
    result = evaluate(open_run(path))
    assert "overrun_max_s" not in result.quantities
    assert result.validity is not None
    assert RULE not in {check.rule for check in result.validity.checks} | {r.rule for r in audit(path).rules}


@pytest.mark.parametrize("budget", ["1 s", [], 10**350])
def test_a_budget_that_is_no_number_is_refused_by_its_name(
    solved: Callable[..., Path], tmp_path: Path, budget: object
) -> None:
    def odd(events: list[Document], tables: dict[str, pa.Table]) -> None:
        events[0]["scenario"]["options"]["timeout_s"] = budget

    path = rewritten(solved("performance", "timeout_s=0.1"), tmp_path / "run", odd)
    with pytest.raises(DataError, match="the scenario's option timeout_s is"):
        evaluate(open_run(path))
    with pytest.raises(StoreError):
        audit(path)


def check_of(path: Path) -> Finding:
    """Return the rig's check of solves that exceed their budget."""
    validity = evaluate(open_run(path)).validity
    assert validity is not None
    (found,) = [check for check in validity.checks if check.rule == RULE]
    return found


def words(path: Path) -> str:
    return check_of(path).found


def remedy(path: Path) -> str:
    return check_of(path).remedy


def test_late_solves_say_how_late_and_what_the_host_gave_to_them(solved: Callable[..., Path], tmp_path: Path) -> None:
    run = solved("performance", "timeout_s=0.1")
    path = changed(run, tmp_path / "run", 0.088, lambda answer: answer | {"processor_s": 0.07})
    assert words(path) == "25 of 25, by 12 ms at most; the host gave that solver 0.07 of 0.1 s"
    assert remedy(path).startswith("Measure again on an idle host")


def test_a_solver_that_worked_past_its_budget_is_asked_to_stop(solved: Callable[..., Path], tmp_path: Path) -> None:
    run = solved("performance", "timeout_s=0.1")
    path = changed(run, tmp_path / "run", 0.088, lambda answer: answer | {"processor_s": 0.099})
    assert remedy(path) == "Let the solver stop at its budget, `budget_s`"


def test_of_a_loop_the_mean_of_its_solves_is_told(solved: Callable[..., Path], tmp_path: Path) -> None:
    path = changed(
        solved("power", "window_s=0.5"), tmp_path / "run", 0.1, lambda a: a | {"overrun_s": 0.02, "processor_s": 0.4}
    )
    assert words(path) == "25 of 25, by 20 ms at most; the host gave that solver 0.08 of 0.1 s"


@pytest.mark.parametrize("processor_s", [None, "all", float("nan"), []])
def test_late_solves_without_a_time_of_the_processor_are_counted(
    solved: Callable[..., Path], tmp_path: Path, processor_s: object
) -> None:
    run = solved("performance", "timeout_s=0.1")
    path = changed(run, tmp_path / "run", 0.088, lambda answer: answer | {"processor_s": processor_s})
    assert words(path) == "25 of 25"


def test_solves_in_time_need_no_excuse(solved: Callable[..., Path], tmp_path: Path) -> None:
    run = solved("performance", "timeout_s=0.1")
    assert words(changed(run, tmp_path / "run", 0.1, lambda answer: answer | {"processor_s": 0.07})) == "0 of 25"
