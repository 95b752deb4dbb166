"""The scenario of solvers: its refusals before the first step, and when its solves end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.commands.shell import main as cli
from rig.errors import UsageError
from rig.types import Issue, Rules
from scenarios.optimization import optimization
from scenarios.workloads.asc import workload as asc
from scenarios.workloads.qubo_mis.graph import to_hex
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from scenarios.workloads.qubo_mis.target_file import Target, digest, write_rows
from scenarios.workloads.qubo_mis.workload import open_workload
from tests.support.raised import raised

FREE = Rules("test", "any", "a test", submittable=False, idle_s=0.0)


def test_a_gap_without_a_target_is_refused_before_the_first_step() -> None:
    workload = open_workload(nodes=20, density=0.25, seeds="5")
    optimization(workload, FREE)
    error = raised(UsageError, optimization, workload, FREE, to_gap=0.05, says="has no target cost")
    assert "rig targets 20 0.25 5 --out" in error.remedy


def test_a_workload_without_problems_is_refused_before_the_first_step() -> None:
    with pytest.raises(UsageError, match="workload asc holds things to classify"):
        optimization(asc.open_workload(samples=2, audio_hz=1000), FREE)


def test_solves_end_at_the_target_of_the_file(tmp_path: Path) -> None:
    row = Target(20, 0.25, 5, -1, to_hex([1] + [0] * 19), digest(gnm_edges(20, 0.25, 5)), "by hand", name="specified")
    write_rows([row], tmp_path / "t.json")
    workload = open_workload(nodes=20, density=0.25, seeds="5", targets=str(tmp_path / "t.json"))
    steps = optimization(workload, FREE, to_gap=0.0, solves=2)
    budgets = [step.budget for step in steps if isinstance(step, Issue)]
    assert [b.stop_at_cost for b in budgets if b is not None] == [-1.0, -1.0]


def test_the_command_has_a_workload_for_solvers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["measure", "--device", "mock", "--simulate", "--scenario", "optimization", "--out", str(tmp_path / "r")]
    assert cli.main([*words, "--option", "nodes=0"]) == UsageError.exit_code
    assert "nodes" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
