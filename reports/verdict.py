"""The verdict of a result by the rules of its run, rule by rule, for every format."""

from __future__ import annotations

import re
from typing import NamedTuple

from rig.analysis.verdict import Check, Validity
from rig.terminal import clean
from rig.types import Rules

PASS, FAIL = "✓ pass", "✗ fail"
_OF_RUN = re.compile(r"(?P<run>[\w.-]+): (?P<rule>.+)", re.S)
_WHOLE = "session as a whole"
NEVER = "never submittable"
ALONE = "one run, submittable only as part of a session"


class Rule(NamedTuple):
    """One rule as text; ``outcome`` is pass or fail with a sign, for readers, and ``ok`` is for programs."""

    rule: str
    found: str
    allowed: str
    outcome: str
    ok: bool
    source: str = ""


class RuleGroup(NamedTuple):
    """The rules that one run of a session passed; ``heading`` is empty if there is only one run."""

    heading: str
    rules: tuple[Rule, ...]


class Verdict(NamedTuple):
    """The verdict with its rules, for readers.

    ``caveat`` is empty if results by these rules can be submitted. If there are several runs, a rule in ``failed``
    begins with the name of its run, and ``passed`` has a group for each run. ``sourced`` says whether rules name their
    sources.
    """

    verdict: str
    sign: str
    valid: bool
    rules: str
    source: str
    caveat: str
    total: int
    failed: tuple[Rule, ...]
    passed: tuple[RuleGroup, ...]
    sourced: bool


def verdict_of(validity: Validity | None, rules: Rules | None = None) -> Verdict | None:
    """Return the verdict: failed rules first, then passed rules, grouped by the runs of a session.

    ``rules`` are those of the run, if it is known.
    """
    if validity is None:
        return None
    split = [_split(check) for check in validity.checks]
    several = any(run for run, _ in split)
    runs = dict.fromkeys(run for run, _ in split)
    failed = [rule._replace(rule=f"{run}: {rule.rule}") if run else rule for run, rule in split if not rule.ok]
    passed = [_passed(run, [rule for other, rule in split if other == run], several) for run in runs]
    return Verdict(
        verdict=validity.verdict,
        sign="✓" if validity.valid else "✗",
        valid=validity.valid,
        rules=clean(validity.rules),
        source=clean(validity.source),
        caveat="" if validity.submittable else ALONE if rules is not None and rules.submittable else NEVER,
        total=len(validity.checks),
        failed=tuple(failed),
        passed=tuple(group for group in passed if group.rules),
        sourced=any(check.source for check in validity.checks),
    )


def _passed(run: str, rules: list[Rule], several: bool) -> RuleGroup:
    passed = tuple(rule for rule in rules if rule.ok)
    count = f"{len(passed)} of {len(rules)} rules passed"
    return RuleGroup(f"{run or _WHOLE}: {count}" if several else "", passed)


def _split(check: Check) -> tuple[str, Rule]:
    match = _OF_RUN.fullmatch(check.rule)
    run, rule = (match["run"], match["rule"]) if match else ("", check.rule)
    outcome = PASS if check.ok else FAIL
    return clean(run), Rule(
        clean(rule), clean(check.found), clean(check.allowed), outcome, check.ok, clean(check.source)
    )
