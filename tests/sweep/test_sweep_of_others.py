"""A sweep uses nothing that others altered or linked, and shares neither its directory nor its device."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rig.errors import IntegrityError, RigError, SetupError, StoreError
from rig.session.locks import claimed, device_lock, locked
from rig.sweep.grid import digest
from rig.sweep.row_of_cell import row_path
from rig.sweep.sweep_folder import place_of
from rig.sweep.table import Table, write
from tests.support.raised import raised
from tests.support.sweep_bench import FAILS, aside, cells, forget_rows, go_on, quick, sweep, unseal

# ---- a directory that others made -----------------------------------------------------------


@pytest.mark.parametrize("name", ["table.csv", "runs.csv", "sweep.svg"])
def test_no_file_outside_is_written_through_a_link(copy: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(other)
    raised(StoreError, go_on, copy, "--table", "--plot", "active_power_w", says="leads out of")
    assert other.read_text() == "mine"


@pytest.mark.parametrize("name", ["cells", "pending", "broken", "failed"])
def test_nothing_is_recorded_through_a_link(tmp_path: Path, name: str) -> None:
    out, other = tmp_path / "s", tmp_path / "other"
    quick(out, *FAILS)
    cell = cells(out)[0]
    shutil.rmtree(place_of(out, cell)) if name in ("cells", "pending") else unseal(place_of(out, cell))
    (out / name).rename(other) if (out / name).exists() else other.mkdir()
    before = sorted(other.rglob("*"))
    (out / name).symlink_to(other)
    raised(StoreError, go_on, out, "--retry-failed", says=r"(leads out of|is a link)")
    assert sorted(other.rglob("*")) == before


@pytest.mark.parametrize(("old", "new", "error"), [
    ('"0.02"', '"0.03"', IntegrityError), (r"[\s\S]*", "{", StoreError), (r"[\s\S]*", "[]", StoreError),
    ("neurorig-sweep/", "neurorig-sweep/9", StoreError),
])  # fmt: skip
def test_an_altered_sweep_is_refused(copy: Path, old: str, new: str, error: type[RigError]) -> None:
    file = copy / "sweep.json"
    file.write_text(re.sub(old, lambda _: new, file.read_text(), count=1))
    raised(error, go_on, copy)


def refrozen(out: Path, change: Callable[[Any], None]) -> None:
    """Change the grid of a sweep, and its digest with it."""
    document = json.loads((out / "sweep.json").read_text())
    (entry,) = document["grids"]
    change(entry["grid"])
    entry["grid_sha256"] = digest(entry["grid"])
    (out / "sweep.json").write_text(json.dumps(document))


@pytest.mark.parametrize("change", [
    lambda grid: grid["asked"].update(devices=["another"]),
    lambda grid: grid.update(devices={}),
    lambda grid: grid.update(seeds={}),
    lambda grid: grid["options"].update(dict.fromkeys(grid["seeds"]["mock"], "x")),
    lambda grid: grid["options"].update(dict.fromkeys(grid["seeds"]["mock"], "9" * 4300)),
    lambda grid: grid["asked"].update(repetitions=10**15),
    lambda grid: grid["asked"].update(repetitions=-1),
])  # fmt: skip
def test_a_contradictory_grid_is_refused(copy: Path, change: Callable[[Any], None]) -> None:
    refrozen(copy, change)
    assert raised(RigError, go_on, copy, "--table", says="grid").remedy


def altered(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("file", "kept"), [("replies.arrows", True), ("traces/core.arrows", False)])
def test_a_changed_byte_is_noticed_by_the_table(copy: Path, file: str, kept: bool) -> None:
    altered(place_of(copy, cells(copy)[0]) / file)
    if not kept:
        forget_rows(copy)
    raised(IntegrityError, go_on, copy, "--table", says="differs from what was recorded")
    assert aside(copy) == []


def test_a_changed_cell_is_measured_again(copy: Path) -> None:
    altered(place_of(copy, cells(copy)[0]) / "replies.arrows")
    assert go_on(copy) == 0
    assert aside(copy) == [f"{cells(copy)[0].key}.1"]


def test_a_sweep_with_removed_cells_fails(tmp_path: Path) -> None:
    file, out = tmp_path / "removing.py", tmp_path / "sweep"
    file.write_text(REMOVING.format(removed=str(out / "cells")))
    words = ("--device", f"{file}:open_device", "--meter", "none", "--option", "samples=1", "--option", "idle_s=0")
    with pytest.raises(SetupError, match="1 of 2 cells are missing now"):
        sweep(*words, "--vary", "level=1,2", "--out", str(out), "--jobs", "0")


def test_figures_are_not_taken_from_derived_files(copy: Path) -> None:
    table = (copy / "table.csv").read_bytes()
    for cell in cells(copy):
        assert not (place_of(copy, cell) / "derived").exists()
        kept = row_path(place_of(copy, cell), cell)
        assert kept.parent.stat().st_mode & 0o077 == 0
        (place_of(copy, cell) / "derived").mkdir()
        (place_of(copy, cell) / "derived" / "sweep-row.json").write_bytes(kept.read_bytes().replace(b'"pass', b'"fail'))
    assert go_on(copy, "--table") == 0
    assert (copy / "table.csv").read_bytes() == table


def test_a_shared_writable_cache_is_refused(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / "rows").chmod(0o777)
    raised(SetupError, go_on, copy, "--table", says="can be written by others")


# ---- one at a time --------------------------------------------------------------------------


def test_two_sweeps_never_work_on_one_directory(copy: Path) -> None:
    with locked(copy / ".lock", "the sweep"), pytest.raises(SetupError, match=f"in use by process {os.getpid()}"):
        go_on(copy)


def test_one_file_under_two_names_is_one_device(here: Path) -> None:
    with device_lock("own.py:f"), pytest.raises(SetupError, match="in use"):
        device_lock(f"{here}/x/../own.py:f", wait=False).__enter__()


def test_a_waiting_process_is_named(tmp_path: Path) -> None:
    said: list[str] = []

    class Heard(Exception): ...

    def say(text: str) -> None:
        said.append(text)
        raise Heard

    with locked(tmp_path / "l", "device bench"), pytest.raises(Heard), locked(tmp_path / "l", "device bench", say=say):
        pass
    assert said == [f"waiting for device bench, in use by process {os.getpid()}"]


def test_a_claim_leaves_no_lock_file(tmp_path: Path) -> None:
    with claimed(tmp_path / "desk", "cell") as desk, (desk / ".lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not (tmp_path / "desk").exists()
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / ".lock").touch()
    with claimed(tmp_path / "desk", "cell"):
        pass
    assert not (tmp_path / "desk").exists()


def test_a_foreign_runtime_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(SetupError, match="belongs to user"), device_lock("bench"):
        pass


REMOVING = """
import shutil
from rig.engine.blocking_device import blocking
def open_device(*, level: int = 1):
    shutil.rmtree({removed!r}, ignore_errors=True)
    return blocking(lambda sample: level)
"""


def test_a_device_without_a_plant_is_locked(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(REMOVING.format(removed=""))
    words = ["--device", f"{file}:open_device", "--meter", "none", "--option", "samples=1", "--option", "idle_s=0"]
    words += ["--vary", "level=1,2", "--out", str(tmp_path / "s"), "--jobs", "0", "--no-wait"]
    for _ in range(2):
        with device_lock(f"{file}:open_device"), pytest.raises(SetupError, match="is in use"):
            sweep(*words)
        assert sweep(*words) == 0
        assert all(cell.exclusive for cell in cells(tmp_path / "s"))
        shutil.rmtree(place_of(tmp_path / "s", cells(tmp_path / "s")[0]))


def test_a_text_in_the_table_is_never_a_spreadsheet_formula(tmp_path: Path) -> None:
    table = Table(("device", "x"), (), {}, ({"device": "=cmd()", "x": -1},), ())
    assert write(tmp_path, table)[0].read_text() == "device,x\n'=cmd(),-1\n"
