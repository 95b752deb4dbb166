"""The sets of rules that the auditor knows, by name, scenario and revision."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from reports.audit.reading import Run

Values = dict[str, Any]


@functools.cache
def sets() -> dict[str, Any]:
    """The sets that the auditor knows."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("rule_sets.json").read_bytes())
    return found


def known_values(name: str, scenario: str) -> list[Values]:
    """The values of each revision of a set for a scenario, the newest last; none if the set does not cover it."""
    found = []
    for revision in sets()["sets"].get(name, []):
        by_scenario = revision["scenarios"]
        if own := by_scenario.get(scenario, by_scenario.get("*")):
            found.append({**sets()["defaults"], **own})
    return found


def differences(recorded: Values, values: Values) -> list[str]:
    """In which values recorded rules differ from those of a set."""
    defaults = sets()["defaults"]
    pairs = {key: (recorded.get(key, defaults.get(key)), value) for key, value in values.items()}
    return [f"{key} is {json.dumps(a)}, not {json.dumps(b)}" for key, (a, b) in pairs.items() if a != b]


def values_of(run: Run) -> tuple[Values | None, list[str]]:
    """The values by which a run is judged, and how its recorded rules differ from every revision of their set.

    A run is judged by the revision that it recorded; if it recorded none of them, by the newest.
    """
    recorded = run.start.get("rules") or {}
    revisions = known_values(str(recorded.get("name")), str(recorded.get("scenario")))
    if not revisions:
        return None, [f"the auditor knows no rules {recorded.get('name')!r} of {recorded.get('scenario')!r}"]
    same = [values for values in revisions if not differences(recorded, values)]
    values = (same or revisions)[-1]
    return values, differences(recorded, values)
