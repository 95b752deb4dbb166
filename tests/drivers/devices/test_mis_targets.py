"""The table of best known targets: certificates are valid, false ones are refused, better rows replace others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from drivers.devices.cpu.mis import targets_command
from rig.errors import UsageError
from scenarios.workloads.qubo_mis import targets
from scenarios.workloads.qubo_mis.graph import Graph, to_hex
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from scenarios.workloads.qubo_mis.targets import Target, better, digest, fault_of, official_target
from tests.support.mis_graphs import best_of, graphs

PATH = Graph(5, np.array([[0, 1], [1, 2], [2, 3], [3, 4]], np.int32))
ENDS = to_hex([1, 0, 1, 0, 1])


def row(**changes: object) -> Target:
    return replace(Target(5, 0.32, 0, -3, ENDS, digest(PATH), targets_command.SEARCH), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("changes", "says"), [
    ({"certificate": to_hex([1, 1, 0, 0, 1])}, "1 edges are between chosen nodes"),
    ({"cost": -4}, "cost -4 does not fit a set of 3 nodes"), ({"certificate": "ac"}, "cannot be 'ac'"),
    ({"certificate": "a8a8"}, "cannot be 'a8a8'"), ({"certificate": "+8"}, "cannot be '+8'"),
    ({"certificate": "", "cost": 0}, "cannot be ''"),
    ({"graph_sha256": "0" * 64}, "not the one that the target was computed for"),
])  # fmt: skip
def test_a_false_certificate_is_refused(changes: dict[str, object], says: str) -> None:
    assert fault_of(row(), PATH) is None
    assert says in (fault_of(row(**changes), PATH) or "")


def test_the_better_of_two_rows_has_lower_cost_or_proof() -> None:
    old, proven, lower = row(), row(proven=targets_command.PROOF), row(cost=-4)
    assert better(None, old) is old
    assert better(old, row(searched_s=9.0)) is old
    assert better(old, proven) is proven
    assert better(proven, lower) is lower
    assert better(lower, proven) is lower


def test_a_table_survives_writing(tmp_path: Path) -> None:
    table = {row(seed=k).key: row(seed=k, moves=k) for k in range(3)}
    targets.write_rows(table.values(), tmp_path / "t.json")
    assert targets.load_table(tmp_path / "t.json") == table


def test_a_missing_target_is_none() -> None:
    known = targets.best_known(17, 1.0, 9)
    assert known is not None and fault_of(known, gnm_edges(17, 1.0, 9)) is None
    assert targets.best_known(51, 0.1, 0) is None


def test_every_published_workload_has_an_equal_or_better_target() -> None:
    for nodes in targets.NODES:
        for density in targets.DENSITIES:
            for seed in targets.TUNING_SEEDS:
                known, published = targets.best_known(nodes, density, seed), official_target(nodes, density, seed)
                assert known is not None
                assert published is not None and known.cost <= published
                assert nodes > 100 or known.proven


def test_the_shipped_certificates_hold_up_to_1000_nodes() -> None:
    small = [t for t in targets.load_table().values() if t.nodes <= 1000]
    assert [t.key for t in small if fault_of(t, gnm_edges(*t.key)) is not None] == []


def test_a_seed_and_moves_reproduce_a_row() -> None:
    pytest.importorskip("numba", reason="extra qubo is not installed")
    from drivers.devices.cpu.mis import search

    known = targets.best_known(500, 0.25, 0)
    assert known is not None and known.search_seed is not None
    graph = gnm_edges(*known.key)
    *_, last = search.improvements(search.load(graph), known.search_seed, moves=known.moves)
    assert (last.moves, to_hex(last.solution)) == (known.moves, known.certificate)


@given(graphs(most_nodes=12))
def test_a_proven_set_is_the_best_of_all_subsets(graph: Graph) -> None:
    assert graph.cost(targets_command.largest_set(graph)) == best_of(graph)[0]


def test_a_proof_of_a_larger_graph_is_refused() -> None:
    with pytest.raises(UsageError, match="proofs are for fewer than 50 nodes"):
        targets_command.compute(gnm_edges(50, 0.1, 0), 0.1, 0, method="exact")


def test_specified_tabu_returns_a_set_and_its_time() -> None:
    pytest.importorskip("dwave.samplers", reason="extra qubo is not installed")
    solution, seconds = targets_command.specified_tabu(PATH, seed=3, reads=2, restarts=1)
    assert to_hex(solution) == ENDS and seconds > 0
