"""A failed rule states its remedy, and a result without power is not shown as VALID."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from reports.rule_by_rule import verdict_of
from rig.analysis.result.figure_key import Figures
from rig.analysis.result.finding import Finding
from rig.analysis.result.result import Result
from rig.analysis.verdict.remedies import REMEDIES, remedy_of
from rig.analysis.verdict.validity import named
from tests.support.made_up import made_up, with_checks, without_pictures

CHECKS = ("Finding", "at_least", "at_most", "_within", "_count")
ANALYSIS = Path(__file__).resolve().parents[2] / "rig" / "analysis"


def _text(node: ast.expr, names: dict[str, str]) -> str | None:
    """Return a rule as its module writes it, with X for inserted values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w+\}", "X", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "X" for v in node.values)  # type: ignore[misc]
    return names.get(node.id) if isinstance(node, ast.Name) else None


def rules() -> Iterator[str]:
    """Return every rule that the modules of the analysis write in a check, or just before one."""
    for path in sorted(ANALYSIS.rglob("*.py")):
        tree = ast.parse(path.read_text())
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id in CHECKS:
                names = {
                    target.id: text
                    for n in ast.walk(tree)
                    if isinstance(n, ast.Assign) and n.lineno < call.lineno and (text := _text(n.value, {})) is not None
                    for target in n.targets
                    if isinstance(target, ast.Name)
                }
                if call.args and (text := _text(call.args[0], names)):
                    yield text
            for given in call.keywords:
                if given.arg == "check" and isinstance(given.value, ast.Tuple):
                    yield _text(given.value.elts[0], {}) or ""


def test_every_rule_has_a_remedy_of_its_own() -> None:
    found = {*rules(), "predictions of every step", "forecasts of the whole"}
    assert len(found) > 50
    assert [rule for rule in sorted(found) if not remedy_of(rule)] == []


def test_every_remedy_belongs_to_a_rule_and_is_one_short_sentence() -> None:
    found = {*rules(), "predictions of every step", "forecasts of the whole"}
    assert [p for p, _ in REMEDIES if not any(re.match(p, rule) for rule in found)] == []
    assert [text for _, text in REMEDIES if len(text) > 88 or text.endswith(".")] == []


def test_a_rule_that_fails_carries_its_remedy_and_one_that_passes_none() -> None:
    rules = made_up().start.rules or pytest.fail("the made-up run has rules")
    late = Finding("p99 of the host's slip", "0.2 s", "at most 0.1 s", False)
    failed, passed, own = named([late, replace(late, ok=True), replace(late, remedy="Wait")], rules)
    assert "rig doctor" in failed.remedy
    assert (passed.remedy, own.remedy) == ("", "Wait")


def test_a_rule_of_a_run_in_a_session_has_the_remedy_of_the_run() -> None:
    assert remedy_of("power-1: shortest idle window") == remedy_of("shortest idle window") != ""


def _without_power(valid: bool) -> Result:
    result = without_pictures(made_up())
    kept = {key: q for key, q in result.quantities.items() if key.quantity != "active_power_w"}
    checks = () if valid else (Finding("queries", "1", "at least 2", False),)
    return with_checks(replace(result, quantities=Figures(kept)), *checks)


def test_without_power_the_verdict_is_valid_for_times_alone() -> None:
    result = _without_power(valid=True)
    said = verdict_of(result.validity, result.start.rules, result.verdict)
    assert said is not None and result.verdict == said.verdict == "VALID for times; power refused"
    assert said.sign != "✓"
    assert result.to_json()["validity"]["verdict"] == "VALID for times; power refused"


def test_what_is_invalid_stays_so_without_power() -> None:
    assert _without_power(valid=False).verdict == "INVALID"


def test_without_a_meter_nothing_of_power_is_refused() -> None:
    result = _without_power(valid=True)
    assert replace(result, start=structs.replace(result.start, meters=[])).verdict == "VALID"
