"""Readings that were damaged on the wire are no power; peaks of a device and dips of its meter are."""

from __future__ import annotations

import numpy as np
import pytest

from rig.analysis.timing import wire_errors
from rig.analysis.timing.mended import Mended
from rig.analysis.timing.timebase import host_timebase
from rig.analysis.timing.wire_errors import without_wire_errors
from rig.recording.traces import Trace
from rig.types import Floats, Rail

PERIOD = 1_000_000
IDLE_S = np.array([[0.0, 0.4], [1.6, 2.0]])
SPAN = slice(500, 1500)


def noisy(seed: int = 3) -> Floats:
    value = np.random.default_rng(seed).normal(1.0, 0.01, 2000)
    value[SPAN] += 1.0
    return value


def cleaned(value: Floats) -> Mended:
    end = PERIOD * np.arange(1, len(value) + 1, dtype=np.int64)
    rail = Rail("core", rate_hz=1e9 / PERIOD, aperture_s=1e-3)
    trace = Trace(rail, "meter", "host", end - PERIOD, end, value, np.zeros(len(value), bool), True)
    return without_wire_errors(trace, host_timebase(0), IDLE_S)


def missing(value: Floats) -> list[int]:
    return [int(k) for k in np.flatnonzero(np.isnan(cleaned(value).trace.value))]


def test_an_exact_zero_among_noisy_readings_is_missing() -> None:
    value = noisy()
    value[[700, 900]] = 0.0
    assert missing(value) == [700, 900]
    assert "2 single readings" in cleaned(value).notes[0]


def test_full_scale_and_turned_bits_are_missing_where_they_come_at_idle_too() -> None:
    value = noisy()
    value[[100, 300, 700, 900, 1100]] = 8.0
    value[[200, 1000, 1700]] -= 0.5
    assert missing(value) == [100, 200, 300, 700, 900, 1000, 1100, 1700]


def test_an_error_where_a_span_begins_is_missing_with_the_others() -> None:
    value = noisy()
    value[[100, 300, 500, 900]] = 8.0
    value[[200, 1000, 1700]] = 0.0
    assert 500 in missing(value)


@pytest.mark.parametrize("where", [slice(520, 1480, 40), slice(20, 1980, 40)])
def test_peaks_that_are_cut_off_stay(where: slice) -> None:
    value = noisy()
    value[where] = 8.0
    assert not missing(value)


def test_an_idle_level_that_is_zero_stays() -> None:
    value = noisy()
    value[:400] = value[1600:] = 0.0
    value[410:420:2] = 0.0
    assert not missing(value)


def test_a_long_trace_is_mended_throughout_by_what_stretches_of_it_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_errors, "MOST", 800)
    value, wrong = noisy(), list(range(5, 2000, 60))
    value[wrong] = 0.0
    assert missing(value) == wrong
    assert "of 800 that were looked at" in cleaned(value).notes[0]


def test_a_trace_without_noise_stays() -> None:
    value = np.ones(2000)
    value[700] = 0.0
    assert not missing(value)


def test_a_device_that_sleeps_at_zero_stays_where_only_the_rest_of_a_long_trace_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire_errors, "MOST", 800)
    value = noisy()
    value[10::60] = 0.0
    value[60:110] = 0.0  # between the first two stretches
    found = np.isnan(np.asarray(cleaned(value).trace.value))
    assert not found[61:109].any()
    assert found[130::60].all()
