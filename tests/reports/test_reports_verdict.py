"""The verdict comes first, names the failed rules and their owner, and is readable without colour."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from reports.render import render
from reports.rule_by_rule import verdict_of
from rig.analysis.result.finding import Finding, note
from rig.analysis.result.result import Result
from tests.support.made_up import made_up, printed, with_checks, without_pictures

LATE = Finding("performance: p99 of latency", "0.2 s", "at most 0.1 s", False)
IDLE = Finding("power: shortest idle window", "1 s", "at least 2 s", False)
KEPT = Finding("performance: duration", "10.6 s", "at least 10 s", True)
WHOLE = Finding("runs for power", "1", "at least 1", True)


def judged(*checks: Finding, submittable: bool = False, **more: Any) -> Result:
    return with_checks(without_pictures(made_up(**more)), *checks, submittable=submittable)


@pytest.fixture(scope="module")
def failing() -> dict[str, str]:
    files = render(None, judged(LATE, KEPT, IDLE, WHOLE))
    return {name: files[name].decode() for name in ("report.html", "report.md")}


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_a_file_has_every_rule_and_the_failed_ones_first(failing: dict[str, str], name: str) -> None:
    at = [failing[name].index(rule) for rule in ("p99 of latency", "shortest idle", "the run", "duration", "runs for")]
    assert at[:2] == sorted(at)[:2]
    assert failing[name].count("✗ fail") == 2
    assert failing[name].count("✓ pass") == 3
    for found in ("0.2 s", "at most 0.1 s", "1 s", "at least 2 s", "10.6 s", "at least 10 s"):
        assert found in failing[name].replace("\u00a0", " ")


def test_rules_of_a_session_stand_with_their_run_and_of_one_run_as_they_are() -> None:
    one = Finding("time of sample a: b repeated", "1", "0.9", True)
    verdict = verdict_of(judged(LATE, KEPT, IDLE, WHOLE, one).validity)
    assert verdict is not None and [rule.rule for rule in verdict.failed] == [LATE.rule, IDLE.rule]
    assert [rule.rule for rule in verdict.passed] == ["the run", KEPT.rule, WHOLE.rule, one.rule]


def test_what_is_the_same_in_several_runs_is_said_once_and_counted_for_each() -> None:
    runs = ("accuracy", "power-1", "power-2", "power-3")
    everywhere = [Finding(f"{run}: device and meters", "simulator", "hardware", False) for run in runs]
    in_some = [Finding(f"{run}: idle", "1 s", "at least 2 s", False) for run in runs[1:]]
    in_two = [Finding(f"{run}: gap", found, "0", False) for run, found in zip(runs, "1221", strict=True)]
    verdict = verdict_of(judged(*everywhere, *in_some, *in_two).validity)
    assert verdict is not None and verdict.failures == 11
    assert [(rule.rule, rule.found) for rule in verdict.failed] == [
        ("all 4 runs: device and meters", "simulator"),
        ("power-1 to power-3, 3 runs: idle", "1 s"),
        ("accuracy, power-3: gap", "1"),
        ("power-1, power-2: gap", "2"),
    ]


def test_a_terminal_has_one_line_and_then_the_failed_rules() -> None:
    lines = printed(judged(LATE, KEPT, IDLE, WHOLE)).split("\n")
    assert lines[1:4] == [
        "✗ INVALID by quick, never submittable: 2 of 5 rules failed",
        "  ✗ performance: p99 of latency: 0.2 s, allowed: at most 0.1 s",
        "  ✗ power: shortest idle window: 1 s, allowed: at least 2 s",
    ]
    assert "duration" not in "".join(lines[:6])


def test_a_passed_set_to_submit_by_is_valid_without_a_caveat() -> None:
    result = judged(KEPT, submittable=True, simulated=False)
    assert printed(result).startswith("run-core\n✓ VALID by quick: 2 rules passed\n")
    for name in ("report.html", "report.md"):
        text = render(None, result)[name].decode()
        assert "✓ VALID" in text
        assert "ubmittable" not in text.replace("Rule: Submittable", "")
        assert "submission report" in text


def test_no_report_is_a_submission_of_what_was_simulated_or_not_to_submit_by() -> None:
    for result in (judged(submittable=True), judged(simulated=False), without_pictures(made_up(simulated=False))):
        assert b"submission report" not in render(None, result)["report.html"]


def test_without_rules_there_is_no_verdict() -> None:
    files = render(None, without_pictures(made_up()))
    assert b"VALID" not in files["report.md"]
    assert not re.search(rb"VALID", files["report.html"])
    assert "VALID" not in printed(made_up())


# ---- the first screen: at most fifteen lines, each figure once

NOTED = replace(made_up(), findings=tuple(note(f"something to know, number {k}") for k in range(20)))


def test_the_first_screen_is_short_and_has_the_figures_with_their_intervals() -> None:
    lines = printed(NOTED).splitlines()

    assert len(lines) <= 15
    assert "17 more notes are in the report (or --verbose)" in lines
    assert any(line.startswith("Execution time, mean") and "±" in line for line in lines)
    assert sum(line.startswith("Active power") for line in lines) == 1
    assert lines == [line.rstrip() for line in lines]


def test_verbose_prints_every_note() -> None:
    lines = printed(NOTED, verbose=True).splitlines()

    assert sum(line.startswith("note: something to know") for line in lines) == 20
    assert lines == [line.rstrip() for line in lines]
