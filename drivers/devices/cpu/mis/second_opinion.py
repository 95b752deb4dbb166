"""Other people's solvers on the same graph, to compare with: OR-tools CP-SAT, and D-Wave Tabu as the benchmark says.

ortools comes with the extra ``peers``, dwave-samplers with ``qubo``; each is imported when it is asked for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from drivers.devices.cpu.dwave import imported
from rig.errors import missing_extra
from scenarios.workloads.qubo_mis.graph import Graph, Vector
from scenarios.workloads.qubo_mis.views import to_bqm

SPECIFIED_READS = 100
SPECIFIED_RESTARTS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Opinion:
    """A solution (uint8, shape (nodes,)), its cost, the seconds it took, and whether it is said to be optimal."""

    cost: int
    solution: Vector
    seconds: float
    optimal: bool = False


def cp_sat(graph: Graph, seconds: float = 60.0, seed: int = 0) -> Opinion:
    """OR-tools CP-SAT on one thread: one Boolean per node, one clause per edge.

    Raises ``MissingExtraError`` without ortools.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise missing_extra("the second opinion", error, "peers") from error
    model = cp_model.CpModel()
    chosen = [model.new_bool_var(f"x{v}") for v in range(graph.nodes)]
    for u, v in graph.edges.tolist():
        model.add_bool_or(chosen[u].negated(), chosen[v].negated())
    model.maximize(sum(chosen))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = seconds
    began = time.perf_counter()
    status = solver.solve(model)
    took_s = time.perf_counter() - began
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Opinion(0, np.zeros(graph.nodes, np.uint8), took_s)
    solution = np.array([solver.value(x) for x in chosen], np.uint8)
    return Opinion(graph.cost(solution), solution, took_s, status == cp_model.OPTIMAL)


def specified_tabu(
    graph: Graph, seed: int, *, reads: int = SPECIFIED_READS, restarts: int = SPECIFIED_RESTARTS
) -> Opinion:
    """D-Wave Tabu as the benchmark sets its targets: 100 reads, 50 restarts each, no timeout.

    Half a minute at 100 nodes, several at 1000. Raises ``MissingExtraError`` without dwave-samplers.
    """
    samplers = imported("tabu as specified")
    model = to_bqm(graph)
    began = time.perf_counter()
    found = samplers.TabuSampler().sample(model, num_reads=reads, num_restarts=restarts, timeout=None, seed=seed)
    took_s = time.perf_counter() - began
    sample = found.first.sample
    solution = np.array([sample[v] for v in range(graph.nodes)], np.uint8)
    return Opinion(graph.cost(solution), solution, took_s)
