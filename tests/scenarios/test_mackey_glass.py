"""The Mackey-Glass series: computed from its equation, cut as in the benchmark."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from rig.errors import UsageError
from scenarios.workloads.mackey_glass.workload import BETA, GAMMA, POINTS, POWER, PUBLISHED, open_workload, sampled


def test_halving_the_step_leaves_the_series_unchanged() -> None:
    coarse, fine = sampled(PUBLISHED[17], 9), sampled(PUBLISHED[17], 9, step=0.025)
    assert np.abs(coarse - fine).max() < 1e-6


def test_the_series_matches_an_independent_solver() -> None:
    parameters = PUBLISHED[17]
    past: list[Any] = []
    step = parameters.lyapunov_time / POINTS
    wanted = np.arange(round(5 * parameters.tau / step)) * step

    def slope(t: float, x: Any) -> Any:
        late = t - parameters.tau
        delayed = parameters.x0 if late <= 0 else past[min(int(late // parameters.tau), len(past) - 1)](late)[0]
        return BETA * delayed / (1 + delayed**POWER) - GAMMA * x

    start = [parameters.x0]
    for k in range(5):
        span = (k * parameters.tau, (k + 1) * parameters.tau)
        solved = solve_ivp(slope, span, start, method="DOP853", rtol=1e-10, atol=1e-12, dense_output=True)
        past.append(solved.sol)
        start = [solved.y[0, -1]]
    other = [past[min(int(t // parameters.tau), 4)](t)[0] for t in wanted]
    assert np.abs(sampled(parameters, 5)[: len(wanted)] - other).max() < 1e-7


@pytest.mark.parametrize("tau", PUBLISHED)
def test_every_published_series_stays_in_its_bounds(tau: int) -> None:
    series = sampled(PUBLISHED[tau], 10)
    assert series[0] == pytest.approx(PUBLISHED[tau].x0)
    assert 0.0 < series.min() < 1.0 < series.max() < 1.6


def test_samples_start_half_a_lyapunov_time_apart() -> None:
    workload = open_workload(starts=3)
    first, second, third = (sample.payload for sample in workload.samples)
    assert len(first) == 20 * POINTS
    assert np.array_equal(second[:-37], first[37:])
    assert np.array_equal(third[:-75], first[75:])
    assert workload.details["forecast_from"] == 10 * POINTS


def test_the_digest_follows_the_series() -> None:
    one, same, other = open_workload(starts=2), open_workload(starts=2), open_workload(tau=18, starts=2)
    assert one.digest_sha256 == same.digest_sha256 != other.digest_sha256


@pytest.mark.parametrize("options", [{"tau": 16}, {"starts": 0}, {"starts": 62}])
def test_an_unpublished_option_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        open_workload(**options)
