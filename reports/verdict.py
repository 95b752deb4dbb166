"""The verdict of a result by the rules it was played by, rule by rule, for every format."""

from __future__ import annotations

import re
from typing import NamedTuple

from reports.format import clean
from rig.analysis.verdict import Check, Validity

KEPT, BROKEN = "✓ kept", "✗ broken"
_OF_RUN = re.compile(r"(?P<run>[\w.-]+): (?P<rule>.+)", re.S)
_WHOLE = "session as a whole"


class Rule(NamedTuple):
    """One rule as text; ``kept`` says it in words and by a sign, ``ok`` for programs."""

    rule: str
    found: str
    allowed: str
    kept: str
    ok: bool


class RuleGroup(NamedTuple):
    """The rules that one run of a session kept; ``heading`` is empty where there is but one run."""

    heading: str
    rules: tuple[Rule, ...]


class Verdict(NamedTuple):
    """All that is said of validity. ``caveat`` is empty for a set of rules to submit by.

    ``broken`` names the run before each rule, where there are several; ``kept`` has a group for each.
    """

    verdict: str
    sign: str
    valid: bool
    rules: str
    source: str
    caveat: str
    total: int
    broken: tuple[Rule, ...]
    kept: tuple[RuleGroup, ...]


def verdict_of(validity: Validity | None) -> Verdict | None:
    """The verdict: rules that were broken first, then those kept, those of each run of a session together."""
    if validity is None:
        return None
    split = [_split(check) for check in validity.checks]
    several = any(run for run, _ in split)
    runs = dict.fromkeys(run for run, _ in split)
    broken = [rule._replace(rule=f"{run}: {rule.rule}") if run else rule for run, rule in split if not rule.ok]
    kept = [_kept(run, [rule for other, rule in split if other == run], several) for run in runs]
    return Verdict(
        verdict=validity.verdict,
        sign="✓" if validity.valid else "✗",
        valid=validity.valid,
        rules=clean(validity.rules),
        source=clean(validity.source),
        caveat="" if validity.submittable else "never submittable",
        total=len(validity.checks),
        broken=tuple(broken),
        kept=tuple(group for group in kept if group.rules),
    )


def _kept(run: str, rules: list[Rule], several: bool) -> RuleGroup:
    kept = tuple(rule for rule in rules if rule.ok)
    count = f"{len(kept)} of {len(rules)} rules kept"
    return RuleGroup(f"{run or _WHOLE}: {count}" if several else "", kept)


def _split(check: Check) -> tuple[str, Rule]:
    match = _OF_RUN.fullmatch(check.rule)
    run, rule = (match["run"], match["rule"]) if match else ("", check.rule)
    kept = KEPT if check.ok else BROKEN
    return clean(run), Rule(clean(rule), clean(check.found), clean(check.allowed), kept, check.ok)
