"""Named, versioned sets of rules: what makes a result valid, and whether it may be submitted.

A run records the rules it was played by, so a verdict can be computed again from the recording. A set is
never changed once it is published; a correction gets a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rig.errors import refused
from rig.types import Rules

NEUROBENCH = "NeuroBench, Nature Communications 16 (2025), system track: tasks and metrics"
MLPERF = "MLPerf Inference rules and LoadGen 6: scenarios, early stopping"
QUICK = "none: for the bench, never for submission"

_NEUROBENCH_ALL: dict[str, Any] = {
    "submittable": True, "idle_s": 2.0, "whole_set": True, "trials": 5, "trial_tolerance": 0.05, "hardware_only": True,
}  # fmt: skip
_MLPERF_ALL: dict[str, Any] = {
    "submittable": True, "idle_s": 2.0, "warmup": 0, "min_duration_s": 600.0, "hardware_only": True,
}  # fmt: skip
_ON_TIME: dict[str, Any] = {"late_share": 0.1, "gap_distance": 0.05}

SETS: Mapping[str, tuple[str, Mapping[str, Mapping[str, Any]]]] = {
    "neurobench-1.0": (
        NEUROBENCH,
        {
            "single-stream": _NEUROBENCH_ALL,
            "real-time": _NEUROBENCH_ALL | {"whole_set": False, "in_time_share": 0.9, "late_share": 0.1},
            "optimization": _NEUROBENCH_ALL | {"whole_set": True, "trial_tolerance": None},
        },
    ),
    "mlperf-6": (
        MLPERF,
        {
            # the least queries from which LoadGen's early stopping gives an estimate: 64 at p90, 662 at p99
            "single-stream": _MLPERF_ALL | {"percentile": 0.9, "min_queries": 64, "early_stopping": True},
            "server": _MLPERF_ALL | _ON_TIME | {"percentile": 0.99, "min_queries": 662, "early_stopping": True},
            "offline": _MLPERF_ALL | {"min_queries": 24576},
        },
    ),
    "quick": (
        QUICK,
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
    """The NeuroBench system track: the whole test set, five trials within 5 %, on hardware."""
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
    source, by_scenario = SETS[name]
    if scenario in by_scenario:
        return Rules(name, scenario, source, **by_scenario[scenario])
    if name == "quick":
        return Rules(name, scenario, source, submittable=False)
    what = f"the rules {name} do not cover the scenario {scenario!r}"
    raise refused("rules", name, f"They cover {', '.join(by_scenario)}; use --rules quick for others", what)
