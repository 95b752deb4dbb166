"""Your own QUBO, from a file of any format, becomes problems whose solutions the rig judges itself."""

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rig.commands.shell.main import main
from rig.errors import DataError, RigError, UsageError
from rig.solving.model import ROWS, Qubo, from_bqm, from_payload, qubo
from scenarios.workloads.qubo.workload import open_workload
from scenarios.workloads.qubo_mis.graph import Graph
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from tests.support.raised import raised

dimod = pytest.importorskip("dimod", reason="extra qubo is not installed")
coo = pytest.importorskip("dimod.serialization.coo")

REAL = Path(__file__).with_name("problems")
SPINS = dimod.BinaryQuadraticModel({"a": 0.5, "b": -1.25, "c": 0.0}, {"ab": 2.0, "bc": -0.75}, 3.0, "SPIN")
NUMBERED = dimod.BinaryQuadraticModel({0: -1.0, 1: 2.5, 2: 0.25}, {(0, 1): -2.0, (1, 2): 4.0}, 0.0, "BINARY")
Q = [[-1.0, -1.0, 0.0], [-1.0, 2.5, 2.0], [0.0, 2.0, 0.25]]
"""The matrix of the numbered model, symmetric."""


def opened(path: Path, **options: Any) -> Qubo:
    (sample,) = open_workload(data=str(path), **options).samples
    assert sample.keep
    return from_payload(sample.payload)


def least(problem: Qubo) -> float:
    return min(problem.cost(np.array(x)) for x in itertools.product((0, 1), repeat=problem.nodes))


def same(problem: Qubo, model: Any) -> bool:
    """Return whether each vector of bits has the cost that dimod computes."""
    bits = model.change_vartype("BINARY", inplace=False)
    order = list(bits.variables)
    vectors = [np.array(x) for x in itertools.product((0, 1), repeat=problem.nodes)]
    return all(np.isclose(problem.cost(x), bits.energy(dict(zip(order, x, strict=True)))) for x in vectors)


def written(model: Any) -> bytes:
    with model.to_file() as file:
        return bytes(file.read())


def as_file(path: Path) -> None:
    path.write_bytes(written(SPINS))


def as_json(path: Path) -> None:
    path.write_text(json.dumps(SPINS.to_serializable()))


def as_coo(path: Path) -> None:
    path.write_text(coo.dumps(NUMBERED, vartype_header=True))


def as_array(path: Path) -> None:
    np.savez(path, Q=np.array(Q))


def text(lines: Iterable[str]) -> Callable[[Path], object]:
    return lambda path: path.write_text("\n".join(lines))


WITH_EXPONENTS = text(["0 0 -1e0", "1 1 25e-1", "2 2 2.5E-1", "0 1 -2", "2 1 4.0"])
FULL = text(f"{i} {j} {Q[i][j]}" for i in range(3) for j in range(3) if Q[i][j])
ROWS_OF_Q = text(" ".join(map(str, row)) for row in Q)
COMMAS = text(",".join(map(str, row)) for row in np.triu(Q) + np.triu(Q, 1))


@pytest.mark.parametrize(("name", "write", "model"), [
    ("own.bqm", as_file, SPINS), ("own.json", as_json, SPINS), ("own.coo", as_coo, NUMBERED),
    ("own.txt", WITH_EXPONENTS, NUMBERED), ("full.coo", FULL, NUMBERED), ("rows.csv", ROWS_OF_Q, NUMBERED),
    ("own.csv", COMMAS, NUMBERED), ("own.npz", as_array, NUMBERED),
])  # fmt: skip
def test_each_form_is_read_like_dimod(tmp_path: Path, name: str, write: Callable[[Path], object], model: Any) -> None:
    write(tmp_path / name)

    assert same(opened(tmp_path / name), model)


def test_an_export_of_the_rig_is_read(tmp_path: Path) -> None:
    assert main(["workload", "export", "qubo-mis", "12", "0.25", "3", "--out", str(tmp_path / "graph.npz")]) == 0

    graph, problem = gnm_edges(12, 0.25, 3), opened(tmp_path / "graph.npz")
    draw = np.random.default_rng(1)
    assert all(problem.cost(x) == graph.cost(x) for x in draw.integers(0, 2, (50, 12)))


def test_d_waves_text_is_read() -> None:
    problem = opened(REAL / "smallestTest.qubo")

    assert (problem.nodes, problem.cost(np.array([1, 0, 1, 1]))) == (4, pytest.approx(3.4 + 2.1 - 2.4 - 3.4 - 3.2 + 1))


def test_a_qplib_maximum_is_a_least_cost() -> None:
    """The best value of all 4096 solutions is 1071, and the cost is the negated value.

    QPLIB's objective is x^T Q x / 2 + b x + q, and its file holds the lower triangle of Q.
    """
    assert least(opened(REAL / "QPLIB_5881_first_12.qplib")) == -1071.0


def test_the_qplib_example_has_its_published_cost(tmp_path: Path) -> None:
    """Furini et al. 2019, appendix B: x^2 + y^2 + z^2 - xy - yz - 0.2 x - 0.4 y - 0.2 z, without its constraints."""
    quadratic = "5\n1 1 2.0\n2 1 -1.0\n2 2 2.0\n3 2 -1.0\n3 3 2.0\n"
    (tmp_path / "a.qplib").write_text(f"! example\nMIPBAND\nQBN # type\nMinimize\n3\n{quadratic}-0.2\n1\n2 -0.4\n0.0\n")

    problem = opened(tmp_path / "a.qplib")
    assert [problem.cost(np.array(x)) for x in ((1, 1, 1), (1, 0, 1), (1, 1, 0))] == pytest.approx([0.2, 1.6, 0.4])


def test_an_edge_list_is_an_independent_set_problem() -> None:
    problem = opened(REAL / "karate.edges")
    edges = [tuple(map(int, line.split())) for line in (REAL / "karate.edges").read_text().splitlines()[1:]]
    chosen = np.zeros(34, int)
    for node in range(33, -1, -1):
        chosen[node] = not any(chosen[u] or chosen[v] for u, v in edges if node in (u, v))
    assert (problem.nodes, problem.cost(chosen)) == (34, -int(chosen.sum()))
    assert problem.cost(np.ones(34)) == -34 + 8 * len(edges)


@pytest.mark.parametrize(("name", "text", "line", "says"), [
    ("a.coo", "0 0 1\n0 1 nan\n", 2, "the coefficient is nan"),
    ("a.coo", "0 0 1\n\n# more\n0 x 2\n", 4, "'x' is not a variable"),
    ("a.coo", "0 0 1\n0 1\n", 2, "has 2 columns"),
    ("a.coo", f"0 0 1\n0 {'9999999999':0>22} 1\n", 2, "is not a variable"),
    ("a.coo", "0 1 1\n0 1 1\n", 2, "repeats 0 1 of line 1"),
    ("a.coo", "0 0 1\n0 1 1\n1 0 2\n", 2, "asymmetric"),
    ("a.coo", "# vartype=TERNARY\n0 0 1\n", 1, "TERNARY is unknown"),
    ("a.csv", "1,2,3\n2,1,0\n", 1, "it is not square"),
    ("a.csv", "1,2,3\n2,1,0\n4,0,1\n", 1, "asymmetric: Q[0,2] is 3 and Q[2,0] is 4"),
    ("a.csv", "1,2\n2,inf\n", 2, "the coefficient is inf"),
    ("a.txt", "0 1\n1 1\n", 2, "an edge of node 1 to itself"),
    ("a.txt", "0 1\n1 2 3\n", 2, "has 3 columns"),
    ("a.qubo", "0 0 1\n", 1, "p qubo"),
    ("a.qubo", "p qubo 0 2 1 1\n0 0 1\n0 2 1\n", 3, "'2' is not a variable: they are whole numbers from 0 to 1"),
    ("a.qubo", "p qubo 0 2 2 1\n0 0 1\n0 1 1\n", 1, "1 nodes and 1 couplers follow"),
    ("a.qubo", "p qubo 0 2 1.7 1\n0 0 1\n0 1 1\n", 1, "1 couplers follow this line, which states 1.7 and 1"),
    ("a.qplib", "P\nQBL\nminimize\n2\n", 2, "the problem type is QBL"),
    ("a.qplib", "P\nQBN\nminimize\n2\n1\n2 1 3\n0\n", 8, "ends too early"),
])  # fmt: skip
def test_an_error_in_a_text_is_named_by_line(tmp_path: Path, name: str, text: str, line: int, says: str) -> None:
    (tmp_path / name).write_text(text)

    told = raised(DataError, open_workload, data=str(tmp_path / name))
    assert told.message.startswith(f"{name}:{line}: ")
    assert says in told.message


def test_damaged_binary_files_are_reported(tmp_path: Path) -> None:
    main(["workload", "export", "qubo-mis", "12", "0.25", "3", "--out", str(tmp_path / "g.npz")])
    with np.load(tmp_path / "g.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "changed.npz", **{**arrays, "edges": arrays["edges"][1:]})
    np.savez(tmp_path / "beyond.npz", nodes=3, edges=[[1, 3]])
    np.savez(tmp_path / "oblong.npz", Q=np.zeros((2, 3)))
    np.savez(tmp_path / "nan.npz", Q=np.array([[np.nan]]))
    (tmp_path / "cut.bqm").write_bytes(written(SPINS)[:60])
    (tmp_path / "other.json").write_text('{"type": "nothing"}')
    (tmp_path / "no.bin").write_bytes(b"\xff\xfe\xfd")
    (tmp_path / "empty.txt").write_text("# nothing\n")

    for name in ("changed.npz", "beyond.npz", "oblong.npz", "nan.npz", "cut.bqm", "other.json", "no.bin", "empty.txt"):
        raised(DataError, open_workload, says=name, data=str(tmp_path / name))
    raised(UsageError, open_workload, says="is not there", data=str(tmp_path / "absent.coo"))


def test_a_non_numeric_coefficient_is_refused() -> None:
    with pytest.raises(DataError, match="the coefficient of b is nan"):
        qubo({"odd": dimod.BinaryQuadraticModel({"a": 1.0, "b": float("nan")}, {}, 0.0, "BINARY")})
    raised(DataError, qubo, {"odd": dimod.BinaryQuadraticModel("BINARY")}, says="empty")
    raised(DataError, qubo, {"odd": {(0, 1): 1.0}}, says="is a dict")


def test_variable_names_keep_their_order() -> None:
    assert qubo({"named": SPINS}).details["variables"] == {"named": ["a", "b", "c"]}
    assert "variables" not in qubo({"numbered": NUMBERED}).details


def test_a_model_survives_its_payload() -> None:
    problem, _ = from_bqm(SPINS)

    assert same(problem, problem.to_bqm())
    assert same(from_payload(problem.payload), SPINS)
    bad = problem.payload.copy()
    bad["v"][-1] = 9
    for payload in (bad, np.zeros(3), np.zeros(0, ROWS), Graph(2, np.array([[0, 1]], np.int32)).to_payload()):
        raised(DataError, from_payload, payload)


def test_targets_come_from_option_or_file(tmp_path: Path) -> None:
    as_coo(tmp_path / "one.coo")
    (tmp_path / "costs.txt").write_text("# best known\none -3.5 by hand\n")

    def targets(**options: Any) -> Any:
        return open_workload(data=str(tmp_path / "one.coo"), **options).details.get("targets")

    assert targets(target=-3.0) == {"given": {"one": -3.0}}
    assert targets(targets=str(tmp_path / "costs.txt")) == {"given": {"one": -3.5}}
    assert targets() is None
    assert "target=COST" in open_workload(data=str(tmp_path / "one.coo")).details["notes"][0]


@pytest.mark.parametrize(("text", "says"), [
    ("one nan", "not a finite"), ("two 3", "no problem"), ("one", "NAME COST"), ("one -3\none -2", "in an earlier"),
])  # fmt: skip
def test_a_wrong_file_of_costs_is_reported(tmp_path: Path, text: str, says: str) -> None:
    as_coo(tmp_path / "one.coo")
    (tmp_path / "costs.txt").write_text(text)

    raised(RigError, open_workload, says=says, data=str(tmp_path / "one.coo"), targets=str(tmp_path / "costs.txt"))


def test_computed_targets_belong_to_the_same_graph(tmp_path: Path) -> None:
    main(["workload", "export", "qubo-mis", "12", "0.25", "3", "--out", str(tmp_path / "g.npz")])
    assert main(["targets", "12", "0.25", "3", "4", "--seconds", "0.1", "--out", str(tmp_path / "t.json")]) == 0

    found = open_workload(data=str(tmp_path / "g.npz"), targets=str(tmp_path / "t.json")).details["targets"]
    assert found["specified"] == {"g": least(opened(tmp_path / "g.npz"))}


def test_a_folder_is_a_set_of_problems(tmp_path: Path) -> None:
    as_coo(tmp_path / "one.coo")
    as_file(tmp_path / "two.bqm")

    found = open_workload(data=str(tmp_path))
    assert [sample.id for sample in found.samples] == ["one", "two"]
    raised(UsageError, open_workload, says="several problems", data=str(tmp_path), target=1.0)
