"""Target costs of problems: published, best known, or from a file.

``official.json`` has the target costs that NeuroBench published, and their source. A target cost is minus the size of
an independent set that somebody found. ``best_known.json`` has the best costs that this project found, each with the
set as its certificate. The benchmark's generator builds Q with the weights -1 and 4, as in its rules; the benchmark's
helper ``custom_graph`` uses 2 instead of 4. An independent set contains no edge, so both have the same target costs.

A file of target costs has one row for each problem and name. A row has a certificate: the set of nodes that has the
cost. It is verified against the graph before the cost is used.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rig.analysis.solving.gap_to_target import BEST_KNOWN, OFFICIAL, SPECIFIED
from rig.errors import DataError, reason
from rig.recording.disk.files import write_whole
from scenarios.workloads.qubo_mis.graph import Graph

OFFICIAL_FILE = Path(__file__).with_name("official.json")
BEST_KNOWN_FILE = Path(__file__).with_name("best_known.json")
COMPLETE = "complete graph"
NODES = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
DENSITIES = (0.01, 0.05, 0.1, 0.25)
TUNING_SEEDS = range(5)
UNPROVEN = "tabu"
"""The name of an unproven target, from the Tabu search, of a problem for which another target is proven."""
_NAMED = 20
"""A note names at most this many seeds."""
Key = tuple[int, float, int]
_VERSION = 1
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Target:
    """One row. ``certificate`` is ``graph.to_hex`` of the set, and ``graph_sha256`` is the ``digest`` of the graph.

    The search with ``search_seed`` reaches the set at move ``moves``. On the machine that computed the row, it took
    ``found_s`` seconds to reach the set, and ``searched_s`` in all. ``proven`` names the method that proved that no set
    is larger, or is None. ``name`` is the name of the target in results. ``drawn`` is True if the seed was drawn at
    random for this row.
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
    name: str = BEST_KNOWN
    drawn: bool = False

    @property
    def key(self) -> Key:
        """Return nodes, density and seed, which identify the problem."""
        return self.nodes, self.density, self.seed

    @property
    def made_by(self) -> str:
        """Return the method, with the versions of its programs if they are known."""
        return f"{self.method} ({self.versions})" if self.versions else self.method

    def __str__(self) -> str:
        """Return the name of the target and its problem, for messages."""
        return f"{self.name} of n {self.nodes}, density {self.density:g}, seed {self.seed}"


class _Table(msgspec.Struct):
    version: int
    targets: list[Target]


def read_rows(path: Path) -> list[Target]:
    """Return all rows of a file. Raises ``DataError`` with row and field for a file that is not such a table."""
    try:
        table = msgspec.json.decode(path.read_bytes(), type=_Table)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused(path, reason(error)) from error
    if table.version != _VERSION:
        raise _refused(path, f"its version is {table.version}, and {_VERSION} is known")
    found: set[tuple[Key, str]] = set()
    for target in table.targets:
        if not _NAME.fullmatch(target.name) or target.name == OFFICIAL:
            raise _refused(path, f"a row is named {target.name!r}; official targets come with the rig alone")
        if (target.key, target.name) in found:
            raise _refused(path, f"the row {target} is given twice")
        found.add((target.key, target.name))
    return table.targets


def write_rows(rows: Iterable[Target], path: Path) -> Path:
    """Write a table with one row per line, sorted. The file is written whole or not at all; see ``write_whole``."""
    optional = {f.name: f.default for f in fields(Target)}
    ordered = sorted(rows, key=lambda target: (target.key, target.name))
    plain = [{k: v for k, v in asdict(target).items() if v != optional[k]} for target in ordered]
    lines = ",\n".join(json.dumps(row) for row in plain)
    return write_whole(path, f'{{"version": {_VERSION}, "targets": [\n{lines}\n]}}\n'.encode())


def digest(graph: Graph) -> str:
    """Return SHA-256 of the node count and the edges, in little-endian int32."""
    return hashlib.sha256(np.concatenate([[graph.nodes], graph.edges.ravel()]).astype("<i4").tobytes()).hexdigest()


def better(known: Target | None, other: Target) -> Target:
    """Return the better of two rows of one problem: the row of lower cost, else the proven one, else ``known``."""
    rows = [other] if known is None else [known, other]
    return min(rows, key=lambda row: (row.cost, row.proven is None))


def _refused(path: Path, why: str) -> DataError:
    remedy = "Write one with `rig targets NODES DENSITY SEED... --out FILE`, or restore the file"
    return DataError(f"{path.name} is not a table of targets: {why}", field="targets", value=str(path), remedy=remedy)


@dataclass(frozen=True, slots=True)
class Instance:
    """The parameters of one graph, with its official target cost if there is one."""

    id: str
    nodes: int
    density: float
    seed: int
    target: int | None


def official_target(nodes: int, density: float, seed: int) -> int | None:
    """Return the published target cost of a problem, or None. Targets exist for 9 sizes, 4 densities and seeds 0-4."""
    costs = _table()["targets"].get(str(nodes), {}).get(repr(float(density)))
    return int(costs[seed]) if costs and seed in TUNING_SEEDS else None


def best_known(nodes: int, density: float, seed: int, path: Path = BEST_KNOWN_FILE) -> Target | None:
    """Return the table's row of a problem, or None. For a complete graph (density 1), the row is made here.

    Raises ``DataError`` for a table that cannot be read.
    """
    if density >= 1:
        certificate = "80" + "00" * ((nodes + 7) // 8 - 1)
        return Target(nodes, 1.0, seed, -1, certificate, "", COMPLETE, proven=COMPLETE)
    return load_table(path).get((nodes, float(density), seed))


def load_table(path: Path = BEST_KNOWN_FILE) -> dict[Key, Target]:
    """Return all rows by nodes, density and seed. Raises ``DataError`` for a file that is not such a table."""
    return {target.key: target for target in read_rows(path)}


def fault_of(target: Target, graph: Graph) -> str | None:
    """Return what is wrong with a row, or None.

    The cost is computed again from the row's set of nodes. Proofs are not repeated here;
    ``benchmarks/qubo_targets.py`` repeats them.
    """
    if target.method != COMPLETE and digest(graph) != target.graph_sha256:
        return "the graph drawn is not the one that the target was computed for"
    try:
        cost, conflicts = graph.judge(target.certificate)
    except DataError as error:
        return error.message
    if conflicts:
        return f"{conflicts} edges are between chosen nodes"
    return None if cost == target.cost else f"cost {target.cost} does not fit a set of {-cost} nodes"


@dataclass(frozen=True, slots=True)
class TargetFile:
    """The rows of a file by problem. ``about`` has the name and the digest of the file, for the recording."""

    rows: Mapping[Key, Sequence[Target]] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)

    def of(self, instance: Instance, graph: Graph) -> list[Target]:
        """Return the rows of an instance, each verified against its graph. Raises ``DataError`` for a wrong row."""
        rows = self.rows.get((instance.nodes, instance.density, instance.seed), ())
        for target in rows:
            if (fault := fault_of(target, graph)) is not None:
                what = f"the row {target} of {self.about['name']} is wrong: {fault}"
                remedy = "Do not use this row; compute it again with `rig targets ... --out FILE`"
                raise DataError(what, field="targets", value=str(target), remedy=remedy)
        return list(rows)

    def drawn(self, nodes: int, density: float) -> list[int]:
        """Return the seeds of this size and density that `rig targets --draw` drew at random."""
        keys = (key for key, rows in self.rows.items() if any(row.drawn for row in rows))
        return [seed for n, d, seed in keys if (n, d) == (nodes, density)]


def open_file(path: Path) -> TargetFile:
    """Read a file from ``rig targets --out``. Its rows are verified when they are used. Raises ``DataError``."""
    rows: dict[Key, list[Target]] = {}
    for target in read_rows(path):
        rows.setdefault(target.key, []).append(target)
    return TargetFile(rows, {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})


def details_of(instances: Sequence[Instance], more: Mapping[str, Iterable[Target]]) -> dict[str, Any]:
    """Return the details about targets for the recording. ``more`` has the rows of a file for each problem id.

    For each target name, ``targets`` has the cost of each problem id, and ``targets_by`` has the methods with their
    versions. ``targets_proven`` has, by problem id, the method that proved the target to be optimal. A proven cost also
    becomes the specified target. A specified target without a proof, from the Tabu search, is then named ``tabu``.
    """
    rows: dict[tuple[str, str], Target] = {}
    proofs: dict[str, Target] = {}
    for p in instances:
        known = best_known(p.nodes, p.density, p.seed)
        for row in ([known] if known is not None else []) + list(more.get(p.id, ())):
            place = (row.name, p.id)
            rows[place] = better(rows.get(place), row)
            if row.proven:
                proofs[p.id] = row
        if (proof := proofs.get(p.id)) is not None:
            tabu = rows.get((SPECIFIED, p.id), proof)
            rows |= {(UNPROVEN, p.id): tabu} if tabu.proven is None else {}
            rows[SPECIFIED, p.id] = replace(proof, name=SPECIFIED)
    names = dict.fromkeys([BEST_KNOWN, *sorted({name for name, _ in rows})])
    details: dict[str, Any] = {
        "official_targets": {str(p.seed): p.target for p in instances if p.target is not None},
        "targets": {name: {p.id: rows[name, p.id].cost for p in instances if (name, p.id) in rows} for name in names},
        "targets_by": {name: sorted({r.made_by for (n, _), r in rows.items() if n == name}) for name in names},
        "targets_proven": {key: row.proven for key, row in proofs.items()},
    }
    if any(p.target is not None for p in instances):
        details["target_source"] = _table()["source"]
    unknown = [p for p in instances if p.target is None and not any(key == p.id for _, key in rows)]
    return details | ({"notes": [_note(unknown)]} if unknown else {})


def _note(unknown: Sequence[Instance]) -> str:
    first, seeds = unknown[0], [str(p.seed) for p in unknown]
    which = " ".join(seeds[:_NAMED]) + (" ..." if len(seeds) > _NAMED else "")
    return (
        f"No target is known for {len(seeds)} of the problems, so no gap is computed for them: seeds "
        f"{which.replace(' ', ', ')} of {first.nodes} nodes at density {first.density:g}. Compute targets with "
        f"`rig targets {first.nodes} {first.density:g} {which} --out FILE.json`, and measure with --option "
        f"targets=FILE.json --option seeds={','.join(seeds[:_NAMED])}"
    )


def _table() -> dict[str, Any]:
    return dict(json.loads(OFFICIAL_FILE.read_text()))
