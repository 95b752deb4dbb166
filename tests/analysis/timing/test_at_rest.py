"""Readings at idle are tested: are they noise about one level in all windows?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rig.analysis.result.finding import Finding
from rig.analysis.timing.alignment.placement import AlignedRail
from rig.analysis.timing.outside_spans import restless
from rig.analysis.timing.readings import readings_of
from rig.analysis.timing.timebase import host_timebase
from rig.analysis.timing.timeline import Activity, Phase
from rig.recording.traces.traces import Trace
from rig.types import Floats, Rail

PERIOD_NS = 1_000_000
SPAN = slice(500, 1500)
ONE, NONE = np.ones(1, dtype=np.int64), np.zeros((0, 2))
ACTIVITY = Activity(
    {"inference": Phase(np.array([[0.5, 1.5]]), ONE, ONE, ONE)}, NONE, NONE, np.array([[0.0, 0.4], [1.6, 2.0]]), False
)


SPANS_S = np.array([[0.5, 0.65], [0.7, 0.9], [1.1, 1.3], [1.35, 1.5]])
FOUR = np.ones(4, dtype=np.int64)
WITH_GAPS = replace(ACTIVITY, phases={"inference": Phase(SPANS_S, FOUR, FOUR, FOUR)})


def found(value: Floats, activity: Activity = ACTIVITY) -> list[Finding]:
    end = PERIOD_NS * np.arange(1, len(value) + 1, dtype=np.int64)
    rail = Rail("core", rate_hz=1e9 / PERIOD_NS, aperture_s=1e-3)
    trace = Trace(rail, "meter", "host", end - PERIOD_NS, end, value, np.zeros(len(value), bool), True)
    clock = host_timebase(0)
    return restless(AlignedRail(readings_of(trace, clock), clock, 1e-5, 1e-5), activity)


def work() -> Floats:
    value = np.random.default_rng(3).normal(1.0, 0.01, 2000)
    value[SPAN] += 1.0
    return value


def wild(how: str) -> Floats:
    """Readings of 1 W at idle and 2 W at work; those at idle are more than noise about one level."""
    rng, value = np.random.default_rng(5), work()
    idle = np.ones(len(value), bool)
    idle[SPAN] = False
    match how:
        case "a unit comes and goes":
            value[idle & (rng.random(len(value)) < 0.5)] *= 1e3
        case "a sign is lost":
            value[idle & (rng.random(len(value)) < 0.1)] += 65.535
        case "a probe is switched":
            value[1200:] *= 10.0
        case "a filter is switched":
            value[1600:] += rng.normal(0.0, 0.1, 400)
        case "energy is taken for power":
            value = np.cumsum(value)
        case "a part is taken by another":
            value[rng.random(len(value)) < 0.03] *= rng.uniform(0.2, 0.8)
    return value


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("a unit comes and goes", "so far above those of work"),
        ("a sign is lost", "so far above those of work"),
        ("a probe is switched", "change from one idle window to another"),
        ("a filter is switched", "times as noisy in one idle window as in another"),
        ("energy is taken for power", "that never fall"),
        ("a part is taken by another", "single ones that lack a part"),
    ],
)
def test_readings_at_idle_that_are_more_than_noise_about_a_level_are_told(how: str, says: str) -> None:
    (check,) = found(wild(how))
    assert check.rule == "readings of rail core at idle" and says in check.found


def test_idle_that_pulses_drifts_or_steps_is_no_fault_of_the_meter() -> None:
    pulses, drifts, steps = work(), work(), work()
    pulses[[*range(0, 400, 3), *range(1600, 2000, 3)]] += 0.8
    drifts += np.linspace(0.0, 0.5, len(drifts))
    steps[1550:] += 0.4
    assert not any(found(value) for value in (work(), pulses, drifts, steps))


@pytest.mark.parametrize(("since", "faults"), [(1000, 0), (1550, 1)])
def test_idle_may_move_by_more_than_work_adds_if_the_gaps_near_it_move_too(since: int, faults: int) -> None:
    value = np.random.default_rng(6).normal(1.0, 0.01, 2000)
    for on_s, off_s in SPANS_S.tolist():
        value[round(1e3 * on_s) : round(1e3 * off_s)] += 1.0
    value[since:] += 3.0
    assert len(found(value, WITH_GAPS)) == faults
