"""Independent-set problems: their graphs from a seed, and the cost of a solution, as NeuroBench defines both."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from reports.audit.figures import EXACT, Figures, Plain, issues, mean_of, parsed
from reports.audit.files import clean, refuse
from reports.audit.reading import Run, column, payload

NODES_MOST = 10_000
EDGES_DRAWN = 400_000


def problem(run: Run, sample: str) -> tuple[int, Any] | None:
    """The number of nodes and the edges, int32 of shape (m, 2), of a stored problem; None where none is stored."""
    body = payload(run, sample)
    if body is None:
        return None
    if body.dtype != "<i4" or body.ndim != 1 or len(body) < 2 or len(body) != 2 + 2 * body[1]:
        refuse(f"the problem {sample!r}", "does not hold nodes, edges, and the edges")
    nodes, edges = int(body[0]), body[2:].reshape(-1, 2)
    if not 0 < nodes <= NODES_MOST or (len(edges) and (edges.min() < 0 or edges.max() >= nodes)):
        refuse(
            f"the problem {sample!r}", f"has an edge to a node that it does not have, or more than {NODES_MOST} nodes"
        )
    return nodes, edges


def cost_of(graph: tuple[int, Any], text: str) -> float | None:
    """x^T Q x with -1 on the diagonal and 4 for each ordered pair of neighbours; None if ``text`` is no solution."""
    nodes, edges = graph
    try:
        packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    except ValueError:
        return None
    if len(packed) != (nodes + 7) // 8:
        return None
    chosen = np.unpackbits(packed)[:nodes].astype(np.int64)
    return float(-chosen.sum() + 8 * np.sum(chosen[edges[:, 0]] * chosen[edges[:, 1]]))


def solving(run: Run) -> tuple[Figures, list[str]]:
    """Costs and gaps of recorded solutions of independent-set problems, and what of the claims is not so."""
    samples = run.tables["samples"]
    if run.start["workload"].get("task") != "qubo-mis":
        return {}, []
    wrong, costs = list[str](), list[tuple[str, float]]()
    for issue in issues(run):
        if issue.warmup or issue.output is None:
            continue
        value = parsed(issue.output)
        text = value.get("solution") if isinstance(value, dict) else None
        graph = problem(run, issue.sample)
        if graph is None or not isinstance(text, str):
            wrong.append(f"issue {issue.number}: no solution of a recorded problem")
            continue
        cost = cost_of(graph, text)
        if cost is None or value.get("cost") not in (None, cost):
            wrong.append(clean(f"issue {issue.number}: the cost is {cost}, not {value.get('cost')}"))
        costs += [(issue.sample, cost)] if cost is not None else []
    if not costs:
        return {}, wrong
    told = [cost for _, cost in costs]
    found = {"cost_mean": (mean_of(told), "x^T Q x of each solution"), "cost_best": (min(told), "x^T Q x of the best")}
    targets = {"official": dict(zip(column(samples, "id"), column(samples, "target_cost"), strict=True))}
    for name, target in (targets | (run.start["workload"].get("targets") or {})).items():
        if gaps := [(cost - t) / abs(t) for sample, cost in costs if (t := target.get(sample))]:
            found[f"gap_{name}_mean"] = (mean_of(gaps), "(c - c_target) / |c_target|")
    return {key: Plain(value, EXACT, method) for key, (value, method) in found.items()}, wrong


def redrawn(run: Run) -> dict[str, bool]:
    """Of each stored problem that can be drawn again from its seed: whether it is one of the graphs of its seed."""
    densities = (run.start["workload"].get("details") or {}).get("densities") or []
    found = {}
    if run.start["workload"].get("task") == "qubo-mis" and densities:
        for name, seed in zip(*(column(run.tables["samples"], key) for key in ("id", "seed")), strict=True):
            if seed is not None and (graph := problem(run, name)) is not None:
                drawings = [drawn(graph[0], float(density), int(seed)) for density in densities]
                if None not in drawings:
                    found[name] = {(int(min(edge)), int(max(edge))) for edge in graph[1]} in drawings
    return found


def drawn(nodes: int, density: float, seed: int) -> set[tuple[int, int]] | None:
    """The edges that NeuroBench draws for a seed, as ``networkx.gnm_random_graph``; None for too many."""
    most, wanted = nodes * (nodes - 1) // 2, int(0.5 * density * nodes**2)
    if wanted > EDGES_DRAWN or wanted >= most:
        return None
    source, edges = random.Random(seed), set[tuple[int, int]]()
    names = range(nodes)
    while len(edges) < wanted:
        u, v = source.choice(names), source.choice(names)
        if u != v:
            edges.add((min(u, v), max(u, v)))
    return edges
