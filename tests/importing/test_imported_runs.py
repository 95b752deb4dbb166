"""An imported recording becomes a run directory: complete or not at all, with its originals, several in a session.

Missing readings and impossible windows are named with a remedy, and short readings have wider limits.
"""

import ast
import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import drivers.importers
import rig
import rig.importing
from benchmarks.fuzz_importers import attempt, lay_out
from benchmarks.import_cases import cases
from reports.audit.audit import audit
from rig.analysis.evaluate import evaluate
from rig.analysis.scores.reference_methods import recorder_figures
from rig.commands.shell.main import main, parser
from rig.errors import DataError, SetupError, StoreError
from rig.factories import values_of
from rig.importing.imported import ImportedRun, ImportedSpan, ImportedTrace
from rig.importing.write import run_import, write
from rig.plugins import load
from rig.recording.events import IdleWindow, Note
from rig.recording.reader import open_run
from tests.support import import_traces
from tests.support.import_traces import BUSY_W, IDLE_W, SUPPLY_V, T_S, WATTS, check, plain, recorded, table, windows
from tests.support.processes import options
from tests.support.raised import Capture, raised
from tests.support.submissions import submitted

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


def test_a_clock_rate_has_its_stated_uncertainty(tmp_path: Path) -> None:
    many = tuple(rig.Chunk("core", np.full(10, 2.0)) for _ in range(10))
    recording = open_run(write(small(traces=(ImportedTrace("core", many),)), tmp_path / "run"))
    assert evaluate(recording).clocks["c"].rate_sigma >= 1e-4 / np.sqrt(3.0)


def test_readings_and_windows_of_one_clock_share_its_rate(tmp_path: Path) -> None:
    found = evaluate(open_run(write(plain(tmp_path), tmp_path / "run"))).quantities
    assert "clock rate, meter to device" not in {c.source for c in found["active_power_w"].components}
    assert "clock rate, device to host" in {c.source for c in found["energy_per_inference_j"].components}


@pytest.mark.parametrize("name", [name for name in CASES if name != "energyrunner"])  # its example has no idle
def test_readings_of_every_format_match_the_windows(name: str, tmp_path: Path) -> None:
    """A reading that is stamped at its other end would be outside its window."""
    options = lay_out(CASES[name], tmp_path / "in", None)
    given = [f"{k}={v}" for k, v in options.items()]
    (path,) = run_import(CASES[name].format, tmp_path / "in" / CASES[name].source, tmp_path / "run", given)
    found = evaluate(open_run(path)).quantities
    area, spans = found["dynamic_power_w"], found["literal.dynamic_power_w"]

    assert spans.value == pytest.approx(area.value, rel=2e-3)


def test_originals_are_stored_with_digests(tmp_path: Path) -> None:
    source = tmp_path / "in" / "a.csv"
    options = [f"{k}={v}" for k, v in lay_out(CASES["plain-csv"], tmp_path / "in", None).items()]
    (path,) = run_import("plain-csv", source, tmp_path / "run", options)
    imported = open_run(path).start.imported
    assert imported is not None
    assert imported.originals["a.csv"].sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    copy = path / "artifacts" / "original" / "a.csv"
    assert copy.read_bytes() == source.read_bytes()
    assert (path / "artifacts" / "original" / "windows" / "windows.csv").is_file()
    assert imported.options["power"] == "p:W"
    copy.write_text("t,p\n0,1\n")
    raised(StoreError, open_run, path)


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
    assert all("peer.energy_per_inference_median_j" in recorder_figures(open_run(p)) for p in paths)


def test_a_report_of_recordings_without_common_figures_prints_those_of_each(
    two: Path, tmp_path: Path, capsys: Capture
) -> None:
    paths = run_import("energyrunner", two, tmp_path / "out")
    main(["report", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert printed.count("Execution time, mean") == 2
    assert all(f"run     {p}" in printed for p in paths)


def test_one_failed_import_leaves_nothing(two: Path, tmp_path: Path) -> None:
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
def test_an_impossible_recording_leaves_nothing(change: dict[str, object], tmp_path: Path) -> None:
    raised(DataError, write, small(**change), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "says"), [
    ("def own(source): pass", "own.py:own returned NoneType, not an ImportedRun"),
    ("from drivers.importers.single_trace import *\n@single_trace\ndef own(source): pass", "not a SingleTrace"),
    ("import rig\ndef own(source): rig.Conversion('mW')", r"one of W, A, J, V, not 'mW'.*own\.py, line 2"),
])  # fmt: skip
def test_a_custom_importer_is_named_as_the_cause(code: str, says: str, tmp_path: Path) -> None:
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
def test_an_incomplete_peer_line_is_refused(peer: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="peer line"):
        recorder_figures(open_run(write(small(peers=(peer,)), tmp_path / "run")))


@pytest.mark.parametrize("peer", [
    {"method": "somebody else's", "rail": "core"},
    {"method": "energyrunner", "rail": "core", "stamps": [5], "inferences": []},
])  # fmt: skip
def test_an_unknown_peer_line_has_no_figures(peer: dict[str, object], tmp_path: Path) -> None:
    assert recorder_figures(open_run(write(small(peers=(peer,)), tmp_path / "run"))) == {}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_mutilated_recording_has_a_typed_outcome(name: str, tmp_path: Path) -> None:
    """A few of the tens of thousands of cases of ``benchmarks/fuzz_importers.py``."""
    assert attempt(CASES[name], None, tmp_path / "whole") == "valid runs"
    for seed in range(4):
        attempt(CASES[name], np.random.default_rng([99, seed]), tmp_path / str(seed))


# ---- notes on what the files lack --------------------------------------------------------------

CALIBRATION = """
instrument = "made up"
reference = "nobody"
valid_from = 2020-01-01
valid_until = 2099-12-31
"""
RANGE = """
[[range]]
unit = "{unit}"
full_scale = 0.01
of_reading_percent = 0.05
of_range_percent = 0.02
[[range.aperture]]
below_s = 0.002
of_range_percent = 0.01
"""


def said(run: ImportedRun, out: Path) -> list[str]:
    """Return the printed notes, which the run also keeps."""
    told: list[str] = []
    recording = open_run(write(run, out, say=told.append))
    assert [e.text for e in recording.of_type(Note)] == told
    return told


# ---- limits of short readings ---------------------------------------------------------------------------------------

IMPORTERS = ("joulescope-csv", "joulescope-jls", "otii", "plain-csv", "ppk2", "socwatch")


@pytest.mark.parametrize("name", IMPORTERS)
def test_importers_widen_limits_of_short_readings(name: str, tmp_path: Path) -> None:
    """The readings last a millisecond: 0.02 % and 0.01 % of 10 mW or mA."""
    case = cases().get(name)
    if case is None:
        pytest.skip("pyjls is not installed")
    (tmp_path / "c.toml").write_text(CALIBRATION + RANGE.format(unit="W") + RANGE.format(unit="A"))
    laid = lay_out(case, tmp_path, None)
    run = load("importers", name)(tmp_path / case.source, calibration=str(tmp_path / "c.toml"), **laid)
    accuracy = run.meters[0].rails[0].accuracy
    assert accuracy is not None and accuracy.offset == pytest.approx(3e-6)


def test_readings_above_the_certified_range_give_no_power(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CALIBRATION + RANGE.format(unit="W").replace("0.01", "1e-4", 1))
    _, result = recorded(plain(tmp_path, calibration=str(tmp_path / "c.toml")), tmp_path / "run")
    assert any("end of the meter's range" in r.found for r in result.refusals)
    assert not result.quantities.keys() & {"active_power_w", "energy_per_inference_j"}


def test_uneven_readings_count_as_the_shortest(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CALIBRATION + RANGE.format(unit="W"))
    keep = np.sort(np.random.default_rng(0).choice(len(T_S), len(T_S) // 3, replace=False))
    run = plain(tmp_path, T_S[keep], WATTS[keep], calibration=str(tmp_path / "c.toml"))
    rail = run.meters[0].rails[0]
    assert rail.rate_hz == 0.0
    assert rail.accuracy is not None and rail.accuracy.offset == pytest.approx(3e-6)


# ---- windows of activity ---------------------------------------------------------------------------------------------


def own_windows(folder: Path, *rows: str) -> str:
    path = folder / "own.csv"
    path.write_text("\n".join(["start,end,phase,inferences", *rows]))
    return str(path)


@pytest.mark.parametrize("row", ["0.6,0.8,inference,5", "0.7,0.75,inference,5", "0.7,1.2,other,5"])
def test_overlapping_activity_windows_are_refused(tmp_path: Path, row: str) -> None:
    given = own_windows(tmp_path, "0.6,0.8,inference,5", "1.4,1.6,inference,5", row)
    with pytest.raises(DataError, match=r"window of .* overlaps the window of inference from 0\.6 s to 0\.8 s"):
        write(plain(tmp_path, windows=given), tmp_path / "run")


@pytest.mark.parametrize("phase", ["idel", "Idle", "warm-up"])
def test_a_misspelt_idle_phase_is_refused(tmp_path: Path, phase: str) -> None:
    given = own_windows(tmp_path, "0.6,0.8,inference,5", f"1.8,2.2,{phase},")
    e = raised(DataError, plain, tmp_path, says=f"window 2 has the phase '{phase}'", windows=given)
    assert "idle or warmup" in e.remedy


def test_phases_of_unequal_counts_are_reported(tmp_path: Path) -> None:
    given = own_windows(tmp_path, "0,0.55,idle,", "0.6,0.8,inference,5", "1.0,1.2,inference,5", "1.4,1.6,encoding,5")
    _, result = recorded(plain(tmp_path, windows=given), tmp_path / "run")
    assert any("(inference 10, encoding 5)" in note for note in result.notes)


# ---- idle windows ---------------------------------------------------------------------------------------------------


def test_idle_over_an_activity_window_is_refused(tmp_path: Path) -> None:
    run = plain(tmp_path, idle="0.1:1.0")
    says = r"idle window from 0\.1 s to 1 s overlaps window 1.* from 0\.6 s to 0\.8 s"
    e = raised(DataError, write, run, tmp_path / "run", says=says)
    assert "this one overlaps 2" in e.remedy
    assert not (tmp_path / "run").exists()


def test_idle_that_touches_a_window_is_accepted(tmp_path: Path) -> None:
    check(plain(tmp_path, idle="0.58:0.6,0.8:0.9"), tmp_path / "run")


def test_idle_beyond_the_trace_is_cut_or_refused(tmp_path: Path) -> None:
    notes = said(plain(tmp_path, idle="2.0:3.5"), tmp_path / "cut")
    assert any("idle window from 2 s to 3.5 s was cut to the trace: from 2 s to 2.4 s" in note for note in notes)
    assert max(e.off_ns for e in open_run(tmp_path / "cut").of_type(IdleWindow)) == 2_400_000_000
    with pytest.raises(DataError, match=r"idle window from 3 s to 4 s lies outside the trace, .* to 2\.4 s"):
        write(plain(tmp_path, idle="3:4"), tmp_path / "outside")


# ---- what is missing ------------------------------------------------------------------------------------------------


def test_power_without_noise_has_a_figure(tmp_path: Path) -> None:
    """Readings of a recorder that rounds to steps may be equal: their variance is 0, or below 0 by rounding."""
    at_s, _, busy = import_traces.trace(rate_hz=100.0)
    check(plain(tmp_path, at_s, np.where(busy, BUSY_W, IDLE_W), stamp=None), tmp_path / "run")


def test_a_recording_without_faults_has_no_notes(tmp_path: Path) -> None:
    assert said(plain(tmp_path), tmp_path / "run") == []


def test_a_hole_in_the_trace_is_counted_and_placed(tmp_path: Path) -> None:
    keep = ((T_S < 0.7) | (T_S >= 0.75)) & ((T_S < 1.9) | (T_S >= 2.0))
    (note,) = said(plain(tmp_path, T_S[keep], WATTS[keep]), tmp_path / "run")
    assert "2 gaps longer than 1.5 periods of 0.0005 s, 0.15 s in all" in note
    assert "the longest, 0.1 s, begins at 1.9 s" in note


def test_one_hole_is_one_gap(tmp_path: Path) -> None:
    keep = (T_S < 0.7) | (T_S >= 0.75)
    (note,) = said(plain(tmp_path, T_S[keep], WATTS[keep]), tmp_path / "run")
    assert "1 gap longer than" in note


def lines(head: str, t: np.ndarray, values: np.ndarray, word: str) -> str:
    """Return a file with a word in the place of three of its values."""
    cells = [repr(value) for value in values.tolist()]
    cells[1300:1303] = [word] * 3
    return "\n".join([head, *(f"{at!r},{cell}" for at, cell in zip(t.tolist(), cells, strict=True))])


@pytest.mark.parametrize("word", ["nan", "NaN", ""])
def test_non_numeric_readings_are_counted(word: str, tmp_path: Path) -> None:
    run = plain(tmp_path, text=lines("t,p", T_S, WATTS, word))
    assert said(run, tmp_path / "run") == [f"Rail p: 3 of {len(T_S)} readings are not numbers; they are left out"]
    figures = evaluate(open_run(tmp_path / "run")).quantities
    assert figures["active_power_w"].value == pytest.approx(BUSY_W, rel=1e-3)


@pytest.mark.parametrize("word", ["9.9E37", "+9.91000000E+37", "inf", "∞"])
def test_an_overload_is_flagged_and_bounded(word: str, tmp_path: Path) -> None:
    text = lines("t,i", T_S, WATTS / SUPPLY_V * 1e3, word)
    run = plain(tmp_path, text=text, power=None, current="i:mA", supply_v=SUPPLY_V)
    (note,) = said(run, tmp_path / "run")
    assert f"3 of {len(T_S)} readings are overloads" in note
    found = open_run(tmp_path / "run")
    (kept,) = found.traces.values()
    assert np.flatnonzero(kept.overload).tolist() == [1300, 1301, 1302]
    assert np.asarray(kept.value)[1300] == pytest.approx(WATTS[:1300].max() / SUPPLY_V)
    assert any("3 readings" in text and "end of the meter's range" in text for text in evaluate(found).notes)


@pytest.mark.parametrize("stamp", ["start", "middle", "end"])
def test_gaps_are_counted_for_any_stamp_position(stamp: str, tmp_path: Path) -> None:
    keep = np.random.default_rng(0).random(len(T_S)) > 0.3
    lost = int(np.count_nonzero(np.diff(np.flatnonzero(keep)) > 1))
    (note, *_) = said(plain(tmp_path, T_S[keep], WATTS[keep], stamp=stamp), tmp_path / "run")
    assert f"{lost} gaps longer than 1.5 periods of 0.0005 s" in note


def test_truncated_lines_are_counted(tmp_path: Path) -> None:
    rows = ["t,p,note", *(f"{a!r},{w!r},x" for a, w in zip(T_S.tolist(), WATTS.tolist(), strict=True))]
    rows[10], rows[20] = rows[10].removesuffix(",x"), rows[20].split(",")[0]
    run = plain(tmp_path, text="\n".join(["made by hand", *rows]))
    _, missing = said(run, tmp_path / "run")
    assert f"1 of {len(T_S)} readings are not numbers" in missing


def test_windows_beyond_the_trace_are_counted(tmp_path: Path) -> None:
    early = (T_S[T_S < 1.6], WATTS[T_S < 1.6])
    (tmp_path / "w.csv").write_text("start,end\n0.6,0.8\n1.5,1.7\n")
    run = plain(tmp_path, *early, windows=str(tmp_path / "w.csv"), idle="0:0.55")
    (note,) = said(run, tmp_path / "run")
    assert note == "Rail p: 1 of 2 windows lie outside the trace, in part or wholly"


def test_missing_amperes_stay_missing_in_watts(tmp_path: Path) -> None:
    amps = WATTS / SUPPLY_V
    amps[1300] = np.nan
    columns = (T_S, amps, 0.0 * T_S + SUPPLY_V)
    run = plain(tmp_path, *columns, header="t,i,v", power=None, current="i:A", voltage="v:V")
    assert said(run, tmp_path / "run") == [f"Rail i: 1 of {len(T_S)} readings are not numbers; they are left out"]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_prints_the_notes(as_json: bool, tmp_path: Path, capsys: Capture) -> None:
    watts = WATTS.copy()
    watts[3] = np.nan
    told = ("device_description=a board", "meter_description=a meter")
    given = options("time=t:s", "power=p:W", f"windows={windows(tmp_path)}", *told)
    words = ["import", "--format", "plain-csv", str(table(tmp_path / "a.csv", "t,p", T_S, watts)), *given]
    assert main([*words, "--out", str(tmp_path / "run"), *(["--json"] if as_json else [])]) == 0
    out = capsys.readouterr().out
    note = "Rail p: 1 of 4800 readings are not numbers; they are left out"
    assert json.loads(out)["notes"] == [note] if as_json else f"note    {note}\n" in out


# ---- remedies name options of the importer or of the command

FOLDERS = [Path(str(package.__file__)).parent for package in (drivers.importers, rig.importing)]
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
OPTIONS = {e.name: set(values_of(load("importers", e.name), {})) for e in entry_points(group="rig.importers")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_remedies_name_existing_options(path: Path, capsys: Capture) -> None:
    own = [names for name, names in OPTIONS.items() if name.replace("-", "_") in (path.stem, path.parent.name)]
    known = own[0] if own else set().union(*OPTIONS.values())
    nodes = ast.walk(ast.parse(path.read_text()))
    told = "\n".join(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    assert set(re.findall(r"(?<![\w.=-])([a-z][a-z0-9_]*)=(?=[A-Za-z0-9.,;#])", told)) - {"key"} <= known

    raised(SystemExit, parser("import").parse_args, ["import", "--help"])
    help_text = capsys.readouterr().out
    found = set(re.findall(r"--[a-z][a-z-]+", told))
    assert {name for name in found if name not in help_text} <= {"--max-detail"}, "an option of SoC Watch itself"


@pytest.mark.parametrize(("asked", "advice"), [
    ([], "--option idle=START:END"),
    (["idle=0:0.001"], "--option idle=START:END"),
    (["idle=0:0.9", "sync_s=0.8"], "a smaller sync_s"),
])  # fmt: skip
def test_a_report_of_an_import_names_import_options(asked: list[str], advice: str, tmp_path: Path) -> None:
    rows = "".join(f"{k * 0.01},{2.0 if 100 <= k < 200 else 1.0}\n" for k in range(300))
    (tmp_path / "trace.csv").write_text(f"t,p\n{rows}")
    (tmp_path / "windows.csv").write_text("start,end\n1.0,2.0\n")
    asked_for = [f"windows={tmp_path / 'windows.csv'}", "time=t:s", "power=p:W", "stamp=start", *asked]
    (folder,) = run_import("plain-csv", tmp_path / "trace.csv", tmp_path / "run", asked_for)
    (refusal,) = evaluate(open_run(folder)).refusals
    assert advice in refusal.remedy
    assert "idle_s" not in refusal.remedy


# ---- what an audit asks for that an import is told

HASHES, DESCRIPTION, CALIBRATED = 2, 6, 23
SAID = ("device_description=a board", "meter_description=a source meter")


@pytest.mark.parametrize(("told", "failed"), [(SAID, False), (SAID[:1], True), ((), True)])
def test_options_describe_an_import(tmp_path: Path, told: tuple[str, ...], failed: bool, capsys: Capture) -> None:
    """The import names each option that an audit requires and that was not given."""
    source = table(tmp_path / "trace.csv", "t,p", T_S, WATTS)
    given = options("time=t:s", "power=p:W", f"windows={windows(tmp_path)}", *told)

    assert main(["import", "--format", "plain-csv", str(source), "--out", str(tmp_path / "run"), *given]) == 0
    said = capsys.readouterr().out
    for option in SAID:
        name = option.partition("=")[0]
        assert (f"--option {name}=" in said) == (option not in told)
    assert (DESCRIPTION in {c.number for c in audit(tmp_path / "run", quick=True).failed}) == failed


@pytest.mark.parametrize(
    ("begin", "outcome"), [(None, "not applicable"), ("2019-01-01", "passed"), ("2016-01-01", "failed")]
)
def test_a_calibration_file_dates_the_calibration_of_the_meter(begin: str | None, outcome: str, tmp_path: Path) -> None:
    """The age is that of the calibration on the day that the stamps name, and not on the day of the import."""
    zero_s = datetime(2019, 3, 1, tzinfo=UTC).timestamp()
    stamps = [datetime.fromtimestamp(zero_s + s, UTC).isoformat() for s in T_S.tolist()]
    rows = "\n".join(f"{at},{w!r}" for at, w in zip(stamps, WATTS.tolist(), strict=True))
    held = CALIBRATION.replace("2020-01-01", str(begin)).replace("2099-12-31", "2019-12-31")
    (tmp_path / "c.toml").write_text(held + RANGE.format(unit="W"))
    calibration = None if begin is None else str(tmp_path / "c.toml")
    run = plain(tmp_path, text=f"t,p\n{rows}", zero_s=zero_s, time="t:iso", calibration=calibration)
    (check,) = (c for c in audit(write(run, tmp_path / "run"), quick=True).checks if c.number == CALIBRATED)
    assert check.outcome == outcome


def test_imports_of_one_plan_are_separate_recordings(tmp_path: Path) -> None:
    """A script gives each measurement the same windows, but no two measurements have the same noise."""
    imported = {}
    for name, seed in {"first": 1, "second": 2, "copy": 1}.items():
        (tmp_path / name).mkdir()
        readings = import_traces.trace(seed=seed)[:2]
        run = plain(tmp_path / name, *readings, device_description="a board", meter_description="a meter")
        imported[name] = write(run, tmp_path / name / name)
    held = submitted(tmp_path / "sub", imported["first"], imported["second"]).path
    assert [c.found for c in audit(held, quick=True).checks if c.number == HASHES and c.outcome == "failed"] == []
    with pytest.raises(DataError, match="hold one recording: their readings of p are equal"):
        submitted(tmp_path / "twice", imported["first"], imported["copy"])


def test_a_trace_that_is_a_reading_late_throughout_is_refused(tmp_path: Path) -> None:
    t, on = np.arange(160) / 10.0, np.arange(3.0, 13.0, 0.5)
    busy = np.any([(t > a - 1e-9) & (t < a + 0.3 - 1e-9) for a in on], axis=0)
    rows = ["0.2,2.8,idle", *(f"{a},{a + 0.3},inference" for a in on), "13.2,15.8,idle"]
    (tmp_path / "w.csv").write_text("\n".join(["start,end,phase", *rows]))
    watts = np.where(busy, BUSY_W, IDLE_W) + np.random.default_rng(0).normal(0.0, 1e-5, len(t))
    run = plain(tmp_path, t + 0.1, watts, windows=str(tmp_path / "w.csv"))
    (refusal,) = recorded(run, tmp_path / "run")[1].refusals
    assert refusal.reason.endswith("shows at another time: 20 of 20 spans")
    assert "For an import, check stamp" in refusal.remedy
