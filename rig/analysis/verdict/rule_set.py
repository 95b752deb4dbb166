"""Compare the rules in a recording with the rig's own set of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from rig.analysis.result.finding import Finding
from rig.errors import RigError
from rig.plugins import load, names
from rig.types import Rules

_TEXTS = ("name", "scenario", "source", "sources")


def is_known(rules: Rules) -> bool:
    """Return whether the rig has a set of rules of this name; only results by such a set can be submitted."""
    return rules.name in names("rules")


def differing_rules(rules: Rules, scenario: str) -> Iterator[Finding]:
    """Yield a failed check if recorded rules are not those of the rig's own set of their name and scenario."""
    if not is_known(rules):
        return
    rule, allowed = f"the rules are those of {rules.name}", "as the set has it"
    try:
        own: Rules = load("rules", rules.name)(rules.scenario)
    except RigError as error:
        yield Finding(rule, error.message, allowed, False)
        return
    if rules.scenario != scenario:
        yield Finding(rule, f"for {rules.scenario}, and the scenario is {scenario}", allowed, False)
    for field in fields(Rules):
        found, wanted = getattr(rules, field.name), getattr(own, field.name)
        if found != wanted and field.name not in _TEXTS:
            yield Finding(rule, f"{field.name} is {found}, not {wanted}", allowed, False)
