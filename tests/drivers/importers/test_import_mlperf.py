"""MLPerf power runs: the published average, and the dialects of other submitters and rounds of MLPerf Inference.

The dialects are those in mlcommons/inference_results_v1.0 to v4.1, mlcommons/power-dev and its issues; the
contents are made up. The average is computed again here, line by line, as in the submission checker.
"""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from drivers.importers.mlperf_power.importer import open_import
from rig.analysis.evaluate import evaluate
from rig.analysis.scores.reference_methods import recorder_figures
from rig.errors import DataError, UsageError
from rig.importing.imported import ImportedRun
from rig.importing.write import write
from rig.recording.reader import open_run
from tests.support.paths import SHARED
from tests.support.raised import raised

REAL = SHARED / "data" / "power" / "mlperf_power"
real = pytest.mark.skipif(not REAL.is_dir(), reason="needs the shared data")

Line = Callable[[str, float], str]
RANGED = datetime(2021, 3, 17, 19, 40, 40, tzinfo=UTC)
BEGIN = datetime(2021, 3, 17, 19, 56, 42, 537_000, tzinfo=UTC)
LENGTH_S = 60
US, DMY = "%m-%d-%Y", "%d-%m-%Y"
SINGLE = {"effective_scenario": "SingleStream", "effective_samples_per_query": 1, "result_query_count": 600}


def millis(moment: datetime, order: str = US) -> str:
    return moment.strftime(f"{order} %H:%M:%S.%f")[:-3]


def readings(begin: datetime, watts: float) -> list[tuple[datetime, float]]:
    """Return a reading a second, from 20 s before to 20 s after the load."""
    noise = random.Random(str(begin))
    at = [begin + timedelta(seconds=k - 20, milliseconds=420) for k in range(LENGTH_S + 40)]
    return [(t, round((watts if 20 <= k < 80 else 100.0) + noise.gauss(0.0, 0.2), 2)) for k, t in enumerate(at)]


def plain(stamp: str, watts: float) -> str:
    return f"Time,{stamp},Watts,{watts:.6f},Volts,248.990000,Amps,0.1,PF,0.4,Mark,2021-03-17_12-40-22_testing"


def channels(stamp: str, watts: float) -> str:
    """Return a line of a WT333E with three channels, as PTDaemon 1.9 and 1.10 write it."""
    each = ",".join(f"Ch{k},Watts,{watts / 3:.6f},Volts,231.0,Amps,2.4,PF,0.9" for k in (1, 2, 3))
    return f"Time,{stamp},Watts,{watts:.6f},Volts,-1.000000,Amps,-1.000000,PF,-1.000000,Mark,m_testing,{each}"


def analyzers(stamp: str, watts: float) -> str:
    """Return a line of two meters joined, as PTDaemon 1.11 writes it."""
    one = ",".join(
        f"Analyzer{k},Time,{stamp},Watts,{w:.6f},Volts,244.0,Amps,1.8,PF,0.9,Mark,m" for k, w in ((1, -8.0), (2, 400.0))
    )
    return f"Time,{stamp},Watts,{watts:.6f},Volts,-1.000000,Amps,-1.000000,PF,-1.000000,Mark,m,{one}"


def part(
    folder: Path, begin: datetime, *, watts: float = 150.0, line: Line = plain, order: str = US, meter_h: float = 0.0,
    said: dict[str, object] | None = None,
) -> tuple[float, int]:  # fmt: skip
    """Write one run, the meter's log in local time; return average and number of readings as the checker does."""
    folder.mkdir(parents=True)
    shown = [(millis(t + timedelta(hours=meter_h), order), w) for t, w in readings(begin, watts)]
    (folder / "spl.txt").write_text("\n".join(line(s, w) for s, w in shown) + "\n")
    end = begin + timedelta(seconds=LENGTH_S)
    keys: dict[str, object] = {"power_begin": millis(begin), "power_end": millis(end)}
    keys |= {**SINGLE, "sut_name": "TFLite_SUT"} if said is None else said
    text = "".join(f":::MLLOG {json.dumps({'key': k, 'value': v, 'time_ms': 0.1})}\n" for k, v in keys.items())
    (folder / "mlperf_log_detail.txt").write_text(text)
    held = [w for t, w in readings(begin, watts) if begin < t < end and w > 0]
    return sum(held) / len(held), len(held)


def only(source: Path, **options: object) -> ImportedRun:
    (run,) = open_import(source, **options)
    return run


def average(run: ImportedRun, out: Path) -> tuple[float, int]:
    found = recorder_figures(open_run(write(run, out)))["peer.average_power_w"]
    return found.value, found.n


@real
def test_published_average_and_ranging_figure_match(tmp_path: Path) -> None:
    (imported,) = open_import(REAL)
    run = open_run(write(imported, tmp_path / "run"))
    found = recorder_figures(run)
    assert f"{found['peer.average_power_w'].value:.4f}" == "5531.2473"
    assert found["peer.average_power_w"].n == 659
    assert f"{found['peer.testing_over_ranging'].value:.2%}" == "0.06%"
    active = evaluate(run).quantities["active_power_w"]
    assert active.interval()[0] < found["peer.average_power_w"].value < active.interval()[1]


@pytest.mark.parametrize("line", [plain, channels, analyzers])
def test_the_total_is_found_in_any_log_line(line: Line, tmp_path: Path) -> None:
    expected = part(tmp_path / "run_1", BEGIN, line=line)
    assert average(only(tmp_path), tmp_path / "out") == (pytest.approx(expected[0]), expected[1])


@pytest.mark.parametrize("absent", ["-1.000000", "nan", "-nan", "NaN", "-nan(ind)", "0.000000", "-3.5"])
def test_readings_without_watts_are_left_out(absent: str, tmp_path: Path) -> None:
    part(tmp_path / "run_1", BEGIN)
    path = tmp_path / "run_1" / "spl.txt"
    lines = path.read_text().splitlines()
    watts = [float(x.split(",")[3]) for x in lines]
    lines[40] = lines[40].replace(f"Watts,{watts[40]:.6f}", f"Watts,{absent}")
    path.write_text("\n".join(lines))
    held = [w for k, w in enumerate(watts) if 20 <= k < 80 and k != 40]
    run = only(tmp_path)
    (chunk,) = run.traces[0].chunks
    assert np.flatnonzero(np.isnan(chunk.value)).tolist() == ([] if absent == "0.000000" else [40])
    assert average(run, tmp_path / "out") == (pytest.approx(sum(held) / 59), 59)


def test_a_run_without_a_count_has_no_energy_per_inference(tmp_path: Path) -> None:
    expected = part(tmp_path / "run_1", BEGIN, said={})
    run = only(tmp_path)
    assert average(run, tmp_path / "out") == (pytest.approx(expected[0]), expected[1])
    assert "inferences=NUMBER" in run.details["counted"]
    assert "energy_per_inference_j" not in evaluate(open_run(tmp_path / "out")).quantities
    assert only(tmp_path, inferences=77).spans[0].executions == 77


@pytest.mark.parametrize(("meter_h", "zone"), [(-7.0, "-07:00"), (5.5, "Asia/Kolkata")])
def test_a_zone_is_required_if_logs_do_not_overlap(meter_h: float, zone: str, tmp_path: Path) -> None:
    expected = part(tmp_path / "run_1", BEGIN, meter_h=meter_h)
    assert raised(UsageError, open_import, tmp_path).field == "timezone"
    assert average(only(tmp_path, timezone=zone), tmp_path / "out") == (pytest.approx(expected[0]), expected[1])


def test_an_unknown_zone_is_refused(tmp_path: Path) -> None:
    part(tmp_path / "run_1", BEGIN)
    raised(UsageError, open_import, tmp_path, says="timezone", timezone="Mars/Olympus")


def test_a_log_may_be_nested_by_the_harness(tmp_path: Path) -> None:
    expected = part(tmp_path / "run_1", BEGIN)
    nested = tmp_path / "run_1" / "DGX_MaxQ" / "bert-99" / "Offline"
    nested.mkdir(parents=True)
    (tmp_path / "run_1" / "mlperf_log_detail.txt").rename(nested / "mlperf_log_detail.txt")
    assert average(only(tmp_path), tmp_path / "out") == (pytest.approx(expected[0]), expected[1])


def test_a_ranging_run_without_a_log_is_left_out(tmp_path: Path) -> None:
    part(tmp_path / "ranging", RANGED)
    expected = part(tmp_path / "run_1", BEGIN)
    (tmp_path / "ranging" / "mlperf_log_detail.txt").unlink()
    run = only(tmp_path)
    assert average(run, tmp_path / "out") == (pytest.approx(expected[0]), expected[1])
    assert "left out" in run.notes[0]


@pytest.mark.parametrize("ranged", [RANGED, BEGIN + timedelta(minutes=9)], ids=["before", "after"])
def test_raw_folders_of_a_session_are_paired(ranged: datetime, tmp_path: Path) -> None:
    part(tmp_path / "2021-03-17_12-40-22_label_ranging", ranged, watts=151.0)
    expected = part(tmp_path / "2021-03-17_12-40-22_label_testing", BEGIN)
    run = only(tmp_path)
    assert average(run, tmp_path / "out") == (pytest.approx(expected[0]), expected[1])
    assert sorted(s.warmup for s in run.spans) == [False, True]
    assert "peer.testing_over_ranging" in recorder_figures(open_run(tmp_path / "out"))


def test_each_run_of_a_submission_is_imported(tmp_path: Path) -> None:
    for k, scenario in enumerate(("Offline", "Server")):
        top = tmp_path / "closed" / "X" / "bert-99" / scenario / "performance"
        part(top / "ranging", RANGED + timedelta(hours=k))
        part(top / "run_1", BEGIN + timedelta(hours=k))
        (top.parent / "accuracy").mkdir()
        (top.parent / "accuracy" / "mlperf_log_detail.txt").write_text(":::MLLOG {}\n")
    names = [r.name for r in open_import(tmp_path / "closed")]
    assert names == [f"X/bert-99/{s}/performance/run_1" for s in ("Offline", "Server")]


def test_an_import_in_the_folder_is_skipped(tmp_path: Path) -> None:
    part(tmp_path / "run_1", BEGIN)
    write(only(tmp_path), tmp_path / "out")
    assert only(tmp_path).name == "run_1"


def test_a_clock_that_was_set_back_is_reported(tmp_path: Path) -> None:
    part(tmp_path / "run_1", BEGIN)
    path = tmp_path / "run_1" / "spl.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:50], lines[10], *lines[50:]]))
    raised(DataError, open_import, tmp_path, says="back in time at its reading 51")


@pytest.mark.parametrize("name", ["spl.txt", "mlperf_log_detail.txt"])
def test_a_log_may_name_its_folder(name: str, tmp_path: Path) -> None:
    part(tmp_path / "run_1", BEGIN)
    assert only(tmp_path / "run_1" / name).name == "run_1"


def test_several_runs_share_one_ranging_run(tmp_path: Path) -> None:
    part(tmp_path / "ranging", RANGED, watts=151.0)
    for k in (1, 2):
        part(tmp_path / f"run_{k}", RANGED + timedelta(minutes=5 * k))
        log = tmp_path / f"run_{k}" / "spl.txt"
        log.write_text(log.read_text().replace("\n", "\r\n"))
    runs = open_import(tmp_path)
    assert [r.name for r in runs] == ["run_1", "run_2"]
    found = recorder_figures(open_run(write(runs[1], tmp_path / "out")))
    assert found["peer.testing_over_ranging"].value == pytest.approx(150.0 / 151.0 - 1.0, abs=2e-3)
    assert [s.warmup for s in runs[1].spans] == [True, False]


@pytest.mark.parametrize(("scenario", "given"), [("SingleStream", True), ("MultiStream", True), ("Server", False)])
def test_energy_per_query_matches_the_peer(scenario: str, given: bool, tmp_path: Path) -> None:
    said = SINGLE | {"effective_scenario": scenario, "effective_samples_per_query": 2}
    watts, _ = part(tmp_path / "run_1", BEGIN, said=said)
    run = only(tmp_path)
    found = recorder_figures(open_run(write(run, tmp_path / "out")))
    assert run.spans[0].executions == 2 * 600
    assert ("peer.energy_per_query_j" in found) is given
    if given:
        assert found["peer.energy_per_query_j"].value == pytest.approx(watts * LENGTH_S / 600)


@pytest.mark.parametrize("begin", [*(datetime(2024, 7, day, 9, tzinfo=UTC) for day in (12, 25, 7)),
                                   datetime(2024, 11, 30, 23, 59, 30, tzinfo=UTC)])  # fmt: skip
@pytest.mark.parametrize("written", [US, DMY])
def test_the_order_of_dates_follows_from_the_window(begin: datetime, written: str, tmp_path: Path) -> None:
    expected = part(tmp_path / "run_1", begin, order=written)
    run = only(tmp_path)
    assert average(run, tmp_path / "out") == (pytest.approx(expected[0]), expected[1])
    assert run.t0_ns // 10**9 == int(begin.timestamp()) - 20


def test_a_stated_order_is_used(tmp_path: Path) -> None:
    part(tmp_path / "run_1", datetime(2024, 7, 12, 9, tzinfo=UTC))
    assert only(tmp_path, date_order="mdy").name == "run_1"
    part(tmp_path / "european" / "run_2", datetime(2024, 7, 25, 9, tzinfo=UTC), order=DMY)
    for wrong in ("mdy", "ymd"):
        raised(UsageError, open_import, tmp_path / "european", date_order=wrong)


@pytest.mark.parametrize(("name", "old", "new"), [
    ("mlperf_log_detail.txt", "power_begin", "power_start"), ("spl.txt", "Watts,", "Watts,lots"),
    ("spl.txt", "Watts,", "Watts,inf,"), ("spl.txt", "Time,03-17-2021", "Time,03-17-21"),
    ("spl.txt", "Time,", "Zeit,"),
])  # fmt: skip
def test_a_damaged_log_is_refused(name: str, old: str, new: str, tmp_path: Path) -> None:
    part(tmp_path / "run_1", BEGIN)
    text = (tmp_path / "run_1" / name).read_text()
    assert old in text
    (tmp_path / "run_1" / name).write_text(text.replace(old, new))
    raised(DataError, open_import, tmp_path)


def test_clocks_differ_by_at_most_the_stated_offset(tmp_path: Path) -> None:
    part(tmp_path / "run_1", BEGIN)
    (bracket,) = only(tmp_path, sync_s=0.25).brackets["ptdaemon"]
    assert bracket.after_ns - bracket.before_ns == 500_000_000
    assert len(only(tmp_path).idle_ns) == 2
    assert only(tmp_path, idle_guard_s=None).idle_ns == ()
