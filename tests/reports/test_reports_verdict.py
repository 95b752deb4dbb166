"""The verdict comes first, names the failed rules and their owner, and is readable without colour."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reports.render import render
from reports.rule_by_rule import verdict_of
from rig.analysis.result.finding import Finding
from rig.analysis.result.result import Result
from tests.support.made_up import HOSTILE, made_up, printed, with_checks, without_pictures

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
def test_a_file_gives_the_verdict_before_any_figure(failing: dict[str, str], name: str) -> None:
    text = failing[name]
    assert text.index("✗ INVALID") < text.index("Refused") < text.index("System architecture")
    assert "never for submission" in text
    assert "Never submittable" in text


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


def test_hostile_rules_inject_nothing() -> None:
    result = judged(Finding(HOSTILE, HOSTILE, HOSTILE, False), Finding(HOSTILE, HOSTILE, HOSTILE, True))
    files = render(None, result)
    assert b"<script" not in files["report.html"]
    assert b"\x1b" not in files["report.html"] + files["report.md"]
    rows = [line for line in files["report.md"].decode().split("\n") if "alert" in line and line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows if row.endswith("| ✓ pass |")} == {5}
    assert "\x1b" not in printed(result)
