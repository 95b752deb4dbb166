"""D-Wave's simulated annealing (dwave-samplers) on this computer as a QUBO solver with a deadline.

The sampler has no timeout, so each call makes one read. Each read has twice the sweeps of the read before. If the time
left is too short for that, the read has as many sweeps as fit, by the rates measured when the graph was loaded.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from drivers.devices.cpu import dwave
from drivers.devices.cpu.dwave import Problem
from rig.solving.device import Tally
from rig.types import Device
from scenarios.workloads.qubo_mis.graph import Graph

NAME = "cpu-sa"
TUNING = "temperatures by dwave-samplers' rule for the largest degree expected; reads of 16 sweeps, then twice as many"
_FIRST_SWEEPS = 16
_MEASURED_SWEEPS = 128


def open_device(*, seed: int = 0, default_s: float = 1.0, longest_s: float = 120.0) -> Device:
    """Open simulated annealing. The seed of solve number k is drawn from ``seed`` and k.

    ``default_s`` is the budget of a solve that has none. ``longest_s`` is the longest budget.
    Raises ``UsageError`` for options out of range, ``MissingExtraError`` without dwave-samplers.
    """
    return dwave.opened(
        NAME, "simulated annealing", TUNING, lambda samplers: _Annealer(samplers.SimulatedAnnealingSampler()),
        seed, default_s, longest_s,
    )  # fmt: skip


def beta_range(graph: Graph) -> tuple[float, float]:
    """Return the inverse temperatures at the first and the last sweep, from nodes and density only.

    This is the rule of dwave-samplers (``_default_ising_beta_range``), with the expected largest degree of an instance.
    In the model of spins, the coupling of an edge is 2, and the field of a node of degree k is 2 k - 1/2. At the first
    sweep, a flip against the largest effective field, taken as 4 k + 1/2, has probability 1/2. At the last sweep, any
    of the ``nodes`` spins flips against the smallest field, 1/2, with probability 0.01.
    """
    nodes, degree = graph.nodes, 2.0 * len(graph.edges) / graph.nodes**2 * graph.nodes
    most = min(degree + math.sqrt(2.0 * degree * math.log(max(nodes, 2))), nodes - 1.0)
    return math.log(2.0) / (2.0 * (4.0 * most + 0.5)), math.log(nodes / 0.01) / (2.0 * 0.5)


@dataclass(frozen=True)
class _Annealer:
    sampler: Any

    def load(self, graph: Graph) -> Problem:
        """Return the model in spins, and the times of a call and of a sweep."""
        problem = Problem(graph, graph.to_bqm().change_vartype("SPIN", inplace=False))
        short_s = dwave.timed(lambda: self._read(problem, _FIRST_SWEEPS, 0))
        long_s = dwave.timed(lambda: self._read(problem, _FIRST_SWEEPS + _MEASURED_SWEEPS, 0))
        # a delayed short call would make sweeps seem to take no time
        sweep_s = max((long_s - short_s) / _MEASURED_SWEEPS, 0.25 * long_s / (_FIRST_SWEEPS + _MEASURED_SWEEPS))
        return replace(problem, call_s=max(short_s - _FIRST_SWEEPS * sweep_s, 1e-5), step_s=sweep_s)

    def solve(self, problem: Problem, tally: Tally) -> None:
        """Make reads with more and more sweeps until the time left is too short for another read."""
        sweeps, read = _FIRST_SWEEPS, 0
        tally.tuning = {"beta_range": list(beta_range(problem.graph)), "first_sweeps": sweeps, "sweeps_grow_by": 2}
        while (spare_s := tally.spare_s() / dwave.MARGIN - problem.call_s) > problem.step_s:
            taken = max(1, min(sweeps, int(spare_s / problem.step_s)))
            tally.begin(problem.call_s + taken * problem.step_s)
            tally.offer(*self._read(problem, taken, (tally.seed * 1009 + read) % 2**31))
            sweeps, read = 2 * sweeps, read + 1

    def _read(self, problem: Problem, sweeps: int, seed: int) -> tuple[int, Any]:
        return dwave.read(self.sampler, problem, num_sweeps=sweeps, seed=seed, beta_range=beta_range(problem.graph))
