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
from rig.bench.option_checks import one_of
from rig.errors import DataError, refused
from rig.plugins import imported
from scenarios.workloads.qubo_mis.certify import digest
from scenarios.workloads.qubo_mis.graph import Graph, Vector, to_hex
from scenarios.workloads.qubo_mis.target_file import Target
from scenarios.workloads.qubo_mis.targets import PROVEN_BELOW

SEARCH = "local search"
PROOF = "branch and bound"
TABU = "D-Wave Tabu, 100 reads, 50 restarts"
METHODS = ("size", "search", "exact", "tabu")
WALKS = 3


def compute(
    graph: Graph, density: float, seed: int, *, method: str = "search", seconds: float = 10.0, first_seed: int = 0
) -> Target:
    """Compute a row for the graph that was drawn with ``density`` and ``seed``, by one of four methods.

    "size" is the benchmark's rule: "exact" below 50 nodes, else "tabu".
    "search" takes ``seconds`` for three walks, one after the other, whose seeds begin at ``first_seed``. "exact" is a
    proof. "tabu" is D-Wave's, as specified for the benchmark's targets: half a minute up to 250 nodes and several
    minutes at 1000. Raises ``UsageError`` for another method and for a proof from 50 nodes on, ``MissingExtraError``
    without numba, or dwave-samplers for "tabu".
    """
    one_of(METHODS, method=method)
    if method == "size":
        method = "exact" if graph.nodes < PROVEN_BELOW else "tabu"
    if method == "search":
        return _by_search(graph, density, seed, seconds, first_seed)
    if method == "tabu":
        solution, took_s = specified_tabu(graph, seed)
        row = _row(graph, density, seed, solution, TABU, took_s)
        return replace(row, name=SPECIFIED, search_seed=seed, versions=versions("dwave-samplers", "dimod"))
    if graph.nodes >= PROVEN_BELOW:
        raise refused("method", method, f"Give size or search; proofs are for fewer than {PROVEN_BELOW} nodes")
    began = time.perf_counter()
    solution = largest_set(graph)
    row = _row(graph, density, seed, solution, PROOF, time.perf_counter() - began)
    return replace(row, name=SPECIFIED, proven=PROOF)


def largest_set(graph: Graph) -> Vector:
    """Return a maximum independent set (uint8, shape (nodes,)) by branch and bound: quick below 50 nodes."""
    near = [0] * graph.nodes
    for u, v in graph.edges.tolist():
        near[u] |= 1 << v
        near[v] |= 1 << u

    def largest(left: int) -> int:
        degrees = {v: (near[v] & left).bit_count() for v in range(graph.nodes) if left >> v & 1}
        if not degrees:
            return 0
        v = min(degrees, key=lambda v: degrees[v])
        if degrees[v] <= 1:  # some largest set contains it
            return 1 << v | largest(left & ~near[v] & ~(1 << v))
        v = max(degrees, key=lambda v: degrees[v])
        with_v = 1 << v | largest(left & ~near[v] & ~(1 << v))
        return max(with_v, largest(left & ~(1 << v)), key=int.bit_count)

    found = largest((1 << graph.nodes) - 1)
    return np.array([found >> v & 1 for v in range(graph.nodes)], np.uint8)


def _by_search(graph: Graph, density: float, seed: int, seconds: float, first_seed: int) -> Target:
    search = imported("drivers.devices.cpu.mis.search", "the search", "qubo", field="extra")
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
    return replace(row, **seeds, found_s=round(found.seconds, 6), versions=versions("numba", "numpy"))


def specified_tabu(graph: Graph, seed: int, *, reads: int = 100, restarts: int = 50) -> tuple[Vector, float]:
    """Return a set by D-Wave Tabu, as specified for the benchmark's targets without a timeout, and the seconds it took.

    Half a minute at 100 nodes, several at 1000. Raises ``MissingExtraError`` without dwave-samplers.
    """
    samplers = imported("dwave.samplers", "tabu as specified", "qubo", field="device", value="tabu as specified")
    model = graph.to_bqm()
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


def versions(*names: str) -> str:
    """Packages with their versions, in one text."""
    return ", ".join(f"{name} {version(name)}" for name in names)
