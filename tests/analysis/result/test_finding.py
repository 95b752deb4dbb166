"""Notes, refusals and checks of a result are views of one list of findings."""

from __future__ import annotations

from dataclasses import replace

from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.finding import Finding, Ruling, note, refusal
from tests.support.made_up import made_up

KEPT = Finding("duration", "12 s", "at least 10 s", True)
BROKEN = Finding("queries", "3", "at least 10")
DOUBT = Finding("gaps in the host's heartbeat", "1, the longest 2 s", "none", told=True)
PASSED_DOUBT = replace(DOUBT, ok=True)
POWER = refusal(FigureKey("active_power_w"), "no trace was recorded", "Measure again")
RULING = Ruling("quick", "", False)


def test_each_finding_is_seen_by_its_effect() -> None:
    result = replace(made_up(), findings=(KEPT, note("a sentence"), POWER, BROKEN), ruling=RULING)

    assert result.notes == ("a sentence",)
    assert result.refusals == (POWER,)
    assert result.validity is not None and result.validity.checks == (KEPT, BROKEN)
    assert result.validity.verdict == "INVALID"


def test_a_check_that_casts_doubt_stands_among_the_notes_where_it_fails_under_any_rules() -> None:
    result = replace(made_up(), findings=(DOUBT, PASSED_DOUBT, BROKEN), ruling=None)

    assert result.validity is None
    assert result.notes == ("gaps in the host's heartbeat: 1, the longest 2 s, allowed: none",)


def test_a_sentence_is_said_once() -> None:
    assert replace(made_up(), findings=(note("twice"), note("twice"))).notes == ("twice",)


def test_results_json_has_each_view_as_before() -> None:
    said = replace(made_up(), findings=(BROKEN, POWER, note("a sentence")), ruling=RULING).to_json()

    assert said["notes"] == ["a sentence"]
    assert said["refusals"] == [
        {"scope": "active_power_w", "reason": "no trace was recorded", "remedy": "Measure again"}
    ]
    assert said["validity"]["checks"] == [{"rule": "queries", "found": "3", "allowed": "at least 10", "ok": False}]
