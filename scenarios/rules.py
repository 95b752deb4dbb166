"""Named, versioned sets of rules: what makes a result valid, and whether it may be submitted.

A run records the rules it was played by, so a verdict can be computed again from the recording. A set is
never changed once it is published; a correction gets a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rig.errors import refused
from rig.types import Rules

NEUROBENCH = (
    "NeuroBench 1.0, system track. N: Nature Communications 16 (2025), Methods; P: its preprint, System Track Benchmark "
    "Framework; R: the rules' repository (NeuroBench/system_benchmarks, November 2024)"
)
MLPERF = "MLPerf Inference rules and LoadGen 6: scenarios, early stopping"
QUICK = "none: for the bench, never for submission"
CHOICE = "this project's choice"

_NEUROBENCH_ALL: dict[str, Any] = {
    "submittable": True, "session": True, "benchmark": True, "hardware_only": True, "trials": 5,
    "trial_tolerance": 0.05, "idle_s": 2.0,
}  # fmt: skip
_MLPERF_ALL: dict[str, Any] = {
    "submittable": True, "idle_s": 2.0, "warmup": 0, "min_duration_s": 600.0, "hardware_only": True,
}  # fmt: skip
_ON_TIME: dict[str, Any] = {"late_share": 0.1, "gap_distance": 0.05}
_SERVED = ("accuracy", "throughput_samples_hz", "average_power_w")

_NEUROBENCH_SOURCES: Mapping[str, str] = {
    "*": CHOICE,
    "hardware_only": "N, ASC, Metrics: 'measured from the system and not in any software simulation'",
    "session": "P, Efficiency: 'in all runs, both metrics must be reported'; R, rules: 'in all configurations, all "
    "metrics must be reported'",
    "benchmark": "N: 'Detailed information on each v1.0 system track benchmark is provided here'",
    "whole_set": "N, ASC, Metrics: 'The final result should be averaged over all samples in the test set'",
    "at_a_time": "N, ASC, Task: 'one sample is processed at a time and the next sample is not processed until the "
    "previous one is finished'",
    "trials": "R, rules: 'An average over 5 trials'; P, Efficiency: 'power and energy consumption must be first-order "
    "metrics'",
    "trial_tolerance": f"{CHOICE}, of each trial; R, rules: 'An average over 5 trials must be within 5% of the "
    "reported results', which the mean of the trials always is",
    "percentile": "P, Task Scenarios: Server is 'latency-constrained', by the scenarios of MLPerf, whose percentile is "
    "the 99th",
    "early_stopping": f"{CHOICE}, after MLPerf: fewer queries do not support the percentile",
    "in_time_share": "P, Performance: 'for a large portion of execution (e.g., 90%, defined per-benchmark) must not "
    "exceed a real-time threshold'",
    "deadline_strides": f"{CHOICE}: P leaves the threshold to the benchmark, and no benchmark names it; with a later "
    "one, answers need not keep up with the stream",
    "accuracy": "P, Correctness: 'correctness must be measured to verify the validity of the solution'",
    "execution_time_s": "N, ASC, Metrics: 'Execution time is the average time per sample'",
    "execution_time_se_s": "R, ASC: 'averaged over all samples in the test set, and include standard error'",
    "latency_mean_s": "P, Performance: 'the Single-stream scenario reports latency. The Real-time scenario similarly "
    "reports latency'",
    "idle_power_w": "N, ASC, Metrics: 'Idle power and active power should be reported'",
    "active_power_w": "N, ASC, Metrics: 'Idle power and active power should be reported'; QUBO: 'submissions should "
    "report average power over the duration of the runtime'",
    "dynamic_power_w": "N, ASC, Metrics: 'reported as dynamic power'",
    "energy_per_inference_j": "N, ASC, Metrics: 'multiplying power by the averaged execution time'; P, Efficiency: "
    "'energy per-sample'",
    "throughput_samples_hz": "P, Performance: 'The Offline and Server scenarios report throughput'",
    "average_power_w": "P, Efficiency: 'The Server, Offline, and Real-time scenarios report average power'",
    "onset_latency_mean_s": "P, ASC: 'the prediction time relative to the onset of each new acoustic scene'",
    "stream_accuracy": "P, ASC: 'Classification probability will be sampled to determine the correctness'",
    "gap_{target}_mean": "N, QUBO, Task and metrics: 'the benchmark should report the BKS-Gap'",
}
_MLPERF_SOURCES: Mapping[str, str] = {
    "*": CHOICE,
    "hardware_only": "MLPerf Inference rules: results are of systems",
    "warmup": "LoadGen: no warm-up",
    "min_duration_s": "LoadGen: minimum duration 600 s",
    "min_queries": "LoadGen: minimum query count",
    "percentile": "LoadGen: 90th percentile for single-stream, 99th for server",
    "early_stopping": "MLPerf Inference rules: early stopping",
}

SETS: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Mapping[str, Any]]]] = {
    "neurobench-1.0": (
        NEUROBENCH,
        _NEUROBENCH_SOURCES,
        {
            "single-stream": _NEUROBENCH_ALL
            | {
                "whole_set": True,
                "at_a_time": 1,
                "reports": (
                    "accuracy",
                    "latency_mean_s",
                    "execution_time_s",
                    "execution_time_se_s",
                    "idle_power_w",
                    "active_power_w",
                    "dynamic_power_w",
                    "energy_per_inference_j",
                ),
            },
            "real-time": _NEUROBENCH_ALL
            | {
                "in_time_share": 0.9,
                "late_share": 0.1,
                "deadline_strides": 1.0,
                "reports": ("accuracy", "stream_accuracy", "onset_latency_mean_s", "latency_mean_s", "average_power_w"),
            },
            "optimization": _NEUROBENCH_ALL
            | {"whole_set": True, "trial_tolerance": None, "reports": ("gap_{target}_mean", "active_power_w")},
            "offline": _NEUROBENCH_ALL | {"whole_set": True, "reports": _SERVED},
            "server": _NEUROBENCH_ALL
            | _ON_TIME
            | {"percentile": 0.99, "early_stopping": True, "min_queries": 662, "reports": _SERVED},
        },
    ),
    "mlperf-6": (
        MLPERF,
        _MLPERF_SOURCES,
        {
            # the least queries from which LoadGen's early stopping gives an estimate: 64 at p90, 662 at p99
            "single-stream": _MLPERF_ALL | {"percentile": 0.9, "min_queries": 64, "early_stopping": True},
            "server": _MLPERF_ALL | _ON_TIME | {"percentile": 0.99, "min_queries": 662, "early_stopping": True},
            "offline": _MLPERF_ALL | {"min_queries": 24576},
        },
    ),
    "quick": (
        QUICK,
        {"*": CHOICE},
        {
            "single-stream": {"submittable": False, "warmup": 1},
            "offline": {"submittable": False, "warmup": 1},
            "server": {"submittable": False, "warmup": 1, "min_duration_s": 10.0, "percentile": 0.99} | _ON_TIME,
            "real-time": {"submittable": False, "warmup": 1, "in_time_share": 0.9, "late_share": 0.1},
            "optimization": {"submittable": False},
        },
    ),
}


def neurobench_1_0(scenario: str) -> Rules:
    """The NeuroBench system track: the benchmark's own parameters, five trials with power, on hardware."""
    return rules("neurobench-1.0", scenario)


def mlperf_6(scenario: str) -> Rules:
    """MLPerf LoadGen 6: 600 s, no warm-up, p90 or p99 with early stopping, minimum counts."""
    return rules("mlperf-6", scenario)


def quick(scenario: str) -> Rules:
    """One short trial for the lab bench. Its results are never submittable."""
    return rules("quick", scenario)


def rules(name: str, scenario: str) -> Rules:
    """The rules of one scenario in one set. A scenario of one's own is played by ``quick``.

    Raises ``UsageError`` for a scenario that the set does not know.
    """
    source, sources, by_scenario = SETS[name]
    if scenario in by_scenario:
        asked = by_scenario[scenario]
        ours = {k: v for k, v in sources.items() if k == "*" or k in asked or k in asked.get("reports", ())}
        return Rules(name, scenario, source, sources=ours, **asked)
    if name == "quick":
        return Rules(name, scenario, source, submittable=False, sources=sources)
    what = f"the rules {name} do not cover the scenario {scenario!r}"
    raise refused("rules", name, f"They cover {', '.join(by_scenario)}; use --rules quick for others", what)
