"""EnergyRunner sessions: the published figures to all printed digits, by other programs' arithmetic repeated here.

The dialects are those in mlcommons/tiny_results_v0.5 to v1.3; the contents are made up.
"""

import json
import random
import re
import shutil
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from drivers.importers.energyrunner.importer import open_import
from rig.analysis.evaluate import evaluate
from rig.analysis.scores.reference_methods import recorder_figures
from rig.errors import DataError, UsageError
from rig.importing.imported import ImportedRun
from rig.importing.write import write
from rig.recording.reader import Run, open_run
from tests.support.paths import SHARED
from tests.support.raised import raised

REAL = SHARED / "data" / "power" / "energyrunner"
real = pytest.mark.skipif(not REAL.is_dir(), reason="needs the shared data")
COUNT = 40
Figures = list[tuple[str, str, str]]
"""Energy, power and energy per inference of every window, as printed."""


def trace(path: Path, rate_hz: float, stamps: list[float], scale: float = 1e6) -> list[float]:
    """Write a trace of 2 mW in windows and 1 mW between; return its energies as stored, in J times ``scale``."""
    noise = random.Random(7)
    n = round((stamps[-1] + 1.5) * rate_hz)
    busy = [any(a <= k / rate_hz < b for a, b in zip(stamps[1::2], stamps[2::2], strict=True)) for k in range(n)]
    stored = np.array([(1e-3 + 1e-3 * b + noise.gauss(0.0, 2e-6)) / rate_hz * scale for b in busy], "<f4")
    path.write_bytes(b"\xf1" + np.array([rate_hz], "<f4").tobytes() + stored.tobytes())
    return [float(x) for x in stored]


def told(energy_uj: list[float], rate_hz: float, stamps: list[float]) -> Figures:
    """Return the figures as EnergyRunner computes and prints them, sample by sample."""
    sums, held = [0.0] * (len(stamps) // 2), [0] * (len(stamps) // 2)
    t = 0.0
    for value in energy_uj:
        for k in range(len(sums)):
            if stamps[2 * k + 1] <= t < stamps[2 * k + 2]:
                sums[k] += value
                held[k] += 1
        t += 1.0 / rate_hz
    return [(f"{e:.3f}", f"{e * rate_hz / n:.3f}", f"{e / COUNT:.3f}") for e, n in zip(sums, held, strict=True)]


def results_txt(figures: Figures) -> str:
    lines = []
    for k, (energy, power, each) in enumerate(figures, start=1):
        lines += [f"00142.473 ulp-ml: Energy data for window {2 * k} at time 1.00 for 1.00 sec.:"]
        lines += [f"00142.473 ulp-ml:   Energy       : {energy:>12} uJ"]
        lines += [f"00142.473 ulp-ml:   Power        : {power:>12} uW"]
        lines += [f"00142.473 ulp-ml:   Energy/Inf.  : {each:>12} uJ/inf."]
    lines += [f"00142.497 ulp-ml:   # Inferences :           {COUNT}" for _ in figures]
    return "\n".join(lines) + "\n"


def session(folder: Path, rate_hz: float, stamps: list[float], scale: float = 1e6, prefix: str = "trace1") -> Figures:
    """Write a session of our own without a log; return what EnergyRunner would print for it."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = trace(folder / f"{prefix}-energy.bin", rate_hz, stamps, scale)
    (folder / f"{prefix}-timestamps.json").write_text("[\n\t" + ",\n\t".join(f"{s:.6g}" for s in stamps) + "\n]\n")
    figures = told([x / scale * 1e6 for x in stored], rate_hz, stamps)
    (folder / "results.txt").write_text(results_txt(figures))
    return figures


def only(source: Path, **options: object) -> ImportedRun:
    (run,) = open_import(source, **options)
    return run


def recorded(source: Path, out: Path, **options: object) -> Run:
    return open_run(write(only(source, **options), out))


def stated(run: Run, windows: int) -> Figures:
    figures = {str(key): f"{q.value * 1e6:.3f}" for key, q in recorder_figures(run).items()}
    names = ("energy_j", "power_w", "energy_per_inference_j")
    return [tuple(figures[f"peer.window.{k}.{n}"] for n in names) for k in range(1, windows + 1)]  # type: ignore[misc]


LPM01A = [0.015, 3.722, 5.126, 6.135, 7.54, 8.57, 9.975, 10.018, 11.422, 12.046, 13.45]
SHORT = [0.014, 1.08, 1.184, 2.28, 2.384, 3.49, 3.593, 4.69, 4.793, 5.89, 5.994]
JS110 = [0.00341, 0.299824, 0.533934, 0.740259, 0.966961, 1.01326, 1.24949, 1.51005, 1.7499, 1.93058, 2.15994]


@pytest.mark.parametrize(("rate_hz", "stamps"), [
    (1000.0, LPM01A), (1000.0, SHORT), (20_000.0, JS110), (10_000.0, LPM01A[:3]), (333.0, SHORT[:5]),
], ids=["LPM01A", "windows-of-0.1-s", "JS110-microseconds", "one-window", "333-Hz"])  # fmt: skip
def test_every_figure_matches_the_printed_digits(rate_hz: float, stamps: list[float], tmp_path: Path) -> None:
    expected = session(tmp_path / "s", rate_hz, stamps)
    run = recorded(tmp_path / "s", tmp_path / "run")
    assert stated(run, len(expected)) == expected
    each = [float(e) for e, _, _ in expected]
    found = recorder_figures(run)["peer.energy_per_inference_median_j"].value
    assert found * 1e6 == pytest.approx(median(each) / COUNT, abs=5e-4)


def test_texts_may_be_named_after_the_mode(tmp_path: Path) -> None:
    expected = session(tmp_path / "s", 1000.0, LPM01A)
    (tmp_path / "s" / "results.txt").rename(tmp_path / "s" / "energy_results.txt")
    assert stated(recorded(tmp_path / "s", tmp_path / "run"), 5) == expected
    (logged(tmp_path / "t") / "log.txt").rename(tmp_path / "t" / "energy_log.txt")
    run = only(tmp_path / "t")
    assert [s.executions for s in run.spans] == [10, 10, 10] and run.meters[0].name == "lpm01a"


@pytest.mark.parametrize(("unit", "scale"), [("nJ", 1e9), ("J", 1.0), ("mJ", 1e3)])
def test_another_unit_is_detected_by_the_results(unit: str, scale: float, tmp_path: Path) -> None:
    expected = session(tmp_path / "s", 1000.0, LPM01A, scale)
    assert raised(UsageError, open_import, tmp_path / "s", says=f"unit={unit}").field == "unit"
    found = stated(recorded(tmp_path / "s", tmp_path / "run", unit=unit), 5)
    assert [[float(x) for x in w] for w in found] == [pytest.approx([float(x) for x in w], rel=1e-6) for w in expected]


def test_results_of_another_session_are_reported(tmp_path: Path) -> None:
    expected = session(tmp_path / "s", 1000.0, LPM01A)
    (tmp_path / "s" / "results.txt").write_text(results_txt([(f"{1.3 * float(e):.3f}", p, i) for e, p, i in expected]))
    assert "window 2" in only(tmp_path / "s").details["results.txt"]


def test_a_dropped_sample_removes_only_its_window(tmp_path: Path) -> None:
    expected = session(tmp_path / "s", 1000.0, LPM01A)
    path = tmp_path / "s" / "trace1-energy.bin"
    raw = np.frombuffer(path.read_bytes()[1:], "<f4").copy()
    raw[1 + 100] = np.nan
    raw[1 + 4000] = np.nan
    path.write_bytes(b"\xf1" + raw.tobytes())
    run = recorded(tmp_path / "s", tmp_path / "run", idle="13.6:14.9")
    figures = recorder_figures(run)
    assert "peer.window.1.energy_j" not in figures
    assert "peer.energy_per_inference_median_j" not in figures
    found = [f"{figures[f'peer.window.{k}.energy_j'].value * 1e6:.3f}" for k in (2, 3, 4, 5)]
    assert found == [energy for energy, _, _ in expected[1:]]
    assert evaluate(run).quantities["active_power_w"].value == pytest.approx(2e-3, rel=5e-3)


def trial(k: int, stamps: list[tuple[str, int]], length: int = 13_000, **more: object) -> dict[str, object]:
    noise = random.Random(k)
    on, off = stamps[-2][1], stamps[-1][1]
    joules = [float(f"{(3e-6 if on <= i < off else 1.5e-6) + noise.gauss(0, 2e-8):.4g}") for i in range(length)]
    power = {"samples": joules, "timestamps": stamps, "extracted_power": None, "voltage": 3}
    return {"file": f"{k}.bin", "infer": {"iterations": 220, "warmups": 1}, "power": power, "mode": "e", **more}


def successor(folder: Path, trials: list[dict[str, object]]) -> list[tuple[str, str]]:
    """Write a session of the runner of 1.3; return the total energy and energy per inference printed for each trial."""
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(trials))
    printed, text = [], "Power Edition Output\n"
    for k, one in enumerate(trials):
        power = one["power"]
        assert isinstance(power, dict)
        (_, a), (_, b) = power["timestamps"][-2:]
        total = sum(power["samples"][a:b])
        printed.append((f"{total * 1e6:.3f}", f"{total / 220 * 1e6:.3f}"))
        text += f"Energy data for trial {k}\n  Elapsed time  : {(b - a) / 1000}\n  Inferences    : 220\n"
        text += f"  Power         : {1e3 * total / ((b - a) / 1000):5.4f} mW.\n"
        text += f"  Total Energy  : {printed[-1][0]} uJ\n  Energy/Inf    : {printed[-1][1]} uJ/inf\n"
    (folder / "results.txt").write_text(text)
    (folder / "log.txt").write_text(
        "Logging initialized. Writing output to sessions\\20250726_103043\\log.txt\nDevice model retrieved: ad01\n"
    )
    return printed


TRIALS = [trial(0, [("00", 30), ("01", 1200), ("02", 11_776)]), trial(1, [("03", 900), ("04", 11_500)])]


def test_samples_in_the_results_of_the_new_runner_are_read(tmp_path: Path) -> None:
    expected = successor(tmp_path / "s", TRIALS)
    run = recorded(tmp_path / "s", tmp_path / "run", idle="11.9:12.9,24.6:25.9")
    figures = recorder_figures(run)
    found = [(figures[f"peer.window.{k}.energy_j"], figures[f"peer.window.{k}.energy_per_inference_j"]) for k in (1, 2)]
    assert [(f"{a.value * 1e6:.3f}", f"{b.value * 1e6:.3f}") for a, b in found] == expected
    middle = median(float(x) for _, x in expected)
    assert figures["peer.energy_per_inference_median_j"].value * 1e6 == pytest.approx(middle, abs=1e-3)
    assert figures["peer.window.1.power_w"].n == 10_576
    ours = evaluate(run).quantities["energy_per_inference_j"].value
    assert ours == pytest.approx(figures["peer.energy_per_inference_median_j"].value, rel=5e-3)
    assert run.start.device.name == "ad01"


def test_another_rate_of_the_new_runner_is_detected(tmp_path: Path) -> None:
    successor(tmp_path / "s", TRIALS[:1])
    (tmp_path / "s" / "results.txt").write_text((tmp_path / "s" / "results.txt").read_text().replace("10.576", "5.288"))
    assert raised(UsageError, open_import, tmp_path / "s").field == "rate_hz"
    assert open_import(tmp_path / "s", rate_hz=2000.0)[0].meters[0].rails[0].rate_hz == 2000.0


@pytest.mark.parametrize("entry", [
    {"power": {"samples": [[1.0, 2.0, 3.0]], "timestamps": [["01", 0], ["02", 1]]}},
    {"power": {"samples": [1.0, 2.0], "timestamps": [["01", 0]]}},
    {"power": {"samples": [1.0, 2.0], "timestamps": [["01", 1], ["02", 9]]}},
    {"power": {"samples": [], "timestamps": []}},
    {"power": None, "note": "samples"},
])  # fmt: skip
def test_an_invalid_trial_is_refused(entry: dict[str, object], tmp_path: Path) -> None:
    text = json.dumps([entry | {"infer": {"iterations": 3}}]).replace("note", "samples")
    (tmp_path / "results.json").write_text(text)
    raised(DataError, open_import, tmp_path, says=r"results\.json")


def test_a_git_lfs_pointer_is_reported(tmp_path: Path) -> None:
    session(tmp_path / "s", 1000.0, LPM01A[:3])
    (tmp_path / "s" / "trace1-energy.bin").write_text("version https://git-lfs.github.com/spec/v1\nsize 4\n")
    raised(DataError, open_import, tmp_path / "s", says="git lfs pull")


def test_performance_and_accuracy_folders_are_ignored(tmp_path: Path) -> None:
    session(tmp_path / "kws" / "energy", 1000.0, LPM01A[:3])
    for mode in ("performance", "accuracy"):
        (tmp_path / "kws" / mode).mkdir()
        (tmp_path / "kws" / mode / "log.txt").write_text("00001.0 dut: m-lap-us-12\n")
        (tmp_path / "kws" / mode / "results.json").write_text('[{"infer": {"iterations": 10}}]')
    assert [r.name for r in open_import(tmp_path)] == ["kws/energy"]


# ---- sessions with a log ----------------------------------------------------------------------


def logged(
    folder: Path, *, windows: int = 3, counts: tuple[int, ...] = (10, 10, 10), prefix: str = "trace1", log: bool = True
) -> Path:
    """Write a session with a log but no results: 1 kHz, windows of 0.4 s, an idle tail of one second."""
    stamps = [0.01, *(round(0.1 + 0.5 * k + x, 3) for k in range(windows) for x in (0.0, 0.4))]
    session(folder, 1000.0, stamps, prefix=prefix)
    (folder / "results.txt").unlink()
    lines = [(0.0, f'parser: Command "emon trace on {prefix}"')]
    lines.append((0.0, f"emon: m-regfile-fn[{prefix}-energy.bin]-type[emon]-name[lpm01a]"))
    for count, on, off in zip(counts, stamps[1::2], stamps[2::2], strict=False):
        lines += [(on, f"io: [dut]: m-infer-start-{count}"), (off, "io: [dut]: m-infer-done")]
    lines += [(stamps[-1], 'parser: Command "echo tail 1000"'), (stamps[-1] + 1.0, "parser: m-echo-message[tail]")]
    lines.append((stamps[-1] + 1.1, "emon: m-trace[off]"))
    if log:
        (folder / "log.txt").write_text("".join(f"{50.0 + at:09.3f} {what}\n" for at, what in lines))
    return folder


def printed(text: str, name: str) -> list[str]:
    return re.findall(rf"{name}\s*:?\s*(?:cost is|is)?\s*([\d.]+)", text)


@real
@pytest.mark.parametrize("board", ["NUCLEO_L4R5ZI_ad", "NUCLEO_L4R5ZI_kws"])
def test_published_figures_match_the_printed_digits(board: str, tmp_path: Path) -> None:
    run = recorded(REAL / board, tmp_path / "run")
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
    own = evaluate(run)
    ours, theirs = own.quantities["energy_per_inference_j"], recorder_figures(run)["peer.energy_per_inference_median_j"]
    assert ours.value == pytest.approx(theirs.value, rel=1e-3)
    assert ours.n == 5 * (1500 if board.endswith("ad") else 150)
    assert any("uncertainty not stated" in note for note in own.notes)


@real
def test_a_calibration_must_be_valid_on_the_session_day(tmp_path: Path) -> None:
    valid = """instrument = "LPM01A"\nreference = "made up"\nvalid_from = 2022-01-01\nvalid_until = 2022-12-31
    [[range]]\nunit = "W"\nfull_scale = 0.1\nof_reading_percent = 2.0\nof_range_percent = 0.0\n"""
    (tmp_path / "valid.toml").write_text(valid)
    run = recorded(REAL / "NUCLEO_L4R5ZI_ad", tmp_path / "run", calibration=str(tmp_path / "valid.toml"))
    energy = evaluate(run).quantities["energy_per_inference_j"]
    assert energy.half_width() > 1.96 * 0.02 / 3**0.5 * energy.value
    assert not any("uncertainty not stated" in note for note in evaluate(run).notes)
    (tmp_path / "past.toml").write_text(valid.replace("2022", "2021"))
    with pytest.raises(DataError, match="2022-09-26"):
        open_import(REAL / "NUCLEO_L4R5ZI_ad", calibration=str(tmp_path / "past.toml"))


@real
@pytest.mark.parametrize("gone", ["log.txt", "results.txt", "script.async"])
def test_figures_survive_the_loss_of_any_text_file(gone: str, tmp_path: Path) -> None:
    folder = shutil.copytree(REAL / "NUCLEO_L4R5ZI_ad", tmp_path / "session")
    (folder / gone).chmod(0o644)
    (folder / gone).unlink()
    figures = recorder_figures(recorded(folder, tmp_path / "run"))
    assert f"{figures['peer.energy_per_inference_median_j'].value * 1e6:.3f}" == "322.977"


def test_carriage_returns_change_nothing(tmp_path: Path) -> None:
    theirs = only(logged(tmp_path / "s"))
    for path in (tmp_path / "s" / "log.txt", tmp_path / "s" / "trace1-timestamps.json"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n").rstrip())
    ours = only(tmp_path / "s")
    assert (ours.spans, ours.idle_ns, ours.peers) == (theirs.spans, theirs.idle_ns, theirs.peers)


def test_each_window_has_its_own_count(tmp_path: Path) -> None:
    run = only(logged(tmp_path / "s", counts=(10, 20, 40)))
    assert [s.executions for s in run.spans] == [10, 20, 40]
    figures = recorder_figures(open_run(write(run, tmp_path / "run")))
    each = [figures[f"peer.window.{k}.energy_per_inference_j"].value for k in (1, 2, 3)]
    assert figures["peer.energy_per_inference_median_j"].value == sorted(each)[1]


def test_two_traces_in_one_folder_are_two_runs(tmp_path: Path) -> None:
    logged(tmp_path / "s", prefix="trace1")
    log = (tmp_path / "s" / "log.txt").read_text()
    logged(tmp_path / "s", prefix="trace2", windows=2)
    (tmp_path / "s" / "log.txt").write_text(log + (tmp_path / "s" / "log.txt").read_text())
    assert [(r.name, len(r.spans)) for r in open_import(tmp_path / "s")] == [("s-trace1", 3), ("s-trace2", 2)]


def test_an_unstated_count_is_asked_for(tmp_path: Path) -> None:
    folder = logged(tmp_path / "s", log=False)
    assert raised(UsageError, open_import, folder).field == "inferences"
    assert [s.executions for s in only(folder, inferences=7).spans] == [7, 7, 7]


def test_a_contradicted_count_is_refused(tmp_path: Path) -> None:
    raised(UsageError, open_import, logged(tmp_path / "s"), inferences=11)


def test_idle_comes_from_the_log_or_the_option(tmp_path: Path) -> None:
    folder = logged(tmp_path / "s")
    ((on, off),) = only(folder).idle_ns
    assert off - on == pytest.approx(0.8e9)
    assert only(folder, idle="0.02:0.08").idle_ns == ((20_000_000, 80_000_000),)
    assert only(logged(tmp_path / "t", log=False), inferences=1).idle_ns == ()


@pytest.mark.parametrize(("name", "content"), [
    ("trace1-energy.bin", b""), ("trace1-energy.bin", b"\xf2" + bytes(40)),
    ("trace1-energy.bin", b"\xf1" + np.array([1000.0, 1.0, np.inf], "<f4").tobytes()),
    ("trace1-energy.bin", b"\xf1" + np.array([0.0, 1.0, 1.0], "<f4").tobytes()),
    ("trace1-energy.bin", b"\xf1" + np.array([1000.0, 1.0, 1.0], "<f4").tobytes()[:-1]),
    ("trace1-timestamps.json", b"[0.01, 0.1"), ("trace1-timestamps.json", b"[0.01, 0.1]"),
    ("trace1-timestamps.json", b"[0.01, 0.5, 0.1]"), ("trace1-timestamps.json", b"[-1, 0.1, 0.5]"),
    ("trace1-timestamps.json", b'{"a": 1}'), ("trace1-timestamps.json", b"[0.01, 0.1, true]"),
    ("log.txt", b'00050.0 parser: Command "emon trace on trace1"\n00051.0 io: [dut]: m-infer-start-10\n'),
])  # fmt: skip
def test_a_damaged_session_is_refused_by_file(name: str, content: bytes, tmp_path: Path) -> None:
    folder = logged(tmp_path / "s")
    (folder / name).write_bytes(content)
    raised(DataError, open_import, folder, says=re.escape(name))


@pytest.mark.parametrize("lost", [[1], [3, 5]])
def test_missing_edges_in_stamps_are_refused(lost: list[int], tmp_path: Path) -> None:
    path = logged(tmp_path / "s") / "trace1-timestamps.json"
    stamps = json.loads(path.read_text())
    path.write_text(json.dumps([t for k, t in enumerate(stamps) if k not in lost]))
    raised(DataError, only, tmp_path / "s", says=r"missed an edge|counts 3 windows, but the stamps mark 2")
