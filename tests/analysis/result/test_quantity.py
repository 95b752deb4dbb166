"""A Quantity follows the GUM's laws of propagation, and has its intervals and its form in JSON; quantiles and
chances agree with those of scipy."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import bdtr, betaincinv, stdtr

from rig.analysis.result.distributions import _beta, beta_quantile, binomial_chances, student_quantile
from rig.analysis.result.quantity import Component, Quantity, coverage_factor, from_json, linear, product

SIZES = st.floats(1e-3, 10.0)
SIGNED = st.one_of(SIZES, SIZES.map(lambda x: -x))
ORIGINS = st.sampled_from([None, None, "gain:a", "gain:b", "stamps"])
COMPONENTS = st.builds(Component, st.just("source"), SIGNED, st.just(math.inf) | st.floats(2.0, 100.0), ORIGINS)
QUANTITIES = st.builds(
    Quantity,
    value=st.floats(-100.0, 100.0),
    unit=st.just("W"),
    components=st.lists(COMPONENTS, max_size=5).map(tuple),
    bias=st.one_of(st.just(0.0), SIZES),
    n=st.integers(0, 1000),
    method=st.just("made up"),
)


def drawn(quantities: list[Quantity], n: int) -> list[np.ndarray]:
    """Return values of each quantity in ``n`` imagined repetitions: parts with a shared origin change together."""
    rng = np.random.default_rng(5)
    origins: dict[str, np.ndarray] = {}
    values = []
    for q in quantities:
        total = np.full(n, q.value)
        for c in q.components:
            kick = rng.normal(size=n) if c.shared is None else origins.setdefault(c.shared, rng.normal(size=n))
            total = total + c.u * kick
        values.append(total)
    return values


@settings(max_examples=40)
@given(st.lists(st.tuples(SIGNED, QUANTITIES), min_size=1, max_size=4))
def test_a_linear_combination_scatters_as_stated(terms: list[tuple[float, Quantity]]) -> None:
    stated = linear(terms, "W", "combined")
    values = drawn([q for _, q in terms], 20_000)
    found = sum(factor * x for (factor, _), x in zip(terms, values, strict=True))
    largest = max((abs(f * c.u) for f, q in terms for c in q.components), default=0.0)
    assert stated.value == pytest.approx(sum(f * q.value for f, q in terms))
    assert stated.u == pytest.approx(float(np.std(found)), rel=0.05, abs=1e-9 * (1.0 + largest))


@settings(max_examples=40)
@given(QUANTITIES, QUANTITIES)
def test_a_product_of_well_known_quantities_scatters_as_stated(a: Quantity, b: Quantity) -> None:
    small = [
        Quantity(q.value + math.copysign(50.0, q.value), "W", q.scaled(1e-3, "W").components, q.bias * 1e-3)
        for q in (a, b)
    ]
    stated = product(small[0], small[1], "W2", "product")
    x, y = drawn(small, 20_000)
    largest = max((50.0 * abs(c.u) for q in small for c in q.components), default=0.0)
    assert stated.value == small[0].value * small[1].value
    assert stated.u == pytest.approx(float(np.std(x * y)), rel=0.05, abs=1e-9 + 0.02 * largest)
    assert stated.bias == pytest.approx(abs(small[0].value) * small[1].bias + abs(small[1].value) * small[0].bias)


def test_the_worked_example_of_the_gum_is_met() -> None:
    """JCGM 100:2008, G.4.1: 0.25 %, 0.57 % and 0.82 % with 9, 4 and 14 degrees of freedom."""
    parts = [Component("x", u, dof) for u, dof in ((0.25, 9.0), (0.57, 4.0), (0.82, 14.0))]
    q = Quantity(100.0, "1", tuple(parts))
    assert q.u == pytest.approx(1.03, abs=0.005)
    assert q.dof == pytest.approx(19.0, abs=0.05)
    assert q.half_width() == pytest.approx(2.09 * 1.03, abs=0.02)


@pytest.mark.parametrize(("components", "dof"), [
    ((Component("noise", 2.0, 7.0),), 7.0), ((Component("noise", 2.0, 7.0), Component("gain", 2.0)), 4 * 7.0),
    ((Component("gain", 2.0),), math.inf),
    ((Component("a", 1.0, 9.0, "x"), Component("b", 1.0, 5.0, "x")), 5.0),  # what is shared counts once
])  # fmt: skip
def test_exact_and_shared_components_lower_no_degrees_of_freedom(components: tuple[Component, ...], dof: float) -> None:
    assert Quantity(0.0, "W", components).dof == pytest.approx(dof)


@given(QUANTITIES, st.sampled_from([0.68, 0.95, 0.99]))
def test_the_interval_is_t_times_u_plus_the_bias_bound(q: Quantity, confidence: float) -> None:
    low, high = q.interval(confidence)
    half = coverage_factor(q.dof, confidence) * q.u + q.bias
    assert high - q.value == pytest.approx(half)
    assert q.value - low == pytest.approx(half)


@given(QUANTITIES)
def test_a_quantity_survives_the_round_trip_to_json(q: Quantity) -> None:
    text = json.dumps(q.to_json(), allow_nan=False)
    assert from_json(json.loads(text)) == q
    assert from_json(json.loads(text)).to_json() == q.to_json()


@given(QUANTITIES, SIGNED)
def test_an_exact_factor_scales_value_uncertainty_and_bias(q: Quantity, factor: float) -> None:
    s = q.scaled(factor, "J", "times an exact number")
    assert (s.value, s.unit, s.method, s.n) == (q.value * factor, "J", "times an exact number", q.n)
    assert s.u == pytest.approx(q.u * abs(factor))
    assert s.bias == q.bias * abs(factor) >= 0.0
    assert s.dof == pytest.approx(q.dof)
    assert q.scaled(factor, "J").method == q.method


@given(SIZES, SIGNED)
def test_a_scaled_quantity_stays_correlated_with_its_origin(u: float, factor: float) -> None:
    q = Quantity(1.0, "W", (Component("gain", u, shared="gain:meter"),))
    assert linear([(factor, q), (-1.0, q.scaled(factor, "W"))], "W", "nothing").u == pytest.approx(0.0, abs=1e-12)


@given(st.lists(QUANTITIES, min_size=1, max_size=4))
def test_bias_bounds_add_regardless_of_sign(quantities: list[Quantity]) -> None:
    signs = [(-1.0) ** k for k in range(len(quantities))]
    q = linear(zip(signs, quantities, strict=True), "W", "alternating")
    assert q.bias == pytest.approx(sum(p.bias for p in quantities))
    assert q.n == max(p.n for p in quantities)


# ---- quantiles and chances, as scipy has them --------------------------------------------------

MANY = settings(max_examples=300)
TWELVE, EIGHT = 1e-12, 1e-8


@MANY
@given(st.sampled_from([0.6, 0.9, 0.95, 0.975, 0.995, 0.9995]), st.floats(0.0, 9.0).map(lambda e: 10.0**e))
def test_t_quantiles_agree(p: float, dof: float) -> None:
    assert stdtr(dof, -student_quantile(p, dof)) == pytest.approx(1.0 - p, rel=20.0 * EIGHT)


@MANY
@given(st.floats(-0.3, 6.0), st.floats(-0.3, 6.0), st.sampled_from([1e-12, 0.1, 0.5, 0.9, 1.0 - 1e-12]))
def test_beta_quantiles_agree(a: float, b: float, p: float) -> None:
    a, b = 10.0**a, 10.0**b

    assert beta_quantile(p, a, b) == pytest.approx(float(betaincinv(a, b, p)), rel=1e-5)


def test_a_beta_quantile_at_the_mean_is_accurate() -> None:
    """At the mean, rounding decides which tail a probability is in; each tail once left it to the other."""
    a, b = 0.6500210001757581, 0.6025839943680157
    p = _beta(a / (a + b), a, b)[0]
    for near in (math.nextafter(p, 0.0), p, math.nextafter(p, 1.0), 0.4908908780298862):
        assert beta_quantile(near, a, b) == pytest.approx(a / (a + b), rel=1e-9)


@MANY
@given(st.integers(0, 20_000), st.floats(1e-6, 1.0 - 1e-6))
def test_binomials_agree(n: int, p: float) -> None:
    count, chance = binomial_chances(n, p)

    np.testing.assert_allclose(chance, bdtr(count, n, p), rtol=1e-9, atol=TWELVE)


@pytest.mark.parametrize(("p", "only"), [(0.0, 0), (1.0, 7)])
def test_a_chance_of_zero_or_one_has_one_count(p: float, only: int) -> None:
    count, chance = binomial_chances(7, p)

    assert count[np.searchsorted(chance, 0.5)] == only
