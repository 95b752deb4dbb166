"""Traces of single instruments with separate windows: each format, its units, and its required options."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.importers import joulescope_csv, joulescope_jls, otii, ppk2, socwatch
from rig.errors import DataError, UsageError
from tests.support import import_traces
from tests.support.import_traces import BUSY, IDLE, RATE_HZ, SUPPLY_V, T_S, WATTS, check, recorded, table, windows
from tests.support.paths import ROOT
from tests.support.processes import python
from tests.support.raised import raised

MARKED: dict[str, Any] = {"supply_v": SUPPLY_V, "inferences": 5, "idle": IDLE}
"""Options of a trace whose channel marks the windows."""

# ---- Nordic PPK2 --------------------------------------------------------------------------


def ppk(folder: Path, header: str = "Timestamp(ms),Current(uA),D0-D7", **how: Any) -> Path:
    digits = [f"0{int(b)}000000" for b in BUSY]
    path = folder / "ppk.csv"
    lines = [f"{a * 1e3:.2f},{w / SUPPLY_V * 1e6:.3f},{d}" for a, w, d in zip(T_S, WATTS, digits, strict=True)]
    path.write_bytes(how.get("end", "\n").join([header, *lines]).encode())
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_ppk2_digital_channel_marks_the_windows(end: str, tmp_path: Path) -> None:
    source = ppk(tmp_path, end=end)
    check(ppk2.open_import(source, window_channel="D1", **MARKED), tmp_path / "run")


def test_ppk2_channels_in_columns_are_read(tmp_path: Path) -> None:
    columns = (T_S * 1e3, WATTS / SUPPLY_V * 1e6, ~BUSY, BUSY)
    source = table(tmp_path / "p.csv", "Timestamp(ms),Current(uA),D0,D1", *columns)
    check(ppk2.open_import(source, window_channel="D1", **MARKED), tmp_path / "a")
    check(ppk2.open_import(source, window_channel="D0", window_active="low", **MARKED), tmp_path / "b")


def test_ppk2_windows_are_uncertain_by_a_sample(tmp_path: Path) -> None:
    run = ppk2.open_import(ppk(tmp_path), supply_v=SUPPLY_V, window_channel="D1", idle=IDLE)
    assert run.device.clock is not None and run.device.clock.tick_hz == pytest.approx(RATE_HZ)


GAPS = {
    "joins two windows": (0.95, 1.25, 2, "from 0.9495 s to 1.25 s; 2 windows"),
    "hides a begin": (0.85, 0.95, 3, "from 0.8495 s to 0.95 s; 1 windows"),
    "hides a window": (0.85, 1.15, 3, "from 0.8495 s to 1.15 s; 0 windows"),
    "hides nothing": (0.65, 0.66, 4, None),
}


@pytest.mark.parametrize(("begin", "end", "windows_", "note"), GAPS.values(), ids=GAPS)
def test_a_channel_window_beside_a_gap_is_left_out(
    begin: float, end: float, windows_: int, note: str | None, tmp_path: Path
) -> None:
    kept = (begin - 1e-9 > T_S) | (end - 1e-9 < T_S)
    t, amps, busy = T_S[kept], WATTS[kept] / SUPPLY_V, BUSY[kept]
    one = table(tmp_path / "p.csv", "Timestamp(ms),Current(uA),D0", t * 1e3, amps * 1e6, busy)
    other = table(tmp_path / "o.csv", "Timestamp (s),Arc Main current (A),GPI1", t, amps, busy)
    for run in (
        ppk2.open_import(one, window_channel="D0", **MARKED),
        otii.open_import(other, window_channel="gpi1", **MARKED),
    ):
        assert [s.off_tick - s.on_tick for s in run.spans] == pytest.approx([import_traces.SPAN_S * 1e9] * windows_)
        assert [note in text for text in run.notes] == [True] if note else not run.notes
        check(run, tmp_path / str(len(list(tmp_path.iterdir()))), 5 * windows_)


def test_otii_channel_without_readings_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "o" / "Main current - Arc.csv", "Timestamp,Value", T_S, WATTS / SUPPLY_V)
    table(tmp_path / "o" / "GPI1 - Arc.csv", "Timestamp,Value", T_S[:0], T_S[:0])
    raised(DataError, otii.open_import, tmp_path / "o", says="never high", supply_v=SUPPLY_V, window_channel="gpi1")


def test_otii_channel_may_hold_only_edges(tmp_path: Path) -> None:
    table(tmp_path / "o" / "Main current - Arc.csv", "Timestamp,Value", T_S + 0.5 / RATE_HZ, WATTS / SUPPLY_V)
    edges = np.flatnonzero(np.diff(BUSY, prepend=not BUSY[0]))
    table(tmp_path / "o" / "GPI1 - Arc.csv", "Timestamp,Value", T_S[edges], BUSY[edges])
    run = otii.open_import(tmp_path / "o", supply_v=SUPPLY_V, window_channel="gpi1", inferences=5, idle=IDLE)
    check(run, tmp_path / "run")


@pytest.mark.parametrize("missing", ["supply_v", "window_channel"])
def test_ppk2_asks_for_unstated_options(missing: str, tmp_path: Path) -> None:
    given = {name: value for name, value in {**MARKED, "window_channel": "D1"}.items() if name != missing}
    raised(UsageError, ppk2.open_import, ppk(tmp_path), says=missing, **given)


@pytest.mark.parametrize("off", [1.0, 1e3, 1e-3])
@pytest.mark.parametrize("wrong", ["current", "voltage", "power"])
def test_power_that_is_not_current_times_voltage_is_refused(wrong: str, off: float, tmp_path: Path) -> None:
    si = {"current": WATTS / SUPPLY_V, "voltage": 0.0 * T_S + SUPPLY_V, "power": WATTS}
    si[wrong] = si[wrong] * off
    statistics, none = ",".join(joulescope_csv.COLUMNS), 0.0 * T_S
    sources = {
        joulescope_csv: table(tmp_path / "s.csv", statistics, T_S + 1.0 / RATE_HZ, *si.values(), none, none),
        otii: table(tmp_path / "o.csv", "Time (s),Main current (A),Main voltage (V),Main power (W)", T_S, *si.values()),
    }
    if find_spec("pyjls"):
        sources[joulescope_jls] = jls(tmp_path / "a.jls", {k: (joulescope_jls.UNITS[k], v) for k, v in si.items()})
    for module, source in sources.items():
        if off == 1.0:
            check(module.open_import(source, windows=windows(tmp_path)), tmp_path / module.__name__)
        else:
            with pytest.raises(DataError, match="its current times its voltage is"):
                module.open_import(source, windows=windows(tmp_path))


def test_ppk2_refuses_a_current_above_its_range(tmp_path: Path) -> None:
    source = ppk(tmp_path, header="Timestamp(ms),Current(A),D0-D7")
    with pytest.raises(DataError, match="a PPK2 measures up to 1 A"):
        ppk2.open_import(source, supply_v=SUPPLY_V, window_channel="D1")


def test_ppk2_header_states_units(tmp_path: Path) -> None:
    source = table(tmp_path / "p.csv", "Timestamp(us),Current(mA)", T_S * 1e6, WATTS / SUPPLY_V * 1e3)
    check(ppk2.open_import(source, supply_v=SUPPLY_V, windows=windows(tmp_path)), tmp_path / "run")
    unknown = table(tmp_path / "q.csv", "Timestamp(ms),Current(counts)", T_S * 1e3, WATTS)
    raised(UsageError, ppk2.open_import, unknown, says="counts", supply_v=SUPPLY_V, windows=windows(tmp_path))


# ---- Joulescope ---------------------------------------------------------------------------


def jls(path: Path, signals: dict[str, tuple[str, np.ndarray]], first: dict[str, int] | None = None) -> Path:
    pyjls = pytest.importorskip("pyjls")
    with pyjls.Writer(str(path)) as out:
        out.source_def(source_id=1, name="JS220", vendor="Jetperch", model="JS220", version="1", serial_number="1")
        for k, (name, (units, values)) in enumerate(signals.items(), start=1):
            kept: dict[str, Any] = {"sample_rate": int(RATE_HZ), "data_type": pyjls.DataType.F32}
            out.signal_def(k, source_id=1, name=name, units=units, **kept)
            out.fsr_f32(k, (first or {}).get(name, 0), values.astype(np.float32))
    return path


def test_jls_power_or_factors_are_read(tmp_path: Path) -> None:
    amps, volts = WATTS / SUPPLY_V, np.full(len(WATTS), SUPPLY_V)
    given_: dict[str, Any] = {"windows": windows(tmp_path)}
    full = {"current": ("A", amps), "voltage": ("V", volts), "power": ("W", WATTS)}
    check(joulescope_jls.open_import(jls(tmp_path / "a.jls", full), **given_), tmp_path / "a")
    two = {"current": ("A", amps), "voltage": ("V", volts)}
    check(joulescope_jls.open_import(jls(tmp_path / "b.jls", two), **given_), tmp_path / "b")
    # another supply in the middle, which voltage and current must show at the same samples
    turns = np.where(np.arange(len(WATTS)) < len(WATTS) // 2, SUPPLY_V, 2.0 * SUPPLY_V)
    late = {"current": ("A", np.append(np.zeros(300), WATTS / turns)), "voltage": ("V", turns)}
    of_ids = jls(tmp_path / "late.jls", late, first={"current": 1000, "voltage": 1300})
    check(joulescope_jls.open_import(of_ids, **given_), tmp_path / "late")
    one = jls(tmp_path / "c.jls", {"current": ("A", amps)})
    check(joulescope_jls.open_import(one, supply_v=SUPPLY_V, **given_), tmp_path / "c")
    raised(UsageError, joulescope_jls.open_import, one, says="supply", **given_)


def test_jls_readings_are_kept_as_sampled(tmp_path: Path) -> None:
    source = jls(tmp_path / "a.jls", {"power": ("W", WATTS)})
    run, _ = recorded(joulescope_jls.open_import(source, windows=windows(tmp_path)), tmp_path / "run")
    (read,) = run.traces.values()
    assert np.array_equal(read.value, WATTS.astype(np.float32).astype(np.float64))


def test_an_unclosed_jls_file_is_refused_unchanged(tmp_path: Path) -> None:
    source = jls(tmp_path / "a.jls", {"power": ("W", WATTS)})
    whole = source.read_bytes()
    for cut in (0, 10, 40, len(whole) // 2, len(whole) - 1):
        source.write_bytes(whole[:cut])
        raised(DataError, joulescope_jls.open_import, source, windows=windows(tmp_path))
        assert source.read_bytes() == whole[:cut]


def test_a_damaged_jls_file_is_reported_once(tmp_path: Path) -> None:
    """Run outside pytest, which captures all logs."""
    source = jls(tmp_path / "a.jls", {"power": ("W", WATTS)})
    data = bytearray(source.read_bytes())
    data[len(data) // 3] ^= 0xFF
    source.write_bytes(data)
    script = (
        "import sys; from pathlib import Path; from drivers.importers.joulescope_jls import open_import\n"
        "try: open_import(Path(sys.argv[1]), windows=sys.argv[2])\n"
        "except Exception as error: print('ours:', error, file=sys.stderr)"
    )
    said = python(script, source, windows(tmp_path), cwd=ROOT).stderr
    assert said.startswith("ours: a.jls cannot be read by pyjls")
    assert said.count("\n") == 1


# ---- Otii ---------------------------------------------------------------------------------


def test_otii_folder_is_read(tmp_path: Path) -> None:
    t, watts, busy = import_traces.trace(4000.0)
    folder = tmp_path / "recording"
    middle = t + 0.5 / 4000.0
    table(folder / "Main current - Arc.csv", "Timestamp,Value", middle, watts / SUPPLY_V)
    table(folder / "Main voltage - Arc.csv", "Timestamp,Value", middle[::4], 0.0 * t[::4] + SUPPLY_V)
    table(folder / "GPI1 - Arc.csv", "Timestamp,Value", t, busy)
    check(otii.open_import(folder, windows=windows(tmp_path)), tmp_path / "a")
    marked = otii.open_import(folder, window_channel="gpi1", inferences=5, idle=IDLE)
    check(marked, tmp_path / "b")
    assert sorted(marked.originals) == ["GPI1 - Arc.csv", "Main current - Arc.csv", "Main voltage - Arc.csv"]


def test_otii_current_needs_a_supply(tmp_path: Path) -> None:
    source = table(tmp_path / "Main current - Arc.csv", "Timestamp,Value", T_S + 0.5 / RATE_HZ, WATTS / SUPPLY_V)
    raised(UsageError, otii.open_import, source, says="supply", windows=windows(tmp_path))
    check(otii.open_import(source, windows=windows(tmp_path), supply_v=SUPPLY_V), tmp_path / "run")


def test_otii_table_with_decimal_commas_is_read(tmp_path: Path) -> None:
    columns = (T_S + 0.5 / RATE_HZ, WATTS / SUPPLY_V * 1e3, 0.0 * T_S + SUPPLY_V)
    header = "Timestamp (s);Arc Main current (mA);Arc Main voltage (V)"
    source = table(tmp_path / "o.csv", header, *columns, separator=";", decimal=",")
    check(otii.open_import(source, windows=windows(tmp_path), decimal=","), tmp_path / "run")
    check(otii.open_import(source, windows=windows(tmp_path)), tmp_path / "found")
    raised(DataError, otii.open_import, source, says="which is not a number", windows=windows(tmp_path), decimal=".")


# ---- SoC Watch ----------------------------------------------------------------------------


def watch(path: Path, header: str, *columns: Any, after: str = "") -> Path:
    lines = [",".join(f"{x:.9g}" for x in row) for row in zip(*columns, strict=True)]
    head = ["\ufeffIntel(R) SoC Watch for Linux", "", "Summary", "Component,Average Rate (mW),Total (mJ)", "a,1,2", ""]
    path.write_text("\n".join([*head, "Power over time", header, *lines, "", after]), encoding="utf-8")
    return path


def test_socwatch_units_come_from_headers(tmp_path: Path) -> None:
    middle = (T_S + 0.5 / RATE_HZ) * 1e3
    source = watch(tmp_path / "a.csv", "Sample Time (ms),Package Power (mW)", middle, WATTS * 1e3, after="Legend, x")
    check(socwatch.open_import(source, windows=windows(tmp_path)), tmp_path / "run")


def test_socwatch_asks_for_a_rail(tmp_path: Path) -> None:
    middle = T_S + 0.5 / RATE_HZ
    source = watch(tmp_path / "a.csv", "Time (s),Package (W),Core (W)", middle, WATTS, WATTS / 2)
    raised(UsageError, socwatch.open_import, source, says="rails", windows=windows(tmp_path))
    check(socwatch.open_import(source, windows=windows(tmp_path), rails="Package"), tmp_path / "run")


def test_socwatch_asks_for_energy_kind(tmp_path: Path) -> None:
    each = watch(tmp_path / "a.csv", "Time (s),Package (mJ)", T_S + 1 / RATE_HZ, WATTS / RATE_HZ * 1e3)
    raised(UsageError, socwatch.open_import, each, says="energy", windows=windows(tmp_path))
    options: dict[str, Any] = {"windows": windows(tmp_path)}
    check(socwatch.open_import(each, energy="interval", stamp="end", **options), tmp_path / "a")
    total = watch(tmp_path / "b.csv", "Time (s),Package (mJ)", T_S + 1 / RATE_HZ, np.cumsum(WATTS) / RATE_HZ * 1e3)
    check(socwatch.open_import(total, energy="cumulative", **options), tmp_path / "b")


@pytest.mark.parametrize("stamp", ["start", "end", None])
def test_socwatch_keeps_the_energy_of_late_rows(tmp_path: Path, stamp: str | None) -> None:
    """A logger skips a turn now and then, and the next row holds the energy of both intervals."""
    kept = np.append(np.arange(len(T_S)) % 7 != 3, True)
    edges = np.append(T_S, T_S[-1] + 1 / RATE_HZ)[kept]
    joules = np.diff(np.append(0.0, np.cumsum(WATTS) / RATE_HZ)[kept])
    at = {"start": edges[:-1], "end": edges[1:], None: 0.5 * (edges[1:] + edges[:-1])}[stamp]
    source = watch(tmp_path / "a.csv", "Time (s),Package (J)", at, joules)
    check(socwatch.open_import(source, energy="interval", stamp=stamp, windows=windows(tmp_path)), tmp_path / "run")


def test_socwatch_omits_only_the_intervals_beside_a_gap() -> None:
    stamps, joules = np.array([10, 20, 30, 45, 50]), np.array([1.0, 2.0, np.nan, 4.0, 5.0])
    assert np.diff(socwatch.summed(stamps, joules, "end")[1]) == pytest.approx([2.0, np.nan, np.nan, 5.0], nan_ok=True)
    assert np.diff(socwatch.summed(stamps, joules, "start")[1])[[0, 3]] == pytest.approx([1.0, 4.0])
    assert socwatch.summed(stamps, joules, None)[0].tolist() == [15, 25, 37, 47]


def test_socwatch_totals_are_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Summary\nComponent,Average Rate (mW),Total (mJ)\nPackage,1,2\n")
    raised(DataError, socwatch.open_import, path, says="totals", windows=windows(tmp_path))
