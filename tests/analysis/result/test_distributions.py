"""Quantiles and chances agree with those of scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import bdtr, betaincinv, stdtrit

from rig.analysis.result.distributions import _beta, beta_quantile, binomial_chances, student_quantile

CALM = settings(deadline=None, derandomize=True, database=None, max_examples=300)
TWELVE = 1e-12


@CALM
@given(st.sampled_from([0.6, 0.9, 0.95, 0.975, 0.995, 0.9995]), st.floats(0.0, 9.0).map(lambda e: 10.0**e))
def test_students_quantile(p: float, dof: float) -> None:
    assert student_quantile(p, dof) == pytest.approx(float(stdtrit(dof, p)), rel=TWELVE)


@CALM
@given(st.floats(-0.3, 6.0), st.floats(-0.3, 6.0), st.sampled_from([1e-12, 0.1, 0.5, 0.9, 1.0 - 1e-12]))
def test_quantiles_of_both_tails(a: float, b: float, p: float) -> None:
    a, b = 10.0**a, 10.0**b

    assert beta_quantile(p, a, b) == pytest.approx(float(betaincinv(a, b, p)), rel=1e-5)


def test_a_quantile_at_the_mean_belongs_to_one_tail() -> None:
    """There, rounding decides in which tail a chance is, and each tail assigned it to the other."""
    a, b = 0.6500210001757581, 0.6025839943680157
    p = _beta(a / (a + b), a, b)[0]
    for near in (math.nextafter(p, 0.0), p, math.nextafter(p, 1.0), 0.4908908780298862):
        assert beta_quantile(near, a, b) == pytest.approx(a / (a + b), rel=1e-9)


@CALM
@given(st.integers(0, 20_000), st.floats(1e-6, 1.0 - 1e-6))
def test_chances_of_a_count(n: int, p: float) -> None:
    count, chance = binomial_chances(n, p)

    np.testing.assert_allclose(chance, bdtr(count, n, p), rtol=1e-9, atol=TWELVE)


@pytest.mark.parametrize(("p", "only"), [(0.0, 0), (1.0, 7)])
def test_what_never_or_always_happens_has_one_count(p: float, only: int) -> None:
    count, chance = binomial_chances(7, p)

    assert count[np.searchsorted(chance, 0.5)] == only
