"""Cumulative rails: a counter's errors are in its readings, not between them, and intervals reflect this."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.counters import one
from rig.analysis.power.model.noise import Noise, estimate, variances

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


def shown(
    errors: list[np.ndarray], more: float = 0.0, busy: np.ndarray | None = None, ratio: float = 1.0, step_j: float = 0.0
) -> Noise:
    rng = np.random.default_rng(9)
    idle = [np.diff(e) / PERIOD_S + more * rng.normal(size=len(e) - 1) for e in errors]
    drop = np.zeros(0) if busy is None else np.diff(busy, 2) / PERIOD_S
    return estimate([x - x.mean() for x in idle], drop, PERIOD_S, ratio, step_j)


def looked(weight: np.ndarray, noise: Noise, length_s: np.ndarray, busy: float = 0.0) -> dict[str, float]:
    n = len(weight)
    return variances(noise, weight, PERIOD_S * np.arange(n), np.zeros(n, bool), looks=(length_s, np.full(n + 1, busy)))


@CALM
@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=20))
def test_the_variance_is_that_of_the_differences_of_neighbouring_weights(weights: list[float]) -> None:
    weight, length = np.array(weights), np.linspace(0.5, 1.5, len(weights))
    factor = np.diff(weight / length, prepend=0.0, append=0.0)
    found = looked(weight, Noise(0.0, 0.0, 0.0, (), PERIOD_S, 10.0, look_j=2.0, rise=3.0, step_j=0.5), length, 1.0)

    assert found["counter"] == pytest.approx(4.0 * 9.0 * float(factor @ factor), abs=1e-9)
    assert found["step"] == pytest.approx(0.25 * float(factor @ factor))


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_what_is_found_says_how_a_long_mean_scatters(rho: float) -> None:
    rng = np.random.default_rng(1)
    noise = shown([ages_of(601, rho, rng) for _ in range(2)])
    found = looked(np.full(200, 1.0 / 200), noise, np.full(200, PERIOD_S))

    assert found["counter"] + found["white"] >= 0.6 * 2.0 / (200 * PERIOD_S) ** 2
    assert found["counter"] + found["white"] <= (1.6 if rho == 0.0 else 8.0) * 2.0 / (200 * PERIOD_S) ** 2


def test_white_noise_is_not_taken_for_jitter() -> None:
    noise = shown([np.zeros(801), np.zeros(801)], more=1.0)
    found = looked(np.full(400, 1.0 / 400), noise, np.full(400, PERIOD_S))

    assert found["white"] + found["counter"] == pytest.approx(1.0 / 400, rel=0.4)


def test_jitter_grows_with_the_power_but_not_beyond_what_is_seen() -> None:
    rng = np.random.default_rng(2)
    idle = [ages_of(401, 0.0, rng) for _ in range(2)]
    grown, same = (shown(idle, busy=k * ages_of(400, 0.0, rng), ratio=3.0) for k in (3.0, 1.0))

    assert grown.rise == pytest.approx(3.0, rel=0.2)
    assert same.rise == pytest.approx(1.0, rel=0.4)


def test_too_few_readings_are_noise_and_nothing_at_all_is_nothing() -> None:
    noise = shown([np.array([0.0, 1.0, 0.0, 1.0])])
    assert noise.look_j == 0.0 and noise.white_w > 0.0
    assert shown([np.zeros(30)]).white_w == 0.0


def test_the_stated_intervals_hold_the_truth_and_are_not_much_wider() -> None:
    """``benchmarks.counters`` tests hundreds."""
    kinds = ("rapl-200", "rapl-100", "nvml-20ms", "nvml-100ms")
    found = [one(kind, seed)["figures"]["dynamic_power_w"] for kind in kinds for seed in range(300, 303)]
    error, half = (np.abs([f[key] for f in found]) for key in ("error", "half"))

    assert np.mean(error <= half) >= 0.9
    assert np.median(error / half) > 1.0 / 8.0  # without the counter's own part: 1/20 and less
    assert all({"counter jitter", "resolution"} <= set(f["parts"]) for f in found[:6])


@pytest.mark.parametrize("seed", range(4))
def test_readings_in_steps_have_no_scatter_that_work_could_exceed_a_million_times(seed: int) -> None:
    """Of a quiet level in coarse steps, most differences are 0, but for rounding."""
    rng = np.random.default_rng(seed)
    idle_j, busy_j = (61e-6 * np.floor(w * 0.1 * np.arange(300) / 61e-6 + rng.uniform(0.0, 1.0)) for w in (0.02, 0.063))
    residual = np.diff(7.0 + idle_j) / 0.1
    found = estimate([residual - residual.mean()], np.diff(7.0 + busy_j, 2) / 0.1, 0.1, 3.15, 61e-6)
    assert found.rise < 10.0
