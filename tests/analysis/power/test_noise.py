"""The meter's noise is found in idle readings and carried through any weighted sum of readings; each error of a
counter is that of one reading, and not of the time between two readings."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.counters import one
from fixtures.bench.faults import Flicker
from rig.analysis.power.model.noise import Noise, estimate, variances
from rig.types import Floats

PERIOD_S = 1e-3
NO_DIFFERENCES = np.zeros(0)
Make = Callable[[np.random.Generator, int], Floats]


def white(sigma: float) -> Make:
    return lambda rng, n: rng.normal(0.0, sigma, n)


def flicker(density: float) -> Make:
    return lambda rng, n: Flicker(density, 1.0 / PERIOD_S, 1000.0, rng).take(n)


def hum(amplitude: float, hz: float = 50.0) -> Make:
    return lambda rng, n: amplitude * np.sin(2.0 * np.pi * (hz * PERIOD_S * np.arange(n) + rng.random()))


def idle(seed: int, *sources: Make, windows: int = 2, n: int = 3000) -> list[Floats]:
    """Return the readings of idle windows, with the mean of each removed."""
    rng = np.random.default_rng(seed)
    stretches = [sum((make(rng, n) for make in sources), np.zeros(n)) for _ in range(windows)]
    return [x - x.mean() for x in stretches]


def spread_of(weight: Floats, *sources: Make, repeats: int = 400) -> float:
    """Return the standard deviation of the weighted sum over many recordings."""
    rng = np.random.default_rng(77)
    return float(np.std([weight @ sum(make(rng, len(weight)) for make in sources) for _ in range(repeats)]))


def stated(noise: Noise, weight: Floats) -> dict[str, float]:
    return variances(noise, weight, PERIOD_S * np.arange(len(weight)), np.zeros(len(weight), bool))


def mean_of(n: int) -> Floats:
    return np.full(n, 1.0 / n)


def busy_against_idle(n: int) -> Floats:
    """Return the middle third minus the two outer ones, like dynamic power."""
    third = n // 3
    return np.concatenate([np.full(third, -0.5 / third), np.full(third, 1.0 / third), np.full(third, -0.5 / third)])


@pytest.mark.parametrize("corner_hz", [3.0, 20.0, 100.0])
def test_white_noise_is_found_in_slow_noise(corner_hz: float) -> None:
    for seed in range(6):
        found = estimate(idle(seed, white(1.0), flicker(corner_hz * 2.0 * PERIOD_S)), NO_DIFFERENCES, PERIOD_S)
        assert found.white_w == pytest.approx(1.0, rel=0.3)


def matern(apart_s: Floats, wander_s: float) -> Floats:
    at = math.sqrt(3.0) * np.abs(apart_s) / wander_s
    return np.asarray((1.0 + at) * np.exp(-at))


@pytest.mark.parametrize("lasts", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("weight", [
    mean_of(1000), busy_against_idle(3000), np.roll(busy_against_idle(3000), 40),
], ids=["level", "difference", "halved"])  # fmt: skip
def test_the_stated_variance_of_wander_follows_its_covariance(weight: Floats, lasts: float) -> None:
    wander_s = lasts * len(weight) * PERIOD_S
    noise = Noise(0.0, 0.0, 0.0, (), PERIOD_S, 1000.0, wander_w2=0.25, wander_s=wander_s)
    t_s = PERIOD_S * np.arange(len(weight))
    exact = 0.25 * float(weight @ matern(t_s[:, None] - t_s, wander_s) @ weight)
    assert stated(noise, weight)["wander"] == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("hz", [50.0, 59.97, 120.3])
@pytest.mark.parametrize("amplitude", [0.3, 2.0])
def test_mains_is_found_with_its_frequency_and_amplitude(hz: float, amplitude: float) -> None:
    for seed in range(5):
        found = estimate(idle(seed, white(1.0), hum(amplitude, hz)), NO_DIFFERENCES, PERIOD_S)
        nearest = min(found.lines, key=lambda line: abs(line[0] - hz))
        assert nearest[0] == pytest.approx(hz, abs=nearest[2])
        assert nearest[1] == pytest.approx(amplitude, rel=0.25)
        assert found.white_w == pytest.approx(1.0, rel=0.1)


def test_spectral_lines_are_rarely_found_in_white_noise() -> None:
    claims = [len(estimate(idle(seed, white(1.0)), NO_DIFFERENCES, PERIOD_S).lines) for seed in range(60)]
    assert sum(claims) <= 2


@given(st.integers(1, 5000), st.floats(1e-3, 10.0), st.floats(1e-3, 10.0))
def test_the_white_variance_of_a_mean_is_divided_by_n(n: int, idle_w: float, busy_w: float) -> None:
    noise = Noise(idle_w, busy_w, 0.0, (), PERIOD_S, 1000.0)
    t = PERIOD_S * np.arange(n)
    quiet, loud = (variances(noise, mean_of(n), t, np.full(n, busy)) for busy in (False, True))
    assert quiet["white"] == pytest.approx(idle_w**2 / n) and sum(quiet.values()) == quiet["white"]
    assert loud["white"] == pytest.approx(busy_w**2 / n)


@pytest.mark.parametrize("weight", [busy_against_idle(300), busy_against_idle(3000), mean_of(1000)], ids=len)
def test_stated_flicker_noise_matches_the_simulated_spread(weight: Floats) -> None:
    found = stated(Noise(0.0, 0.0, 0.01, (), PERIOD_S, 1000.0), weight)
    assert math.sqrt(found["flicker"] + found["level"]) == pytest.approx(spread_of(weight, flicker(0.01)), rel=0.3)


def test_noise_slower_than_a_run_is_common_to_successive_runs() -> None:
    """The mean of two levels is as uncertain as if only the faster part of the noise were new in the second."""
    found = stated(Noise(0.0, 0.0, 0.01, (), PERIOD_S, 1000.0), mean_of(1000))
    both = 0.5 * np.concatenate([mean_of(1000), np.zeros(3000), mean_of(1000)])
    common = math.sqrt(0.5 * found["flicker"] + found["level"])
    assert common == pytest.approx(spread_of(both, flicker(0.01)), rel=0.2)


@pytest.mark.parametrize("length", [37, 100, 410])
def test_hum_moves_a_mean_as_much_as_stated(length: int) -> None:
    """A mean over whole periods removes steady mains hum; its frequency is then known less well."""
    noise = Noise(0.0, 0.0, 0.0, ((50.3, 1.0, 1e-6),), PERIOD_S, 1000.0)
    weight = mean_of(length)
    assert math.sqrt(stated(noise, weight)["lines"]) == pytest.approx(spread_of(weight, hum(1.0, 50.3)), rel=0.3)


def test_noise_under_load_excludes_steps_inside_spans() -> None:
    readings = np.random.default_rng(1).normal(0.0, 1.0, 3000)
    for busy, low, high in ((3.0 * readings, 2.7, 3.3), (readings, 0.9, 1.1), (readings + STEPS, 0.9, 1.6)):
        assert low < estimate(idle(2, white(1.0)), np.diff(busy), PERIOD_S).busy_w < high
    unseen = estimate(idle(2, white(1.0)), NO_DIFFERENCES, PERIOD_S)
    assert unseen.busy_w == unseen.white_w


STEPS = np.where(np.arange(3000) % 20, 0.0, 50.0)


def test_a_handful_of_readings_still_gives_a_level() -> None:
    found = estimate([np.array([1.0, -1.0, 1.0, -1.0])], NO_DIFFERENCES, PERIOD_S)
    assert (found.white_w, found.flicker_w2, found.lines, found.dof) == (1.0, 0.0, (), 3.0)
    assert estimate([], NO_DIFFERENCES, PERIOD_S).white_w == 0.0


def test_sparse_readings_show_the_same_white_noise() -> None:
    """Of a long trace, only some readings are read one by one; the rest of a window is missing."""
    x = idle(4, white(1.0))[0]
    x[np.arange(len(x)) % 7 > 1] = np.nan
    assert estimate([x], NO_DIFFERENCES, PERIOD_S).white_w == pytest.approx(1.0, rel=0.1)


# ---- counters: errors of single readings -------------------------------------------------------

POLL_S = 0.005


def ages_of(n: int, rho: float, rng: np.random.Generator) -> np.ndarray:
    """Return errors of one joule, each correlated with the one before."""
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
    idle = [np.diff(e) / POLL_S + more * rng.normal(size=len(e) - 1) for e in errors]
    drop = np.zeros(0) if busy is None else np.diff(busy, 2) / POLL_S
    return estimate([x - x.mean() for x in idle], drop, POLL_S, ratio, step_j)


def looked(weight: np.ndarray, noise: Noise, length_s: np.ndarray, busy: float = 0.0) -> dict[str, float]:
    n = len(weight)
    return variances(noise, weight, POLL_S * np.arange(n), np.zeros(n, bool), looks=(length_s, np.full(n + 1, busy)))


@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=20))
def test_counter_variance_follows_differences_of_neighbouring_weights(weights: list[float]) -> None:
    weight, length = np.array(weights), np.linspace(0.5, 1.5, len(weights))
    size = float(np.sum(np.diff(weight / length, prepend=0.0, append=0.0) ** 2))
    found = looked(weight, Noise(0.0, 0.0, 0.0, (), POLL_S, 10.0, look_j=2.0, rise=3.0, step_j=0.5), length, 1.0)

    assert (found["counter"], found["step"]) == pytest.approx((4.0 * 9.0 * size, 0.25 * size), abs=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_found_jitter_predicts_the_scatter_of_a_mean(rho: float) -> None:
    rng = np.random.default_rng(1)
    noise = shown([ages_of(601, rho, rng) for _ in range(2)])
    found = looked(np.full(200, 1.0 / 200), noise, np.full(200, POLL_S))

    assert 0.6 <= (found["counter"] + found["white"]) * (200 * POLL_S) ** 2 / 2.0 <= (1.6 if rho == 0.0 else 8.0)


def test_white_noise_is_not_taken_for_jitter() -> None:
    noise = shown([np.zeros(801), np.zeros(801)], more=1.0)
    found = looked(np.full(400, 1.0 / 400), noise, np.full(400, POLL_S))

    assert found["white"] + found["counter"] == pytest.approx(1.0 / 400, rel=0.4)


def test_jitter_under_load_follows_the_observed_scatter() -> None:
    rng = np.random.default_rng(2)
    idle = [ages_of(401, 0.0, rng) for _ in range(2)]
    grown, same = (shown(idle, busy=k * ages_of(400, 0.0, rng), ratio=3.0) for k in (3.0, 1.0))

    assert (grown.rise, same.rise) == (pytest.approx(3.0, rel=0.2), pytest.approx(1.0, rel=0.4))


def test_few_readings_are_white_noise_without_counter_jitter() -> None:
    noise = shown([np.array([0.0, 1.0, 0.0, 1.0])])
    assert noise.look_j == shown([np.zeros(30)]).white_w == 0.0 < noise.white_w


def test_the_noise_of_few_readings_scales_with_their_power() -> None:
    few = [[ages_of(9, 0.0, np.random.default_rng(seed + k)) for k in (0, 100)] for seed in range(40)]
    one, more = ([shown([k * errors for errors in each]).look_j / k for each in few] for k in (1.0, 1.7))
    assert more == pytest.approx(one, rel=1e-6)


def test_counter_intervals_hold_the_truth_and_stay_narrow() -> None:
    """``benchmarks.counters`` tests hundreds of intervals."""
    kinds = ("rapl-200", "rapl-100", "nvml-20ms", "nvml-100ms")
    found = [one(kind, seed)["figures"]["dynamic_power_w"] for kind in kinds for seed in range(300, 303)]
    error, half = (np.abs([f[key] for f in found]) for key in ("error", "half"))

    assert np.mean(error <= half) >= 0.9
    assert np.median(error / half) > 1.0 / 8.0  # without the counter's own part: 1/20 and less
    assert all({"counter jitter", "resolution"} <= set(f["parts"]) for f in found[:6])


@pytest.mark.parametrize("seed", range(4))
def test_quantised_readings_show_no_huge_rise_of_noise(seed: int) -> None:
    """Most differences of a quiet level in coarse steps are 0, except for rounding."""
    rng = np.random.default_rng(seed)
    idle_j, busy_j = (61e-6 * np.floor(w * 0.1 * np.arange(300) / 61e-6 + rng.uniform(0.0, 1.0)) for w in (0.02, 0.063))
    residual = np.diff(7.0 + idle_j) / 0.1
    assert estimate([residual - residual.mean()], np.diff(7.0 + busy_j, 2) / 0.1, 0.1, 3.15, 61e-6).rise < 10.0
