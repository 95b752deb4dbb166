"""Early stopping is LoadGen's; an interval from order statistics contains the truth as often as it claims."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from rig.analysis.result.order_statistics import interval, nearest_rank, percentile
from rig.analysis.result.quantity import Component
from rig.analysis.service.early_stopping import allowed, discarded, estimate, needed

PERCENTILES = (0.5, 0.9, 0.97, 0.99, 0.999)
percentiles = st.sampled_from(PERCENTILES)


@pytest.mark.parametrize(("percentile", "least"), [(0.9, 64), (0.99, 662), (0.999, 6636)])
def test_the_least_queries_are_loadgens(percentile: float, least: int) -> None:
    assert needed(1, percentile) == least
    assert (discarded(least, percentile), discarded(least - 1, percentile)) == (0, -1)
    assert discarded(738_666, 0.9) == 73_265  # as published


@settings(deadline=None)
@given(over=st.integers(0, 5000), percentile=percentiles)
def test_needed_is_the_least_count_at_which_chance_alone_explains_it_in_one_of_a_hundred(
    over: int, percentile: float
) -> None:
    n = needed(over, percentile)
    tail = 1.0 - percentile
    assert n > over
    assert binom.cdf(over, n, tail) <= 0.01
    assert binom.cdf(over, n - 1, tail) > 0.01


@settings(deadline=None)
@given(n=st.integers(0, 200_000), percentile=percentiles)
def test_needed_and_allowed_are_inverse(n: int, percentile: float) -> None:
    t = allowed(n, percentile)
    assert t >= 0
    assert t == 0 or needed(t, percentile) <= n
    assert needed(t + 1, percentile) > n


@settings(deadline=None)
@given(n=st.integers(0, 20_000), percentile=percentiles)
def test_below_the_least_count_there_is_no_estimate_and_above_it_one_that_was_measured(
    n: int, percentile: float
) -> None:
    ordered = np.arange(n, dtype=float)
    found = estimate(ordered, percentile)
    out = discarded(n, percentile)
    assert (out == -1) == math.isnan(found) == (n < needed(1, percentile))
    if out >= 0:
        assert found == ordered[n - 1 - out] >= nearest_rank(ordered, percentile)


def test_the_estimate_is_below_the_true_percentile_in_one_of_a_hundred() -> None:
    rng = np.random.default_rng(5)
    truth = -math.log(1.0 - 0.9)
    below = sum(estimate(np.sort(rng.exponential(size=500)), 0.9) < truth for _ in range(2000))
    assert 5 <= below <= 20 + 4 * math.sqrt(20)


@settings(deadline=None)
@given(n=st.integers(1, 1_000_000), percentile=percentiles)
def test_nearest_rank_is_the_smallest_value_that_enough_do_not_exceed(n: int, percentile: float) -> None:
    rank = int(nearest_rank(np.arange(1.0, n + 1), percentile))
    exact = Fraction(str(percentile))
    assert Fraction(rank, n) >= exact
    assert rank == 1 or Fraction(rank - 1, n) < exact


@pytest.mark.parametrize(("n", "percentile"), [(20, 0.5), (200, 0.5), (100, 0.9), (1000, 0.99), (5000, 0.999)])
def test_an_interval_holds_the_true_percentile_at_least_as_often_as_it_claims(n: int, percentile: float) -> None:
    rng = np.random.default_rng(n)
    truth, trials = -math.log(1.0 - percentile), 600
    bounds = [interval(np.sort(rng.exponential(size=n)), percentile) for _ in range(trials)]
    held = sum(low <= truth <= high for low, high in bounds)
    assert held >= 0.95 * trials - 3.0 * math.sqrt(0.95 * 0.05 * trials)


@settings(deadline=None)
@given(values=st.lists(st.floats(0, 1e3), min_size=1, max_size=300), percentile=percentiles)
def test_an_interval_stands_round_the_nearest_rank(values: list[float], percentile: float) -> None:
    ordered = np.sort(values)
    low, high = interval(ordered, percentile)
    assert low <= nearest_rank(ordered, percentile) <= high


@pytest.mark.parametrize(("n", "stated"), [(10, False), (367, False), (368, True)])
def test_a_percentile_that_its_sample_cannot_bound_states_no_uncertainty(n: int, stated: bool) -> None:
    q = percentile(np.arange(1.0, n + 1), 0.99, (Component("timer resolution", 1e-6),))
    assert q.stated is stated
    assert ("too few to bound it" in q.method) is not stated


def test_a_side_that_too_few_values_cannot_bound_is_open() -> None:
    assert interval(np.array([1.0, 2.0, 3.0]), 0.999)[1] == math.inf
    assert interval(np.array([1.0, 2.0, 3.0]), 0.5) == (-math.inf, math.inf)
