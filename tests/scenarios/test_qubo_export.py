"""A QUBO graph for others: as dimod's model, and as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.commands.shell import main as cli
from rig.errors import UsageError
from scenarios.workloads.qubo_mis.graph import Graph
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from scenarios.workloads.qubo_mis.workload import export, graph_digest
from tests.support.raised import raised

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
@settings(deadline=None, max_examples=20)
def test_an_exported_graph_comes_back(tmp_path_factory: Any, nodes: int, density: float, seed: int) -> None:
    path = tmp_path_factory.mktemp("export") / "graph.npz"
    export(nodes, density, seed, path)
    with np.load(path, allow_pickle=False) as file:
        graph = Graph(int(file["nodes"]), file["edges"])
        assert np.array_equal(graph.edges, gnm_edges(nodes, density, seed).edges)
        assert (float(file["density"]), int(file["seed"])) == (density, seed)
        assert str(file["digest"]) == graph_digest(graph, density, seed)


def test_the_same_export_is_the_same_file_and_replaces_the_old_one(tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    export(50, 0.1, 0, first)
    export(50, 0.1, 1, second)
    assert first.read_bytes() != second.read_bytes()
    export(50, 0.1, 0, second)
    assert second.read_bytes() == first.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


@pytest.mark.parametrize("name", [".", "absent/graph.npz", "file/graph.npz"])
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    assert raised(UsageError, export, 10, 0.25, 0, tmp_path / name).field == "out"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(UsageError, match="No space left"):
        export(10, 0.25, 0, tmp_path / "graph.npz")
    assert not list(tmp_path.iterdir())


def test_the_command_tells_digest_and_edges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["workload", "export", "qubo-mis", "50", "0.1", "0", "--out", str(tmp_path / "g.npz"), "--json"]
    assert cli.main(words) == 0
    said = json.loads(capsys.readouterr().out)
    with np.load(tmp_path / "g.npz", allow_pickle=False) as file:
        assert (said["edges"], said["digest_sha256"]) == (len(file["edges"]), str(file["digest"]))
