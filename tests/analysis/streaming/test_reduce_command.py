"""`rig reduce`: energies of windows from files of numbers, run directories and JLS, exact, or refused by name."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rig.analysis.streaming.run import rail_file
from rig.commands import main as cli
from rig.commands.reduce import progress
from rig.recording.reader import open_run
from tests.support.paths import EXAMPLES
from tests.support.run_by_hand import trace as hand_trace
from tests.support.run_by_hand import write as write_by_hand

RATE_HZ, N = 1e4, 100_000  # two blocks of float32 and a part of one
POWER = 1.0 + np.random.default_rng(0).normal(0.0, 0.3, N)
EXAMPLE = EXAMPLES / "write_run_by_hand.py"
Rig = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str]) -> Rig:
    """The command as a user types it: its exit code and its JSON document."""

    def call(*argv: object) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = cli.main(["reduce", *map(str, argv), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "a.f32"
    POWER.astype("<f4").tofile(path)
    return path


def table(folder: Path, *rows: tuple[object, ...], head: str = "start,end,phase") -> Path:
    path = folder / "windows.csv"
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def exact(values: np.ndarray, low: float, high: float) -> float:
    """Joules between two moments by ``math.fsum``, cut readings by the part inside."""
    k = np.arange(math.floor(low * RATE_HZ), min(math.ceil(high * RATE_HZ), len(values)))
    inside = np.minimum(k + 1, high * RATE_HZ) - np.maximum(k, low * RATE_HZ)
    return math.fsum((values[k].astype(np.float64) * inside).tolist()) / RATE_HZ


def energies(document: dict[str, Any]) -> list[Any]:
    return [row["energy_j"] for row in document["windows"]]


# ---- what is right ------------------------------------------------------------------------


def test_energies_are_those_of_exact_summation(rig: Rig, trace: Path, tmp_path: Path) -> None:
    spans = [(0.0, 10.0), (0.12345, 6.54321), (1.0, 1.00005), (2.0, 2.0)]
    code, found = rig(trace, "--rate", RATE_HZ, "--windows", table(tmp_path, *spans, head="start,end"))
    values = POWER.astype("<f4")
    assert code == 0
    assert energies(found) == pytest.approx([exact(values, *s) for s in spans], rel=1e-9)
    assert [row["readings"] for row in found["windows"]][:1] == [N]
    assert found["windows"][0]["mean_w"] == pytest.approx(float(np.mean(values, dtype=np.float64)), rel=1e-12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(0.0, N / RATE_HZ), min_size=3, max_size=8))
def test_windows_side_by_side_add_up_to_their_union(
    rig: Rig, trace: Path, tmp_path_factory: pytest.TempPathFactory, at: list[float]
) -> None:
    edges = sorted(at)
    rows = [*itertools.pairwise(edges), (edges[0], edges[-1])]
    windows = table(tmp_path_factory.mktemp("w"), *((repr(a), repr(b)) for a, b in rows), head="begin,end")
    found = energies(rig(trace, "--rate", RATE_HZ, "--windows", windows)[1])
    assert math.fsum(found[:-1]) == pytest.approx(found[-1], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", ["f32", "f64", "i16", "npy"])
def test_every_format_gives_the_same_energy(kind: str, rig: Rig, tmp_path: Path) -> None:
    path, raw = tmp_path / f"a.{kind}", np.round(POWER * 1e3)
    if kind == "npy":
        np.save(path, raw)
    else:
        raw.astype({"f32": "<f4", "f64": "<f8", "i16": "<i2"}[kind]).tofile(path)
    windows = table(tmp_path, (0.5, 7.25))
    _, found = rig(path, "--rate", RATE_HZ, "--windows", windows, "--unit", "mW", "--offset", "100")
    assert energies(found) == pytest.approx([exact((raw + 100.0) * 1e-3, 0.5, 7.25)], rel=1e-9)


def test_current_becomes_power_as_a_rail_of_amperes_does(rig: Rig, trace: Path, tmp_path: Path) -> None:
    amperes, windows = POWER.astype("<f4").astype(float), table(tmp_path, (1.0, 2.0))
    common = (trace, "--rate", RATE_HZ, "--windows", windows, "--supply-v", "1.8")
    _, found = rig(*common, "--unit", "A", "--burden-ohm", "0.25")
    assert energies(found) == pytest.approx([exact(amperes * 1.8 - amperes**2 * 0.25, 1.0, 2.0)], rel=1e-9)
    _, found = rig(*common, "--unit", "V", "--shunt-ohm", "2")
    assert energies(found) == pytest.approx([exact(amperes * 0.9 - amperes**2 * 0.5, 1.0, 2.0)], rel=1e-9)


def test_energy_above_the_mean_of_windows_named_idle(rig: Rig, trace: Path, tmp_path: Path) -> None:
    windows = table(tmp_path, (0.0, 1.0, "idle"), (9.0, 9.5, "idle"), (2.0, 4.0, "inference"))
    _, found = rig(trace, "--rate", RATE_HZ, "--windows", windows)
    values = POWER.astype("<f4")
    idle_w = (exact(values, 0.0, 1.0) + exact(values, 9.0, 9.5)) / 1.5
    assert found["idle_w"] == pytest.approx(idle_w)
    assert found["sum"]["windows"] == 1
    assert found["sum"]["above_idle_j"] == pytest.approx(exact(values, 2.0, 4.0) - 2.0 * idle_w, abs=1e-9)
    assert any("no uncertainty budget" in note for note in found["notes"])


def test_the_csv_holds_every_window_and_is_a_table_of_windows(rig: Rig, trace: Path, tmp_path: Path) -> None:
    rows = [(k / 100, (k + 1) / 100, "inference") for k in range(100)]
    out = tmp_path / "out.csv"
    _, first = rig(trace, "--rate", RATE_HZ, "--windows", table(tmp_path, *rows), "--out", out)
    assert [float(row["energy_j"]) for row in csv.DictReader(out.read_text().splitlines())] == energies(first)
    assert energies(rig(trace, "--rate", RATE_HZ, "--windows", out)[1]) == energies(first)
    assert not list(tmp_path.glob(".*.part"))


# ---- run directories and JLS --------------------------------------------------------------


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's: 20 spans of 0.1 s at 3 mW over 1 mW, readings on a grid."""
    import subprocess

    path = tmp_path_factory.mktemp("runs") / "run"
    subprocess.run([sys.executable, EXAMPLE, path], check=True, capture_output=True)
    return path


def test_a_run_is_summed_over_its_own_spans_and_idle(rig: Rig, run_dir: Path) -> None:
    code, found = rig(run_dir)
    assert code == 0
    assert found["by_name"]["inference"]["windows"] == 20
    assert found["by_name"]["inference"]["mean_w"] == pytest.approx(3e-3, rel=1e-2)
    assert found["idle_w"] == pytest.approx(1e-3, rel=1e-2)
    assert found["sum"]["above_idle_j"] == pytest.approx(20 * 0.1 * 2e-3, rel=1e-2)


def test_a_run_without_its_traces_says_what_the_whole_run_says(rig: Rig, run_dir: Path) -> None:
    _, found = rig(run_dir)
    run = open_run(run_dir)
    trace = run.traces["core"]
    assert found["run_digest"] == run.digest
    assert rail_file(run, None).readings == len(trace.value)
    row = found["windows"][1]
    hz = 1e6 * (1.0 + 40e-6)  # what the meter's clock ran at
    begin_s = trace.start_tick / hz
    inside = np.clip(np.minimum(begin_s + 1e-3, row["end"]) - np.maximum(begin_s, row["start"]), 0.0, None)
    assert row["energy_j"] == pytest.approx(float(inside @ trace.value), rel=2e-3)


def test_an_altered_run_is_refused(rig: Rig, run_dir: Path, tmp_path: Path) -> None:
    import shutil

    copy = Path(shutil.copytree(run_dir, tmp_path / "copy"))
    data = bytearray((copy / "traces" / "core.arrows").read_bytes())
    data[-200] ^= 1
    (copy / "traces" / "core.arrows").write_bytes(data)
    assert rig(copy)[1]["error"] == "IntegrityError"


def test_readings_with_stamps_of_their_own_are_weighed_by_their_lengths(rig: Rig, tmp_path: Path) -> None:
    start = np.cumsum(np.random.default_rng(3).integers(900_000, 1_100_000, 500))
    value = np.random.default_rng(4).normal(1.0, 0.1, 499)
    rail = {"name": "core", "kind": "mean", "rate_hz": 0.0}
    columns = {"value": value, "start_tick": start[:-1], "end_tick": start[1:]}
    begin = {"type": "start", "schema": "neurorig-run/1", "run_id": "r", "t0_ns": 0, "meters": [{"name": "m"}]}
    begin |= {"clocks": [{"name": "host", "tick_hz": 1e9}], "workload": {"name": "w"}}
    begin |= {"device": {"name": "d"}, "scenario": {"name": "s"}}
    traces = {"traces/core.arrows": hand_trace(rail, columns, clock="host")}
    path = write_by_hand(tmp_path / "run", [begin], traces)
    low, high = 0.0123, 0.3456
    _, found = rig(path, "--windows", table(tmp_path, (low, high)))
    seconds = np.clip(np.minimum(start[1:] * 1e-9, high) - np.maximum(start[:-1] * 1e-9, low), 0.0, None)
    assert energies(found) == pytest.approx([math.fsum((seconds * value).tolist())], rel=1e-9)
    assert rig(path, "--windows", table(tmp_path, (low, 9.0)))[1]["error"] == "DataError"


def test_jls_is_read_by_its_importer(rig: Rig, tmp_path: Path) -> None:
    pyjls = pytest.importorskip("pyjls")
    with pyjls.Writer(str(tmp_path / "a.jls")) as out:
        out.source_def(source_id=1, name="JS220", vendor="v", model="m", version="1", serial_number="1")
        out.signal_def(1, source_id=1, sample_rate=int(RATE_HZ), name="power", units="W", data_type=pyjls.DataType.F32)
        out.fsr_f32(1, 0, POWER.astype(np.float32))
    _, found = rig(tmp_path / "a.jls", "--windows", table(tmp_path, (0.5, 2.5), (3.0, 4.0)))
    assert energies(found) == pytest.approx([exact(POWER.astype("<f4"), *s) for s in [(0.5, 2.5), (3.0, 4.0)]])
    assert rig(tmp_path / "a.jls", "--windows", table(tmp_path, (9.0, 11.0)))[1]["field"] == "windows"


# ---- what is refused ----------------------------------------------------------------------


def test_missing_readings_leave_their_window_unstated(rig: Rig, tmp_path: Path) -> None:
    values = POWER.astype("<f4")
    values[15_000:15_003] = np.nan
    values.tofile(tmp_path / "a.f32")
    common = (tmp_path / "a.f32", "--rate", RATE_HZ, "--windows", table(tmp_path, (0.0, 1.0), (1.0, 2.0)))
    code, found = rig(*common)
    assert code == 6
    assert found["refused"]["error"] == "DataError"
    assert energies(found) == [pytest.approx(exact(values, 0.0, 1.0)), None]
    assert found["windows"][1]["missing"] == 3
    assert found["sum"]["energy_j"] is None
    code, found = rig(*common, "--missing", "mean")
    rest = values[10_000:20_000][np.isfinite(values[10_000:20_000])]
    assert code == 0
    assert energies(found)[1] == pytest.approx(float(np.mean(rest, dtype=np.float64)), rel=1e-9)


@pytest.mark.parametrize(
    ("changed", "error", "field"),
    [
        ({"--rate": -1}, "UsageError", "rate_hz"),
        ({"--rate": "nan"}, "UsageError", "rate_hz"),
        ({"--rate": None}, "UsageError", "rate_hz"),
        ({"--windows": None}, "UsageError", "windows"),
        ({"--unit": "A"}, "UsageError", "supply_v"),
        ({"--unit": "A", "--supply-v": -3}, "UsageError", "supply_v"),
        ({"--supply-v": 3}, "UsageError", "supply_v"),
        ({"--unit": "J"}, "UsageError", "unit"),
        ({"--scale": "inf"}, "UsageError", "scale"),
        ({"--rail": "core"}, "UsageError", "rail"),
        ({"--format": "f64"}, "DataError", "windows"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    changed: dict[str, object], error: str, field: str, rig: Rig, trace: Path, tmp_path: Path
) -> None:
    options = {"--rate": RATE_HZ, "--windows": table(tmp_path, (0.0, 9.0))} | changed
    given_ = [x for name, value in options.items() if value is not None for x in (name, value)]
    code, found = rig(trace, *given_)
    assert (found["error"], found["field"]) == (error, field)
    assert code == found["exit_code"]


@pytest.mark.parametrize("row", [(-1, 2), (3, 2), (0, 11), ("nan", 1), (0, "inf"), ("x", 1), (1,)])
def test_windows_that_cannot_be_are_refused(row: tuple[object, ...], rig: Rig, trace: Path, tmp_path: Path) -> None:
    code, found = rig(trace, "--rate", RATE_HZ, "--windows", table(tmp_path, row, head="start,end"))
    assert (code, found["error"], found["field"]) == (6, "DataError", "windows")


def test_tables_of_something_else_are_refused(rig: Rig, trace: Path, tmp_path: Path) -> None:
    for content in ("", "a,b\n1,2\n", "start,end\n", "start (ms),end (ms)\n1,2\n"):
        (tmp_path / "w.csv").write_text(content)
        assert rig(trace, "--rate", RATE_HZ, "--windows", tmp_path / "w.csv")[0] == 6


def test_windows_that_might_never_end_are_refused(
    rig: Rig, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        code, found = rig(trace, "--rate", RATE_HZ, "--windows", path)
        assert (code, found["error"], found["field"]) == (6, "DataError", "windows")
    monkeypatch.setattr("rig.analysis.streaming.windows.MOST_BYTES", 1000)
    assert "larger than 1000 bytes" in rig(trace, "--rate", RATE_HZ, "--windows", trace)[1]["message"]


def test_a_file_that_ends_within_a_reading_is_refused(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "a.f32").write_bytes(b"\0" * 4001)
    code, found = rig(tmp_path / "a.f32", "--rate", 1, "--windows", table(tmp_path, (0, 5)))
    assert (code, "multiple of 4" in found["message"]) == (6, True)


def test_what_is_read_is_never_overwritten(rig: Rig, trace: Path, tmp_path: Path) -> None:
    before = trace.read_bytes()
    assert rig(trace, "--rate", RATE_HZ, "--windows", table(tmp_path, (0, 5)), "--out", trace)[0] == 3
    assert trace.read_bytes() == before


# ---- while it runs ------------------------------------------------------------------------


def test_progress_is_told_after_two_seconds_and_not_before(capsys: pytest.CaptureFixture[str]) -> None:
    at = iter([0.0, 0.0, 1.0, 2.5, 3.0, 9.0])
    with progress(lambda: next(at)) as told:
        for done in (100, 250, 300, 900):
            told(done, 1000)
    assert capsys.readouterr().err.split("\n")[:-1] == [
        " 25 %  250 readings  8 s left", " 90 %  900 readings  1 s left"
    ]  # fmt: skip


def test_an_interruption_leaves_nothing_behind(
    rig: Rig, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    windows = table(tmp_path, (0, 5))
    monkeypatch.setattr("rig.commands.reduce.file_sums", interrupted)
    code, found = rig(trace, "--rate", RATE_HZ, "--windows", windows, "--out", tmp_path / "o.csv")
    assert (code, found["error"]) == (130, "Interrupted")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["windows.csv"]
