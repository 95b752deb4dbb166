"""Solvers end within their budget even on a busy host: they learn how slow their steps are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from drivers.devices.cpu import cpu_mis, cpu_sa, cpu_tabu
from drivers.devices.cpu.dwave import Problem
from rig.solving import device as solver
from rig.solving.device import Pace, SolverDevice, Tally
from rig.types import Budget, DeviceInfo, Sample
from scenarios.workloads.qubo_mis.graph import from_payload
from tests.support.mis_graphs import random_graph

GRAPH = random_graph(20, 0.2, 0)
Solve = Callable[[Any, Tally], None]
BEGIN_S = 100.0
CALL_S, SWEEP_S, UPDATE_S, MOVE_S = 1e-3, 5e-5, 1e-6, 1e-6
"""The time of a call and of a step of each search alone."""
NOTHING = (0, np.zeros(GRAPH.nodes, np.uint8))


@dataclass
class Host:
    """A host's clock that, from ``busy_from_s``, gives the solver ``runs_s`` and then others ``takes_s``."""

    busy_from_s: float = 1e9
    runs_s: float = 0.008
    takes_s: float = 0.005
    wall_s: float = BEGIN_S
    worked_s: float = 0.0

    def monotonic_ns(self) -> int:
        return round(self.wall_s * 1e9)

    def thread_time_ns(self) -> int:
        return round(self.worked_s * 1e9)

    def works(self, seconds: float) -> None:
        turns = int((self.worked_s + seconds) / self.runs_s) - int(self.worked_s / self.runs_s)
        self.worked_s += seconds
        self.wall_s += seconds
        if self.wall_s > BEGIN_S + self.busy_from_s:
            self.wall_s += turns * self.takes_s

    def works_until(self, wall_s: float) -> None:
        while self.wall_s < wall_s:
            self.works(1e-4)


@dataclass
class Walks:
    """cpu-mis's search; its moves take time and find nothing."""

    host: Host

    def Search(self, graph: Any, seed: int) -> Walks:  # noqa: N802, the module's class
        return self

    def advance(self, moves: int) -> bool:
        self.host.works(moves * MOVE_S)
        return False


@dataclass(frozen=True)
class Parameters:
    """Of a walk: none."""


class Loaded:
    parameters = Parameters()


def mis(host: Host, tally: Tally) -> None:
    cpu_mis._Walker(Walks(host)).solve((Loaded(), 1.0 / MOVE_S), tally)


def sa(host: Host, tally: Tally) -> None:
    class Annealer(cpu_sa._Annealer):
        def _read(self, problem: Any, sweeps: int, seed: int) -> Any:
            host.works(CALL_S + sweeps * SWEEP_S)
            return NOTHING

    Annealer(None).solve(Problem(GRAPH, None, CALL_S, SWEEP_S), tally)


def tabu(host: Host, tally: Tally) -> None:
    class Searching(cpu_tabu._Tabu):
        def _read(
            self, problem: Any, seed: int, threshold: Any, *, timeout_ms: int | None = None, updates: int = 0
        ) -> Any:
            host.works(CALL_S)
            if timeout_ms is None:
                host.works(updates * UPDATE_S)
            else:
                host.works_until(host.wall_s + timeout_ms * 1e-3)
            return NOTHING

    Searching(None).solve(Problem(GRAPH, None, CALL_S, UPDATE_S), tally)


SOLVERS = pytest.mark.parametrize("solve", [mis, sa, tabu])


def ended_s(solve: Solve, host: Host, budget_s: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return how long a solve lasts on a host."""
    monkeypatch.setattr(solver, "time", host)
    solve(host, Tally(GRAPH.nodes, Budget(budget_s), 0, threading.Event()))
    return host.wall_s - BEGIN_S


@SOLVERS
@pytest.mark.parametrize("budget_s", [0.1, 1.0])
@pytest.mark.parametrize("busy_from", [0.0, 0.3])
def test_a_solver_whose_steps_get_slower_ends_within_its_budget(
    solve: Solve, budget_s: float, busy_from: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0.8 * budget_s < ended_s(solve, Host(busy_from * budget_s), budget_s, monkeypatch) <= budget_s


@SOLVERS
@pytest.mark.parametrize("budget_s", [0.1, 1.0])
def test_a_solver_on_a_quiet_host_uses_its_time(solve: Solve, budget_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert budget_s - 0.004 < ended_s(solve, Host(), budget_s, monkeypatch) <= budget_s


def test_one_long_delay_leaves_the_solves_after_it_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of half the budget would never begin again, so the pace would never be learnt anew."""
    host, pace = Host(), Pace()
    pace.step(0.01, 1.0)
    monkeypatch.setattr(solver, "time", host)
    tally = Tally(GRAPH.nodes, Budget(0.1), 0, threading.Event(), pace)

    assert tally.spare_s() == pytest.approx(0.1)
    tally.begin(0.01)
    host.works(0.01)
    assert 0.0 < tally.spare_s() < 0.09


def test_what_a_solve_took_of_the_processor_stands_beside_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(busy_from_s=0.0)
    monkeypatch.setattr(solver, "time", host)
    info = DeviceInfo("own", "hardware", phases=("solve",), details={"schedule_depends_on_budget": False})
    opened = SolverDevice(
        info, lambda graph: graph, lambda graph, tally: host.works(0.02), seed=0, default_s=1.0, longest_s=1.0,
        problem_of=from_payload,
    )  # fmt: skip
    sample = Sample("g", GRAPH.to_payload())
    opened.stage([sample])
    opened.submit_repeated([sample], 3, None, Budget(0.1))
    (reply,) = opened.poll(20.0)
    opened.close()

    assert reply.output["processor_s"] == pytest.approx(0.06)
