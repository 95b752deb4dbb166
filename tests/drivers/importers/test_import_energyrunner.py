"""EnergyRunner sessions: the published figures to all printed digits, and the possible forms of a session."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from drivers.importers.energyrunner.importer import open_import
from rig.analysis.evaluate import evaluate
from rig.analysis.scores.reference_methods import recorder_figures
from rig.errors import DataError, RigError, UsageError
from rig.importing.imported import ImportedRun
from rig.importing.write import write
from rig.recording.reader import open_run
from tests.support.paths import SHARED

REAL = SHARED / "data" / "power" / "energyrunner"
real = pytest.mark.skipif(not REAL.is_dir(), reason="needs the shared data")


def session(
    folder: Path,
    *,
    rate_hz: float = 1000.0,
    windows: int = 3,
    length_s: float = 0.4,
    counts: tuple[int, ...] | None = None,
    prefix: str = "trace1",
    log: bool = True,
) -> Path:
    """Our own session: 2 mW in windows, 1 mW between them, an idle tail of one second."""
    folder.mkdir(parents=True, exist_ok=True)
    on = [round(0.1 + k * (length_s + 0.1), 3) for k in range(windows)]
    stamps = [0.01, *(round(t + x, 3) for t in on for x in (0.0, length_s))]
    t = np.arange(round((stamps[-1] + 1.2) * rate_hz)) / rate_hz
    busy = np.any([(t >= a) & (t < a + length_s) for a in on], axis=0)
    energy_uj = (1e3 + 1e3 * busy + np.random.default_rng(3).normal(0.0, 5.0, len(t))) / rate_hz
    body = np.concatenate([[rate_hz], energy_uj]).astype("<f4").tobytes()
    (folder / f"{prefix}-energy.bin").write_bytes(b"\xf1" + body)
    (folder / f"{prefix}-timestamps.json").write_text(json.dumps(stamps))
    lines = [(0.0, f'parser: Command "emon trace on {prefix}"')]
    for k, a in enumerate(on):
        lines.append((a, f"io: [dut]: m-infer-start-{counts[k] if counts else 10}"))
        lines.append((round(a + length_s, 3), "io: [dut]: m-infer-done"))
    lines += [(stamps[-1], 'parser: Command "echo tail 1000"'), (stamps[-1] + 1.0, "parser: m-echo-message[tail]")]
    lines.append((stamps[-1] + 1.1, "emon: m-trace[off]"))
    if log:
        (folder / "log.txt").write_text("".join(f"{50.0 + at:09.3f} {what}\n" for at, what in lines))
    return folder


def only(source: Path, **options: object) -> ImportedRun:
    runs = open_import(source, **options)  # type: ignore[arg-type]
    assert len(runs) == 1
    return runs[0]


def printed(text: str, name: str) -> list[str]:
    return re.findall(rf"{name}\s*:?\s*(?:cost is|is)?\s*([\d.]+)", text)


@real
@pytest.mark.parametrize("board", ["NUCLEO_L4R5ZI_ad", "NUCLEO_L4R5ZI_kws"])
def test_published_figures_come_out_to_the_digits_printed(board: str, tmp_path: Path) -> None:
    run = open_run(write(only(REAL / board), tmp_path / "run"))
    text = (REAL / board / "results.txt").read_text()
    figures = {str(key): f"{q.value * 1e6:.3f}" for key, q in recorder_figures(run).items()}
    energies = printed(text, "Energy  ")
    assert len(energies) == 5
    for k in range(5):
        assert figures[f"peer.window.{k + 1}.energy_j"] == energies[k]
        assert figures[f"peer.window.{k + 1}.power_w"] == printed(text, "Power")[k]
        assert figures[f"peer.window.{k + 1}.energy_per_inference_j"] == printed(text, "Energy/Inf.")[k]
    assert [figures["peer.energy_per_inference_median_j"]] == printed(text, "Median energy")
    throughput = recorder_figures(run)["peer.throughput_median_hz"].value
    assert [f"{throughput:.3f}"] == printed(text, "Median throughput")


@real
@pytest.mark.parametrize("board", ["NUCLEO_L4R5ZI_ad", "NUCLEO_L4R5ZI_kws"])
def test_our_own_figures_agree_with_the_published_ones(board: str, tmp_path: Path) -> None:
    run = open_run(write(only(REAL / board), tmp_path / "run"))
    ours, theirs = evaluate(run).quantities, recorder_figures(run)
    assert ours["energy_per_inference_j"].value == pytest.approx(
        theirs["peer.energy_per_inference_median_j"].value, rel=1e-3
    )
    assert ours["energy_per_inference_j"].n == 5 * (1500 if board.endswith("ad") else 150)
    assert any("uncertainty not stated" in note for note in evaluate(run).notes)


@real
def test_a_calibration_is_checked_against_the_day_of_the_session(tmp_path: Path) -> None:
    valid = """instrument = "LPM01A"\nreference = "made up"\nvalid_from = 2022-01-01\nvalid_until = 2022-12-31
    [[range]]\nunit = "W"\nfull_scale = 0.1\nof_reading_percent = 2.0\nof_range_percent = 0.0\n"""
    (tmp_path / "valid.toml").write_text(valid)
    run = open_run(write(only(REAL / "NUCLEO_L4R5ZI_ad", calibration=str(tmp_path / "valid.toml")), tmp_path / "run"))
    energy = evaluate(run).quantities["energy_per_inference_j"]
    assert energy.half_width() > 1.96 * 0.02 / 3**0.5 * energy.value
    assert not any("uncertainty not stated" in note for note in evaluate(run).notes)
    (tmp_path / "past.toml").write_text(valid.replace("2022", "2021"))
    with pytest.raises(DataError, match="2022-09-26"):
        open_import(REAL / "NUCLEO_L4R5ZI_ad", calibration=str(tmp_path / "past.toml"))


@real
def test_a_folder_of_sessions_makes_a_run_of_each() -> None:
    assert [r.name for r in open_import(REAL)] == ["NUCLEO_L4R5ZI_ad", "NUCLEO_L4R5ZI_kws"]


@real
@pytest.mark.parametrize("gone", ["log.txt", "results.txt", "script.async"])
def test_figures_do_not_depend_on_any_one_of_the_texts(gone: str, tmp_path: Path) -> None:
    folder = shutil.copytree(REAL / "NUCLEO_L4R5ZI_ad", tmp_path / "session")
    (folder / gone).chmod(0o644)
    (folder / gone).unlink()
    figures = recorder_figures(open_run(write(only(folder), tmp_path / "run")))
    assert f"{figures['peer.energy_per_inference_median_j'].value * 1e6:.3f}" == "322.977"


@real
def test_line_ends_of_another_system_change_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    for path in (REAL / "NUCLEO_L4R5ZI_kws").iterdir():
        data = path.read_bytes()
        (folder / path.name).write_bytes(data if path.suffix == ".bin" else data.replace(b"\n", b"\r\n").rstrip())
    ours, theirs = only(folder), only(REAL / "NUCLEO_L4R5ZI_kws")
    assert (ours.spans, ours.idle_ns, ours.peers) == (theirs.spans, theirs.idle_ns, theirs.peers)


@pytest.mark.parametrize(("rate_hz", "windows"), [(1000.0, 1), (5000.0, 4), (333.0, 2), (100_000.0, 3)])
def test_other_rates_and_numbers_of_windows(rate_hz: float, windows: int, tmp_path: Path) -> None:
    folder = session(tmp_path / "s", rate_hz=rate_hz, windows=windows)
    run = open_run(write(only(folder), tmp_path / "run"))
    figures = recorder_figures(run)
    assert sum(key.quantity == "energy_j" for key in figures) == windows
    for k in range(windows):
        assert figures[f"peer.window.{k + 1}.power_w"].value == pytest.approx(2e-3, rel=0.02)
    low, high = evaluate(run).quantities["active_power_w"].interval()
    assert low < 2e-3 < high or evaluate(run).quantities["active_power_w"].value == pytest.approx(2e-3, rel=1e-3)


def test_each_window_has_its_own_count(tmp_path: Path) -> None:
    run = only(session(tmp_path / "s", counts=(10, 20, 40)))
    assert [s.executions for s in run.spans] == [10, 20, 40]
    figures = recorder_figures(open_run(write(run, tmp_path / "run")))
    each = [figures[f"peer.window.{k}.energy_per_inference_j"].value for k in (1, 2, 3)]
    assert figures["peer.energy_per_inference_median_j"].value == sorted(each)[1]


def test_two_traces_in_one_folder_are_two_runs(tmp_path: Path) -> None:
    session(tmp_path / "s", prefix="trace1")
    log = (tmp_path / "s" / "log.txt").read_text()
    session(tmp_path / "s", prefix="trace2", windows=2)
    (tmp_path / "s" / "log.txt").write_text(log + (tmp_path / "s" / "log.txt").read_text())
    assert [(r.name, len(r.spans)) for r in open_import(tmp_path / "s")] == [("s-trace1", 3), ("s-trace2", 2)]


def test_inferences_are_asked_for_where_no_text_tells(tmp_path: Path) -> None:
    folder = session(tmp_path / "s", log=False)
    with pytest.raises(UsageError) as caught:
        open_import(folder)
    assert caught.value.field == "inferences"
    assert [s.executions for s in only(folder, inferences=7).spans] == [7, 7, 7]


def test_a_count_against_the_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        open_import(session(tmp_path / "s"), inferences=11)


def test_idle_is_as_the_log_or_the_option_says(tmp_path: Path) -> None:
    folder = session(tmp_path / "s")
    ((on, off),) = only(folder).idle_ns
    assert off - on == pytest.approx(0.8e9)
    assert only(folder, idle="0.02:0.08").idle_ns == ((20_000_000, 80_000_000),)
    assert only(session(tmp_path / "t", log=False), inferences=1).idle_ns == ()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trace1-energy.bin", b""),
        ("trace1-energy.bin", b"\xf2" + bytes(40)),
        ("trace1-energy.bin", b"\xf1" + np.array([1000.0, 1.0, np.inf], "<f4").tobytes()),
        ("trace1-energy.bin", b"\xf1" + np.array([0.0, 1.0, 1.0], "<f4").tobytes()),
        ("trace1-energy.bin", b"\xf1" + np.array([1000.0, 1.0, 1.0], "<f4").tobytes()[:-1]),
        ("trace1-timestamps.json", b"[0.01, 0.1"),
        ("trace1-timestamps.json", b"[0.01, 0.1]"),
        ("trace1-timestamps.json", b"[0.01, 0.5, 0.1]"),
        ("trace1-timestamps.json", b"[-1, 0.1, 0.5]"),
        ("trace1-timestamps.json", b'{"a": 1}'),
        ("trace1-timestamps.json", b"[0.01, 0.1, true]"),
        ("log.txt", b'00050.0 parser: Command "emon trace on trace1"\n00051.0 io: [dut]: m-infer-start-10\n'),
    ],
)
def test_what_is_no_session_is_refused_by_file(name: str, content: bytes, tmp_path: Path) -> None:
    folder = session(tmp_path / "s")
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(name)):
        open_import(folder)


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ([1], "lacks the begin of window 1, "),
        ([5], "lacks the begin of window 3, "),
        ([4], "lacks the end of window 2, "),
        ([3, 5], "lacks the begin of window 2 and the begin of window 3, "),
    ],
)
def test_a_lost_edge_is_named_from_the_log(lost: list[int], named: str, tmp_path: Path) -> None:
    path = session(tmp_path / "s") / "trace1-timestamps.json"
    stamps = json.loads(path.read_text())
    path.write_text(json.dumps([t for k, t in enumerate(stamps) if k not in lost]))
    with pytest.raises(DataError) as caught:
        only(tmp_path / "s")
    assert named in str(caught.value)
    assert "run the session again" in caught.value.remedy


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="energy"):
        open_import(tmp_path)
