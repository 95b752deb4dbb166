"""Targets of unpublished problems: computed into a file, verified, and used in a measurement."""

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drivers.devices.cpu.mis import targets_command
from rig.commands.shell import main as cli
from rig.errors import DataError, UsageError
from rig.recording.disk.files import regular, replacing, write_whole
from rig.types import Issue, Rules, Workload
from scenarios.optimization import optimization, stop_costs
from scenarios.workloads.asc import workload as asc
from scenarios.workloads.qubo_mis.graph import to_hex
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from scenarios.workloads.qubo_mis.targets import Target, best_known, digest, read_rows, write_rows
from scenarios.workloads.qubo_mis.workload import open_workload
from tests.support.raised import Capture, Patch, raised

IDS = [f"mis-n20-d0.25-s{seed}" for seed in (5, 6)]


def row(seed: int, **changes: Any) -> Target:
    """Return a true row of a problem of 20 nodes: the single node 0."""
    made = Target(20, 0.25, seed, -1, to_hex([1] + [0] * 19), digest(gnm_edges(20, 0.25, seed)), "by hand")
    return replace(made, **changes)


def opened(path: Path | None, seeds: str = "5-6") -> Workload:
    return open_workload(nodes=20, density=0.25, seeds=seeds, targets=str(path) if path else "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "targets.json"


# ---- a measurement's targets ----------------------------------------------------------------


def test_targets_of_a_file_keep_their_names(file: Path) -> None:
    tabu = row(6, name="specified", method=targets_command.TABU, versions="dwave-samplers 1.6.0")
    write_rows([row(5), row(6), tabu], file)
    details = opened(file).details
    assert details["targets_proven"] == {}
    assert details["targets"] == {"best_known": dict.fromkeys(IDS, -1), "specified": {IDS[1]: -1}}
    assert details["targets_by"]["specified"] == [f"{targets_command.TABU} (dwave-samplers 1.6.0)"]
    assert details["targets_file"]["name"] == "targets.json"


def test_proven_optima_are_reported(file: Path) -> None:
    write_rows([row(5, proven=targets_command.PROOF), row(6)], file)
    assert opened(file).details["targets_proven"] == {IDS[0]: targets_command.PROOF}


def test_the_best_known_is_the_better_of_two_tables(file: Path) -> None:
    write_rows([replace(row(5), nodes=50, density=0.1, seed=0, certificate="80" + "00" * 6,
                        graph_sha256=digest(gnm_edges(50, 0.1, 0)))], file)  # fmt: skip
    known = best_known(50, 0.1, 0)
    assert known is not None
    details = open_workload(nodes=50, density=0.1, seeds="0", targets=str(file)).details
    assert details["targets"]["best_known"] == {"mis-n50-d0.1-s0": known.cost}


def test_a_proof_outranks_tabu(file: Path) -> None:
    tabu = row(5, name="specified", method=targets_command.TABU)
    write_rows([tabu, row(5, cost=-2, certificate="90" + "00" * 2, proven=targets_command.PROOF)], file)
    targets = opened(file, "5").details["targets"]
    assert targets == {"best_known": {IDS[0]: -2}, "specified": {IDS[0]: -2}, "tabu": {IDS[0]: -1}}


def test_proven_published_problems_have_a_specified_target() -> None:
    details = open_workload(nodes=25, density=0.1).details
    assert details["targets"]["specified"] == details["targets"]["best_known"]
    assert "specified" not in open_workload(nodes=1000, density=0.01, seeds="0").details["targets"]


def test_a_wrong_row_is_named(file: Path) -> None:
    write_rows([row(5), row(6, name="specified", cost=-2)], file)
    assert opened(file, "5").details["targets"]["best_known"], "only what is used is verified"
    raised(DataError, opened, file, says=r"the row specified of n 20, density 0\.25, seed 6.*cost -2 does not fit")


@pytest.mark.parametrize(("rows", "says"), [
    ([{"nodes": "20"}], "targets"), ([row(5, name="official")], "official"),
    ([row(5, name="Best Known")], "'Best Known'"), ([row(5), row(5)], "is given twice"),
])  # fmt: skip
def test_a_malformed_target_file_is_refused(file: Path, rows: list[Any], says: str) -> None:
    if isinstance(rows[0], Target):
        write_rows(rows, file)
    else:
        file.write_text(json.dumps({"version": 1, "targets": rows}))
    assert says in raised(DataError, opened, file, says="is not a table of targets").message


def test_a_missing_file_is_refused(file: Path) -> None:
    raised(DataError, opened, file, says="No such file")


def test_an_unknown_target_names_the_command(file: Path) -> None:
    write_rows([row(5)], file)
    (note,) = opened(file).details["notes"]
    assert "rig targets 20 0.25 6 --out" in note
    (note,) = opened(None).details["notes"]
    assert "`rig targets 20 0.25 5 6 --out FILE.json`" in note
    assert "notes" not in open_workload(nodes=50, density=0.1).details


# ---- the target that ends a solve -----------------------------------------------------------


def test_a_solve_stops_near_the_specified_target_first(file: Path) -> None:
    write_rows([row(5), row(6), row(6, name="specified", cost=-2, certificate="90" + "00" * 2)], file)
    if 3 in {int(v) for u, v in gnm_edges(20, 0.25, 6).edges.tolist() if u == 0}:
        pytest.fail("nodes 0 and 3 of this graph are no longer apart")
    assert stop_costs(opened(file), 0.5) == {IDS[0]: -0.5, IDS[1]: -1.0}


def test_a_solve_stops_near_an_official_target() -> None:
    workload = open_workload(nodes=50, density=0.1, seeds="0")
    official = workload.samples[0].target_cost
    assert official is not None and stop_costs(workload, 0.0) == {workload.samples[0].id: official}


# ---- rig targets ----------------------------------------------------------------------------


def rig(capsys: Capture, *words: str, code: int = 0) -> str:
    assert cli.main(["targets", *words]) == code
    out, err = capsys.readouterr()
    return out + err


@pytest.fixture
def quick_tabu(monkeypatch: Patch) -> None:
    """Give the specified method fewer reads and restarts, because in full it takes half a minute."""
    pytest.importorskip("dwave.samplers", reason="extra qubo is not installed")
    monkeypatch.setattr(targets_command, "specified_tabu", partial(targets_command.specified_tabu, reads=2, restarts=1))


@pytest.mark.usefixtures("quick_tabu")
def test_each_method_adds_rows_that_a_workload_uses(capsys: Capture, file: Path) -> None:
    pytest.importorskip("numba", reason="extra qubo is not installed")
    for method in ("exact", "tabu", "search"):
        rig(capsys, "20", "0.25", "5", "6", "--seconds", "0.05", "--method", method,
            "--out", str(file))  # fmt: skip
    found = read_rows(file)
    assert [(r.seed, r.name) for r in found] == [(s, n) for s in (5, 6) for n in ("best_known", "specified")]
    assert all(r.proven for r in found if r.name == "specified"), "a proof outranks the Tabu that came after it"
    details = opened(file).details
    assert details["targets"]["specified"] == details["targets"]["best_known"]
    assert set(details["targets_proven"]) == set(IDS)
    assert "notes" not in details


@pytest.mark.usefixtures("quick_tabu")
@pytest.mark.parametrize(("nodes", "seconds", "rows"), [
    ("20", "20", [("specified", targets_command.PROOF)]),
    ("50", "0.05", [("best_known", targets_command.SEARCH), ("specified", targets_command.TABU)]),
])  # fmt: skip
def test_by_default_the_size_decides_between_proof_and_tabu(
    capsys: Capture, file: Path, nodes: str, seconds: str, rows: list[tuple[str, str]]
) -> None:
    pytest.importorskip("numba", reason="extra qubo is not installed")
    rig(capsys, nodes, "0.25", "5", "--seconds", seconds, "--out", str(file))
    assert [(r.name, r.method) for r in read_rows(file)] == rows
    benchmark = open_workload(nodes=int(nodes), density=0.25, seeds="5", targets=str(file)).benchmark
    assert benchmark is not None
    (target,) = benchmark.parameters["target"].found
    assert target in benchmark.parameters["target"].allowed


def test_seeds_drawn_for_targets_are_evaluation_seeds(capsys: Capture, file: Path) -> None:
    pytest.importorskip("numba", reason="extra qubo is not installed")
    rig(capsys, "10", "0.25", "--draw", "5", "--seconds", "2", "--out", str(file))
    drawn = [r.seed for r in read_rows(file)]
    opened_ = open_workload(nodes=10, density=0.25, draw=5, targets=str(file))
    assert sorted(opened_.details["seeds"]) == drawn
    assert opened_.details["seed_kind"] == "evaluation (drawn)"
    assert opened_.benchmark is not None and opened_.benchmark.parameters["target"].found == ("proven",)
    error = raised(UsageError, open_workload, nodes=10, density=0.25, draw=6, targets=str(file), says="5 drawn seeds")
    assert "--draw 6" in error.remedy
    assert "names seeds and draws" in rig(capsys, "10", "0.25", "7", "--draw", "5", code=3)


def test_an_unknown_method_is_refused(capsys: Capture) -> None:
    assert "Give one of size, search, exact, tabu" in rig(capsys, "20", "0.25", "5", "--method", "luck", code=3)


def test_a_line_says_where_the_table_is_better(capsys: Capture) -> None:
    pytest.importorskip("numba", reason="extra qubo is not installed")
    said = rig(capsys, "2500", "0.01", "0", "--seconds", "0.3", "--method", "search")
    assert "which is better" in said
    said = rig(capsys, "20", "0.25", "7", "--seconds", "0.3", "--method", "search")
    assert "None" not in said
    assert "no other target is known" in said


def test_only_the_named_problems_are_verified(capsys: Capture) -> None:
    assert rig(capsys, "50", "0.1", "0", "1", "--verify").startswith("2 certificates checked")
    assert "no row for n 51" in rig(capsys, "51", "0.1", "0", "--verify", code=3)
    assert "not a problem of the form" in rig(capsys, "50", "0.1", "--verify", code=3)


def test_a_foreign_file_is_not_replaced(capsys: Capture, file: Path) -> None:
    file.write_text("my diary")
    assert "is not a table of targets" in rig(capsys, "20", "0.25", "5", "--out", str(file), code=DataError.exit_code)
    assert file.read_text() == "my diary"


# ---- where one file may be written ----------------------------------------------------------


@pytest.mark.parametrize("name", ["pipe", ".", "dangling", "looped"])
def test_only_regular_files_are_replaced(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (tmp_path / "looped").symlink_to(tmp_path / "looped")
    before = (tmp_path / name).lstat()
    assert raised(UsageError, write_whole, tmp_path / name, b"x").field == "out"
    assert (tmp_path / name).lstat().st_mode == before.st_mode


def test_a_link_to_a_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600
    assert regular(tmp_path / "link") == (tmp_path / "real").resolve()


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "real") as out:
        out.write(b"new" + bytes([1 // 0]))
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("real", b"old")]


def test_a_set_found_too_late_states_the_delay() -> None:
    others = {"official": None, "best_known": None}
    late = replace(row(5), found_s=0.037)
    assert targets_command._line(late, others, 0.01).endswith("found after 0.037 s, more than the 0.01 s asked for")
    assert targets_command._line(late, others, 1.0).endswith("found after 0.037 s")


# ---- the scenario ------------------------------------------------------------------------------

FREE = Rules("test", "any", "a test", submittable=False, idle_s=0.0)


def test_a_gap_without_a_target_is_refused_early() -> None:
    workload = open_workload(nodes=20, density=0.25, seeds="5")
    optimization(workload, FREE)
    error = raised(UsageError, optimization, workload, FREE, to_gap=0.05, says="has no target cost")
    assert "rig targets 20 0.25 5 --out" in error.remedy


def test_a_workload_without_problems_is_refused_early() -> None:
    with pytest.raises(UsageError, match="workload asc has samples to classify"):
        optimization(asc.open_workload(samples=2, audio_hz=1000), FREE)


def test_solves_end_at_the_target_of_the_file(file: Path) -> None:
    write_rows([row(5, name="specified")], file)
    steps = optimization(opened(file, "5"), FREE, to_gap=0.0, solves=2)
    budgets = [step.budget for step in steps if isinstance(step, Issue)]
    assert [b.stop_at_cost for b in budgets if b is not None] == [-1.0, -1.0]
