"""Named, versioned sets of rules: what makes a result valid, and whether it may be submitted.

A recording includes its rules. A published set is never changed; a correction gets a new version. The auditor has its
own copy, `reports/audit/rule_sets.json`. NeuroBench's own sentences are in `docs/reference/rules.csv`.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rig.errors import refused
from rig.types import Rules

_NEUROBENCH: dict[str, Any] = {
    "submittable": True, "session": True, "benchmark": True, "outline": True, "hardware_only": True,
    "trials": 5, "trial_tolerance": 0.05,
}  # fmt: skip
_MLPERF: dict[str, Any] = {"submittable": True, "warmup": 0, "min_duration_s": 600.0, "hardware_only": True}
_ON_TIME: dict[str, Any] = {"late_share": 0.1, "gap_distance": 0.05}
_P99 = _ON_TIME | {"percentile": 0.99, "min_queries": 662, "early_stopping": True}
_ONE_BY_ONE = (
    "accuracy", "latency_mean_s", "execution_time_s", "execution_time_se_s", "idle_power_w", "active_power_w",
    "dynamic_power_w", "energy_per_inference_j",
)  # fmt: skip
_STREAMED = ("accuracy", "stream_accuracy", "onset_latency_mean_s", "latency_mean_s", "average_power_w")
_SERVED = ("accuracy", "throughput_samples_hz", "average_power_w")
_SOLVED = ("gap_{target}_mean", "runtime_power_w")
_STREAM = {"in_time_share": 0.9, "late_share": 0.1}

_VALUES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "neurobench-1.0": {
        "single-stream": _NEUROBENCH
        | {"whole_set": True, "at_a_time": 1, "preprocessing": True, "reports": _ONE_BY_ONE},
        "real-time": _NEUROBENCH | _STREAM | {"deadline_strides": 1.0, "preprocessing": True, "reports": _STREAMED},
        "optimization": _NEUROBENCH
        | {"whole_set": True, "trial_tolerance": None, "fresh_seeds": True, "one_tuning": True, "reports": _SOLVED},
        "offline": _NEUROBENCH | {"whole_set": True, "reports": _SERVED},
        "server": _NEUROBENCH | _P99 | {"reports": _SERVED},
    },
    "mlperf-6": {
        # LoadGen's early stopping needs at least this many queries for an estimate: 64 at p90, 662 at p99
        "single-stream": _MLPERF | {"percentile": 0.9, "min_queries": 64, "early_stopping": True},
        "server": _MLPERF | _P99,
        "offline": _MLPERF | {"min_queries": 24576},
    },
    "quick": {
        "single-stream": {"submittable": False, "warmup": 1},
        "offline": {"submittable": False, "warmup": 1},
        "server": {"submittable": False, "warmup": 1, "min_duration_s": 10.0, "percentile": 0.99} | _ON_TIME,
        "real-time": {"submittable": False, "warmup": 1} | _STREAM,
        "optimization": {"submittable": False},
    },
}
_TOLD = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
SETS = {name: (_TOLD[name]["source"], _TOLD[name]["rules"], values) for name, values in _VALUES.items()}
"""For each set by name: its source, the sentence of the source behind each rule, and the rules of each scenario."""


def neurobench_1_0(scenario: str) -> Rules:
    """Return the rules of the NeuroBench system track: the benchmark's parameters, five trials with power, hardware."""
    return rules("neurobench-1.0", scenario)


def mlperf_6(scenario: str) -> Rules:
    """Return the rules of MLPerf LoadGen 6: 600 s, no warm-up, p90 or p99 with early stopping, minimum counts."""
    return rules("mlperf-6", scenario)


def quick(scenario: str) -> Rules:
    """Return rules for one short trial at the lab bench, whose results are never submittable."""
    return rules("quick", scenario)


def rules(name: str, scenario: str) -> Rules:
    """Return the rules of one scenario in a set.

    Only ``quick`` accepts a scenario of your own. Raises ``UsageError`` for a scenario that the set does not cover.
    """
    source, sources, by_scenario = SETS[name]
    if scenario in by_scenario:
        asked = by_scenario[scenario]
        named = {k for k in sources if k == "*" or k in asked or k in asked.get("reports", ())}
        ours = {k: sources.get(f"{scenario}.{k}", sources[k]) for k in named}
        return Rules(name, scenario, source, sources=ours, **asked)
    if name == "quick":
        return Rules(name, scenario, source, submittable=False, sources=sources)
    what = f"the rules {name} do not cover the scenario {scenario!r}"
    raise refused("rules", name, f"They cover {', '.join(by_scenario)}; use --rules quick for others", what)
