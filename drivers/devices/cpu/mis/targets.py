"""Target costs of QUBO-MIS workloads, each with its certificate: the set itself.

The best known of the published workloads stand in ``best_known.json``; others are computed here, by the search that
the rig ships, by a proof, or by the method that the benchmark specifies. Whoever holds a generator hands in
``draw(nodes, density, seed) -> Graph``. Reading and verifying need neither numba nor any solver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from drivers.devices.cpu.mis.certify import certify, digest
from rig.analysis.solving.graph import Graph, to_hex
from rig.analysis.solving.target_file import SPECIFIED, Key, Target, better, read_rows, write_rows
from rig.errors import DataError, MissingExtraError, UsageError

FILE = Path(__file__).with_name("best_known.json")
Draw = Callable[[int, float, int], Graph]
SEARCH = "local search"
PROOF = "reductions and branch and bound"
TABU = "D-Wave Tabu, 100 reads, 50 restarts"
COMPLETE = "complete graph"
METHODS = ("search", "exact", "tabu")


def best_known(nodes: int, density: float, seed: int, path: Path = FILE) -> Target | None:
    """The table's row of a workload, None where it has none; at density 1 the graph is complete and any node is best.

    Raises ``DataError`` for a table that cannot be read.
    """
    if density >= 1:
        return _complete(nodes, seed)
    return load_table(path).get((nodes, float(density), seed))


def load_table(path: Path = FILE) -> dict[Key, Target]:
    """All rows by key. Raises ``DataError`` for a file that is no such table."""
    return {target.key: target for target in read_rows(path)}


def dump_table(table: Mapping[Key, Target], path: Path) -> None:
    """Write a table, one row per line, sorted; a reader never meets half a file."""
    write_rows(table.values(), path)


def merged(table: Mapping[Key, Target], others: Iterable[Target]) -> dict[Key, Target]:
    """The table with the better of two rows for each workload: lower cost, then proven, then the one it has."""
    out = dict(table)
    for target in others:
        out[target.key] = better(out.get(target.key), target)
    return out


def compute(
    nodes: int,
    density: float,
    seed: int,
    *,
    draw: Draw,
    method: str = "search",
    seconds: float = 10.0,
    walks: int = 3,
    first_seed: int = 0,
) -> Target:
    """A row by ``method``: "search" for ``seconds`` in ``walks`` walks, one after the other; "exact", a proof that may

    take ``seconds`` and is no proof when they end first; or "tabu", D-Wave's as the benchmark specifies it for its
    targets, which takes half a minute up to 250 nodes and several minutes at 1000, whatever ``seconds`` says.
    Raises ``UsageError`` for another method, ``MissingExtraError`` without numba, or dwave-samplers for "tabu".
    """
    if method not in METHODS:
        raise UsageError(
            f"method {method!r} is unknown", field="method", value=method, remedy=f"Known: {', '.join(METHODS)}"
        )
    graph = draw(nodes, density, seed)
    if method == "tabu":
        return _by_tabu(graph, density, seed)
    if method == "exact":
        return _by_proof(graph, density, seed, seconds)
    return _by_search(graph, density, seed, seconds, walks, first_seed)


def _by_search(graph: Graph, density: float, seed: int, seconds: float, walks: int, first_seed: int) -> Target:
    search = _search_module()
    loaded, best = search.load(graph), None
    began = time.perf_counter()
    for search_seed in range(first_seed, first_seed + walks):
        for found in search.improvements(loaded, search_seed, seconds=seconds / walks):
            if best is None or found.cost < best[0].cost:
                best = found, search_seed
        if best is not None and best[0].cost == -graph.nodes:
            break
    if best is None:
        raise DataError(
            f"no set was found in {seconds} s", field="seconds", value=seconds, remedy="Give the search more time"
        )
    searched_s = time.perf_counter() - began
    found, search_seed = best
    row = _row(graph, density, seed, found.solution, SEARCH, searched_s)
    seeds = {"search_seed": search_seed, "moves": found.moves}
    return replace(row, **seeds, found_s=round(found.seconds, 6), versions=_versions("numba", "numpy"))


def _by_proof(graph: Graph, density: float, seed: int, seconds: float) -> Target:
    _search_module()
    from drivers.devices.cpu.mis.exact import maximum_independent_set

    began = time.perf_counter()
    solution, closed = maximum_independent_set(graph, seconds=seconds)
    took_s = time.perf_counter() - began
    row = _row(graph, density, seed, solution, PROOF, took_s)
    row = replace(row, found_s=round(took_s, 6), versions=_versions("numba", "numpy"))
    return replace(row, proven=PROOF, proof_s=round(took_s, 3)) if closed else row


def _by_tabu(graph: Graph, density: float, seed: int) -> Target:
    from drivers.devices.cpu.mis.second_opinion import specified_tabu

    opinion = specified_tabu(graph, seed)
    row = _row(graph, density, seed, opinion.solution, TABU, opinion.seconds)
    return replace(row, name=SPECIFIED, search_seed=seed, versions=_versions("dwave-samplers", "dimod"))


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
    _search_module()
    from drivers.devices.cpu.mis.exact import maximum_independent_set

    began = time.perf_counter()
    solution, closed = maximum_independent_set(graph, seconds=seconds)
    took_s = round(time.perf_counter() - began, 3)
    cost = graph.cost(solution)
    if closed and cost > target.cost:
        raise DataError(
            f"{target.key} has a cost of {target.cost}, and {cost} is said to be proven optimal",
            field="cost",
            value=cost,
            remedy="Report this: the proof or the certificate is wrong",
        )
    if cost < target.cost:
        target = replace(target, cost=cost, certificate=to_hex(solution), method=PROOF, found_s=took_s)
        target = replace(target, search_seed=None, moves=None)
    return replace(target, proven=PROOF, proof_s=took_s) if closed else target


def verify(draw: Draw, table: Mapping[Any, Target] | None = None) -> Iterator[tuple[Target, str | None]]:
    """Each row with what is wrong with it (None: nothing), checked against its graph drawn anew, by separate code.

    ``table`` maps anything to rows; without it, the table that comes with the rig. Proofs are not run again;
    ``benchmarks/qubo_targets.py`` does that.
    """
    for target in (load_table() if table is None else table).values():
        yield target, _wrong(target, draw(target.nodes, target.density, target.seed))


def _wrong(target: Target, graph: Graph) -> str | None:
    if target.method != COMPLETE and digest(target.nodes, graph.edges) != target.graph_sha256:
        return "the graph drawn is not the one that the target was computed for"
    try:
        certify(target.nodes, graph.edges, target.certificate, target.cost)
    except DataError as error:
        return error.message
    return None


def _complete(nodes: int, seed: int) -> Target:
    certificate = "80" + "00" * ((nodes + 7) // 8 - 1)
    return Target(nodes, 1.0, seed, -1, certificate, "", COMPLETE, proven=COMPLETE)


def _search_module() -> Any:
    try:
        from drivers.devices.cpu.mis import search
    except ImportError as error:
        raise MissingExtraError(
            f"the search needs {error.name or 'numba'}, which is not installed",
            field="extra",
            value="qubo",
            remedy="pip install 'neurorig[qubo]'",
        ) from error
    return search


def _versions(*names: str) -> str:
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
