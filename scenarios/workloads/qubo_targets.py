"""The target costs that NeuroBench published for its QUBO workloads; ``qubo_official.json`` says where they are from.

A target is minus the size of an independent set that somebody found. The benchmark's generator builds Q with -1 and
4, the weights that the rules state (its helper ``custom_graph`` halves the 4); for an independent set the weight of
an edge does not matter, so the targets hold either way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("qubo_official.json")
NODES = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
DENSITIES = (0.01, 0.05, 0.1, 0.25)
TUNING_SEEDS = range(5)


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


def _target(table: Mapping[str, Any], nodes: int, density: float, seed: int) -> int | None:
    costs = table["targets"].get(str(nodes), {}).get(repr(float(density)))
    return int(costs[seed]) if costs and seed in TUNING_SEEDS else None


def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(FILE.read_text())
    return table
