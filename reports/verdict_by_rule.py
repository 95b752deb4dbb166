"""The verdict of a result by the rules of its run, rule by rule, for every format."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rig.analysis.result.finding import Finding
from rig.analysis.result.result import Result
from rig.analysis.result.verdict import ALONE, NEVER
from rig.terminal import clean

PASS, FAIL = "✓ pass", "✗ fail"
_OF_RUN = re.compile(r"(?P<run>[\w.-]+): (?P<rule>.+)", re.S)
_NAMED = 2
"""Up to this many runs are named one by one before a rule; more runs become ``A to B, N runs`` or ``all N runs``."""


class Rule(NamedTuple):
    """One rule as text; ``outcome`` is pass or fail with a sign. ``ok`` is the same for programs."""

    rule: str
    found: str
    allowed: str
    outcome: str
    ok: bool
    source: str = ""
    remedy: str = ""


class Verdict(NamedTuple):
    """The verdict with its rules, for readers.

    ``caveat`` is empty if results by these rules can be submitted. ``counted`` and ``kept`` count rules, run by run.
    In ``failed`` and ``passed``, a rule with the same outcome in several runs is one row, which begins with the names
    of the runs. ``sourced`` is True if any rule names its source. ``state`` is valid, partial (power was refused) or
    invalid.
    """

    verdict: str
    sign: str
    state: str
    rules: str
    source: str
    caveat: str
    counted: str
    kept: int
    failed: tuple[Rule, ...]
    passed: tuple[Rule, ...]
    sourced: bool


def verdict_of(result: Result) -> Verdict | None:
    """Return the verdict with failed and passed rules; None without a verdict."""
    validity, rules = result.validity, result.start.rules
    if validity is None:
        return None
    alike: dict[Rule, list[str]] = {}
    for run, rule in map(_split, validity.checks):
        alike.setdefault(rule, []).append(run)
    runs = {run for found in alike.values() for run in found if run}
    told = [rule._replace(rule=_named(found, len(runs)) + rule.rule) for rule, found in alike.items()]
    state = "invalid" if not validity.valid else "partial" if result.power_refused else "valid"
    return Verdict(
        verdict=result.verdict,
        sign={"valid": "✓", "partial": "!", "invalid": "✗"}[state],
        state=state,
        rules=clean(validity.rules),
        source=clean(validity.source),
        caveat="" if validity.submittable else ALONE if rules is not None and rules.submittable else NEVER,
        counted=validity.counted,
        kept=sum(check.ok for check in validity.checks),
        failed=tuple(rule for rule in told if not rule.ok),
        passed=tuple(rule for rule in told if rule.ok),
        sourced=any(check.source for check in validity.checks),
    )


def _named(runs: Sequence[str], of: int) -> str:
    """Return a prefix that names the runs in which a rule was judged; empty for a whole session."""
    several = list(dict.fromkeys(run for run in runs if run))
    if len(several) <= _NAMED:
        return "".join(f"{text}: " for text in [", ".join(several)] if text)
    return f"all {of} runs: " if len(several) == of else f"{several[0]} to {several[-1]}, {len(several)} runs: "


def _split(check: Finding) -> tuple[str, Rule]:
    match = _OF_RUN.fullmatch(check.rule)
    run, rule = (match["run"], match["rule"]) if match else ("", check.rule)
    said, told = (clean(rule), clean(check.found), clean(check.allowed)), (clean(check.source), clean(check.remedy))
    return clean(run), Rule(*said, PASS if check.ok else FAIL, check.ok, *told)
