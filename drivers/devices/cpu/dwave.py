"""Common parts of the two D-Wave samplers as devices: how they are opened, and reads that fit the remaining time.

A call of either sampler cannot be stopped from outside, and its set-up alone may exceed a short budget. So the time of
a call without its search is measured when a graph is loaded. A call that would not end in time is not begun. A call
that ends late nevertheless is recorded as an overrun.
"""

import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rig.plugins import imported
from rig.solving.device import SolverDevice, solver_info
from rig.types import Device, DeviceInfo
from scenarios.workloads.qubo_mis.graph import Graph, Vector, from_payload

MARGIN = 1.1
"""A call may take up to this many times its measured time."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A graph, its model in bits or in spins, and the times of a call and of one step of the search in seconds."""

    graph: Graph
    model: Any
    call_s: float = 0.0
    step_s: float = 0.0


def opened(
    name: str, description: str, tuning: str, solver_of: Callable[[Any], Any], seed: int, default_s: float,
    longest_s: float,
) -> Device:  # fmt: skip
    """Return the device of the solver that ``solver_of`` makes from dwave.samplers, as for ``device_of``.

    ``tuning`` names the rule of its parameters.

    Raises ``UsageError`` for options out of range, ``MissingExtraError`` without dwave-samplers.
    """
    solver = solver_of(imported("dwave.samplers", name, "qubo", field="device", value=name))
    what = f"{description} of dwave-samplers on one core of this computer"
    info = solver_info(
        name, what, ("dimod", "dwave-samplers", "numpy"), longest_s, solver=what,
        schedule_depends_on_budget=True,  # the last read depends on the remaining time
        cost="computed from each read's solution within the span",
        tuning=f"{tuning}; from nodes and density alone, and every answer states the values",
    )  # fmt: skip
    return device_of(solver, info, seed, default_s, longest_s)


def device_of(solver: Any, info: DeviceInfo, seed: int, default_s: float, longest_s: float) -> Device:
    """Return the device of a solver: ``load(graph)`` prepares a problem, ``solve(problem, tally)`` offers solutions."""
    return SolverDevice(
        info, solver.load, solver.solve, seed=seed, default_s=default_s, longest_s=longest_s, problem_of=from_payload
    )


def read(sampler: Any, problem: Problem, **options: Any) -> tuple[int, Vector]:
    """Return the cost and the solution (uint8, shape (nodes,)) of one read."""
    found = sampler.sample(problem.model, num_reads=1, **options)
    places = found.variables  # the sampler may have reordered the variables
    solution = (found.record.sample[0] > 0).astype(np.uint8)[[places.index(v) for v in range(problem.graph.nodes)]]
    return problem.graph.cost(solution), solution


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of the quickest of three calls."""
    return min(timeit.repeat(call, number=1, repeat=3))
