"""A sweep records each cell of its grid once, despite interruptions, and makes a table of what exists."""

import gc
import json
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import rig.sweep.cells
import rig.sweep.row_of_cell
from rig.analysis.evaluate import evaluate
from rig.bench.request import Request
from rig.engine.record import environment
from rig.errors import DeviceError, Interrupted, MissingExtraError, StoreError, UsageError
from rig.recording.layout import EVENTS
from rig.recording.reader import open_run
from rig.session.measure import measure
from rig.sweep.cells import Outcome, Task, perform
from rig.sweep.loop import Progress, span
from rig.sweep.row_of_cell import content_digest, estimator_sources, figures_by, row_path
from rig.sweep.sweep_folder import frozen, place_of
from tests.support import sweep_bench as bench
from tests.support.paths import ROOT
from tests.support.raised import Capture, Patch, raised, raising

# ---- what is there at the end ---------------------------------------------------------------


def test_the_table_matches_evaluate(whole: Path) -> None:
    for cell, row in zip(bench.cells(whole), bench.rows(whole), strict=True):
        result = evaluate(open_run(place_of(whole, cell)))
        assert (row["cell"], row["state"], row["verdict"]) == (cell.key, "done", result.verdict)
        for key, q in result.quantities.items():
            name = str(key)
            if key.of_whole:
                assert row[name] == repr(float(q.value))
                assert row[f"{name}.half_width_95"] in (repr(float(q.half_width())), "")
        assert not any(name.startswith(("phase.", "rail.", "trimmed.")) for name in row)


def test_every_row_is_tied_to_its_recording(whole: Path) -> None:
    lines = (whole / "runs.csv").read_text().splitlines()[1:]
    ties = {line.split(",")[1]: line.split(",")[3] for line in lines}
    assert ties == {f"cells/{key}": seal.split()[0] for key, seal in bench.seals(whole).items()}
    assert len(set(bench.column(whole, "content_sha256"))) == 4  # repetitions differ by their seeds


def test_the_recorded_command_repeats_the_measurement(whole: Path, tmp_path: Path) -> None:
    cell = bench.cells(whole)[1]
    first = open_run(place_of(whole, cell))
    assert first.start.argv == cell.command()
    again = open_run(measure(cell.request(tmp_path / "again"), quiet=True))
    assert again.digest != first.digest
    assert content_digest([again]) == content_digest([first])


def test_the_table_is_rebuilt_to_the_byte(copy: Path) -> None:
    before = {name: (copy / name).read_bytes() for name in ("table.csv", "runs.csv")}
    for name in before:
        (copy / name).unlink()
    for cell in bench.cells(copy)[:2]:
        row_path(place_of(copy, cell), cell).unlink()
    assert bench.go_on(copy, "--table") == 0
    assert {name: (copy / name).read_bytes() for name in before} == before


def test_a_row_is_not_computed_twice(copy: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rig.sweep.row_of_cell.row_of", None)
    assert (bench.go_on(copy, "--table"), bench.states(copy)) == (0, ["done"] * 4)
    bench.go_on(copy, "--table", "--all-columns")
    assert "phase.inference.rail.core.dynamic_power_w.half_width_95" in bench.rows(copy)[0]


def test_a_row_of_another_rig_version_is_recomputed(copy: Path, monkeypatch: Patch) -> None:
    figures_by()
    monkeypatch.setattr("rig.sweep.row_of_cell.figures_by", lambda: "newer")
    (copy / "table.csv").unlink()
    bench.go_on(copy, "--table")
    assert all(row_path(place_of(copy, cell), cell).is_file() for cell in bench.cells(copy))
    assert all(bench.column(copy, "active_power_w"))


def test_json_states_the_cell_counts(copy: Path, capsys: Capture) -> None:
    bench.go_on(copy, "--json")
    said = json.loads(capsys.readouterr().out)
    assert (said["cells"], said["done"], said["failed"], said["open"], said["failures"]) == (4, 4, 0, 0, [])


# ---- going on -------------------------------------------------------------------------------


def test_resuming_a_whole_sweep_records_nothing(copy: Path) -> None:
    before = bench.seals(copy)
    assert bench.go_on(copy) == bench.quick(copy, *bench.GRID) == 0
    assert (bench.seals(copy), bench.aside(copy)) == (before, [])


def cut(cell: Path) -> None:
    events = (cell / EVENTS).read_bytes()
    (cell / EVENTS).write_bytes(events[: len(events) // 2])


def blank(cell: Path) -> None:
    trace = cell / "traces" / "core.arrows"
    trace.write_bytes(b"\0" * (trace.stat().st_size - 1))


def empty(cell: Path) -> None:
    shutil.rmtree(cell)
    cell.mkdir()


def pend(cell: Path) -> Path:
    """Move a recording back to the state just before it was done."""
    work = cell.parent.parent / "pending" / cell.name / cell.name
    work.parent.mkdir(parents=True)
    return cell.rename(work)


def break_off(cell: Path) -> None:
    bench.unseal(pend(cell))


@pytest.mark.parametrize("spoil", [shutil.rmtree, bench.unseal, cut, blank, empty, break_off])
def test_a_damaged_cell_is_set_aside_and_recorded_again(copy: Path, spoil: Callable[[Path], None]) -> None:
    before = bench.seals(copy)
    table = (copy / "table.csv").read_bytes()
    spoilt = bench.cells(copy)[2]
    spoil(place_of(copy, spoilt))
    assert bench.go_on(copy) == 0
    assert bench.aside(copy) == ([] if spoil is shutil.rmtree else [f"{spoilt.key}.1"])
    assert {key for key, seal in bench.seals(copy).items() if seal != before[key]} == {spoilt.key}
    assert (copy / "table.csv").read_bytes() == table


def test_two_exchanged_cells_are_recorded_again(copy: Path) -> None:
    one, other = (place_of(copy, cell) for cell in bench.cells(copy)[:2])
    one.rename(copy / "kept")
    other.rename(one)
    (copy / "kept").rename(other)
    table = (copy / "table.csv").read_bytes()
    assert bench.go_on(copy) == 0
    assert bench.aside(copy) == sorted([f"{one.name}.1", f"{other.name}.1"])
    assert (copy / "table.csv").read_bytes() == table


def test_a_pending_recording_is_moved_to_its_place(copy: Path) -> None:
    before = bench.seals(copy)
    cell = bench.cells(copy)[0]
    row_path(pend(place_of(copy, cell)), cell).unlink()
    assert bench.go_on(copy) == 0
    assert (bench.seals(copy), bench.aside(copy), [*(copy / "pending").iterdir()]) == (before, [], [])


def test_broken_cells_are_never_overwritten(copy: Path) -> None:
    for _ in range(2):
        bench.unseal(place_of(copy, bench.cells(copy)[0]))
        bench.go_on(copy)
    assert bench.aside(copy) == [f"{bench.cells(copy)[0].key}.{n}" for n in (1, 2)]


def test_another_grid_is_refused_by_its_difference(copy: Path) -> None:
    says = r"vary.inference_s was 0.01,0.02, is 0.01,0.03.*repetitions was 2, is 4"
    raised(UsageError, bench.quick, copy, "--vary", "inference_s=0.01,0.03", "--repetitions", "4", says=says)
    caught = raised(UsageError, bench.quick, copy, *bench.GRID, "--meter", "gone.py:open_meter")
    assert "the directory where the sweep was begun" in str(caught.remedy)
    assert len(frozen(copy)) == 1


def test_an_extended_grid_adds_only_new_cells(copy: Path) -> None:
    before = bench.seals(copy)
    wider = ("--vary", "inference_s=0.01,0.02", "--vary", "rate_hz=500", "--repetitions", "1")
    assert bench.quick(copy, *wider, "--extend") == 0
    assert (len(bench.seals(copy)), before.items() <= bench.seals(copy).items()) == (6, True)
    assert bench.column(copy, "rate_hz") == ["", "", "", "", "500", "500"]
    assert bench.quick(copy, *bench.GRID) == bench.quick(copy, *wider) == 0


# ---- cells that fail ------------------------------------------------------------------------


@pytest.mark.parametrize("changed", ["nothing", "mine.py", "numpy"])
def test_code_changed_between_cells_is_reported(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    mine = "from fixtures.bench.mock_device import open_device\n"
    device = "mock" if changed == "numpy" else "mine.py:open_device"
    words = ("--device", device, *bench.QUICK, "--meter", "mock", "--out", "s", "--jobs", "0")
    for seconds, version in (("0.01", "old"), ("0.01,0.02", "new")):
        (here / "mine.py").write_text(f"{mine}# {version if changed == 'mine.py' else ''}\n")
        monkeypatch.setitem(environment().packages, "numpy", version if changed == "numpy" else "")
        assert bench.sweep(*words, "--vary", f"inference_s={seconds}", "--extend") == 0
    assert ("the table then mixes" in capsys.readouterr().err) == (changed == "mine.py")
    (here / "mine.py").unlink()
    bench.sweep("s", "--table")
    assert (f"the table mixes versions of {changed}. " in capsys.readouterr().err) == (changed != "nothing")


def test_one_failed_cell_does_not_stop_the_others(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "s"
    assert bench.quick(out, *bench.FAILS) == DeviceError.exit_code
    assert bench.states(out) == ["done", "failed"]
    assert bench.column(out, "error")[1].startswith("DeviceError: the device failed")
    failed = bench.cells(out)[1]
    note = json.loads((out / "failed" / f"{failed.key}.json").read_text())
    assert note["recording"] == f"broken/{failed.key}.1"
    recorded = open_run(out / note["recording"]).error
    assert recorded is not None and note["error"]["message"] == recorded.message
    assert note["error"]["remedy"].endswith(f"Recorded until then: {out / note['recording']}")
    assert "--retry-failed" in capsys.readouterr().out


def test_a_failed_cell_is_tried_again_when_asked(tmp_path: Path, monkeypatch: Patch) -> None:
    out = tmp_path / "s"
    bench.quick(out, *bench.FAILS)
    before = (out / "table.csv").read_bytes()
    assert (bench.go_on(out), len(bench.aside(out))) == (DeviceError.exit_code, 1)
    assert (bench.go_on(out, "--retry-failed"), len(bench.aside(out))) == (DeviceError.exit_code, 3)
    assert (out / "table.csv").read_bytes() == before

    def mended(request: Request, quiet: bool) -> Path:
        options = tuple(text.replace("fail_at=2", "fail_at=0") for text in request.options)
        return measure(replace(request, options=options), quiet)

    monkeypatch.setattr("rig.session.measure.measure", mended)
    assert bench.go_on(out, "--retry-failed") == 0
    assert bench.states(out) == ["done", "done"]


def test_an_invalid_option_fails_only_its_cell(tmp_path: Path) -> None:
    assert bench.quick(tmp_path / "s", "--vary", "drop=0,5") == UsageError.exit_code
    assert bench.states(tmp_path / "s") == ["done", "failed"]
    assert "drop is 5.0" in bench.column(tmp_path / "s", "error")[1]


def test_a_full_disk_does_not_fail_a_cell(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rig.session.measure.measure", raising(StoreError("no space left")))
    monkeypatch.setattr("rig.sweep.cells._writable", lambda folder: False)
    raised(StoreError, bench.quick, tmp_path / "s", *bench.GRID, says="no space left")
    monkeypatch.undo()
    assert bench.go_on(tmp_path / "s") == 0


def test_a_contradictory_recording_is_done_with_an_error(copy: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rig.analysis.evaluate.evaluate", raising(ValueError("spans run backwards")))
    bench.forget_rows(copy)
    bench.go_on(copy, "--table")
    assert (bench.states(copy), {*bench.column(copy, "error")}) == (["done"] * 4, {"ValueError: spans run backwards"})


def test_an_interrupted_cell_remains_open(copy: Path, monkeypatch: Patch) -> None:
    cell = bench.cells(copy)[0]
    shutil.rmtree(place_of(copy, cell))

    def interrupted(request: Request, quiet: bool) -> Path:
        assert request.out is not None
        request.out.mkdir()
        raise Interrupted("interrupted")

    monkeypatch.setattr("rig.session.measure.measure", interrupted)
    raised(Interrupted, bench.go_on, copy, says=r"3 of 4 cells done\. Continue with: rig sweep")
    assert (bench.aside(copy), sorted(bench.states(copy))) == ([f"{cell.key}.1"], ["done", "done", "done", "open"])


def test_an_interrupted_sweep_names_the_resume_command(copy: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rig.sweep.loop.compute_rows", lambda *_: signal.raise_signal(signal.SIGTERM))
    raised(Interrupted, bench.go_on, copy, says=r"4 of 4 cells done\. Continue with: rig sweep")


def test_a_cell_begins_without_older_devices(tmp_path: Path, monkeypatch: Patch) -> None:
    others = {id(found) for found in gc.get_objects()}

    def measured(request: Request, quiet: bool) -> Path:
        assert all(id(found) in others for found in gc.get_objects() if type(found).__name__ == "MockDevice")
        return measure(request, quiet)

    monkeypatch.setattr("rig.session.measure.measure", measured)
    assert bench.quick(tmp_path / "s", *bench.GRID) == 0


def test_a_cell_recorded_meanwhile_is_kept(copy: Path, monkeypatch: Patch) -> None:
    cell = bench.cells(copy)[0]
    before = bench.seals(copy)
    shutil.copytree(place_of(copy, cell), copy / "pending" / cell.key / cell.key)
    monkeypatch.setattr(rig.sweep.cells, "state_of", lambda folder, cell: "open")
    assert perform(Task("cell", str(copy), cell, rows=True)).state == "done"
    assert bench.seals(copy) == before
    assert bench.aside(copy) == [f"{cell.key}.1"]


def test_each_cell_may_be_a_session(tmp_path: Path) -> None:
    assert bench.quick(tmp_path / "s", "--mode", "session") == 0
    (row,) = bench.rows(tmp_path / "s")
    runs = len((tmp_path / "s" / "runs.csv").read_text().splitlines()) - 1
    assert (row["state"], bool(row["active_power_w"]), bool(row["accuracy"]), runs) == ("done", True, True, 3)


def test_the_figure_digest_covers_only_estimators() -> None:
    names = {path.relative_to(ROOT / "rig").as_posix() for path in estimator_sources()}
    some = {"analysis/evaluate.py", "analysis/power/model/noise.py", "recording/traces/conversion.py", "types.py"}
    assert some <= names
    assert {name for name in names if name.startswith("sweep/")} == {"sweep/row_of_cell.py"}


# ---- how long the rest may take -------------------------------------------------------------


def test_remaining_time_follows_from_ended_cells(monkeypatch: Patch) -> None:
    now_s = [0.0]
    monkeypatch.setattr("rig.sweep.loop.time.monotonic", lambda: now_s[0])
    progress = Progress(8, ["a", "b", "c", "d"], 0)
    assert progress.left_s() is None
    now_s[0] = 6.0
    progress.note(Outcome("a", "done"))
    progress.note(Outcome("b", "failed"))
    assert progress.left_s() == pytest.approx(6.0)


@pytest.mark.parametrize(("seconds", "text"), [(4.2, "4 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert span(seconds) == text


# ---- a cluster that is not there ------------------------------------------------------------


def test_a_bench_name_is_refused_with_the_alternative(here: Path) -> None:
    (here / "bench.toml").write_text('[devices.board1]\ndriver = "mock"\n')
    with pytest.raises(UsageError, match=r"'board1'\. The bench file has this name"):
        bench.sweep("--device", "board1", "--out", "sweep")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"neurorig\[dask\]"):
        bench.sweep("--device", "mock", *bench.QUICK, "--out", str(tmp_path / "s"), "--scheduler", "tcp://127.0.0.1:1")
