"""Check the runs of a session together: they are enough, agree, are of one system and state the required figures."""

import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from rig.analysis.result.figure_catalogue import CATALOGUE
from rig.analysis.result.finding import Finding, at_least
from rig.analysis.result.quantity import FigureKey, Figures, Quantity
from rig.analysis.sessions.loadgen_tests import no_cache, same_answers
from rig.analysis.sessions.one_bench_and_data import recording_checks
from rig.analysis.sessions.part import Part
from rig.analysis.sessions.speed import one_speed, same_samples
from rig.analysis.verdict.rule_checks import named
from rig.recording.reader import Run
from rig.types import Rules

ACCURACY = "accuracy"
COMPARED = (
    ("performance", FigureKey("execution_time_s")),
    ("power", FigureKey("active_power_w")),
    ("power", FigureKey("average_power_w")),
)
"""The figures that are compared between trials, with the purpose of the runs that measure them."""
PURPOSES = ("performance", "accuracy", "power", "compliance")


def session_checks(
    parts: Sequence[Part], by: Mapping[str, list[Part]], rules: Rules, figures: Figures
) -> tuple[Finding, ...]:
    """Return the checks of every run except probes, and those of the session.

    ``figures`` are the session's. ``by`` holds the runs that gave these figures, by purpose.
    """
    checks = [*_whole_session(parts), *recording_checks(parts), *trial_checks(by, rules), *_one_system(parts, rules)]
    checks += [*_outlined(parts[0].run, rules), *_reported(parts, figures, rules)]
    checks += [*one_speed(by, rules), *same_answers(by), *no_cache(by)]
    return (*_of_runs(parts), *named(checks, rules))


def by_purpose(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """Return the runs of each purpose that a session combines."""
    return {p: [part for part in parts if part.purpose == p] for p in PURPOSES}


def _whole_session(parts: Sequence[Part]) -> Iterator[Finding]:
    """Check that there are as many runs as they announce."""
    announced = [link.of for part in parts if (link := part.run.start.session) is not None and link.of is not None]
    if announced or any(part.run.start.session for part in parts):
        wanted = str(max(announced)) if announced else "more"
        yield Finding("runs of the session", str(len(parts)), wanted, str(len(parts)) == wanted)


def _of_runs(parts: Sequence[Part]) -> Iterator[Finding]:
    for part in parts:
        if part.purpose != "probe" and part.result.validity is not None:
            for check in part.result.validity.checks:
                yield replace(check, rule=f"{part.name}: {check.rule}", told=False)


def trial_checks(by: Mapping[str, list[Part]], rules: Rules) -> tuple[Finding, ...]:
    """Return the checks of trials: as many as the rules ask for, each near the mean of all, and of the same samples."""
    return named([*_enough(by, rules), *same_samples(by)], rules)


def _enough(by: Mapping[str, list[Part]], rules: Rules) -> Iterator[Finding]:
    """Check that there are as many runs of each purpose as the rules ask for, and that each is near the mean of all."""
    wanted = {"performance": rules.trials or 1}
    if by["power"] or rules.submittable:  # a session that cannot be submitted needs no meter
        wanted["power"] = rules.trials or 1
    if ACCURACY in rules.reports:
        wanted[ACCURACY] = 1
    for purpose, least in wanted.items():
        yield at_least(f"runs for {purpose}", len(by[purpose]), least, ACCURACY if purpose == ACCURACY else "trials")
    if rules.trial_tolerance is not None:
        yield from _within(by, rules.trial_tolerance)


def _one_system(parts: Sequence[Part], rules: Rules) -> Iterator[Finding]:
    """Check that all runs are of one system in one configuration, so that time and power belong together."""
    if not rules.session:
        return
    names = sorted({part.configuration for part in parts})
    found = ", ".join(name or "not named" for name in names)
    yield Finding("configurations of the runs", found, "one", len(names) == 1, by="session")
    devices = len({json.dumps(part.run.start.as_recorded.get("device"), sort_keys=True) for part in parts})
    yield Finding("devices, as they were declared in the runs", str(devices), "1", devices == 1, by="session")


def _outlined(run: Run, rules: Rules) -> Iterator[Finding]:
    """Check that the device declares what the outlines of the report need."""
    if not rules.outline:
        return
    device = run.start.device
    outlines = {
        "system architecture": device.description,
        "algorithm": device.algorithm.outline,
        "tuning of the algorithm": device.algorithm.tuned,
    }
    for what, said in outlines.items():
        found = "declared" if said else "not stated"
        yield Finding(f"outline of the {what}", found, "declared", bool(said), by="outline")


def _reported(parts: Sequence[Part], figures: Figures, rules: Rules) -> Iterator[Finding]:
    """Check that every figure that the rules name is stated."""
    stated = {key.quantity for key in figures if key.of_whole}
    refused = {r.scope.quantity for p in parts for r in p.result.refusals if isinstance(r.scope, FigureKey)}
    for name in rules.reports:
        found = "stated" if name in stated else "refused" if name in refused else "absent"
        title = CATALOGUE[name].title.format(target="target's", threshold="threshold", percentile="percentile")
        yield Finding(f"{title} reported", found, "stated", found == "stated", by=name)


def _within(by: Mapping[str, list[Part]], tolerance: float) -> Iterator[Finding]:
    """Check that every trial is near the mean of all, for each figure of ``trial_figures``."""
    for key, trials in trial_figures(by).items():
        values = [q.value for q in trials]
        mean = sum(values) / len(values)
        worst = max(abs(v - mean) for v in values) / abs(mean) if mean else 0.0
        rule = f"{key} of each trial from the mean"
        yield Finding(rule, f"{worst:.3%}", f"at most {tolerance:.0%}", worst <= tolerance, by="trial_tolerance")


def trial_figures(by: Mapping[str, list[Part]]) -> dict[FigureKey, tuple[Quantity, ...]]:
    """Return the quantities of all trials for each figure in ``COMPARED`` that at least two trials have."""
    figures = {name: [part.result.quantities for part in parts] for name, parts in by.items()}
    found = {key: tuple(f[key] for f in figures[purpose] if key in f) for purpose, key in COMPARED}
    return {key: trials for key, trials in found.items() if len(trials) > 1}
