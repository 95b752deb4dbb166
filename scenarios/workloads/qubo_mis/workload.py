"""Maximum independent sets of random graphs as QUBO: one sample per problem seed.

The workload follows NeuroBench's system track (QUBO). A sample's payload is ``Graph.to_payload``, and a device replies
with ``{"cost": c, "solution": to_hex(x)}``. Seeds 0 to 4 are for tuning; official results are measured
on seeds that NeuroBench announces, unofficial ones on seeds drawn when the workload is opened.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rig.analysis.solving.gap_to_target import OFFICIAL, SPECIFIED, THRESHOLDS
from rig.analysis.verdict.benchmark_limits import PROVEN_BELOW, QUBO, qubo_sizes
from rig.errors import refused, unfit
from rig.recording.disk.files import regular, replacing
from rig.types import Benchmark, Parameter, Sample, SampleSet
from scenarios.lazy_samples import Lazy
from scenarios.workloads.qubo_mis.graph import Graph
from scenarios.workloads.qubo_mis.random_graphs import MAX_SEED, check_graph, gnm_edges
from scenarios.workloads.qubo_mis.targets import (
    DENSITIES,
    TUNING_SEEDS,
    Instance,
    TargetFile,
    details_of,
    official_target,
    open_file,
)

NAME = "qubo-mis"
TASK = "qubo-mis"
VERSION = "1"
TUNING = "tuning"
ANNOUNCED = "evaluation (announced)"
DRAWN = "evaluation (drawn)"
CHOSEN = "chosen (no tuning seeds, and neither announced nor drawn)"
MIXED = "mixed"
MOST_SEEDS = 10_000

_TUNING_TEXT = "0-4"
_DRAWN_BELOW = 2**32

SEEDS = 5
SOLVES = 5
TIMEOUTS_S = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2)
"""The timeouts of the specification, in seconds. The published baselines also have 1000 s."""
PROVEN = "proven"
BASELINES = {"lava-nc": "0.8.0", "lava-optimization": "0.3.0", "dwave-samplers": "1.1.0"}
"""Versions of the baselines in N by distribution: Lava 0.8.0, Lava Optimization 0.3.0, D-Wave Samplers v1.1.0."""
_DATA, _TASK = "N, QUBO, Benchmark dataset: ", "N, QUBO, Task and metrics: "


class Graphs:
    """Draws the graphs of instances, and keeps the last graph in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Graph] = {}

    def sample(self, instance: Instance) -> Sample:
        """Return the sample of an instance, whose payload is its graph."""
        target = None if instance.target is None else float(instance.target)
        payload = self.graph(instance).to_payload()
        return Sample(id=instance.id, payload=payload, target_cost=target, seed=instance.seed, keep=True)

    def graph(self, instance: Instance) -> Graph:
        """Return the graph of an instance, drawn unless it was the last one."""
        if instance.id not in self.kept:
            self.kept.clear()  # before drawing, so that two large graphs are never in memory together
            self.kept[instance.id] = gnm_edges(instance.nodes, instance.density, instance.seed)
        return self.kept[instance.id]


def open_workload(
    *,
    nodes: int = 100,
    density: float = 0.05,
    seeds: str = _TUNING_TEXT,
    draw: int = 0,
    announced: bool = False,
    targets: str = "",
) -> SampleSet:
    """Open the workload.

    nodes: 2 or more; the benchmark has 10, 25, 50, 100, 250, 500, 1000, 2500, 5000 and will add larger ones.
    density: share of nodes^2 / 2 that are edges, above 0 and up to 1; the benchmark has 0.01, 0.05, 0.1, 0.25.
    seeds: problem seeds, such as "0-4" or "7,11,20-22".
    draw: draw this many seeds at random instead of ``seeds``, none of them a tuning seed; ``details`` records them. If
    ``targets`` holds seeds that `rig targets --draw` drew for this size and density, these are used.
    announced: the seeds are those that NeuroBench announced for evaluation.
    targets: a file of `rig targets --out`, whose targets are added to those that the rig knows.

    Each graph is drawn once here, for the digest and to verify the file's certificates. Raises UsageError for options
    that are not valid and for more nodes than memory holds, DataError for a file of targets that is wrong.
    """
    check_graph(nodes, density, 0)
    file = open_file(Path(targets)) if targets else TargetFile()
    chosen = _seeds(seeds, draw, announced, file, nodes, density)
    graphs, instances = Graphs(), [_instance(nodes, density, seed) for seed in chosen]
    digests, more = {}, {}
    for p in instances:
        digests[str(p.seed)] = graph_digest(graphs.graph(p), density, p.seed)
        more[p.id] = file.of(p, graphs.graph(p))
    edges = len(graphs.graph(instances[-1]).edges)
    kinds = {str(seed): _kind(seed, draw, announced) for seed in chosen}
    details = {
        "nodes": nodes, "densities": [density], "edges": edges, "seeds": list(chosen),
        "seed_kind": next(iter(kinds.values())) if len(set(kinds.values())) == 1 else MIXED, "seed_kinds": kinds,
        "graphs_sha256": digests, **details_of(instances, more),
        **({"targets_file": dict(file.about)} if targets else {}),
    }  # fmt: skip
    whole = hashlib.sha256(json.dumps([VERSION, list(digests.values())]).encode()).hexdigest()
    benchmark = benchmark_of(instances, list(kinds.values()), (ANNOUNCED, DRAWN), details)
    return SampleSet(NAME, TASK, VERSION, whole, Lazy(instances, graphs.sample), details, benchmark)


def graph_digest(graph: Graph, density: float, seed: int) -> str:
    """Return SHA-256 over nodes, density and seed as a line of JSON, then the edges as little-endian int32."""
    head = json.dumps({"nodes": graph.nodes, "density": float(density), "seed": int(seed)}, sort_keys=True)
    hasher = hashlib.sha256(head.encode() + b"\n")
    hasher.update(np.ascontiguousarray(graph.edges, "<i4").reshape(-1).data)
    return hasher.hexdigest()


def export(nodes: int, density: float, seed: int, out: Path) -> dict[str, Any]:
    """Write one graph to an ``.npz``, and return its edge count and digest.

    ``edges`` is int32 of shape (m, 2), u < v, rows sorted; ``nodes``, ``density``, ``seed`` and ``digest`` (of
    ``graph_digest``) are scalars. The file appears whole or not at all, and the same arguments give the same bytes.
    Raises UsageError for arguments that describe no graph, for a path that is not a regular file, and for a path that
    cannot be written.
    """
    check_graph(nodes, density, seed)
    path = Path(out)
    regular(path)  # checked before a large graph takes minutes
    graph = gnm_edges(nodes, density, seed)
    digest = graph_digest(graph, density, seed)
    with replacing(path) as file:
        np.savez(file, edges=graph.edges, nodes=nodes, density=density, seed=seed, digest=digest)
    return {"edges": len(graph.edges), "digest_sha256": digest}


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return seeds written as "0-4" or "7,11,20-22", in the order given.

    Raises UsageError for anything else, and for a seed named twice.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not (_is_seed(first) and (_is_seed(last) if dash else not last)):
            raise unfit("seeds", text, "are not seeds", f'Write "{_TUNING_TEXT}" or "7,11,20-22"')
        low, high = int(first), int(last) if dash else int(first)
        if low > high or max(high, high - low + len(found)) > MAX_SEED or high - low + len(found) >= MOST_SEEDS:
            raise unfit("seeds", text, "are too many, too large or backwards", f"Name 1 to {MOST_SEEDS} seeds")
        found += range(low, high + 1)
    if len(set(found)) < len(found):
        raise unfit("seeds", text, "name a seed twice", "Name each seed once")
    return tuple(found)


def _seeds(text: str, draw: int, announced: bool, file: TargetFile, nodes: int, density: float) -> tuple[int, ...]:
    if not 0 <= draw <= MOST_SEEDS:
        raise unfit("draw", draw, "is not a valid count", f"Use 0 to {MOST_SEEDS}")
    if draw:
        if announced or text != _TUNING_TEXT:
            remedy = "Omit draw, or omit seeds and announced"
            raise unfit("draw", draw, "cannot be combined with seeds or announced", remedy)
        return _drawn(draw, file.drawn(nodes, density), nodes, density)
    chosen = parse_seeds(text)
    tuning = [seed for seed in chosen if seed in TUNING_SEEDS]
    if announced and tuning:
        raise unfit("seeds", text, "include tuning seeds, which are never announced", "Give only announced seeds")
    return chosen


def drawn_seeds(count: int) -> tuple[int, ...]:
    """Draw ``count`` different seeds at random, none of them a tuning seed."""
    return tuple(secrets.SystemRandom().sample(range(TUNING_SEEDS.stop, _DRAWN_BELOW), count))


def _drawn(count: int, known: Sequence[int], nodes: int, density: float) -> tuple[int, ...]:
    """Return the drawn seeds in the file of targets; draw new ones if the file has none."""
    if known and count > len(known):
        remedy = f"Use draw={len(known)}, or `rig targets {nodes} {density:g} --draw {count} --out NEW_FILE`"
        raise refused("draw", count, remedy, f"the file of targets has {len(known)} drawn seeds of this size")
    return tuple(known[:count]) or drawn_seeds(count)


def _kind(seed: int, draw: int, announced: bool) -> str:
    if seed in TUNING_SEEDS:
        return TUNING
    return ANNOUNCED if announced else DRAWN if draw else CHOSEN


def _instance(nodes: int, density: float, seed: int) -> Instance:
    return Instance(f"mis-n{nodes}-d{density!r}-s{seed}", nodes, density, seed, official_target(nodes, density, seed))


def _is_seed(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_SEED))


def benchmark_of(
    instances: Sequence[Instance], kinds: Sequence[str], allowed_kinds: Sequence[str], details: Mapping[str, Any]
) -> Benchmark:
    """Return the benchmark of an opened workload, from its problems, the kinds of their seeds, and its details."""
    first = instances[0]
    small = first.nodes < PROVEN_BELOW
    proven = "'fewer than 50 nodes will be solved to global optimality'"
    tabu = "'The DWave Tabu CPU sampler80 will be used with 100 reads and 50 restarts'"
    repeated = "N, baselines, QUBO: 'ran repeatedly with five different initial variable assignments'"
    parameters = {
        "nodes": Parameter((first.nodes,), qubo_sizes(first.nodes), f"{_DATA}'Number of nodes, spaced in a "
                           "pseudo-geometric progression'"),
        "density": Parameter((first.density,), DENSITIES, f"{_DATA}'Density of edges: 1%, 5%, 10%, 25%'"),
        "kind of seeds": Parameter(tuple(sorted(set(kinds))), tuple(allowed_kinds), f"{_DATA}'0, 1, 2, 3, 4 are "
                                   "allowed for tuning. At evaluation time, for official results NeuroBench will "
                                   "announce five seeds'"),
        "number of seeds": Parameter((len(instances),), (SEEDS,), f"{_DATA}'NeuroBench will announce five seeds'"),
        "target": Parameter(targets_of(instances, details), (PROVEN,) if small else (SPECIFIED, OFFICIAL, PROVEN),
                            f"{_DATA}{proven if small else tabu}"),
    }  # fmt: skip
    options = {
        "timeout_s": Parameter((), TIMEOUTS_S, f"{_TASK}'Timeouts spread across orders of magnitude'"),
        "to_gap": Parameter((), (None, *THRESHOLDS), f"{_TASK}'BKS-Gap thresholds, e.g., 0.1, 0.05, and 0.01'"),
        "solves": Parameter((), (SOLVES,), repeated),
    }
    scenarios = Parameter((), ("optimization",), "P, QUBO: 'As an Optimization scenario task'")
    return Benchmark(QUBO, scenarios, parameters, options, BASELINES)


def targets_of(instances: Sequence[Instance], details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds of targets that the problems have: proven, specified (Tabu search), official, or none."""
    proven, named = details["targets_proven"], details["targets"].get(SPECIFIED, {})
    kinds = (
        PROVEN if p.id in proven else OFFICIAL if p.target is not None else SPECIFIED if p.id in named else "none"
        for p in instances
    )
    return tuple(dict.fromkeys(kinds))
