"""The share of each reading that an activity fills, compared with slow and simple computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import next_fast_len

from rig.analysis.timing import activity_signal as signals
from rig.types import Floats

CALM = settings(deadline=None, derandomize=True, database=None)

GRID = st.integers(0, 60)
WINDOWS = st.lists(st.tuples(GRID, st.integers(1, 12)), max_size=8).map(
    lambda rows: np.array([(a, a + n) for a, n in rows], dtype=float).reshape(-1, 2)
)
READINGS = st.lists(st.tuples(GRID, st.integers(0, 10)), min_size=1, max_size=20).map(
    lambda rows: np.array([(a, a + n) for a, n in rows], dtype=float)
)


def plain_union(windows: Floats) -> list[tuple[float, float]]:
    """Count cells of one unit for the union of windows; windows that touch become one."""
    cells = {k for a, b in windows for k in range(int(a), int(b))}
    starts = sorted(k for k in cells if k - 1 not in cells)
    return [(float(k), float(next(e for e in range(k, 100) if e not in cells))) for k in starts]


@CALM
@given(WINDOWS)
def test_merged_windows_cover_the_same_and_stand_apart(windows: Floats) -> None:
    found = signals.merged(windows)
    assert [tuple(row) for row in found] == plain_union(windows)
    assert signals.merged(found).tolist() == found.tolist()


@CALM
@given(WINDOWS, READINGS)
def test_a_reading_touches_each_window_with_time_in_common_and_is_inside_one(windows: Floats, readings: Floats) -> None:
    apart = signals.merged(windows)
    start, end = readings.T
    assert signals.touches(apart, start, end).tolist() == [any(a < e and b > s for a, b in apart) for s, e in readings]
    for s, e, k in zip(start, end, signals.inside(apart, start, end), strict=True):
        assert [j for j, (a, b) in enumerate(apart) if a <= s and e <= b] == ([] if k < 0 else [k])


@CALM
@given(WINDOWS, READINGS)
def test_readings_in_order_of_time_are_found_as_those_in_any_order(windows: Floats, readings: Floats) -> None:
    apart, order = signals.merged(windows), np.lexsort(readings.T[::-1])
    start, end = readings[order, 0], np.maximum.accumulate(readings[order, 1])
    shuffled = np.random.default_rng(0).permutation(len(start))
    for found in (signals.touches, signals.inside):
        assert found(apart, start, end)[shuffled].tolist() == found(apart, start[shuffled], end[shuffled]).tolist()
    for side in ("left", "right"):
        assert (
            signals.count_before(apart[:, 0], start, side).tolist()
            == np.searchsorted(apart[:, 0], start, side).tolist()
        )


def ramp(since_s: float, tau_s: float) -> float:
    """The integral of a single pole's response to an edge, until ``since_s`` after it."""
    since_s = max(since_s, 0.0)
    return since_s + tau_s * math.expm1(-since_s / tau_s) if tau_s else since_s


@CALM
@given(WINDOWS, READINGS, st.floats(-3.0, 3.0), st.just(0.0) | st.floats(0.05, 20.0))
def test_a_reading_sees_the_mean_of_what_a_filter_lets_through(
    windows: Floats, readings: Floats, height: float, tau_s: float
) -> None:
    """In any order, and the readings are left as they were."""
    start, end = np.random.default_rng(0).permutation(readings).T + np.array([[0.25], [0.5]])
    start.setflags(write=False)
    end.setflags(write=False)
    plain = [
        sum(ramp(e - a, tau_s) - ramp(s - a, tau_s) - ramp(e - b, tau_s) + ramp(s - b, tau_s) for a, b in windows)
        for s, e in zip(start, end, strict=True)
    ]
    found = signals.mean_signal(signals.edges_of(windows, height), start, end, tau_s)
    assert found == pytest.approx(height * np.array(plain) / (end - start), abs=1e-9)


def filtered(windows: Floats, tau_s: float, t: float) -> float:
    """Return a single pole's response to every window, from the closed form of each edge."""
    rise = sum((1.0 - math.exp(-(t - a) / tau_s)) for a, _ in windows if t > a)
    return rise - sum((1.0 - math.exp(-(t - b) / tau_s)) for _, b in windows if t > b)


@CALM
@given(WINDOWS, st.lists(st.floats(0.0, 80.0), min_size=1, max_size=10), st.floats(0.05, 20.0))
def test_a_point_reading_sees_the_filter_at_that_instant(windows: Floats, at: list[float], tau_s: float) -> None:
    t = np.array(at)
    plain = [filtered(windows, tau_s, x) for x in at]
    assert signals.mean_signal(signals.edges_of(windows), t, t, tau_s) == pytest.approx(np.array(plain), abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(-9.0, 9.0), min_size=1, max_size=30), st.data())
def test_a_correlation_is_the_sum_of_products_at_each_place(longer: list[float], data: st.DataObject) -> None:
    shorter = data.draw(st.lists(st.floats(-9.0, 9.0), min_size=1, max_size=len(longer)))
    plain = np.correlate(longer, shorter, mode="valid")
    assert signals.correlated(np.array(longer), np.array(shorter)) == pytest.approx(plain, abs=1e-9)


@CALM
@given(st.integers(1, 1 << 30))
def test_the_length_of_a_transform_is_the_least_with_small_factors(n: int) -> None:
    assert signals.fast_length(n) == next_fast_len(n, real=True)
