"""Target costs of QUBO-MIS problems, computed with their certificates: the independent sets themselves.

A target comes from the search that the rig ships, from a proof, or from the method that the benchmark specifies.
"""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from rig.analysis.solving.targets import SPECIFIED
from rig.bench.options import one_of
from rig.errors import DataError
from rig.plugins import imported
from scenarios.workloads.qubo_mis.certify import digest
from scenarios.workloads.qubo_mis.graph import Graph, Vector, to_hex
from scenarios.workloads.qubo_mis.target_file import Target
from scenarios.workloads.qubo_mis.targets import PROVEN_BELOW
from scenarios.workloads.qubo_mis.views import to_bqm

SEARCH = "local search"
PROOF = "reductions and branch and bound"
TABU = "D-Wave Tabu, 100 reads, 50 restarts"
METHODS = ("size", "search", "exact", "tabu")
WALKS = 3


def compute(
    graph: Graph, density: float, seed: int, *, method: str = "search", seconds: float = 10.0, first_seed: int = 0
) -> Target:
    """A row for the graph that was drawn with ``density`` and ``seed``, by one of four methods.

    "size" is the benchmark's rule: "exact" below 50 nodes, "tabu" from there on.
    "search" takes ``seconds`` for three walks, one after the other, whose seeds begin at ``first_seed``. "exact" is a
    proof that may take ``seconds``, and proves nothing when they end first. "tabu" is D-Wave's as the benchmark
    specifies it for its targets: half a minute up to 250 nodes and several minutes at 1000, whatever ``seconds`` says.
    Raises ``UsageError`` for another method, ``MissingExtraError`` without numba, or dwave-samplers for "tabu".
    """
    one_of(METHODS, method=method)
    if method == "size":
        method = "exact" if graph.nodes < PROVEN_BELOW else "tabu"
    if method == "tabu":
        return _by_tabu(graph, density, seed)
    if method == "exact":
        return _by_proof(graph, density, seed, seconds)
    return _by_search(graph, density, seed, seconds, first_seed)


def _by_search(graph: Graph, density: float, seed: int, seconds: float, first_seed: int) -> Target:
    search = _search_module()
    loaded, best = search.load(graph), None
    began = time.perf_counter()
    for search_seed in range(first_seed, first_seed + WALKS):
        for found in search.improvements(loaded, search_seed, seconds=seconds / WALKS):
            if best is None or found.cost < best[0].cost:
                best = found, search_seed
        if best is not None and best[0].cost == -graph.nodes:
            break
    if best is None:
        what = f"no set was found in {seconds} s"
        raise DataError(what, field="seconds", value=seconds, remedy="Give the search more time with --seconds")
    searched_s = time.perf_counter() - began
    found, search_seed = best
    row = _row(graph, density, seed, found.solution, SEARCH, searched_s)
    seeds = {"search_seed": search_seed, "moves": found.moves}
    return replace(row, **seeds, found_s=round(found.seconds, 6), versions=_versions("numba", "numpy"))


def _by_proof(graph: Graph, density: float, seed: int, seconds: float) -> Target:
    solution, closed, took_s = _proof(graph, seconds)
    row = _row(graph, density, seed, solution, PROOF, took_s)
    row = replace(row, found_s=round(took_s, 6), versions=_versions("numba", "numpy"))
    if not closed:
        return row
    name = SPECIFIED if graph.nodes < PROVEN_BELOW else row.name
    return replace(row, proven=PROOF, proof_s=round(took_s, 3), name=name)


def _by_tabu(graph: Graph, density: float, seed: int) -> Target:
    solution, took_s = specified_tabu(graph, seed)
    row = _row(graph, density, seed, solution, TABU, took_s)
    return replace(row, name=SPECIFIED, search_seed=seed, versions=_versions("dwave-samplers", "dimod"))


def specified_tabu(graph: Graph, seed: int, *, reads: int = 100, restarts: int = 50) -> tuple[Vector, float]:
    """A set by D-Wave Tabu as the benchmark specifies it for its targets, without a timeout, and the seconds it took.

    Half a minute at 100 nodes, several at 1000. Raises ``MissingExtraError`` without dwave-samplers.
    """
    samplers = imported("dwave.samplers", "tabu as specified", "qubo", field="device", value="tabu as specified")
    model = to_bqm(graph)
    began = time.perf_counter()
    found = samplers.TabuSampler().sample(model, num_reads=reads, num_restarts=restarts, timeout=None, seed=seed)
    took_s = time.perf_counter() - began
    sample = found.first.sample
    return np.array([sample[v] for v in range(graph.nodes)], np.uint8), took_s


def _row(graph: Graph, density: float, seed: int, solution: Any, method: str, took_s: float) -> Target:
    shown = digest(graph.nodes, graph.edges)
    return Target(
        graph.nodes, float(density), seed, graph.cost(solution), to_hex(solution), shown, method,
        searched_s=round(took_s, 3),
    )  # fmt: skip


def proven(target: Target, graph: Graph, seconds: float) -> Target:
    """The row after an attempt to prove it, with a larger set if that found one.

    Raises ``MissingExtraError`` without numba, ``DataError`` where the proof contradicts the row.
    """
    solution, closed, took_s = _proof(graph, seconds)
    cost, took_s = graph.cost(solution), round(took_s, 3)
    if closed and cost > target.cost:
        what = f"{target.key} has a cost of {target.cost}, but {cost} is marked as proven optimal"
        raise DataError(what, field="cost", value=cost, remedy="Report this: the proof or the certificate is wrong")
    if cost < target.cost:
        target = replace(target, cost=cost, certificate=to_hex(solution), method=PROOF, found_s=took_s)
        target = replace(target, search_seed=None, moves=None)
    return replace(target, proven=PROOF, proof_s=took_s) if closed else target


def _proof(graph: Graph, seconds: float) -> tuple[Vector, bool, float]:
    """The largest set found, whether it is proven to be the largest, and the seconds that it took."""
    _search_module()
    from drivers.devices.cpu.mis.exact import maximum_independent_set

    began = time.perf_counter()
    solution, closed = maximum_independent_set(graph, seconds=seconds)
    return solution, closed, time.perf_counter() - began


def _search_module() -> Any:
    return imported("drivers.devices.cpu.mis.search", "the search", "qubo", field="extra")


def _versions(*names: str) -> str:
    return ", ".join(f"{name} {version(name)}" for name in names)
