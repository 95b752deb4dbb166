"""D-Wave's simulated annealing (dwave-samplers) on this computer as a QUBO solver with a deadline.

The sampler has no timeout. It is called for one read at a time, each with twice the sweeps of the one before or
what fits the time left, by rates measured when the graph was loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drivers.mis import dwave
from drivers.mis.device import SolverDevice, Tally, checked_options
from rig.graph import Graph
from rig.types import Device

NAME = "cpu-sa"
_FIRST_SWEEPS = 16
_MEASURED_SWEEPS = 128
_MARGIN = 1.1
"""How much longer than measured a call may take."""


def open_device(*, seed: int = 0, default_s: float = 1.0, longest_s: float = 120.0) -> Device:
    """Open simulated annealing. Solve k of this device anneals from ``seed + k``.

    ``default_s``: the budget of a solve that was given none. ``longest_s``: the longest that may be given. Raises
    ``UsageError`` for options out of range, ``MissingExtraError`` without dwave-samplers.
    """
    checked_options(seed, default_s, longest_s)
    dimod, samplers = dwave.imported(NAME)
    annealer = _Annealer(dimod, samplers.SimulatedAnnealingSampler())
    info = dwave.info(NAME, "simulated annealing of dwave-samplers on one core of this computer", longest_s)
    return SolverDevice(info, annealer.load, annealer.solve, seed=seed, default_s=default_s, longest_s=longest_s)


@dataclass(frozen=True)
class _Problem:
    graph: Graph
    spins: Any
    beta_range: tuple[float, float]
    call_s: float
    sweep_s: float


@dataclass(frozen=True)
class _Annealer:
    dimod: Any
    sampler: Any

    def load(self, graph: Graph) -> _Problem:
        """The model in spins, its temperatures, and how long a call and a sweep take."""
        spins = dwave.binary_model(self.dimod, graph).change_vartype("SPIN", inplace=False)
        beta = tuple(self.sampler.sample(spins, num_sweeps=2, seed=0).info["beta_range"])
        problem = _Problem(graph, spins, (float(beta[0]), float(beta[1])), 0.0, 0.0)
        short_s = dwave.timed(lambda: self._read(problem, _FIRST_SWEEPS, 0))
        long_s = dwave.timed(lambda: self._read(problem, _FIRST_SWEEPS + _MEASURED_SWEEPS, 0))
        sweep_s = max(long_s - short_s, 0.0) / _MEASURED_SWEEPS
        return _Problem(graph, spins, problem.beta_range, max(short_s - _FIRST_SWEEPS * sweep_s, 1e-5), sweep_s)

    def solve(self, problem: _Problem, tally: Tally) -> None:
        """Reads, each longer than the last, while one more fits."""
        sweeps, read = _FIRST_SWEEPS, 0
        while (spare_s := tally.left_s() / _MARGIN - problem.call_s) > problem.sweep_s:
            fitting = int(spare_s / problem.sweep_s) if problem.sweep_s > 0 else sweeps
            tally.offer(*self._read(problem, max(1, min(sweeps, fitting)), (tally.seed * 1009 + read) % 2**31))
            sweeps, read = 2 * sweeps, read + 1

    def _read(self, problem: _Problem, sweeps: int, seed: int) -> tuple[int, Any]:
        found = self.sampler.sample(
            problem.spins, num_reads=1, num_sweeps=sweeps, seed=seed, beta_range=problem.beta_range
        )
        places = found.variables  # the sampler may have put them in another order
        solution = (found.record.sample[0] > 0).astype("u1")[[places.index(v) for v in range(problem.graph.nodes)]]
        return problem.graph.cost(solution), solution
