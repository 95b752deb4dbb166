"""The audit imports the originals of an imported run again: honest imports equal them, and edited copies do not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.forge import read, store
from benchmarks.faults.physics import column
from benchmarks.fuzz_importers import lay_out
from benchmarks.import_cases import cases
from reports.audit.audit import audit
from reports.audit.evidence import Check
from reports.submission.audit_again import imported_again
from rig.commands.shell.main import main
from rig.importing.write import KEPT, run_import
from tests.support.raised import Capture, Patch
from tests.support.scpi_bench import calibration
from tests.support.submission_folder import altered, unpacked

CASES = cases()
TRACE, REPLIES = "traces/p.arrows", "replies.arrows"
Edit = Callable[[Path], object]


def imported(
    name: str, folder: Path, *, identity: bool = False, old: bytes = b"", new: bytes = b"", **more: str
) -> Path:
    """Import a case, with more options, and with ``new`` for ``old`` in its source; only the run is left."""
    options, source = lay_out(CASES[name], folder / "in", None) | more, folder / "in" / CASES[name].source
    if old:
        source.write_bytes(source.read_bytes().replace(old, new))
    words = [f"{key}={value}" for key, value in options.items()]
    run_import(CASES[name].format, source, folder / "run", words, keep_identity=identity)
    shutil.rmtree(folder / "in")
    return folder / "run"


def compared(run: Path, **given: Any) -> Check:
    return next(c for c in audit(run, **{"again": imported_again} | given).checks if c.number == 22)


@pytest.mark.parametrize("name", CASES)
def test_an_import_of_each_format_equals_its_originals(name: str, tmp_path: Path) -> None:
    assert compared(imported(name, tmp_path)).outcome == "passed"


@pytest.mark.parametrize("identity", [False, True])
def test_an_import_with_odd_names_equals_its_originals(identity: bool, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    told = {"calibration": calibration(tmp_path / "in", unit="W"), "device_description": "of /home/ada, 3 V /1 A"}
    told |= {"time": "t /s:s", "power": "P /W:W"}
    run = imported("plain-csv", tmp_path, identity=identity, old=b"t,p,v", new=b"t /s,P /W,v", **told)
    assert compared(run).outcome == "passed"


@pytest.mark.parametrize("name", ["import-energyrunner", "import-plain-csv"])
def test_an_import_by_an_older_version_equals_its_originals(name: str, tmp_path: Path) -> None:
    assert compared(unpacked(name, tmp_path)).outcome == "passed"


def times(file: str, name: str, factor: float) -> Edit:
    def edit(run: Path) -> None:
        table = read(run / file)
        values = factor * table[name].to_numpy()
        column(run / file, table, name, values.astype(table.schema.field(name).type.to_pandas_dtype()))

    return edit


def lines(change: Callable[[list[dict[str, Any]]], object]) -> Edit:
    return lambda run: altered(run, change)


EDITS: dict[str, tuple[Edit, str]] = {
    "readings": (times(TRACE, "value", 0.9), "200 of 200 readings of p differ"),
    "a trace cut": (lambda run: store(run / TRACE, read(run / TRACE)[:190]), "190', made again ' 200"),
    "windows": (times(REPLIES, "off_tick", 0.999), "100399500,', made again '"),
    "inferences": (times(REPLIES, "executions", 2), "6,', made again ' \"executions\": 3,"),
    "an option": (lines(lambda told: told[0]["imported"]["options"].update(power="v:W")), '"name": "v"'),
    "a description": (lines(lambda told: told[0]["device"].update(description="x")), '"description": ""'),
    "idle": (lines(lambda told: told.insert(-1, {"type": "idle", "on_ns": 0, "off_ns": 9})), "what it states, line"),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "says"), EDITS.values(), ids=EDITS)
def test_an_edited_and_rehashed_copy_fails(edit: Edit, says: str, tmp_path: Path, capsys: Capture) -> None:
    edit(run := imported("plain-csv", tmp_path))
    altered(run, lambda told: None)
    assert main(["audit", str(run), "--json"]) == 32
    (found,) = json.loads(capsys.readouterr().out)["audits"]
    assert found["worst"].startswith("FAILED: imports equal their originals") and says in found["worst"]


NOT_COMPARED: dict[str, tuple[Edit, str]] = {
    "an importer of its own": (lines(lambda told: told[0]["imported"].update(format="own.py:f")), "never run"),
    "without originals": (lambda run: shutil.rmtree(run / KEPT), "No such file"),
    "a file outside": (lines(lambda told: told[0]["imported"]["options"].update(calibration="own.py")), f"{KEPT}/cal"),
    "another original": (lambda run: (run / KEPT / "a.csv").write_text("t,p\n0,?\n"), "a.csv: "),
}


@pytest.mark.parametrize(("edit", "says"), NOT_COMPARED.values(), ids=NOT_COMPARED)
def test_an_unimportable_original_only_warns(edit: Edit, says: str, tmp_path: Path, monkeypatch: Patch) -> None:
    edit(run := imported("plain-csv", tmp_path))
    altered(run, lambda told: told[-1].update(files={}))
    (tmp_path / "own.py").write_text("raise SystemExit('code that the recording names was run')")
    monkeypatch.chdir(tmp_path)
    check = compared(run)
    assert check.outcome == "warned"
    assert check.found.startswith("run is not compared with its originals: ") and says in check.found


def test_a_quick_audit_and_unhashed_files_import_nothing(tmp_path: Path) -> None:
    ((run := imported("otii", tmp_path)) / KEPT / "x.csv").write_text("t,p\n")
    assert "holds files that no hash covers" in compared(run).found
    assert compared(run, quick=True).why == "left out by --quick"
