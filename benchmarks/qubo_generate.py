"""Compare the QUBO graphs with those of the benchmark's own generator: edges, time and memory.

    python -m benchmarks.qubo_generate             time and peak memory at 5000 nodes and density 25 %
    python -m benchmarks.qubo_generate --all       every official workload, edge for edge, and complete graphs
    python -m benchmarks.qubo_generate --largest   the largest graph of density 1 % that 8 GiB of address space hold

The official way (QUBO/mis.py of NeuroBench/system_benchmarks) takes ``networkx.gnm_random_graph`` and its adjacency
matrix as a dense array. From this it computes Q in float64, then int8. Each way runs in its own process. Needs networkx
and scipy. Prints one JSON line last. Exits 1 if a goal is missed.
"""

import argparse
import hashlib
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.command_line import concluded, parser_of
from benchmarks.harness.load import status_b
from rig.errors import UsageError
from scenarios.workloads.qubo_mis.graph import NODE_COST, PAIR_COST
from scenarios.workloads.qubo_mis.random_graphs import edge_count, gnm_edges

Json = dict[str, Any]
GOAL_RATIO = 50.0
GOAL_MEMORY = 0.2
LIMIT_BYTES = 8 << 30
STEP = 1000
SIZES = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
DENSITIES = (0.01, 0.05, 0.1, 0.25)
COMPLETE_UP_TO = 1000


# ---- the ways: what is timed, and how edges are read from its result afterwards --------------


def ours(nodes: int, density: float, seed: int) -> Any:
    return gnm_edges(nodes, density, seed).edges


def ours_dense(nodes: int, density: float, seed: int) -> Any:
    """Return Q from the rig's generator, in the same form as in the official code."""
    u, v = gnm_edges(nodes, density, seed).edges.T
    q = np.zeros((nodes, nodes), np.int8)
    q[u, v] = q[v, u] = PAIR_COST
    np.fill_diagonal(q, NODE_COST)
    return q


def official(nodes: int, density: float, seed: int) -> Any:
    """Return Q, computed in the official way."""
    networkx = import_module("networkx")
    graph = networkx.gnm_random_graph(n=nodes, m=edge_count(nodes, density), directed=False, seed=seed)
    adjacency = np.array(networkx.adjacency_matrix(graph).toarray())
    del graph
    return (-1 * np.eye(nodes) + 8 / 2 * adjacency).astype(np.int8)


WAYS: dict[str, Callable[[int, float, int], Any]] = {
    "official": official,
    "ours": ours,
    "ours-dense": ours_dense,
}


def child(way: str, nodes: int, density: float, seed: int, times: int) -> Json:
    """Run one way in this process; return the seconds of each call, peak memory, and the digest of the edges."""
    seconds, result = [], None
    for needed in ("networkx", "scipy.sparse") if way == "official" else ():
        import_module(needed)  # beforehand, so that the time of imports is not compared
    for _ in range(times):
        result = None
        before_s = time.perf_counter()
        result = WAYS[way](nodes, density, seed)
        seconds.append(time.perf_counter() - before_s)
    peak = status_b("VmHWM")
    matrix = np.asarray(result)
    edges = np.ascontiguousarray(matrix if matrix.dtype == np.int32 else np.argwhere(np.triu(matrix, 1)), np.int32)
    return {
        "seconds": seconds,
        "peak_bytes": peak,
        "edges": len(edges),
        "sha256": hashlib.sha256(edges.data).hexdigest(),
    }


def in_a_process(*arguments: object, limit_bytes: int | None = None) -> Json | None:
    """Return the result of ``child`` in a separate process; None if the generator refused this size."""

    def limited() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    argv = [sys.executable, "-m", "benchmarks.qubo_generate", "--child", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, preexec_fn=limited)
    if done.returncode == UsageError.exit_code:
        return None
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv[2:])} ended with {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


# ---- the three benchmarks -------------------------------------------------------------------


def race(nodes: int, density: float, times: int) -> Json:
    """Run every way at one size, in turn; the official way runs only once."""
    found: dict[str, Json] = {}
    print(f"{nodes} nodes, density {density}, seed 0")
    for way in WAYS:
        result = in_a_process(way, nodes, density, 0, 1 if way == "official" else times + 1)
        assert result is not None
        first_s, later = result["seconds"][0], result["seconds"][1:]
        found[way] = {**result, "first_s": first_s, "median_s": statistics.median(later) if later else first_s}
        row = f"{way:12} first {first_s:8.3f} s, then {found[way]['median_s']:8.3f} s (median)"
        print(f"{row}, peak {result['peak_bytes'] / 1e6:8.1f} MB, sha256 {result['sha256'][:12]}", flush=True)
    base = found["official"]
    ratios = {
        way: {"speed": base["median_s"] / r["median_s"], "memory": r["peak_bytes"] / base["peak_bytes"]}
        for way, r in found.items()
        if way != "official"
    }
    for way, ratio in ratios.items():
        print(f"{way:12} {ratio['speed']:7.1f} times as fast, {ratio['memory']:.3f} of the memory")
    same = len({r["sha256"] for r in found.values()}) == 1
    passed = same and ratios["ours"]["speed"] >= GOAL_RATIO and ratios["ours"]["memory"] <= GOAL_MEMORY
    print("the edges are the same" if same else "THE EDGES DIFFER")
    return {"benchmark": "qubo_generate", "found": found, "ratios": ratios, "same_edges": same, "pass": passed}


def compare_all() -> Json:
    """Compare the official workloads and complete graphs with networkx's, edge for edge."""
    gnm = import_module("networkx").gnm_random_graph
    tasks = [(n, d, s) for n in SIZES for d in DENSITIES for s in range(5)]
    tasks += [(n, 1.0, s) for n in SIZES if n <= COMPLETE_UP_TO for s in range(5)]
    differing, ours_s, theirs_s = [], 0.0, 0.0
    for at, (nodes, density, seed) in enumerate(tasks, 1):
        before_s = time.perf_counter()
        graph = gnm(nodes, edge_count(nodes, density), seed=seed)
        between_s = time.perf_counter()
        edges = gnm_edges(nodes, density, seed).edges
        ours_s, theirs_s = ours_s + time.perf_counter() - between_s, theirs_s + between_s - before_s
        flat = np.fromiter((end for edge in graph.edges for end in edge), np.int64, 2 * graph.number_of_edges())
        theirs = np.sort(flat.reshape(-1, 2), axis=1)
        same = np.array_equal(edges, theirs[np.lexsort((theirs[:, 1], theirs[:, 0]))])
        differing += [] if same else [[nodes, density, seed]]
        verdict = "same" if same else "DIFFERENT"
        print(f"{at:4}/{len(tasks)} {nodes:5} {density:5} {seed} {len(edges):8} edges {verdict}", flush=True)
    print(f"{len(tasks) - len(differing)} of {len(tasks)} the same; networkx {theirs_s:.1f} s, ours {ours_s:.2f} s")
    summary = {"benchmark": "qubo_generate --all", "graphs": len(tasks), "differing": differing}
    return {**summary, "networkx_s": theirs_s, "ours_s": ours_s, "pass": not differing}


def largest(density: float, limit_bytes: int) -> Json:
    """Find the largest graph, to within 1000 nodes, under a limit on address space, by trial and error."""
    low, best = STEP, None
    high = math.isqrt(int(limit_bytes / (4 * density))) // STEP * STEP + STEP
    probe = high
    while high - low > STEP:
        probe = max(low + STEP, high - 8 * STEP if best is None else (low + high) // 2 // STEP * STEP)
        before_s = time.perf_counter()
        result = in_a_process("ours", probe, density, 0, 1, limit_bytes=limit_bytes)
        took_s = time.perf_counter() - before_s
        if result is None:
            high = probe
            print(f"{probe} nodes: refused, {took_s:.1f} s", flush=True)
            continue
        low, best = probe, {"nodes": probe, **result}
        print(f"{probe} nodes: {result['edges']} edges, {result['seconds'][0]:.1f} s, ", end="")
        print(f"peak {result['peak_bytes'] / 2**30:.2f} GiB", flush=True)
    return {"benchmark": "qubo_generate --largest", "density": density, "largest": best, "pass": best is not None}


def main() -> int:
    parser = parser_of(__doc__, nodes=5000, density=0.25, times=5)
    parser.add_argument("--all", action="store_true", help="compare every official workload")
    parser.add_argument("--largest", action="store_true", help="find the largest graph that 8 GiB hold")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        way, nodes, density, seed, times = chosen.child
        try:
            print(json.dumps(child(way, int(nodes), float(density), int(seed), int(times))))
        except UsageError as error:
            print(error, file=sys.stderr)
            return UsageError.exit_code
        return 0
    if chosen.all:
        summary = compare_all()
    elif chosen.largest:
        summary = largest(0.01, LIMIT_BYTES)
    else:
        summary = race(chosen.nodes, chosen.density, chosen.times)
    return concluded(summary, summary["pass"])


if __name__ == "__main__":
    sys.exit(main())
