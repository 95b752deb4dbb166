"""The system track's two workloads declare the found and the allowed values of their benchmark."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rig.analysis.verdict.benchmark import as_held, benchmark_checks
from rig.analysis.verdict.benchmark_limits import ASC, limits_of, qubo_sizes
from rig.recording.disk.decoding import declared_start
from rig.recording.records import ScenarioRecord
from rig.types import Benchmark, Parameter, Workload
from scenarios.workloads.asc.workload import open_workload as open_asc
from scenarios.workloads.qubo_mis.targets import DENSITIES, NODES
from scenarios.workloads.qubo_mis.workload import open_workload as open_qubo
from tests.support.hardware_clothes import DENSITY, NODES as SMALL, proven_targets
from tests.support.start_lines import LEAST


def broken(workload: Workload, scenario: str, **options: Any) -> set[str]:
    benchmark = getattr(workload, "benchmark", None)
    assert isinstance(benchmark, Benchmark)
    given = {"timeout_s": 1.0, "solves": 5, "to_gap": None} | options
    checks = list(benchmark_checks(benchmark, ScenarioRecord(name=scenario, options=given)))
    assert all(check.source or check.by == "benchmark" for check in checks)
    return {check.rule.removeprefix("benchmark: ") for check in checks if not check.ok}


def test_a_qubo_off_the_grid_breaks_each_grid_rule() -> None:
    workload = open_qubo(nodes=60, density=0.07, seeds="0-2")
    found = broken(workload, "optimization", timeout_s=0.007, solves=3, to_gap=0.2)
    assert found == {
        "nodes", "density", "kind of seeds", "number of seeds", "target", "option timeout_s", "option solves",
        "option to_gap",
    }  # fmt: skip


def test_eight_samples_of_the_training_split_break_three_rules() -> None:
    assert broken(open_asc(samples=8, split="train"), "single-stream") == {"data set", "split", "samples"}


@pytest.mark.parametrize("nodes", [25, 50, 10_000])
def test_declared_benchmarks_equal_the_stored_ones(nodes: int) -> None:
    for opened in (open_asc(samples=8, audio_hz=1000), open_qubo(nodes=nodes, density=0.01, seeds="5-9")):
        assert opened.benchmark is not None and as_held(opened.benchmark) == opened.benchmark


@pytest.mark.parametrize("declared", [(8,), ()])
def test_declared_limits_do_not_replace_those_of_a_known_benchmark(declared: tuple[int, ...]) -> None:
    """Otherwise a recording that states both its findings and its limits would always be VALID."""
    opened = open_asc(samples=8, audio_hz=1000)
    assert opened.benchmark is not None
    own = {name: replace(p, allowed=p.found) for name, p in opened.benchmark.parameters.items()}
    own["samples"] = Parameter(declared, declared)
    cheat = replace(opened, benchmark=replace(opened.benchmark, parameters=own, options={}))
    assert broken(cheat, "single-stream") == {"data set", "samples"}
    assert "option window_s" in broken(cheat, "real-time", window_s=0.1)
    less = replace(cheat, benchmark=replace(cheat.benchmark, parameters={}))
    assert broken(less, "single-stream") == {"data set", "split", "samples", "classes"}


@pytest.mark.parametrize("name", [
    ASC.replace(" ", "  ", 1), ASC.replace(" ", "\u00a0"), ASC.upper(), ASC.replace("e", "\u0435"), f"\u200b{ASC}",
])  # fmt: skip
def test_a_look_alike_name_has_the_known_limits(name: str) -> None:
    assert limits_of(Benchmark(name, Parameter((), ()), {})) is not None


def test_announced_seeds_and_proven_targets_keep_every_rule(tmp_path: Path) -> None:
    file = str(proven_targets(tmp_path / "targets.json"))
    workload = open_qubo(nodes=SMALL, density=DENSITY, seeds="5-9", announced=True, targets=file)
    assert broken(workload, "optimization") == set()
    assert broken(workload, "server") == {"scenario of the benchmark"}
    chosen = open_qubo(nodes=SMALL, density=DENSITY, seeds="5-9", targets=file)
    assert broken(chosen, "optimization") == {"kind of seeds"}


@pytest.mark.parametrize("timeout_s", [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0])
def test_the_six_timeouts_are_allowed(timeout_s: float) -> None:
    assert "option timeout_s" not in broken(open_qubo(nodes=10), "optimization", timeout_s=timeout_s)


def test_sizes_continue_the_progression() -> None:
    assert qubo_sizes(10) == NODES
    assert qubo_sizes(10_000) == (*NODES, 10_000)
    assert 30_000 not in qubo_sizes(30_000)
    assert qubo_sizes(25_000)[-2:] == (10_000, 25_000)


@pytest.mark.parametrize("nodes", [25, 50])
def test_published_targets_follow_the_rule_for_their_size(nodes: int) -> None:
    for density in DENSITIES:
        assert "target" not in broken(open_qubo(nodes=nodes, density=density), "optimization")


def test_a_joined_workload_keeps_its_benchmark() -> None:
    opened = open_asc(samples=8, audio_hz=1000)
    assert opened.sequences(2.0).benchmark == opened.benchmark


@pytest.mark.parametrize("driver", ["cpu_mis", "cpu_sa", "cpu_tabu"])
def test_solvers_of_this_computer_declare_solver_and_tuning(driver: str) -> None:
    """A real session of them can therefore be VALID."""
    pytest.importorskip("dwave.samplers", reason="extra qubo is not installed")
    pytest.importorskip("numba", reason="extra qubo is not installed")
    device = importlib.import_module(f"drivers.devices.cpu.{driver}").open_device()
    try:
        ran = declared_start({**LEAST, "device": device.info()}).device
    finally:
        device.close()
    assert ran.mode == "hardware"
    assert ran.description and ran.algorithm.solver and ran.algorithm.tuning
