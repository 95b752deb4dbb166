"""Forecasts of a chaotic series from its own past (NeuroBench, chaotic function prediction).

A sample is 20 Lyapunov times of one series. A model learns from the first half, and forecasts the second half only from
its own forecasts. Successive samples start half a Lyapunov time apart. The series are generated here, so they differ
from the series that the benchmark offers as a download: solvers of a chaotic equation agree only for a short time.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict

from rig.bench.option_checks import one_of, within
from rig.types import Sample, SampleSet
from scenarios.workloads.mackey_glass.series import POINTS, PUBLISHED, STEP, sampled

LYAPUNOV_TIMES, STARTS = 20, 30
"""Length of a sample in Lyapunov times, and the number of samples that the benchmark evaluates."""


def open_workload(*, tau: int = 17, starts: int = STARTS) -> SampleSet:
    """Open the series of a delay ``tau`` (17 to 30) with ``starts`` samples; the benchmark has 30.

    Raises ``UsageError`` for another delay, or for starts outside 1 to 61.
    """
    one_of(PUBLISHED, tau=tau)
    within(1, 61, starts=starts)
    parameters, length = PUBLISHED[tau], LYAPUNOV_TIMES * POINTS
    series = sampled(parameters, LYAPUNOV_TIMES + (starts - 1) / 2 + 1)
    offsets = [k * POINTS // 2 for k in range(starts)]
    samples = tuple(
        Sample(f"tau-{tau}-start-{k}", series[first : first + length], seed=k, keep=True)
        for k, first in enumerate(offsets)
    )
    details = {
        "source": f"generated: Runge-Kutta of order 4, step {STEP}, not the series that the benchmark offers",
        "forecast_from": length // 2, "parameters": asdict(parameters), "points_per_lyapunov_time": POINTS,
    }  # fmt: skip
    digest = hashlib.sha256(b"".join(sample.payload.tobytes() for sample in samples)).hexdigest()
    task = "chaotic function prediction: learn the first half of a series, forecast the second"
    return SampleSet("mackey-glass", task, "1", digest, samples, details)
