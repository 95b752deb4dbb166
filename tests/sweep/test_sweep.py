"""A sweep records each cell of its grid once, despite interruptions, and makes a table of what exists."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rig.sweep.cells
import rig.sweep.rows
from rig.analysis.evaluate import evaluate
from rig.errors import (
    DeviceError,
    IntegrityError,
    Interrupted,
    MissingExtraError,
    RigError,
    SetupError,
    StoreError,
    UsageError,
)
from rig.recording.layout import EVENTS, SEAL
from rig.recording.reader import open_run
from rig.session.locks import claimed, device_lock, locked
from rig.session.measure import measure
from rig.session.setup import Request
from rig.sweep.cells import Outcome, Task, perform
from rig.sweep.grid import Cell, cells_of, digest
from rig.sweep.progress import Progress, span
from rig.sweep.rows import content_digest, estimator_sources, figures_by, row_path
from rig.sweep.store import frozen, place_of
from tests.support.paths import ROOT
from tests.support.sweep_bench import QUICK, aside, column, quick, rows, seals, states, sweep

GRID = ("--vary", "inference_s=0.01,0.02", "--repetitions", "2")
FAILS = ("--vary", "fail_at=0,2", "--option", "fail=raise")


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURORIG_RUNTIME_DIR", str(tmp_path / "locks"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A completed sweep of four cells, only for reading."""
    out = tmp_path_factory.mktemp("whole") / "sweep"
    assert quick(out, *GRID) == 0
    return out


def test_the_table_is_printed_with_what_varies_the_verdict_and_the_main_figures(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(whole, tmp_path / "sweep")
    capsys.readouterr()
    assert sweep(str(copy), "--table") == 0
    printed = capsys.readouterr().out
    assert "inference_s" in printed and "Energy per inference" in printed
    lines = [line.split() for line in printed.splitlines() if " VALID " in line or " INVALID " in line]
    assert sorted(line[0] for line in lines) == ["0.01", "0.01", "0.02", "0.02"]
    assert all("±" in line for line in lines)


@pytest.fixture
def copy(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same sweep with its rows, for tests that damage it."""
    shutil.copytree(os.environ["NEURORIG_CACHE_DIR"], tmp_path / "cache")
    monkeypatch.setenv("NEURORIG_CACHE_DIR", str(tmp_path / "cache"))
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def cells(out: Path) -> list[Cell]:
    return cells_of(entry.grid for entry in frozen(out))


def go_on(out: Path, *words: str) -> int:
    return sweep(str(out), "--jobs", "0", *words)


# ---- what is there at the end ---------------------------------------------------------------


def test_each_cell_is_a_run_directory_that_the_rig_reads(whole: Path) -> None:
    found = [open_run(place_of(whole, cell)) for cell in cells(whole)]
    assert [run.start.run_id for run in found] == [cell.key for cell in cells(whole)]
    assert all(run.sealed and run.error is None for run in found)
    assert sorted(p.name for p in whole.iterdir() if not p.name.startswith(".")) == [
        "cells", "pending", "runs.csv", "sweep.json", *(["sweep.svg"] if (whole / "sweep.svg").exists() else []),
        "table.csv",
    ]  # fmt: skip


def test_the_table_says_what_evaluate_says(whole: Path) -> None:
    for cell, row in zip(cells(whole), rows(whole), strict=True):
        result = evaluate(open_run(place_of(whole, cell)))
        assert (row["cell"], row["state"], row["verdict"]) == (cell.key, "done", result.validity.verdict)  # type: ignore[union-attr]
        for key, q in result.quantities.items():
            name = str(key)
            if key.of_whole:
                assert row[name] == repr(float(q.value))
                assert row[f"{name}.half_width_95"] in (repr(float(q.half_width())), "")
        assert not any(name.startswith(("phase.", "rail.", "trimmed.")) for name in row)


def test_rows_stand_in_the_order_of_the_grid(whole: Path) -> None:
    assert list(zip(column(whole, "inference_s"), column(whole, "repetition"), strict=True)) == [
        ("0.01", "0"), ("0.01", "1"), ("0.02", "0"), ("0.02", "1"),
    ]  # fmt: skip


def test_every_row_is_tied_to_its_recording(whole: Path) -> None:
    lines = (whole / "runs.csv").read_text().splitlines()[1:]
    ties = {line.split(",")[1]: line.split(",")[3] for line in lines}
    assert ties == {f"cells/{key}": seal.split()[0] for key, seal in seals(whole).items()}


def test_repetitions_of_a_simulated_cell_differ_by_their_seeds(whole: Path) -> None:
    assert len(set(column(whole, "content_sha256"))) == 4


def test_the_command_in_a_recording_records_the_same_again(whole: Path, tmp_path: Path) -> None:
    cell = cells(whole)[1]
    first = open_run(place_of(whole, cell))
    assert first.start.argv == cell.command()
    again = open_run(measure(cell.request(tmp_path / "again"), quiet=True))
    assert again.digest != first.digest
    assert content_digest([again]) == content_digest([first])


def test_the_table_is_rebuilt_to_the_byte(copy: Path) -> None:
    before = {name: (copy / name).read_bytes() for name in ("table.csv", "runs.csv")}
    for name in before:
        (copy / name).unlink()
    for cell in cells(copy)[:2]:
        row_path(place_of(copy, cell), cell).unlink()
    assert go_on(copy, "--table") == 0
    assert {name: (copy / name).read_bytes() for name in before} == before


def test_a_row_is_not_computed_twice(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.sweep.rows.row_of", None)
    assert go_on(copy, "--table") == 0
    assert states(copy) == ["done"] * 4


def test_a_row_of_other_estimators_is_computed_anew(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures_by()
    monkeypatch.setattr("rig.sweep.rows.figures_by", lambda: "newer")
    (copy / "table.csv").unlink()
    go_on(copy, "--table")
    assert all(row_path(place_of(copy, cell), cell).is_file() for cell in cells(copy))
    assert all(column(copy, "active_power_w"))


def test_all_columns_are_there_when_asked_for(copy: Path) -> None:
    go_on(copy, "--table", "--all-columns")
    assert "phase.inference.rail.core.dynamic_power_w.half_width_95" in rows(copy)[0]


def test_json_says_what_became_of_the_cells(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go_on(copy, "--json")
    said = json.loads(capsys.readouterr().out)
    assert (said["cells"], said["done"], said["failed"], said["open"], said["failures"]) == (4, 4, 0, 0, [])


# ---- going on -------------------------------------------------------------------------------


def test_going_on_with_a_whole_sweep_records_nothing(copy: Path) -> None:
    before = seals(copy)
    assert go_on(copy) == 0
    assert quick(copy, *GRID) == 0
    assert seals(copy) == before
    assert aside(copy) == []


def lose(cell: Path) -> None:
    shutil.rmtree(cell)


def unseal(cell: Path) -> None:
    (cell / SEAL).unlink()


def cut(cell: Path) -> None:
    events = (cell / EVENTS).read_bytes()
    (cell / EVENTS).write_bytes(events[: len(events) // 2])


def blank(cell: Path) -> None:
    trace = cell / "traces" / "core.arrows"
    trace.write_bytes(b"\0" * (trace.stat().st_size - 1))


def empty(cell: Path) -> None:
    lose(cell)
    cell.mkdir()


@pytest.mark.parametrize("spoil", [lose, unseal, cut, blank, empty])
def test_a_cell_that_is_torn_is_set_aside_and_recorded_again(copy: Path, spoil: Callable[[Path], None]) -> None:
    before = seals(copy)
    table = (copy / "table.csv").read_bytes()
    spoilt = cells(copy)[2]
    spoil(place_of(copy, spoilt))
    assert go_on(copy) == 0
    assert aside(copy) == ([] if spoil is lose else [f"{spoilt.key}.1"])
    assert {key for key, seal in seals(copy).items() if seal != before[key]} == {spoilt.key}
    assert (copy / "table.csv").read_bytes() == table


def test_two_cells_that_were_exchanged_are_recorded_again(copy: Path) -> None:
    one, other = (place_of(copy, cell) for cell in cells(copy)[:2])
    one.rename(copy / "kept")
    other.rename(one)
    (copy / "kept").rename(other)
    table = (copy / "table.csv").read_bytes()
    assert go_on(copy) == 0
    assert aside(copy) == sorted([f"{one.name}.1", f"{other.name}.1"])
    assert (copy / "table.csv").read_bytes() == table


def pend(out: Path, cell: Cell) -> Path:
    """Move a recording back to the state just before it was done."""
    work = out / "pending" / cell.key / cell.key
    work.parent.mkdir(parents=True)
    place_of(out, cell).rename(work)
    return work


def test_a_recording_that_only_lacked_its_place_is_not_repeated(copy: Path) -> None:
    before = seals(copy)
    cell = cells(copy)[0]
    row_path(pend(copy, cell), cell).unlink()
    assert go_on(copy) == 0
    assert seals(copy) == before
    assert not list((copy / "pending").iterdir())
    assert aside(copy) == []


def test_a_recording_that_was_broken_off_is_kept_and_done_again(copy: Path) -> None:
    cell = cells(copy)[0]
    unseal(pend(copy, cell))
    assert go_on(copy) == 0
    assert aside(copy) == [f"{cell.key}.1"]
    assert states(copy) == ["done"] * 4


def test_what_is_set_aside_is_never_overwritten(copy: Path) -> None:
    for _ in range(2):
        unseal(place_of(copy, cells(copy)[0]))
        go_on(copy)
    assert aside(copy) == [f"{cells(copy)[0].key}.{n}" for n in (1, 2)]


def test_another_grid_is_refused_by_its_difference(copy: Path) -> None:
    with pytest.raises(UsageError, match=r"vary.inference_s was 0.01,0.02, is 0.01,0.03"):
        quick(copy, "--vary", "inference_s=0.01,0.03", "--repetitions", "2")
    assert len(frozen(copy)) == 1


def test_a_grid_grows_by_the_cells_that_are_new(copy: Path) -> None:
    before = seals(copy)
    wider = ("--vary", "inference_s=0.01,0.02", "--vary", "rate_hz=500", "--repetitions", "1")
    assert quick(copy, *wider, "--extend") == 0
    assert len(seals(copy)) == 6
    assert before.items() <= seals(copy).items()
    assert column(copy, "rate_hz") == ["", "", "", "", "500", "500"]
    assert quick(copy, *GRID) == quick(copy, *wider) == 0


def test_a_grid_that_was_altered_is_refused(copy: Path) -> None:
    text = (copy / "sweep.json").read_text()
    (copy / "sweep.json").write_text(text.replace('"0.02"', '"0.03"'))
    with pytest.raises(IntegrityError, match="digest of a grid does not fit"):
        go_on(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "neurorig-sweep/9", "grids": []}'])
def test_a_sweep_that_cannot_be_read_says_so(copy: Path, text: str) -> None:
    (copy / "sweep.json").write_text(text)
    with pytest.raises(StoreError):
        go_on(copy)


# ---- a directory that others made -----------------------------------------------------------


@pytest.mark.parametrize("name", ["table.csv", "runs.csv", "sweep.svg"])
def test_no_file_outside_is_written_through_a_link(copy: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(other)
    with pytest.raises(StoreError, match="leads out of"):
        go_on(copy, "--table", "--plot", "active_power_w")
    assert other.read_text() == "mine"


@pytest.mark.parametrize("name", ["cells", "pending", "broken", "failed"])
def test_nothing_is_recorded_or_moved_outside_through_a_link(tmp_path: Path, name: str) -> None:
    out, other = tmp_path / "s", tmp_path / "other"
    quick(out, *FAILS)
    cell = cells(out)[0]
    shutil.rmtree(place_of(out, cell)) if name in ("cells", "pending") else unseal(place_of(out, cell))
    (out / name).rename(other) if (out / name).exists() else other.mkdir()
    before = sorted(other.rglob("*"))
    (out / name).symlink_to(other)
    with pytest.raises(StoreError, match=r"(leads out of|is a link)"):
        go_on(out, "--retry-failed")
    assert sorted(other.rglob("*")) == before


@pytest.mark.parametrize("name", ["cells", "pending", "broken"])
def test_a_link_to_nowhere_is_said_to_be_one(copy: Path, tmp_path: Path, name: str) -> None:
    unseal(place_of(copy, cells(copy)[0]))
    if (copy / name).exists():
        shutil.rmtree(copy / name)
    (copy / name).symlink_to(copy / "nowhere")
    with pytest.raises(StoreError, match=r"(cannot be written|is a link)"):
        go_on(copy)


def refrozen(out: Path, change: Callable[[Any], None]) -> None:
    """Change the grid of a sweep, and its digest with it."""
    document = json.loads((out / "sweep.json").read_text())
    (entry,) = document["grids"]
    change(entry["grid"])
    entry["grid_sha256"] = digest(entry["grid"])
    (out / "sweep.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    "change",
    [
        lambda grid: grid["asked"].update(devices=["another"]),
        lambda grid: grid.update(devices={}),
        lambda grid: grid.update(seeds={}),
        lambda grid: grid["options"].update(dict.fromkeys(grid["seeds"]["mock"], "x")),
        lambda grid: grid["asked"].update(repetitions=10**15),
        lambda grid: grid["asked"].update(repetitions=-1),
    ],
)
def test_a_grid_that_contradicts_itself_is_refused(copy: Path, change: Callable[[Any], None]) -> None:
    refrozen(copy, change)
    with pytest.raises(RigError, match="grid") as caught:
        go_on(copy, "--table")
    assert caught.value.remedy


def altered(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)


def forget_rows(out: Path) -> None:
    for cell in cells(out):
        row_path(place_of(out, cell), cell).unlink()


@pytest.mark.parametrize(("file", "kept"), [("replies.arrows", True), ("traces/core.arrows", False)])
def test_a_byte_that_changed_is_noticed_when_the_table_is_made(copy: Path, file: str, kept: bool) -> None:
    altered(place_of(copy, cells(copy)[0]) / file)
    if not kept:
        forget_rows(copy)
    with pytest.raises(IntegrityError, match="differs from what was recorded"):
        go_on(copy, "--table")
    assert aside(copy) == []


def test_a_byte_that_changed_has_its_cell_measured_again(copy: Path) -> None:
    altered(place_of(copy, cells(copy)[0]) / "replies.arrows")
    assert go_on(copy) == 0
    assert aside(copy) == [f"{cells(copy)[0].key}.1"]


def test_a_sweep_whose_cells_are_removed_while_it_runs_has_not_succeeded(tmp_path: Path) -> None:
    file, out = tmp_path / "removing.py", tmp_path / "sweep"
    file.write_text(REMOVING.format(removed=str(out / "cells")))
    words = ("--device", f"{file}:open_device", "--meter", "none", "--option", "samples=1", "--option", "idle_s=0")
    with pytest.raises(SetupError, match="1 of 2 cells are missing now"):
        sweep(*words, "--vary", "level=1,2", "--out", str(out), "--jobs", "0")


def test_no_figure_is_taken_from_what_others_can_hand_over(copy: Path) -> None:
    table = (copy / "table.csv").read_bytes()
    for cell in cells(copy):
        assert not (place_of(copy, cell) / "derived").exists()
        kept = row_path(place_of(copy, cell), cell)
        assert kept.parent.stat().st_mode & 0o077 == 0
        (place_of(copy, cell) / "derived").mkdir()
        (place_of(copy, cell) / "derived" / "sweep-row.json").write_bytes(kept.read_bytes().replace(b'"pass', b'"fail'))
    assert go_on(copy, "--table") == 0
    assert (copy / "table.csv").read_bytes() == table


def test_a_cache_that_others_can_write_is_refused(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / "rows").chmod(0o777)
    with pytest.raises(SetupError, match="can be written by others"):
        go_on(copy, "--table")


# ---- cells that fail ------------------------------------------------------------------------


def test_a_cell_that_fails_is_noted_and_the_others_are_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "s"
    assert quick(out, *FAILS) == DeviceError.exit_code
    assert states(out) == ["done", "failed"]
    assert column(out, "error")[1].startswith("DeviceError: the device failed")
    failed = cells(out)[1]
    note = json.loads((out / "failed" / f"{failed.key}.json").read_text())
    assert note["recording"] == f"broken/{failed.key}.1"
    recorded = open_run(out / note["recording"]).error
    assert recorded is not None and note["error"]["message"] == recorded.message
    assert note["error"]["remedy"].endswith(f"Recorded until then: {out / note['recording']}")
    assert "--retry-failed" in capsys.readouterr().out


def test_a_failed_cell_is_tried_again_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "s"
    quick(out, *FAILS)
    before = (out / "table.csv").read_bytes()
    assert go_on(out) == DeviceError.exit_code
    assert len(aside(out)) == 1
    assert go_on(out, "--retry-failed") == DeviceError.exit_code
    assert len(aside(out)) == 3
    assert (out / "table.csv").read_bytes() == before

    def mended(request: Request, quiet: bool) -> Path:
        options = tuple(text.replace("fail_at=2", "fail_at=0") for text in request.options)
        return measure(replace(request, options=options), quiet)

    monkeypatch.setattr("rig.session.measure.measure", mended)
    assert go_on(out, "--retry-failed") == 0
    assert states(out) == ["done", "done"]


def test_options_out_of_range_fail_their_cell_alone(tmp_path: Path) -> None:
    assert quick(tmp_path / "s", "--vary", "drop=0,5") == UsageError.exit_code
    assert states(tmp_path / "s") == ["done", "failed"]
    assert "drop is 5.0" in column(tmp_path / "s", "error")[1]


def test_a_disk_that_takes_nothing_is_no_fault_of_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(request: Request, quiet: bool) -> Path:
        raise StoreError("no space left")

    monkeypatch.setattr("rig.session.measure.measure", full)
    monkeypatch.setattr("rig.sweep.cells._writable", lambda folder: False)
    with pytest.raises(StoreError, match="no space left"):
        quick(tmp_path / "s", *GRID)
    monkeypatch.undo()
    monkeypatch.setenv("NEURORIG_RUNTIME_DIR", str(tmp_path / "locks"))
    assert go_on(tmp_path / "s") == 0


def test_a_recording_that_contradicts_itself_is_done_and_says_why(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def contradictory(run: object) -> None:
        raise ValueError("spans run backwards")

    monkeypatch.setattr("rig.analysis.evaluate.evaluate", contradictory)
    forget_rows(copy)
    go_on(copy, "--table")
    assert states(copy) == ["done"] * 4
    assert column(copy, "error") == ["ValueError: spans run backwards"] * 4


def test_an_interrupted_cell_is_kept_aside_and_open(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cells(copy)[0]
    shutil.rmtree(place_of(copy, cell))

    def interrupted(request: Request, quiet: bool) -> Path:
        assert request.out is not None
        request.out.mkdir()
        raise Interrupted("interrupted")

    monkeypatch.setattr("rig.session.measure.measure", interrupted)
    with pytest.raises(Interrupted, match=r"3 of 4 cells done\. Continue with: rig sweep"):
        go_on(copy)
    assert aside(copy) == [f"{cell.key}.1"]
    assert sorted(states(copy)) == ["done", "done", "done", "open"]


# ---- one at a time --------------------------------------------------------------------------


def test_two_sweeps_never_work_on_one_directory(copy: Path) -> None:
    with locked(copy / ".lock", "the sweep"), pytest.raises(SetupError, match=f"in use by process {os.getpid()}"):
        go_on(copy)


def test_a_device_is_measured_by_one_process_at_a_time(tmp_path: Path) -> None:
    with device_lock("bench"):
        with pytest.raises(SetupError, match="device bench is in use"), device_lock("bench", wait=False):
            pass
        with device_lock("another", wait=False):
            pass
    with device_lock("bench", wait=False):
        pass


def test_one_file_under_two_names_is_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        device_lock("own.py:f"),
        pytest.raises(SetupError, match="in use"),
        device_lock(f"{tmp_path}/x/../own.py:f", wait=False),
    ):
        pass


def test_a_waiting_process_says_for_whom(tmp_path: Path) -> None:
    said: list[str] = []

    class Heard(Exception): ...

    def say(text: str) -> None:
        said.append(text)
        raise Heard

    with locked(tmp_path / "l", "device bench"), pytest.raises(Heard), locked(tmp_path / "l", "device bench", say=say):
        pass
    assert said == [f"waiting for device bench, in use by process {os.getpid()}"]


def test_a_claim_leaves_nothing_behind_and_holds_against_its_own_remains(tmp_path: Path) -> None:
    with claimed(tmp_path / "desk", "cell") as desk, (desk / ".lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not (tmp_path / "desk").exists()
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / ".lock").touch()
    with claimed(tmp_path / "desk", "cell"):
        pass
    assert not (tmp_path / "desk").exists()


def test_a_runtime_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(SetupError, match="belongs to user"), device_lock("bench"):
        pass


def test_a_cell_that_another_process_has_done_meanwhile_is_done(whole: Path) -> None:
    before = seals(whole)
    assert perform(Task("cell", str(whole), cells(whole)[0])).state == "done"
    assert seals(whole) == before


def test_a_place_that_is_taken_meanwhile_is_left(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cells(copy)[0]
    before = seals(copy)
    shutil.copytree(place_of(copy, cell), copy / "pending" / cell.key / cell.key)
    monkeypatch.setattr(rig.sweep.cells, "state_of", lambda folder, cell: "open")
    assert perform(Task("cell", str(copy), cell, rows=True)).state == "done"
    assert seals(copy) == before
    assert aside(copy) == [f"{cell.key}.1"]


REMOVING = """
import shutil
from rig.engine.blocking_device import blocking
def open_device(*, level: int = 1):
    shutil.rmtree({removed!r}, ignore_errors=True)
    return blocking(lambda sample: level)
"""
EXCLUSIVE = """
from rig.engine.blocking_device import blocking
def open_device(*, level: int = 1):
    return blocking(lambda sample: level)
"""


def test_a_device_without_a_plant_is_locked_while_it_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(EXCLUSIVE)
    words = ["--device", f"{file}:open_device", "--meter", "none", "--option", "samples=1", "--option", "idle_s=0"]
    words += ["--vary", "level=1,2", "--out", str(tmp_path / "s"), "--jobs", "0", "--no-wait"]
    with device_lock(f"{file}:open_device"), pytest.raises(SetupError, match="is in use"):
        sweep(*words)
    assert sweep(*words) == 0
    assert all(cell.exclusive for cell in cells(tmp_path / "s"))
    shutil.rmtree(place_of(tmp_path / "s", cells(tmp_path / "s")[0]))
    with device_lock(f"{file}:open_device"), pytest.raises(SetupError, match="is in use"):
        sweep(*words)
    assert sweep(*words) == 0


def test_a_session_for_each_cell_when_asked(tmp_path: Path) -> None:
    assert quick(tmp_path / "s", "--mode", "session") == 0
    (row,) = rows(tmp_path / "s")
    assert (row["state"], bool(row["active_power_w"]), bool(row["accuracy"])) == ("done", True, True)
    assert len((tmp_path / "s" / "runs.csv").read_text().splitlines()) == 1 + 3


def test_figures_are_by_every_estimator_and_by_nothing_else_of_the_sweep() -> None:
    names = {path.relative_to(ROOT / "rig").as_posix() for path in estimator_sources()}
    assert {
        "types.py",
        "analysis/evaluate.py",
        "analysis/power/model/noise.py",
        "recording/traces/conversion.py",
    } <= names
    assert {name for name in names if name.startswith("sweep/")} == {"sweep/rows.py"}


# ---- how long the rest may take -------------------------------------------------------------


def test_what_is_left_is_reckoned_from_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr("rig.sweep.progress.time.monotonic", lambda: now_s[0])
    progress = Progress(8, ["a", "b", "c", "d"], 0)
    assert progress.left_s() is None
    now_s[0] = 6.0
    progress.note(Outcome("a", "done"))
    progress.note(Outcome("b", "failed"))
    assert progress.left_s() == pytest.approx(6.0)


@pytest.mark.parametrize(("seconds", "text"), [(4.2, "4 s"), (600, "10 min"), (9000, "2.5 h")])
def test_times_are_said_as_people_do(seconds: float, text: str) -> None:
    assert span(seconds) == text


# ---- a cluster that is not there ------------------------------------------------------------


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"neurorig\[dask\]"):
        sweep("--device", "mock", *QUICK, "--out", str(tmp_path / "s"), "--scheduler", "tcp://127.0.0.1:1")
