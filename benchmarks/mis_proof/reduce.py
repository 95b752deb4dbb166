"""Reduce a sparse graph without a search.

Three rules apply to vertices whose neighbours form a clique, to vertices of degree 2, and to dominated vertices.
Each rule changes the size of a maximum independent set by a known number. It can be undone on an independent set of the
rest (the rules are those of Akiba and Iwata, Theor. Comput. Sci. 609, 2016, section 3).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from scenarios.workloads.qubo_mis.graph import Graph

Adjacency = dict[int, set[int]]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel: the rest of the graph (``adjacency``), and the decisions in order.

    A decision ``(v,)`` puts v into the set. A decision ``(v, a, b)`` folds v and its two neighbours a and b into v: if
    the set of the rest has v, the original set has a and b, else v.
    """

    adjacency: Adjacency
    decided: tuple[tuple[int, ...], ...]


def reduced(graph: Graph) -> Kernel:
    """Apply the rules until no rule applies."""
    adjacency: Adjacency = {v: set() for v in range(graph.nodes)}
    for u, v in graph.edges.tolist():
        adjacency[u].add(v)
        adjacency[v].add(u)
    decided: list[tuple[int, ...]] = []
    work = set(adjacency)
    while work:
        v = work.pop()
        if v in adjacency:
            _decide(adjacency, v, work, decided)
    return Kernel(adjacency, tuple(decided))


def undone(kernel: Kernel, chosen: Iterable[int]) -> set[int]:
    """Return the set of the original graph that follows from an independent set of the kernel."""
    out = set(chosen)
    for v, *pair in reversed(kernel.decided):
        if pair and v in out:
            out.remove(v)
            out.update(pair)
        else:
            out.add(v)
    return out


def components(adjacency: Adjacency) -> list[list[int]]:
    """Return the vertices of each connected component, ascending."""
    left, found = set(adjacency), []
    while left:
        reach = [left.pop()]
        for v in reach:
            new = adjacency[v] & left
            left -= new
            reach.extend(new)
        found.append(sorted(reach))
    return sorted(found)


def _decide(adjacency: Adjacency, v: int, work: set[int], decided: list[tuple[int, ...]]) -> None:
    near = adjacency[v]
    if all(near - {u} <= adjacency[u] for u in near):  # its neighbours are a clique, so v is as good as each of them
        decided.append((v,))
        for u in list(near):
            _remove(adjacency, u, work)
        _remove(adjacency, v, work)
    elif len(near) == 2:
        a, b = sorted(near)
        decided.append((v, a, b))
        beyond = (adjacency[a] | adjacency[b]) - {v}
        for u in (a, b, v):
            _remove(adjacency, u, work)
        adjacency[v] = beyond
        for w in beyond:
            adjacency[w].add(v)
        work |= beyond | {v}
    else:
        dominated = next((u for u in sorted(near) if near - {u} <= adjacency[u]), None)
        if dominated is not None:
            _remove(adjacency, dominated, work)
            work.add(v)


def _remove(adjacency: Adjacency, v: int, work: set[int]) -> None:
    near = adjacency.pop(v)
    for w in near:
        adjacency[w].discard(v)
    work |= near
