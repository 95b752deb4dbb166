"""Compute and verify target costs of QUBO-MIS problems. The certificate of a target is the independent set itself.

A target comes from the search that the rig ships, from a proof, or from the method that the benchmark specifies.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rig.analysis.solving.gap_to_target import SPECIFIED
from rig.analysis.verdict.benchmark_limits import PROVEN_BELOW
from rig.bench.settings import one_of
from rig.errors import DataError, IntegrityError, refused
from rig.plugins import imported
from rig.recording.disk.files import regular
from rig.terminal import say, say_json
from scenarios.workloads.qubo_mis.graph import Graph, Vector, to_hex
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from scenarios.workloads.qubo_mis.targets import (
    Key,
    Target,
    best_known,
    better,
    digest,
    fault_of,
    load_table,
    official_target,
    read_rows,
    write_rows,
)
from scenarios.workloads.qubo_mis.workload import drawn_seeds

SEARCH = "local search"
PROOF = "branch and bound"
TABU = "D-Wave Tabu, 100 reads, 50 restarts"
METHODS = ("size", "search", "exact", "tabu")
WALKS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``rig targets NODES DENSITY SEED...`` and ``rig targets --verify``."""
    add = parser.add_argument
    add("--verify", action="store_true", help="check the certificates of the named problems, or of all problems")
    searched = "approximate time of a search for each problem; default: 10"
    add("--seconds", type=float, default=10.0, metavar="S", help=searched)
    add(
        "--method", default="size", metavar="METHOD",
        help="size: as the benchmark specifies, a proof below 50 nodes and D-Wave Tabu from 50 on, where a search "
        "follows for comparison; search: only search; exact: only prove; tabu: only D-Wave Tabu; "
        "default: %(default)s",
    )  # fmt: skip
    add(
        "--draw", type=int, default=0, metavar="N",
        help="draw N seeds at random, and mark them as drawn for --option draw=N; name no seeds then",
    )  # fmt: skip
    add("--out", type=Path, metavar="FILE.json", help="add the rows to this file, for --option targets=FILE.json")
    add("problem", nargs="*", metavar="NODES DENSITY SEED", help="number of nodes, density, then one or more seeds")


def run(args: argparse.Namespace) -> int:
    """Compute and verify targets, or verify the table.

    Raises ``IntegrityError`` for a wrong certificate in the table, ``DataError`` for a wrong computed certificate.
    """
    keys = _keys(args.problem, args.draw, args.verify)
    if args.verify:
        if args.out is not None:
            what = f"--verify does not write the file {args.out}"
            raise refused("out", str(args.out), "Remove --out or --verify", what)
        return _verified(_rows_of(keys) if keys else list(load_table().values()), args.json)
    if not args.seconds > 0:
        raise refused("seconds", args.seconds, "Give more than 0")
    kept = _kept(args.out)
    said = []
    for key in keys:
        # from 50 nodes on, the result of a search is printed beside the specified target
        beside = ("search",) if args.method == "size" and key[0] >= PROVEN_BELOW else ()
        for method in (args.method, *beside):
            found, others = _found(key, method, args.seconds)
            found = replace(found, drawn=bool(args.draw))
            if args.out is not None:  # written after each problem, since one may take minutes
                place = (found.key, found.name)
                kept[place] = _kept_of(kept.get(place), found)
                write_rows(kept.values(), args.out)
            if args.json:
                said.append({**asdict(found), **others, "verified": True})
            else:
                say(_line(found, others, args.seconds))
    if args.json:
        say_json(json.dumps(said))
    elif args.out is not None:
        say(f"wrote {args.out}: measure with --option targets={args.out}")
    return 0


def _keys(problem: Sequence[str], draw: int, may_be_none: bool) -> list[Key]:
    """Return the named problems, or ``draw`` problems with random seeds.

    Raises ``UsageError`` for text that names no problem, and if seeds are both given and drawn.
    """
    if draw and (draw < 0 or len(problem) != 2):
        what = f"{' '.join(problem)!r} names seeds and draws {draw}" if len(problem) > 2 else "nothing can be drawn"
        raise refused("draw", draw, "Write `rig targets NODES DENSITY --draw N`", what)
    problem = [*problem, *map(str, drawn_seeds(draw))]
    if not problem and may_be_none:
        return []
    if len(problem) < 3:
        given = " ".join(problem)
        what = f"{given} is not a problem of the form NODES DENSITY SEED" if given else "no problem is named"
        remedy = "Write `rig targets NODES DENSITY SEED...`, or `rig targets --verify`"
        raise refused("problem", given, remedy, what)
    nodes, density, *seeds = problem
    try:
        return [(int(nodes), float(density), int(seed)) for seed in seeds]
    except ValueError as error:
        remedy = "Write NODES DENSITY SEED as numbers; nodes and seeds are whole numbers"
        what = f"{' '.join(problem)!r} is not a problem of the form NODES DENSITY SEED: {error}"
        raise refused("problem", " ".join(problem), remedy, what) from error


def _kept(out: Path | None) -> dict[tuple[Key, str], Target]:
    """Return the file's rows. Raises ``UsageError`` if it is not a file, ``DataError`` if it is no table."""
    if out is None or not regular(out).exists():
        return {}
    return {(target.key, target.name): target for target in read_rows(out)}


def _kept_of(known: Target | None, found: Target) -> Target:
    """Return the row to keep: a proof before a Tabu row, the later of two Tabu rows, or the better of two searches."""
    if found.name != SPECIFIED:
        return better(known, found)
    return known if known is not None and known.proven and not found.proven else found


def _rows_of(keys: Sequence[Key]) -> list[Target]:
    """Return the table's rows of these problems. Raises ``UsageError`` for a problem without one."""
    rows = []
    for nodes, density, seed in keys:
        if (row := best_known(nodes, density, seed)) is None:
            what = f"the table has no row for n {nodes}, density {density:g}, seed {seed}"
            remedy = f"Compute one: rig targets {nodes} {density:g} {seed}"
            raise refused("problem", f"{nodes} {density:g} {seed}", remedy, what)
        rows.append(row)
    return rows


def _found(key: Key, method: str, seconds: float) -> tuple[Target, dict[str, int | None]]:
    """Return the target of one problem, computed and verified, and the costs that the tables have for it."""
    graph = gnm_edges(*key)
    found = compute(graph, *key[1:], method=method, seconds=seconds)
    if (fault := fault_of(found, graph)) is not None:
        raise DataError(f"the row {found} is wrong: {fault}", field="targets", value=str(found))
    kept = best_known(*key)
    return found, {"official": official_target(*key), "best_known": None if kept is None else kept.cost}


def _line(found: Target, others: Mapping[str, int | None], seconds: float) -> str:
    proof = "not proven" if found.proven is None else f"proven by {found.proven}".removesuffix(f" by {found.method}")
    words = [f"{found.name}: {found.cost} by {found.method} ({proof})"]
    for name, text in (("official", "official"), ("best_known", "table")):
        cost = others[name]
        if cost is not None:
            worse = "" if cost == found.cost else ", which is better" if cost < found.cost else ", which this beats"
            words.append(f"{text} {cost}{worse}")
    if others["official"] is None and others["best_known"] is None:
        words.append("no other target is known")
    took_s = found.searched_s if found.found_s is None else found.found_s
    late = f", more than the {seconds:g} s asked for" if took_s > seconds and found.name != SPECIFIED else ""
    words.append(f"{'found after' if found.found_s is not None else 'took'} {took_s:.3g} s{late}")
    return f"n {found.nodes} density {found.density:g} seed {found.seed}: {'; '.join(words)}"


def _verified(rows: Sequence[Target], as_json: bool) -> int:
    faults = [(row, fault_of(row, gnm_edges(*row.key))) for row in rows]
    wrong = [f"{row}: {fault}" for row, fault in faults if fault is not None]
    proofs = sum(row.proven is not None for row in rows)
    said = {"certificates": len(rows), "proven": proofs, "wrong": wrong}
    text = f"{len(rows)} certificates checked, {proofs} of them proven optimal, {len(wrong)} wrong"
    say(json.dumps(said) if as_json else text)
    if wrong:
        what = f"{len(wrong)} certificates are wrong: {'; '.join(wrong[:3])}"
        remedy = "Restore the table. A wrong certificate gives no gap"
        raise IntegrityError(what, field="targets", value=len(wrong), remedy=remedy)
    return 0


def compute(
    graph: Graph, density: float, seed: int, *, method: str = "search", seconds: float = 10.0, first_seed: int = 0
) -> Target:
    """Compute a row for the graph that was drawn with ``density`` and ``seed``, by one of four methods.

    "size" is the benchmark's rule: "exact" below 50 nodes, else "tabu". "search" spends ``seconds`` on three walks, one
    after the other, whose seeds begin at ``first_seed``. "exact" proves the optimum by branch and bound. "tabu" is
    D-Wave Tabu, as specified for the benchmark's targets.

    Raises ``UsageError`` for another method and for a proof from 50 nodes on. Raises ``MissingExtraError`` for "search"
    without numba and for "tabu" without dwave-samplers.
    """
    one_of(METHODS, method=method)
    if method == "size":
        method = "exact" if graph.nodes < PROVEN_BELOW else "tabu"
    if method == "search":
        return _by_search(graph, density, seed, seconds, first_seed)
    if method == "tabu":
        solution, took_s = specified_tabu(graph, seed)
        more = {"name": SPECIFIED, "search_seed": seed, "versions": versions("dwave-samplers", "dimod")}
        return _row(graph, density, seed, solution, TABU, took_s, **more)
    if graph.nodes >= PROVEN_BELOW:
        raise refused("method", method, f"Give size or search; proofs are for fewer than {PROVEN_BELOW} nodes")
    began = time.perf_counter()
    solution = largest_set(graph)
    return _row(graph, density, seed, solution, PROOF, time.perf_counter() - began, name=SPECIFIED, proven=PROOF)


def largest_set(graph: Graph) -> Vector:
    """Return a maximum independent set (uint8, shape (nodes,)) by branch and bound, which is quick below 50 nodes."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    apart = np.zeros((len(graph.edges) + 1, graph.nodes))  # one extra row of zeros, because a graph may have no edges
    apart[np.arange(len(graph.edges))[:, None], graph.edges] = 1.0
    every = np.ones(graph.nodes, np.int64)
    found = milp(-every, integrality=every, bounds=Bounds(0, 1), constraints=LinearConstraint(apart, ub=1.0))
    return np.asarray(np.rint(np.asarray(found.x)), np.uint8)


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
    walk = {"search_seed": search_seed, "moves": found.moves, "found_s": round(found.seconds, 6)}
    return _row(graph, density, seed, found.solution, SEARCH, searched_s, **walk, versions=versions("numba", "numpy"))


def specified_tabu(graph: Graph, seed: int, *, reads: int = 100, restarts: int = 50) -> tuple[Vector, float]:
    """Return the set that D-Wave Tabu finds as the benchmark specifies, without a timeout, and the seconds it took.

    A call takes about half a minute up to 250 nodes and several minutes at 1000. Raises ``MissingExtraError`` without
    dwave-samplers.
    """
    samplers = imported("dwave.samplers", "tabu as specified", "qubo", field="device", value="tabu as specified")
    model = graph.to_bqm()
    began = time.perf_counter()
    found = samplers.TabuSampler().sample(model, num_reads=reads, num_restarts=restarts, timeout=None, seed=seed)
    took_s = time.perf_counter() - began
    sample = found.first.sample
    return np.array([sample[v] for v in range(graph.nodes)], np.uint8), took_s


def _row(graph: Graph, density: float, seed: int, solution: Any, method: str, took_s: float, **more: Any) -> Target:
    problem, found = (graph.nodes, float(density), seed), (graph.cost(solution), to_hex(solution), digest(graph))
    return Target(*problem, *found, method, searched_s=round(took_s, 3), **more)


def versions(*names: str) -> str:
    """Return packages with their versions, in one text."""
    return ", ".join(f"{name} {version(name)}" for name in names)
