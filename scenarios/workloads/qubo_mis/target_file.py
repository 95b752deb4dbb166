"""Read and write a file of target costs of QUBO problems: one row for each problem and name.

A row has a certificate: the set of nodes that has the cost. It is verified against the graph before the cost is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec
import numpy as np

from rig.analysis.solving.targets import BEST_KNOWN, OFFICIAL
from rig.errors import DataError, reason
from rig.recording.disk.atomic_write import write_whole
from scenarios.workloads.qubo_mis.graph import Graph

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
