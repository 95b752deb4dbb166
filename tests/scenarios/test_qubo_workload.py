"""The QUBO workload: its samples, its seeds and targets, its score, and a graph of it for others."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.devices.cpu.mis.targets_command import largest_set
from rig.commands.shell import main as cli
from rig.errors import UsageError
from rig.types import Workload
from scenarios.workloads.qubo_mis import workload as qubo_mis
from scenarios.workloads.qubo_mis.graph import Graph, from_payload
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from scenarios.workloads.qubo_mis.targets import DENSITIES, NODES, TUNING_SEEDS, official_target
from scenarios.workloads.qubo_mis.workload import export, graph_digest, open_workload, parse_seeds
from tests.support.paths import SHARED
from tests.support.raised import raised

TABLE = SHARED / "data" / "qubo" / "neurobench_default_config.csv"


# ---- samples --------------------------------------------------------------------------------


def test_the_default_is_five_tuning_problems_of_100_nodes() -> None:
    workload: Workload = open_workload()
    samples = list(workload.samples)
    assert (workload.name, workload.task) == ("qubo-mis", "qubo-mis")
    assert [s.id for s in samples] == [f"mis-n100-d0.05-s{seed}" for seed in range(5)]
    assert [(s.seed, s.target_cost, s.inferences) for s in samples] == [
        (seed, cost, 1) for seed, cost in enumerate([-44.0, -42.0, -45.0, -45.0, -42.0])
    ]


def test_a_payload_is_the_seeded_graph() -> None:
    payload = open_workload(nodes=50, density=0.1).samples[3].payload
    graph = from_payload(payload)
    assert (graph.nodes, payload.dtype) == (50, np.int32)
    assert np.array_equal(graph.edges, gnm_edges(50, 0.1, 3).edges)


def test_a_graph_is_drawn_on_access(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = open_workload(nodes=20)
    drawn: list[int] = []

    def counting(nodes: int, density: float, seed: int) -> Graph:
        drawn.append(seed)
        return gnm_edges(nodes, density, seed)

    monkeypatch.setattr(qubo_mis, "gnm_edges", counting)
    for index in (0, 0, 1, 1, 0):
        assert workload.samples[index].seed == index
    assert drawn == [0, 1, 0]


# ---- digest ---------------------------------------------------------------------------------


def test_the_digest_changes_with_every_argument() -> None:
    digests = [
        open_workload(**given).digest_sha256
        for given in ({}, {"nodes": 101}, {"density": 0.051}, {"seeds": "0-3"}, {"seeds": "1-5"}, {"seeds": "1,0,2-4"})
    ]
    assert len(set(digests)) == len(digests)
    assert open_workload().digest_sha256 == digests[0]
    assert open_workload(seeds="0,1,2-4").digest_sha256 == digests[0]


def test_equal_graphs_from_other_arguments_differ_in_digest() -> None:
    complete = gnm_edges(8, 1.0, 0)
    assert len({graph_digest(complete, d, s) for d in (0.99, 1.0) for s in (0, 1)}) == 4


# ---- seeds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "kind", "each"), [
    ({}, "tuning", ["tuning"] * 5), ({"seeds": "3"}, "tuning", ["tuning"]),
    ({"seeds": "17,5", "announced": True}, "evaluation (announced)", ["evaluation (announced)"] * 2),
    ({"draw": 2}, "evaluation (drawn)", ["evaluation (drawn)"] * 2),
    ({"seeds": "17,5"}, qubo_mis.CHOSEN, [qubo_mis.CHOSEN] * 2),
    ({"seeds": "4-5"}, "mixed", ["tuning", qubo_mis.CHOSEN]),
])  # fmt: skip
def test_details_state_the_kind_of_each_seed(options: dict[str, Any], kind: str, each: list[str]) -> None:
    details = open_workload(nodes=10, **options).details
    assert details["seed_kind"] == kind
    assert details["seed_kinds"] == {str(seed): one for seed, one in zip(details["seeds"], each, strict=True)}


@pytest.mark.parametrize("count", [1, 40])
def test_drawn_seeds_exclude_tuning_seeds(count: int) -> None:
    workload = open_workload(nodes=10, draw=count)
    seeds = [sample.seed for sample in workload.samples]
    assert workload.details["seeds"] == seeds
    assert len(set(seeds)) == count
    assert not set(seeds) & set(TUNING_SEEDS)
    assert open_workload(nodes=10, seeds=",".join(map(str, seeds))).digest_sha256 == workload.digest_sha256


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20, unique=True))
def test_seed_lists_are_parsed(seeds: list[int]) -> None:
    assert parse_seeds(",".join(map(str, seeds))) == tuple(seeds)


def test_seeds_may_be_ranges() -> None:
    assert parse_seeds("0-4") == (0, 1, 2, 3, 4)
    assert parse_seeds("7, 11 ,20-22") == (7, 11, 20, 21, 22)


NO_SEEDS = ("", ",", "1,", "-1", "3-", "4-1", "a", "1.5", "0x1", "1,1", "0-4,2", "0-10000", "²")


@pytest.mark.parametrize(("options", "field"), [
    *(({"nodes": 10, "seeds": text}, "seeds") for text in NO_SEEDS),
    ({"nodes": 1}, "nodes"), ({"density": 0.0}, "density"), ({"density": 1.5}, "density"), ({"draw": -1}, "draw"),
    ({"draw": 10**6}, "draw"), ({"draw": 2, "seeds": "7"}, "draw"), ({"draw": 2, "announced": True}, "draw"),
    ({"announced": True}, "seeds"), ({"announced": True, "seeds": "4,9"}, "seeds"),
    ({"seeds": str(2**63)}, "seeds"),
])  # fmt: skip
def test_impossible_options_are_refused(options: dict[str, Any], field: str) -> None:
    error = raised(UsageError, open_workload, **options)
    assert error.field == field and error.remedy


# ---- targets --------------------------------------------------------------------------------


def test_there_are_180_official_targets() -> None:
    targets = [official_target(n, d, s) for n in NODES for d in DENSITIES for s in TUNING_SEEDS]
    assert len(targets) == 180
    assert all(cost is not None and -n <= cost < 0 for cost, n in zip(targets, np.repeat(NODES, 20), strict=True))
    assert open_workload().details["target_source"]["commit"]


@pytest.mark.skipif(not TABLE.is_file(), reason="the published table is not at hand")
def test_targets_match_the_published_table() -> None:
    rows = [line.split(",") for line in TABLE.read_text().split()[1:]]
    assert len(rows) == 180
    assert all(official_target(int(n), float(d), int(s)) == int(c) for n, d, s, c in rows)


@pytest.mark.parametrize("task", [(100, 0.05, 5), (100, 0.05, -1), (101, 0.05, 0), (100, 0.06, 0), (100, 1.0, 0)])
def test_other_problems_have_no_official_target(task: tuple[int, float, int]) -> None:
    assert official_target(*task) is None


@pytest.mark.parametrize(("nodes", "density"), list(itertools.product((10, 25, 50), DENSITIES)))
def test_official_targets_up_to_50_nodes_are_optimal(nodes: int, density: float) -> None:
    for seed in TUNING_SEEDS:
        assert -largest_set(gnm_edges(nodes, density, seed)).sum(dtype=int) == official_target(nodes, density, seed)


# ---- for other packages ---------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "density"), [(10, 0.01), (30, 0.25), (12, 1.0)])
def test_energies_of_the_binary_quadratic_model_are_costs(nodes: int, density: float) -> None:
    pytest.importorskip("dimod")
    graph = gnm_edges(nodes, density, 0)
    bqm = graph.to_bqm()
    x = np.random.default_rng(0).integers(0, 2, (20, nodes))
    assert (bqm.vartype.name, bqm.num_variables, bqm.num_interactions) == ("BINARY", nodes, len(graph.edges))
    assert bqm.energies((x, range(nodes))).tolist() == [graph.cost(row) for row in x]


# ---- export ---------------------------------------------------------------------------------


@given(st.integers(2, 30), st.sampled_from([0.01, 0.25, 1.0]), st.integers(0, 2**63 - 1))
def test_an_export_holds_the_graph(tmp_path_factory: Any, nodes: int, density: float, seed: int) -> None:
    path = tmp_path_factory.mktemp("export") / "graph.npz"
    export(nodes, density, seed, path)
    with np.load(path, allow_pickle=False) as file:
        graph = Graph(int(file["nodes"]), file["edges"])
        assert np.array_equal(graph.edges, gnm_edges(nodes, density, seed).edges)
        assert (float(file["density"]), int(file["seed"])) == (density, seed)
        assert str(file["digest"]) == graph_digest(graph, density, seed)


def test_equal_exports_are_equal_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    export(50, 0.1, 0, first)
    export(50, 0.1, 1, second)
    assert first.read_bytes() != second.read_bytes()
    export(50, 0.1, 0, second)
    assert second.read_bytes() == first.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


@pytest.mark.parametrize("name", [".", "absent/graph.npz", "file/graph.npz"])
def test_an_unwritable_path_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    assert raised(UsageError, export, 10, 0.25, 0, tmp_path / name).field == "out"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_digest_and_edges_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["workload", "--json", "export", "qubo-mis", "50", "0.1", "0", "--out", str(tmp_path / "g.npz")]
    assert cli.main(words) == 0
    said = json.loads(capsys.readouterr().out)
    with np.load(tmp_path / "g.npz", allow_pickle=False) as file:
        assert (said["edges"], said["digest_sha256"]) == (len(file["edges"]), str(file["digest"]))
