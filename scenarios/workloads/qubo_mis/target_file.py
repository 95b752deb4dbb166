"""A file of target costs of QUBO problems: one row for each problem and name, with the set that reaches the cost.

The certificate of a row is verified against the graph before a gap is computed from it.
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
    """One row. ``certificate`` is ``graph.to_hex`` of the set, ``graph_sha256`` the ``digest`` of its graph.

    The walk of ``search_seed`` reaches the set at move ``moves``, ``found_s`` seconds after it began on the machine
    that computed the row; the whole search took ``searched_s``. ``proven`` names the method that proved that no set is
    larger, or is None. ``name`` is the name of the target in results. ``drawn`` is True for a seed that was drawn at
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
        """Nodes, density and seed, which identify the problem."""
        return self.nodes, self.density, self.seed

    @property
    def made_by(self) -> str:
        """Return the method, with its versions where they are known."""
        return f"{self.method} ({self.versions})" if self.versions else self.method

    def __str__(self) -> str:
        """Return the row by its name and problem, for messages."""
        return f"{self.name} of n {self.nodes}, density {self.density:g}, seed {self.seed}"


class _Table(msgspec.Struct):
    version: int
    targets: list[Target]


def read_rows(path: Path) -> list[Target]:
    """Return all rows of a file. Raises ``DataError``, which names row and field, for a file that is no such table."""
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
    """Write a table, one sorted row per line, whole or not at all. Raises as ``write_whole``."""
    optional = {f.name: f.default for f in fields(Target)}
    ordered = sorted(rows, key=lambda target: (target.key, target.name))
    plain = [{k: v for k, v in asdict(target).items() if v != optional[k]} for target in ordered]
    lines = ",\n".join(json.dumps(row) for row in plain)
    return write_whole(path, f'{{"version": {_VERSION}, "targets": [\n{lines}\n]}}\n'.encode())


def digest(graph: Graph) -> str:
    """Return SHA-256 of the node count and the edges, in little-endian int32."""
    return hashlib.sha256(np.concatenate([[graph.nodes], graph.edges.ravel()]).astype("<i4").tobytes()).hexdigest()


def better(known: Target | None, other: Target) -> Target:
    """Return the better of two rows of one problem: that of lower cost, else the proven one, else ``known``."""
    rows = [other] if known is None else [known, other]
    return min(rows, key=lambda row: (row.cost, row.proven is None))


def _refused(path: Path, why: str) -> DataError:
    remedy = "Write one with `rig targets NODES DENSITY SEED... --out FILE`, or restore the file"
    return DataError(f"{path.name} is not a table of targets: {why}", field="targets", value=str(path), remedy=remedy)
