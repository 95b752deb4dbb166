"""Cumulative rails: a counter errs in its readings, not between them, and the intervals know it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.counters import one
from rig.analysis.power.counter import Counted, Jitter, estimate, variances

CALM = settings(deadline=None, derandomize=True, database=None)
PERIOD_S = 0.005


def ages_of(n: int, rho: float, rng: np.random.Generator) -> np.ndarray:
    """Errors of one joule, each correlated with the one before."""
    kicks = rng.normal(0.0, np.sqrt(1.0 - rho**2), n)
    errors = np.empty(n)
    errors[0] = rng.normal()
    for k in range(1, n):
        errors[k] = rho * errors[k - 1] + kicks[k]
    return errors


def shown(errors: list[np.ndarray], more: float = 0.0, busy: np.ndarray | None = None, ratio: float = 1.0) -> Counted:
    rng = np.random.default_rng(9)
    idle = [np.diff(e) / PERIOD_S + more * rng.normal(size=len(e) - 1) for e in errors]
    drop = np.zeros(0) if busy is None else np.diff(busy, 2) / PERIOD_S
    return Counted([x - x.mean() for x in idle], drop, PERIOD_S, ratio, 0.0)


@CALM
@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=20), st.sampled_from([-0.5, 0.0, 0.9]))
def test_the_variance_is_that_of_the_differences_of_neighbouring_weights(weights: list[float], rho: float) -> None:
    weight, length = np.array(weights), np.linspace(0.5, 1.5, len(weights))
    factor = np.diff(weight / length, prepend=0.0, append=0.0)
    n = len(factor)
    matrix = rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))) if rho else np.eye(n)
    found = variances(Jitter(((rho, 4.0),), 3.0, 0.5, 10.0), weight, length, np.ones(n))

    assert found["counter"] == pytest.approx(4.0 * 9.0 * float(factor @ matrix @ factor), abs=1e-9)
    assert found["step"] == pytest.approx(0.25 * float(factor @ factor))


def test_a_window_of_any_length_errs_at_its_two_ends() -> None:
    jitter = Jitter(((0.0, 1.0),), 1.0, 0.0, 10.0)
    for n in (10, 1000):
        joules = variances(jitter, np.full(n, PERIOD_S), np.full(n, PERIOD_S), np.zeros(n + 1))["counter"]
        assert joules == pytest.approx(2.0)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_what_is_found_says_how_a_long_mean_scatters(rho: float) -> None:
    rng = np.random.default_rng(1)
    noise, jitter = estimate(shown([ages_of(601, rho, rng) for _ in range(2)]))
    weight, length = np.full(200, 1.0 / 200), np.full(200, PERIOD_S)
    found = variances(jitter, weight, length, np.zeros(201))["counter"] + noise.white_w**2 / 200

    assert found == pytest.approx(2.0 / (200 * PERIOD_S) ** 2, rel=0.6)


def test_white_noise_is_not_taken_for_jitter() -> None:
    noise, jitter = estimate(shown([np.zeros(801), np.zeros(801)], more=1.0))
    weight, length = np.full(400, 1.0 / 400), np.full(400, PERIOD_S)
    age = variances(jitter, weight, length, np.zeros(401))["counter"]

    assert noise.white_w**2 / 400 + age == pytest.approx(1.0 / 400, rel=0.3)


def test_jitter_grows_with_the_power_but_not_beyond_what_is_seen() -> None:
    rng = np.random.default_rng(2)
    idle = [ages_of(401, 0.0, rng) for _ in range(2)]
    grown, same = (estimate(shown(idle, busy=k * ages_of(400, 0.0, rng), ratio=3.0))[1] for k in (3.0, 1.0))

    assert grown.rise == pytest.approx(3.0, rel=0.2)
    assert same.rise == pytest.approx(1.0, rel=0.4)


def test_a_counter_that_only_steps_has_its_step_and_no_jitter() -> None:
    rng = np.random.default_rng(3)
    truth = [np.cumsum(rng.uniform(5.0, 6.0, 601)) for _ in range(2)]
    rounded = [np.floor(t) - t for t in truth]
    counted = shown(rounded)
    _, jitter = estimate(Counted(counted.idle, counted.busy, PERIOD_S, 1.0, 1.0))

    assert jitter.step_j == pytest.approx(1.0 / np.sqrt(12.0))
    assert sum(j2 for _, j2 in jitter.ages) < 0.3 * jitter.step_j**2


def test_ages_that_creep_without_a_jump_in_sight_may_still_jump() -> None:
    counted = shown([np.linspace(0.0, 0.01, 100)], more=1e-9)
    quiet = estimate(counted)[0].white_w
    warned = estimate(replace(counted, age_j=1.0))[0].white_w

    assert quiet < 1e-3 < warned == pytest.approx(2.0 / PERIOD_S * np.sqrt(0.5 / 100), rel=0.1)


def test_too_few_readings_are_noise_and_nothing_at_all_is_nothing() -> None:
    noise, jitter = estimate(shown([np.array([0.0, 1.0, 0.0, 1.0])]))
    assert jitter.ages == () and noise.white_w > 0.0
    assert estimate(shown([np.zeros(30)]))[0].white_w == 0.0


def test_the_stated_intervals_hold_the_truth_and_are_not_much_wider() -> None:
    """``benchmarks.counters`` counts over hundreds."""
    kinds = ("rapl-200", "rapl-100", "nvml-20ms", "nvml-100ms")
    found = [one(kind, seed)["figures"]["dynamic_power_w"] for kind in kinds for seed in range(300, 308)]
    error, half = (np.abs([f[key] for f in found]) for key in ("error", "half"))

    assert np.mean(error <= half) >= 0.9
    assert np.median(error / half) > 1.0 / 8.0  # without the counter's own part: 1/20 and less
    assert all({"counter jitter", "resolution"} <= set(f["parts"]) for f in found[:16])
