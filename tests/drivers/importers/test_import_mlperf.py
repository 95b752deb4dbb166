"""MLPerf power runs: the published average, the comparison with ranging, dates, zones and channels."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from drivers.importers.mlperf_power.importer import open_import
from rig.analysis.evaluate import evaluate
from rig.analysis.scores.reference_methods import recorder_figures
from rig.errors import DataError, UsageError
from rig.importing.write import write
from rig.recording.reader import open_run
from tests.support.paths import SHARED

REAL = SHARED / "data" / "power" / "mlperf_power"
real = pytest.mark.skipif(not REAL.is_dir(), reason="needs the shared data")
BEGIN = datetime(2024, 7, 12, 9, 0, 20, 100_000)
US = "%m-%d-%Y"


def folder(
    path: Path,
    begin: datetime = BEGIN,
    *,
    meter_dates: str = US,
    dates: str = US,
    shift_h: float = 0.0,
    scenario: str = "Offline",
    watts: float = 150.0,
    end: str = "\n",
) -> Path:
    """One run: the meter logs from 20 s before to 20 s after a minute of load; its clock is ``shift_h`` ahead."""
    path.mkdir(parents=True)
    lines = []
    for k in range(100):
        at = begin - timedelta(seconds=20) + timedelta(seconds=k, milliseconds=300)
        load = watts if 20 <= k < 80 else 100.0
        stamp = (at + timedelta(hours=shift_h)).strftime(f"{meter_dates} %H:%M:%S.%f")[:-3]
        lines.append(f"Time,{stamp},Watts,{load:.6f},Volts,230.0,Amps,1.0,PF,0.9,Mark,m,Ch1,Watts,1.0,Volts,2.0")
    lines[5] = lines[5].replace("Watts,100.000000", "Watts,-1.000000")
    (path / "spl.txt").write_text(end.join(lines))
    said = {
        "power_begin": begin.strftime(f"{dates} %H:%M:%S.%f")[:-3],
        "power_end": (begin + timedelta(seconds=60)).strftime(f"{dates} %H:%M:%S.%f")[:-3],
        "effective_scenario": scenario,
        "result_query_count": 600,
        "effective_samples_per_query": 2,
        "sut_name": "ours",
    }
    text = "".join(f":::MLLOG {json.dumps({'key': k, 'value': v})}\n" for k, v in said.items())
    (path / "mlperf_log_detail.txt").write_text(text)
    return path


def figures(source: Path, out: Path, **options: object) -> dict[str, float]:
    (run,) = open_import(source, **options)  # type: ignore[arg-type]
    return {str(key): q.value for key, q in recorder_figures(open_run(write(run, out))).items()}


@real
def test_published_average_and_comparison_with_ranging(tmp_path: Path) -> None:
    (imported,) = open_import(REAL)
    run = open_run(write(imported, tmp_path / "run"))
    found = recorder_figures(run)
    assert f"{found['peer.average_power_w'].value:.4f}" == "5531.2473"
    assert found["peer.average_power_w"].n == 659
    assert f"{found['peer.testing_over_ranging'].value:.2%}" == "0.06%"
    active = evaluate(run).quantities["active_power_w"]
    assert active.interval()[0] < found["peer.average_power_w"].value < active.interval()[1]


@real
def test_line_ends_of_another_system_change_nothing(tmp_path: Path) -> None:
    copy = shutil.copytree(REAL / "H200x8_bert-99_Offline" / "run_1", tmp_path / "run_1")
    for path in copy.iterdir():
        path.chmod(0o644)
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n").rstrip())
    found = figures(copy, tmp_path / "out")
    assert f"{found['peer.average_power_w']:.4f}" == "5531.2473"
    assert "peer.testing_over_ranging" not in found


def test_the_total_counts_and_what_is_absent_does_not(tmp_path: Path) -> None:
    assert figures(folder(tmp_path / "run_1"), tmp_path / "out") == {"peer.average_power_w": 150.0}


def test_several_runs_share_the_ranging_run_beside_them(tmp_path: Path) -> None:
    folder(tmp_path / "s" / "ranging", watts=151.0)
    for k in (1, 2):
        folder(tmp_path / "s" / f"run_{k}", BEGIN + timedelta(minutes=5 * k), end="\r\n")
    runs = open_import(tmp_path / "s")
    assert [r.name for r in runs] == ["run_1", "run_2"]
    found = recorder_figures(open_run(write(runs[1], tmp_path / "out")))
    assert found["peer.testing_over_ranging"].value == pytest.approx(150.0 / 151.0 - 1.0)
    assert [s.warmup for s in runs[1].spans] == [True, False]


@pytest.mark.parametrize(("scenario", "given"), [("SingleStream", True), ("MultiStream", True), ("Server", False)])
def test_energy_per_query_where_the_peer_gives_it(scenario: str, given: bool, tmp_path: Path) -> None:
    found = figures(folder(tmp_path / "run_1", scenario=scenario), tmp_path / "out")
    assert ("peer.energy_per_query_j" in found) is given
    assert found.get("peer.energy_per_query_j", 15.0) == pytest.approx(150.0 * 60.0 / 600)


@pytest.mark.parametrize("day", [datetime(2024, 7, 12, 9), datetime(2024, 7, 25, 9), datetime(2024, 7, 7, 9)])
@pytest.mark.parametrize("written", [US, "%d-%m-%Y"])
def test_the_order_of_dates_follows_from_the_window(day: datetime, written: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "run_1", day, meter_dates=written)
    assert figures(source, tmp_path / "out") == {"peer.average_power_w": 150.0}
    (run,) = open_import(source)
    assert run.t0_ns // 10**9 == int((day - timedelta(seconds=20) - datetime(1970, 1, 1)).total_seconds())


def test_a_log_past_midnight_at_the_end_of_a_month(tmp_path: Path) -> None:
    source = folder(tmp_path / "run_1", datetime(2024, 11, 30, 23, 59, 30), meter_dates="%d-%m-%Y")
    assert figures(source, tmp_path / "out") == {"peer.average_power_w": 150.0}


def test_a_stated_order_is_kept_to(tmp_path: Path) -> None:
    source = folder(tmp_path / "run_1")
    assert figures(source, tmp_path / "out", date_order="mdy") == {"peer.average_power_w": 150.0}
    european = folder(tmp_path / "run_2", datetime(2024, 7, 25, 9), meter_dates="%d-%m-%Y")
    for wrong in ("mdy", "ymd"):
        with pytest.raises(UsageError):
            open_import(european, date_order=wrong)


@pytest.mark.parametrize(("zone", "hours"), [("Europe/Berlin", 2.0), ("-07:00", -7.0), ("Asia/Kolkata", 5.5)])
def test_a_meter_in_another_zone_is_asked_for_and_moved(zone: str, hours: float, tmp_path: Path) -> None:
    source = folder(tmp_path / "run_1", shift_h=hours)
    with pytest.raises(UsageError) as caught:
        open_import(source)
    assert caught.value.field == "timezone"
    (run,) = open_import(source, timezone=zone)
    found = recorder_figures(open_run(write(run, tmp_path / "out")))
    assert found["peer.average_power_w"].value == 150.0


def test_an_unknown_zone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="timezone"):
        open_import(folder(tmp_path / "run_1"), timezone="Mars/Olympus")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("mlperf_log_detail.txt", "power_begin", "power_start"),
        ("spl.txt", "Watts,100.000000", "Watts,lots"),
        ("spl.txt", "Watts,100.000000", "Watts,inf"),
        ("spl.txt", "Time,07-12-2024", "Time,07-12-24"),
        ("spl.txt", "Time,", "Zeit,"),
    ],
)
def test_what_is_no_log_is_refused(name: str, old: str, new: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "run_1")
    text = (source / name).read_text()
    assert old in text
    (source / name).write_text(text.replace(old, new))
    with pytest.raises(DataError):
        open_import(source)


def test_the_clocks_are_apart_by_no_more_than_stated(tmp_path: Path) -> None:
    (run,) = open_import(folder(tmp_path / "run_1"), sync_s=0.25)
    (bracket,) = run.brackets["ptdaemon"]
    assert bracket.after_ns - bracket.before_ns == 500_000_000


def test_idle_may_be_left_undeclared(tmp_path: Path) -> None:
    source = folder(tmp_path / "run_1")
    assert len(open_import(source)[0].idle_ns) == 2
    assert open_import(source, idle_guard_s=None)[0].idle_ns == ()
