"""Independent-set problems: their graphs from a seed, and the cost of a solution, as NeuroBench defines both."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np

from reports.audit.figures import EXACT, Figures, Plain, issues, mean_of, parsed
from reports.audit.files import clean, inside, read_bytes, refuse
from reports.audit.reading import Run, column

PAYLOADS = "artifacts/payloads"
NODES_MOST = 10_000
EDGES_DRAWN = 400_000
PAYLOAD_BYTES = 1 << 28
_HEADER = re.compile(rb"\{'descr': '<i4', 'fortran_order': False, 'shape': \((\d+),\), \}")


def problem_names(run: Run) -> set[str]:
    """The samples whose problem is stored with the recording."""
    return {s for s in column(run.tables["samples"], "id") if (inside(run.path, f"{PAYLOADS}/{s}.npy")).is_file()}


def problem(run: Run, sample: str) -> tuple[int, Any]:
    """The number of nodes and the edges, int32 of shape (m, 2), of a stored problem. Raises ``StoreError``."""
    content = read_bytes(inside(run.path, f"{PAYLOADS}/{sample}.npy"), PAYLOAD_BYTES)
    header = _HEADER.search(content[:256])
    if content[:8] != b"\x93NUMPY\x01\x00" or header is None:
        refuse(f"the problem {sample!r}", "is no list of whole numbers")
    begin = 10 + int.from_bytes(content[8:10], "little")
    body = np.frombuffer(content[begin : begin + (len(content) - begin) // 4 * 4], dtype="<i4")
    if len(body) < 2 or not 0 < body[0] <= NODES_MOST or len(body) != 2 + 2 * body[1]:
        refuse(f"the problem {sample!r}", "does not hold nodes, edges, and the edges")
    edges = body[2:].reshape(-1, 2)
    if len(edges) and (edges.min() < 0 or edges.max() >= body[0]):
        refuse(f"the problem {sample!r}", "has an edge to a node that it does not have")
    return int(body[0]), edges


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
    known, wrong, costs = problem_names(run), list[str](), list[tuple[str, float]]()
    for issue in issues(run):
        if issue.warmup or issue.output is None:
            continue
        value = parsed(issue.output)
        text = value.get("solution") if isinstance(value, dict) else None
        if issue.sample not in known or not isinstance(text, str):
            wrong.append(f"issue {issue.number}: no solution of a recorded problem")
            continue
        cost = cost_of(problem(run, issue.sample), text)
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
