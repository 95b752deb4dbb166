"""What NeuroBench's QUBO benchmark prescribes for its problems, and what the problems of an opened workload have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rig.analysis.solving.gap import THRESHOLDS
from rig.analysis.solving.targets import OFFICIAL, SPECIFIED
from rig.analysis.verdict.known_benchmarks import QUBO, qubo_sizes
from rig.types import Benchmark, Parameter
from scenarios.workloads.qubo_mis.targets import DENSITIES, PROVEN_BELOW, Instance

SEEDS = 5
SOLVES = 5
TIMEOUTS_S = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2)
"""The timeouts of the specification, in seconds. The published baselines also have 1000 s."""
PROVEN = "proven"
BASELINES = {"lava-nc": "0.8.0", "lava-optimization": "0.3.0", "dwave-samplers": "1.1.0"}
"""Versions of the baselines in N by distribution: Lava 0.8.0, Lava Optimization 0.3.0, D-Wave Samplers v1.1.0."""

_DATA, _TASK = "N, QUBO, Benchmark dataset: ", "N, QUBO, Task and metrics: "


def benchmark_of(
    instances: Sequence[Instance], kinds: Sequence[str], allowed_kinds: Sequence[str], details: Mapping[str, Any]
) -> Benchmark:
    """Return the benchmark of an opened workload, from its problems, the kinds of their seeds, and its details."""
    first = instances[0]
    small = first.nodes < PROVEN_BELOW
    proven = "'fewer than 50 nodes will be solved to global optimality'"
    tabu = "'The DWave Tabu CPU sampler80 will be used with 100 reads and 50 restarts'"
    repeated = "N, baselines, QUBO: 'ran repeatedly with five different initial variable assignments'"
    parameters = {
        "nodes": Parameter((first.nodes,), qubo_sizes(first.nodes), f"{_DATA}'Number of nodes, spaced in a "
                           "pseudo-geometric progression'"),
        "density": Parameter((first.density,), DENSITIES, f"{_DATA}'Density of edges: 1%, 5%, 10%, 25%'"),
        "kind of seeds": Parameter(tuple(sorted(set(kinds))), tuple(allowed_kinds), f"{_DATA}'0, 1, 2, 3, 4 are "
                                   "allowed for tuning. At evaluation time, for official results NeuroBench will "
                                   "announce five seeds'"),
        "number of seeds": Parameter((len(instances),), (SEEDS,), f"{_DATA}'NeuroBench will announce five seeds'"),
        "target": Parameter(targets_of(instances, details), (PROVEN,) if small else (SPECIFIED, OFFICIAL, PROVEN),
                            f"{_DATA}{proven if small else tabu}"),
    }  # fmt: skip
    options = {
        "timeout_s": Parameter((), TIMEOUTS_S, f"{_TASK}'Timeouts spread across orders of magnitude'"),
        "to_gap": Parameter((), (None, *THRESHOLDS), f"{_TASK}'BKS-Gap thresholds, e.g., 0.1, 0.05, and 0.01'"),
        "solves": Parameter((), (SOLVES,), repeated),
    }
    scenarios = Parameter((), ("optimization",), "P, QUBO: 'As an Optimization scenario task'")
    return Benchmark(QUBO, scenarios, parameters, options, BASELINES)


def targets_of(instances: Sequence[Instance], details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds of targets that the problems have: proven, specified (Tabu search), official, or none."""
    proven, named = details["targets_proven"], details["targets"].get(SPECIFIED, {})
    kinds = (
        PROVEN if p.id in proven else OFFICIAL if p.target is not None else SPECIFIED if p.id in named else "none"
        for p in instances
    )
    return tuple(dict.fromkeys(kinds))
