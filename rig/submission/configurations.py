"""Group sessions by configuration: sessions of one configuration are its trials, and each configuration is a row."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rig.analysis.result.quantity import FigureKey, Quantity
from rig.analysis.result.result import Result
from rig.analysis.sessions.part import Part
from rig.analysis.sessions.summary import together
from rig.recording.events import Start
from rig.recording.reader import Run
from rig.recording.submission import PAGE, SESSIONS, Claim, Configuration
from rig.session.report import Evaluated
from rig.terminal import clean

MOST_CHARACTERS = 40
"""The most characters of a value, and of its key, in the name of a configuration."""


@dataclass(frozen=True)
class Row:
    """One configuration: the names of its sessions in the submission, the sessions, and the mean of their results."""

    sessions: tuple[tuple[str, Evaluated], ...]
    result: Result
    configuration: Configuration

    @property
    def run(self) -> Run:
        """Return the run that the pictures of the configuration show."""
        return self.sessions[0][1].run


def rows_of(sessions: Sequence[tuple[str, Evaluated]]) -> list[Row]:
    """Return the configurations of sessions with their names, in order of first appearance."""
    found: dict[str, list[tuple[str, Evaluated]]] = {}
    for name, session in sessions:
        found.setdefault(_identity(session.parts), []).append((name, session))
    names = _names([members[0][1].result for members in found.values()])
    return [_row(k, name, members) for k, (name, members) in enumerate(zip(names, found.values(), strict=True), 1)]


def _identity(parts: Sequence[Part]) -> str:
    """Return what all trials share: device, scenario, workload and rules as recorded, rails, and what is simulated."""
    keys, starts = ("device", "scenario", "workload", "rules"), [(part.purpose, part.run.start) for part in parts]
    alike = {
        json.dumps([why, s.configuration, s.simulated, _rails(s), *map(s.as_recorded.get, keys)], sort_keys=True)
        for why, s in starts
    }
    return json.dumps(sorted(alike))


def _rails(start: Start) -> str:
    """Return the names of the supplies that were measured, in order."""
    return ", ".join(sorted(rail.name for meter in start.meters for rail in meter.rails if rail.kind != "edges"))


def _row(number: int, name: str, sessions: Sequence[tuple[str, Evaluated]]) -> Row:
    whole = together(name, [(folder, session.parts, session.result) for folder, session in sessions])
    start, validity = whole.start, whole.validity
    row = Configuration(
        name=name, scenario=_short(start.scenario.name), workload=_short(start.workload.name),
        rules=_short(start.rules.name if start.rules is not None else ""), device=_short(start.device.name),
        class_="simulated" if whole.simulated else "measured" if start.imported is None else "imported",
        verdict=None if validity is None else "VALID" if validity.valid else "INVALID",
        page=PAGE if number == 1 else f"pages/{number}.html",
        sessions=[f"{SESSIONS}/{folder}" for folder, _ in sessions],
        claims={str(key): _claim(key, q, sessions) for key, q in whole.quantities.items()},
    )  # fmt: skip
    return Row(tuple(sessions), whole, row)


def _claim(key: FigureKey, q: Quantity, sessions: Sequence[tuple[str, Evaluated]]) -> Claim:
    low, high = q.interval() if q.stated else (None, None)
    trials = [session.result.quantities[key].value for _, session in sessions]
    runs = sum(_runs_behind(key, q, session.parts) for _, session in sessions)
    return Claim(value=q.value, unit=q.unit, low=low, high=high, trials=trials, runs=runs)


def _runs_behind(key: FigureKey, q: Quantity, parts: Sequence[Part]) -> int:
    """Return how many runs of a session state the figure, among its accuracy, performance or power runs."""
    powered = q.unit in ("W", "J")
    by = {p: [part for part in parts if part.purpose == p and key in part.result.quantities] for p in _GIVERS}
    if key.quantity in ("accuracy", "balanced_accuracy") and by["accuracy"]:
        return len(by["accuracy"])
    return len(by["power"] if powered or not by["performance"] else by["performance"]) or 1


_GIVERS = ("accuracy", "performance", "power")


# ---- names --------------------------------------------------------------------------------


def _names(results: Sequence[Result]) -> list[str]:
    """Return the names of configurations: the system, the task, and the fewest values that distinguish each."""
    facts = [_facts(result) for result in results]
    names = [_short(f"{r.start.device.name}, {r.start.workload.name}, {r.start.scenario.name}") for r in results]
    for key in dict.fromkeys(key for fact in facts for key in fact):
        more = [f"{name}, {key} {fact[key]}" if key in fact else name for name, fact in zip(names, facts, strict=True)]
        if len(set(more)) > len(set(names)):
            names = more
    numbered = [f"{name}, {k}" for k, name in enumerate(names, 1)]
    return names if len(set(names)) == len(names) else numbered


def _facts(result: Result) -> dict[str, str]:
    start = result.start
    given: dict[str, Any] = {"configuration": start.configuration, "mode": start.device.mode}
    given |= _scalars(start.workload.details) | _scalars(start.scenario.options) | _scalars(start.device.options or {})
    given |= {"rules": start.rules.name if start.rules is not None else "", "rails": _rails(start)}
    given |= {"recording": start.run_id}
    return {clean(key): clean(value) for key, value in given.items() if value not in (None, "")}


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are short enough for a name; a list of one value counts as this value."""
    single = {k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in values.items()}
    plain = (str, int, float, bool)
    return {k: v for k, v in single.items() if isinstance(v, plain) and len(str(v)) <= MOST_CHARACTERS >= len(k)}


def _short(text: str) -> str:
    return clean(text)[:200]
