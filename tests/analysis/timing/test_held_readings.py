"""Readings that repeat the one before were not measured: they have the pace of the conversions, or are missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.timing import held_readings
from rig.analysis.timing.held_readings import as_measured
from rig.analysis.timing.mended import Mended
from rig.analysis.timing.timebase import host_timebase
from rig.recording.traces import Trace
from rig.types import Floats, Rail

PERIOD = 1_000_000


def trace(value: Floats) -> Trace:
    end = PERIOD * np.arange(1, len(value) + 1, dtype=np.int64)
    rail = Rail("core", rate_hz=1e9 / PERIOD, aperture_s=1e-3)
    return Trace(rail, "meter", "meter", end - PERIOD, end, value, np.zeros(len(value), bool), True)


def measured(value: Floats, end_s: float = 1e3) -> Mended:
    return as_measured(trace(value), host_timebase(0), end_s)


def noise(count: int, seed: int = 3) -> Floats:
    return np.random.default_rng(seed).normal(1.0, 0.1, count)


@given(pace=st.floats(1.1, 6.0), seed=st.integers(0, 99))
def test_conversions_that_were_polled_too_often_stand_where_they_were_made(pace: float, seed: int) -> None:
    conversions = noise(300, seed)
    polled = conversions[np.floor(np.arange(pace, 300 * pace) / pace).astype(int) - 1]
    found = measured(polled).trace
    number = np.arange(len(found.value))
    first = int(np.flatnonzero(conversions == found.value[0])[0])
    true_end = (first + 1 + number) * pace - pace + 1.0  # the poll at ``pace`` is the first, whose tick ends at 1
    assert found.value == pytest.approx(conversions[first : first + len(number)])
    assert found.end_tick / PERIOD == pytest.approx(true_end, abs=0.6)
    assert found.rail.rate_hz == pytest.approx(1e9 / PERIOD / pace, rel=0.01)


def test_a_link_that_stalls_leaves_readings_missing() -> None:
    value = noise(1000)
    value[400:430] = value[400]
    found = measured(value)
    assert np.flatnonzero(np.isnan(found.trace.value)).tolist() == list(range(401, 430))
    assert "29 readings repeat the one before" in found.notes[0]
    assert not found.checks


def test_a_link_that_stalls_often_refuses_power() -> None:
    value, rng = noise(1000), np.random.default_rng(5)
    for at in rng.integers(0, 900, 12):
        value[at : at + rng.integers(3, 20)] = value[at]
    (check,) = measured(value).checks
    assert not check.ok


def test_a_long_trace_is_mended_throughout_by_what_stretches_of_it_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_readings, "MOST", 800)
    value, again = noise(2000), np.arange(5, 2000, 60)
    value[again] = value[again - 1]
    found = measured(value)
    assert np.flatnonzero(np.isnan(found.trace.value)).tolist() == again.tolist()
    assert "of 800 that were looked at" in found.notes[0]


def test_the_end_of_a_range_is_no_repeat_where_only_the_rest_of_a_long_trace_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_readings, "MOST", 800)
    value, again = noise(4000), np.arange(5, 4000, 60)
    value[again] = value[again - 1]
    value[100:140] = 2.5  # between the first two stretches
    found = np.asarray(measured(value).trace.value)
    assert found[100:140].tolist() == [2.5] * 40
    assert np.isnan(found[again[-1]])


@pytest.mark.parametrize(
    "value",
    [np.round(noise(1000), 2), np.minimum(noise(1000), 1.1), np.ones(1000), noise(1000)],
    ids=["coarse steps", "clipped", "constant", "noise"],
)
def test_other_equal_readings_stay(value: Floats) -> None:
    found = measured(value)
    assert found.trace.value.tolist() == value.tolist()
    assert not found.notes


def test_readings_beyond_the_end_were_delivered_too_often_and_stay() -> None:
    value = np.repeat(noise(500), 2)
    assert measured(value, end_s=0.5).trace.value.tolist() == value.tolist()
