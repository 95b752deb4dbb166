"""What is known of how cheap a problem can be: the published targets, the best known ones, and those of a file.

``official.json`` holds the target costs that NeuroBench published, and says where they are from. Such a target is
minus the size of an independent set that somebody found. The benchmark's generator builds Q with -1 and 4, the weights
that the rules state (its helper ``custom_graph`` halves the 4); for an independent set the weight of an edge does not
matter, so the targets hold either way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.analysis.solving.graph import Graph
from rig.analysis.solving.target_file import BEST_KNOWN, Key, Target, better, read_rows
from rig.errors import DataError
from rig.plugins import load
from scenarios.workloads.qubo_mis.scoring import Problem

FILE = Path(__file__).with_name("official.json")
NODES = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
DENSITIES = (0.01, 0.05, 0.1, 0.25)
TUNING_SEEDS = range(5)
_NAMED = 20
"""Seeds that a note names at most."""


def official_target(nodes: int, density: float, seed: int) -> int | None:
    """The published target cost of a workload, None where there is none: 9 sizes, 4 densities, seeds 0 to 4."""
    return _target(_table(), nodes, density, seed)


def revised_target(nodes: int, density: float, seed: int) -> int | None:
    """The target in the other known revision of the published file, None where that does not differ."""
    other = _target(_table()["other_revision"], nodes, density, seed)
    return None if other == official_target(nodes, density, seed) else other


def source() -> Mapping[str, str]:
    """Repository, path, commit and licence of the table, and how its costs were found."""
    found: Mapping[str, str] = _table()["source"]
    return found


@dataclass(frozen=True, slots=True)
class TargetFile:
    """Rows of a file by problem. ``about`` is what a recording says of the file."""

    rows: Mapping[Key, Sequence[Target]] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)

    def of(self, problem: Problem, graph: Graph) -> list[Target]:
        """The rows of a problem, each verified against its graph. Raises ``DataError`` for one that is wrong."""
        rows = self.rows.get((problem.nodes, problem.density, problem.seed), ())
        for target, fault in load("targets", "verify")(lambda *_: graph, dict(enumerate(rows))):
            if fault is not None:
                raise DataError(
                    f"the row {target} of {self.about['name']} is wrong: {fault}",
                    field="targets",
                    value=str(target),
                    remedy="Do not use this row; compute it again with `rig targets ... --out FILE`",
                )
        return list(rows)


def open_file(path: Path) -> TargetFile:
    """A file of ``rig targets --out``, whose rows are verified when they are asked for. Raises ``DataError``."""
    rows: dict[Key, list[Target]] = {}
    for target in read_rows(path):
        rows.setdefault(target.key, []).append(target)
    return TargetFile(rows, {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})


def details_of(problems: Sequence[Problem], more: Mapping[str, Iterable[Target]]) -> dict[str, Any]:
    """What a recording says of targets, ``more`` being the rows of a file by problem id.

    ``targets`` holds, by name, the cost for each problem id, and ``targets_by`` how each was found;
    ``targets_proven`` what proved the best known one of a problem to be optimal.
    """
    rows: dict[tuple[str, str], Target] = {}
    for p in problems:
        known = load("targets", "best-known")(p.nodes, p.density, p.seed)
        for row in ([known] if known is not None else []) + list(more.get(p.id, ())):
            place = (row.name, p.id)
            rows[place] = better(rows.get(place), row)
    names = dict.fromkeys([BEST_KNOWN, *sorted({name for name, _ in rows})])
    details: dict[str, Any] = {
        "official_targets": {str(p.seed): p.target for p in problems if p.target is not None},
        "targets": {name: {p.id: rows[name, p.id].cost for p in problems if (name, p.id) in rows} for name in names},
        "targets_by": {name: sorted({r.method for (n, _), r in rows.items() if n == name}) for name in names},
        "targets_proven": {key: row.proven for (name, key), row in rows.items() if name == BEST_KNOWN and row.proven},
    }
    if any(p.target is not None for p in problems):
        details["target_source"] = dict(source())
    revised = {str(p.seed): revised_target(p.nodes, p.density, p.seed) for p in problems}
    if differing := {seed: cost for seed, cost in revised.items() if cost is not None}:
        details["targets_in_other_revision"] = differing
    unknown = [p for p in problems if p.target is None and not any(key == p.id for _, key in rows)]
    return details | ({"notes": [_note(unknown)]} if unknown else {})


def _note(unknown: Sequence[Problem]) -> str:
    first, seeds = unknown[0], [str(p.seed) for p in unknown]
    which = " ".join(seeds[:_NAMED]) + (" ..." if len(seeds) > _NAMED else "")
    return (
        f"No target is known for {len(seeds)} of the problems, so no gap is computed for them: seeds "
        f"{which.replace(' ', ', ')} of {first.nodes} nodes at density {first.density:g}. Compute targets with "
        f"`rig targets {first.nodes} {first.density:g} {which} --out FILE.json` (--method tabu: as the benchmark "
        f"specifies), and measure with --option targets=FILE.json --option seeds={','.join(seeds[:_NAMED])}"
    )


def _target(table: Mapping[str, Any], nodes: int, density: float, seed: int) -> int | None:
    costs = table["targets"].get(str(nodes), {}).get(repr(float(density)))
    return int(costs[seed]) if costs and seed in TUNING_SEEDS else None


def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(FILE.read_text())
    return table
