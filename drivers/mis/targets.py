"""Best known target costs of QUBO-MIS workloads, each with its certificate: the set itself.

The table is ``best_known.json``. Whoever holds a generator hands in ``draw(nodes, density, seed) -> Graph``.
Reading and verifying need neither numba nor any solver.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from drivers.mis.certify import certify, digest
from rig.errors import DataError, MissingExtraError
from rig.graph import Graph, to_hex

FILE = Path(__file__).with_name("best_known.json")
Key = tuple[int, float, int]
Draw = Callable[[int, float, int], Graph]
SEARCH = "local search"
PROOF = "reductions and branch and bound"
COMPLETE = "complete graph"


@dataclass(frozen=True, slots=True)
class Target:
    """One row. ``certificate`` is ``rig.graph.to_hex`` of the set; ``graph_sha256`` as ``certify.digest``.

    The walk of ``search_seed`` reaches the set at move ``moves``, ``found_s`` seconds after it began on the machine
    that computed the table, and ``searched_s`` were spent in all. ``proven`` names what proved that no set is
    larger; None where nothing did.
    """

    nodes: int
    density: float
    seed: int
    cost: int
    certificate: str
    graph_sha256: str
    method: str
    search_seed: int | None = None
    moves: int | None = None
    found_s: float | None = None
    searched_s: float = 0.0
    proven: str | None = None
    proof_s: float | None = None
    versions: str = ""

    @property
    def key(self) -> Key:
        """What names the workload."""
        return self.nodes, self.density, self.seed


def best_known(nodes: int, density: float, seed: int, path: Path = FILE) -> Target | None:
    """The table's row of a workload, None where it has none; at density 1 the graph is complete and any node is best.

    Raises ``DataError`` for a table that cannot be read.
    """
    if density >= 1:
        return _complete(nodes, seed)
    return load_table(path).get((nodes, float(density), seed))


def load_table(path: Path = FILE) -> dict[Key, Target]:
    """All rows by key. Raises ``DataError`` for a file that is no such table."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["targets"]
        targets = [Target(**row) for row in rows]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path.name} is no table of targets: {error}",
            field="targets",
            value=path.name,
            remedy="Restore the file from the project, or compute it with benchmarks/qubo_targets.py",
        ) from error
    return {target.key: target for target in targets}


def dump_table(table: Mapping[Key, Target], path: Path) -> None:
    """Write a table, one row per line, sorted; a reader never meets half a file."""
    optional = {f.name: f.default for f in fields(Target)}
    rows = [{k: v for k, v in asdict(table[key]).items() if v != optional[k]} for key in sorted(table)]
    lines = ",\n".join(json.dumps(row) for row in rows)
    part = path.with_name(path.name + ".part")
    part.write_text(f'{{"version": 1, "targets": [\n{lines}\n]}}\n', encoding="utf-8")
    part.replace(path)


def merged(table: Mapping[Key, Target], others: Iterable[Target]) -> dict[Key, Target]:
    """The table with the better of two rows for each workload: lower cost, then proven, then the one it has."""
    out = dict(table)
    for target in others:
        known = out.get(target.key)
        if known is None or _rank(target) < _rank(known):
            out[target.key] = target
    return out


def compute(
    nodes: int, density: float, seed: int, *, draw: Draw, seconds: float = 10.0, walks: int = 3, first_seed: int = 0
) -> Target:
    """Search ``seconds`` in ``walks`` walks, one after the other. Raises ``MissingExtraError`` without numba."""
    search = _search_module()
    graph = draw(nodes, density, seed)
    loaded, best = search.load(graph), None
    began = time.perf_counter()
    for search_seed in range(first_seed, first_seed + walks):
        for found in search.improvements(loaded, search_seed, seconds=seconds / walks):
            if best is None or found.cost < best[0].cost:
                best = found, search_seed
        if best is not None and best[0].cost == -nodes:
            break
    if best is None:
        raise DataError(
            f"no set was found in {seconds} s", field="seconds", value=seconds, remedy="Give the search more time"
        )
    searched_s = time.perf_counter() - began
    found, search_seed = best
    return Target(
        nodes,
        float(density),
        seed,
        found.cost,
        to_hex(found.solution),
        digest(nodes, graph.edges),
        SEARCH,
        search_seed,
        found.moves,
        round(found.seconds, 6),
        round(searched_s, 3),
        versions=_versions("numba", "numpy"),
    )


def proven(target: Target, graph: Graph, seconds: float) -> Target:
    """The row after an attempt to prove it, with a larger set if that found one.

    Raises ``MissingExtraError`` without numba, ``DataError`` where the proof contradicts the row.
    """
    _search_module()
    from drivers.mis.exact import maximum_independent_set

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


def verify(draw: Draw, table: Mapping[Key, Target] | None = None) -> Iterator[tuple[Target, str | None]]:
    """Each row with what is wrong with it (None: nothing), checked against its graph drawn anew, by separate code.

    Proofs are not run again; ``benchmarks/qubo_targets.py`` does that.
    """
    for target in (load_table() if table is None else table).values():
        yield target, _wrong(target, draw(target.nodes, target.density, target.seed))


def _wrong(target: Target, graph: Graph) -> str | None:
    if digest(target.nodes, graph.edges) != target.graph_sha256:
        return "the graph drawn is not the one that the target was computed for"
    try:
        certify(target.nodes, graph.edges, target.certificate, target.cost)
    except DataError as error:
        return error.message
    return None


def _rank(target: Target) -> tuple[int, bool]:
    return target.cost, target.proven is None


def _complete(nodes: int, seed: int) -> Target:
    certificate = "80" + "00" * ((nodes + 7) // 8 - 1)
    return Target(nodes, 1.0, seed, -1, certificate, "", COMPLETE, proven=COMPLETE)


def _search_module() -> Any:
    try:
        from drivers.mis import search
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
