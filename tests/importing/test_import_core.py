"""An imported recording becomes a run directory: complete or not at all, with its originals, several in a session."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rig
from benchmarks.fuzz_importers import attempt, lay_out
from benchmarks.import_cases import cases
from rig.analysis.scores.reference_methods import recorder_figures
from rig.errors import DataError, SetupError, StoreError
from rig.importing.imported import ImportedRun, ImportedSpan, ImportedTrace
from rig.importing.write import run_import, write
from tests.support.raised import raised

CASES = cases()


def small(**more: object) -> ImportedRun:
    """Return a second of 2 W at 100 Hz with one window, on one clock."""
    clock = rig.ClockInfo("c", 1e3, 1e-4)
    rail = rig.Rail("core", rate_hz=100.0)
    imported = ImportedRun(
        name="small",
        device=rig.DeviceInfo("d", "hardware", clock=clock),
        meters=(rig.MeterInfo("m", "hardware", clock, (rail,)),),
        traces=(ImportedTrace("core", (rig.Chunk("core", np.full(60, 2.0)), rig.Chunk("core", np.full(40, 2.0)))),),
        spans=(ImportedSpan("inference", 400, 600, executions=4),),
        brackets={"c": (rig.Bracket(0, 0, 0),)},
        originals={},
        idle_ns=((0, 300_000_000), (700_000_000, 1_000_000_000)),
    )
    return replace(imported, **more)  # type: ignore[arg-type]


def test_the_rate_of_a_clock_is_no_better_than_stated(tmp_path: Path) -> None:
    many = tuple(rig.Chunk("core", np.full(10, 2.0)) for _ in range(10))
    recording = rig.open_run(write(small(traces=(ImportedTrace("core", many),)), tmp_path / "run"))
    assert rig.evaluate(recording).clocks["c"].rate_sigma >= 1e-4 / np.sqrt(3.0)


@pytest.mark.parametrize("name", [name for name in CASES if name != "energyrunner"])  # its example has no idle
def test_readings_of_every_format_stand_where_the_device_worked(name: str, tmp_path: Path) -> None:
    """A reading that is stamped at its other end would be outside its window."""
    options = lay_out(CASES[name], tmp_path / "in", None)
    given = [f"{k}={v}" for k, v in options.items()]
    (path,) = run_import(CASES[name].format, tmp_path / "in" / CASES[name].source, tmp_path / "run", given)
    found = rig.evaluate(rig.open_run(path)).quantities
    area, spans = found["dynamic_power_w"], found["literal.dynamic_power_w"]

    assert spans.value == pytest.approx(area.value, rel=2e-3)


def test_originals_are_kept_with_their_digests(tmp_path: Path) -> None:
    source = tmp_path / "in" / "a.csv"
    options = [f"{k}={v}" for k, v in lay_out(CASES["plain-csv"], tmp_path / "in", None).items()]
    (path,) = run_import("plain-csv", source, tmp_path / "run", options)
    imported = rig.open_run(path).start.imported
    assert imported is not None
    assert imported.originals["a.csv"].sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    copy = path / "artifacts" / "original" / "a.csv"
    assert copy.read_bytes() == source.read_bytes()
    assert (path / "artifacts" / "original" / "windows" / "windows.csv").is_file()
    assert imported.options["power"] == "p:W"
    copy.write_text("t,p\n0,1\n")
    raised(StoreError, rig.open_run, path)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with two recordings."""
    for name in ("one", "two"):
        lay_out(CASES["energyrunner"], tmp_path / "in" / name, None)
    return tmp_path / "in"


def test_several_recordings_are_bound_in_a_session(two: Path, tmp_path: Path) -> None:
    paths = run_import("energyrunner", two, tmp_path / "out")
    bound = json.loads((tmp_path / "out" / "session.json").read_text())["runs"]
    assert [tmp_path / "out" / r["path"] for r in bound] == paths
    assert [p.name for p in paths] == ["one-r", "two-r"]
    assert all("peer.energy_per_inference_median_j" in recorder_figures(rig.open_run(p)) for p in paths)


def test_nothing_is_left_when_one_of_several_fails(two: Path, tmp_path: Path) -> None:
    (two / "two" / "r" / "trace1-energy.bin").write_bytes(b"\xf1" + bytes(8))
    raised(DataError, run_import, "energyrunner", two, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize("change", [
    {"spans": (ImportedSpan("inference", 600, 400),)},
    {"spans": (ImportedSpan("inference", 400, 2**62),)},
    {"spans": (ImportedSpan("inference", 400, 600, executions=0),)},
    {"spans": (ImportedSpan("inference", 4000, 6000),)},
    {"idle_ns": ((5, 4),)},
    {"originals": {"/outside": Path(__file__)}},
    {"originals": {"../outside": Path(__file__)}},
    {"originals": {"absent": Path("absent")}},
    {"brackets": {}},
    {"traces": (ImportedTrace("other", (rig.Chunk("other", np.ones(2)),)),)},
    {"traces": (ImportedTrace("core", ()),)},
    {"traces": (ImportedTrace("core", (rig.Chunk("core", np.array([1.0, 1e300])),)),)},
    {"traces": (ImportedTrace("core", (rig.Chunk("core", np.ones(2), np.array([0, 10]), np.array([5, 9])),)),)},
    {"traces": (ImportedTrace("core", (rig.Chunk("core", np.ones(2), np.array([5, 5]), np.array([6, 6])),)),)},
])  # fmt: skip
def test_what_no_run_can_hold_is_refused_and_leaves_nothing(change: dict[str, object], tmp_path: Path) -> None:
    raised(DataError, write, small(**change), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "says"), [
    ("def own(source): pass", "own.py:own returned NoneType, not an ImportedRun"),
    ("from drivers.importers.single_trace import *\n@single_trace\ndef own(source): pass", "not a SingleTrace"),
    ("import rig\ndef own(source): rig.Conversion('mW')", r"one of W, A, J, V, not 'mW'.*own\.py, line 2"),
])  # fmt: skip
def test_an_importer_of_ones_own_is_named_as_the_cause(code: str, says: str, tmp_path: Path) -> None:
    (own := tmp_path / "own.py").write_text(code)
    (windows := tmp_path / "windows.csv").write_text("start,end\n1,2\n")
    options = [f"windows={windows}"] if "single" in code else []
    raised(SetupError, run_import, f"{own}:own", own, tmp_path / "run", options, says=says)


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("mine")
    raised(StoreError, write, small(), tmp_path / "run", says="not an empty directory")
    assert (tmp_path / "run" / "mine").read_text() == "mine"


@pytest.mark.parametrize("peer", [
    {"method": "energyrunner"},
    {"method": "energyrunner", "rail": "core", "stamps": [0, 400, 600]},
    {"method": "energyrunner", "rail": "core", "stamps": [0, 600, 400], "inferences": [1]},
    {"method": "energyrunner", "rail": "core", "stamps": [0, 400, 600], "inferences": [0]},
    {"method": "energyrunner", "rail": "core", "stamps": [0, 400, 400], "inferences": [1]},
    {"method": "energyrunner", "rail": "core", "stamps": [0, 0.4, 0.6], "inferences": [1]},
    {"method": "mlperf-power", "rail": "core", "testing": [400]},
    {"method": "mlperf-power", "rail": "core", "testing": [2000, 3000]},
    {"method": "mlperf-power", "rail": "core", "testing": [0, 900], "scenario": "SingleStream", "queries": 0},
])  # fmt: skip
def test_a_peer_line_that_lacks_what_it_needs_is_refused(peer: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="peer line"):
        recorder_figures(rig.open_run(write(small(peers=(peer,)), tmp_path / "run")))


@pytest.mark.parametrize("peer", [
    {"method": "somebody else's", "rail": "core"},
    {"method": "energyrunner", "rail": "core", "stamps": [5], "inferences": []},
])  # fmt: skip
def test_a_peer_line_of_others_or_without_windows_has_no_figures(peer: dict[str, object], tmp_path: Path) -> None:
    assert recorder_figures(rig.open_run(write(small(peers=(peer,)), tmp_path / "run"))) == {}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_mutilated_recording_is_a_typed_error_or_a_run(name: str, tmp_path: Path) -> None:
    """A few of the tens of thousands of cases of ``benchmarks/fuzz_importers.py``."""
    assert attempt(CASES[name], None, tmp_path / "whole") == "valid runs"
    for seed in range(4):
        attempt(CASES[name], np.random.default_rng([99, seed]), tmp_path / str(seed))
