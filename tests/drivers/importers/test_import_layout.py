"""The layout of a table in its file: preambles, rows of units, separators, decimal marks, contradicting units.

A file of any length is imported in bounded memory, with the same readings and times as a short one."""

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.importers import csv_table, joulescope_csv, joulescope_jls, otii, plain_csv, ppk2, raw_numbers, socwatch
from drivers.importers.csv_table import all_of, find
from drivers.importers.energyrunner.importer import open_import as energyrunner
from drivers.importers.mlperf_power.importer import open_import as mlperf_power
from drivers.units import agree
from rig.errors import DataError, RigError, UsageError
from rig.importing.imported import ImportedRun
from tests.support.import_traces import BUSY, RATE_HZ, SUPPLY_V, T_S, WATTS, check, plain, table, windows
from tests.support.raised import Patch, raised

# ---- the header is found by what was declared -------------------------------------------------------------------


def scope(
    folder: Path, above: str = "", below: str = "", header: str = "Time,Ch1", marks: str = ",.", **options: Any
) -> ImportedRun:
    """Import a trace with something before and after its header line; ``marks`` separate columns and decimals."""
    path = table(folder / "scope.csv", header, T_S, WATTS, separator=marks[0], decimal=marks[1])
    head, rows = path.read_text().split("\n", 1)
    return plain(folder, text=f"{above}{head}\n{below}{rows}", **{"time": "Time:s", "power": "Ch1:W"} | options)


@pytest.mark.parametrize(("above", "below"), [
    ("Model,MSO54\nRecord Length,4800\nProbe 1,\"10x\n\n", ""),
    ("# exported by hand\n# Time in seconds\n", ""),
    ("", "(s),(W)\n\n"),
    ("Source,CH1\n", "Second,Watt\n"),
], ids=["preamble", "comments", "units", "both"])  # fmt: skip
def test_lines_around_the_header_of_an_oscilloscope_are_skipped(above: str, below: str, tmp_path: Path) -> None:
    run = scope(tmp_path, above, below)
    check(run, tmp_path / "run")
    assert any("before the header" in note for note in run.notes) == bool(above)
    assert any("read as units" in note for note in run.notes) == bool(below)


def test_a_first_row_of_nan_is_data(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,p\n0,nan\n1,2\n2,2\n")
    assert find(tmp_path / "a.csv", all_of(["p"])).below == 0


SCOPE = "Scope,X1000\nMade,2026\nt (s),p (mW)\n0.1,3.0\n0.2,3.5\n"
THOUSANDS = "t;p\n0;0,5\n1;1.955\n2;0,5\n"


@pytest.mark.parametrize(("text", "options", "match", "remedy"), [
    ("t,p\n0,1\n# trigger\n1,2\n", {}, "data row 2", "comments"),
    ("Time,Ch1\n0,1\n1,2\n", {"time": "Time:s"}, "no column 'p'", "Time, Ch1"),
    ("Logger 3000;Channel 1\nTime;Power [mW]\n2026-10-01T12:00:00;1,5\n", {"time": "Time:iso", "power": "Power:mW"},
     "no column 'Power'", "Power [mW]"),
    (SCOPE, {"power": "p (mW):mW"}, "no column 't'", "Write its name with the unit: t (s)"),
    (SCOPE, {"time": "t (s):s", "power": "q:mW"}, "no column 'q'", "t (s), p (mW)"),
    (THOUSANDS, {}, r"p is '1\.955' in data row 2", "thousands marks are not read"),
    (THOUSANDS, {"decimal": ","}, r"p is '1\.955' in data row 2", "thousands marks are not read"),
])  # fmt: skip
def test_a_malformed_table_is_named_by_row_or_column(
    text: str, options: dict[str, Any], match: str, remedy: str, tmp_path: Path
) -> None:
    assert remedy in raised(DataError, plain, tmp_path, text=text, **options, says=match).remedy


def test_a_repeated_header_is_named_with_a_remedy(tmp_path: Path) -> None:
    header = "#time,current,voltage,power,charge,energy"
    (tmp_path / "a.csv").write_text(f"{header}\n0,1,1,1,1,1\n{header}\n1,1,1,1,2,2\n")
    with pytest.raises(DataError, match="data row 2") as caught:
        joulescope_csv.open_import(tmp_path / "a.csv", windows=windows(tmp_path))
    assert "repeated headers" in caught.value.remedy


# ---- encodings --------------------------------------------------------------------------------------------------

MICRO = {"time": "Zeit:s", "power": "Kühlung (µW):uW", "stamp": "start"}


def encoded(folder: Path, encoding: str) -> Path:
    path = table(folder / "a.csv", "Zeit;Kühlung (µW)", T_S, WATTS * 1e6, separator=";")
    path.write_text(path.read_text(encoding="utf-8"), encoding=encoding)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_unicode_table_is_recognised(encoding: str, tmp_path: Path) -> None:
    check(plain_csv.open_import(encoded(tmp_path, encoding), windows=windows(tmp_path), **MICRO), tmp_path / "run")


def test_another_encoding_is_asked_for(tmp_path: Path) -> None:
    source, options = encoded(tmp_path, "latin-1"), MICRO | {"windows": windows(tmp_path)}
    assert "encoding=" in raised(DataError, plain_csv.open_import, source, **options, says="utf-8").remedy
    raised(UsageError, plain_csv.open_import, source, says="encoding", encoding="klingon", **options)
    check(plain_csv.open_import(source, encoding="latin-1", **options), tmp_path / "run")


# ---- separators and decimal marks -------------------------------------------------------------------------------


def numbers(run: ImportedRun) -> list[float]:
    return [float(value) for chunk in run.traces[0].chunks for value in chunk.value]


@pytest.mark.parametrize("mark", [".", ","])
def test_ambiguous_thousands_separators_are_asked_about(mark: str, tmp_path: Path) -> None:
    text = "\n".join(["t;p", *(f"{k};1{mark}{950 + k}" for k in range(5))])
    error = raised(UsageError, plain, tmp_path, text=text, says=r"such as 1.950 may be a decimal mark")
    assert error.field == "decimal"
    assert numbers(plain(tmp_path, text=text, decimal=mark)) == pytest.approx([1.95 + 0.001 * k for k in range(5)])


@given(
    values=st.lists(st.integers(0, 10**6), min_size=2, max_size=8),
    places=st.integers(1, 5),
    separator=st.sampled_from([",", ";", "\t"]),
    mark=st.sampled_from([".", ","]),
    empty=st.integers(0, 3),
)
def test_numbers_are_read_or_asked_about(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], places: int, separator: str, mark: str, empty: int
) -> None:
    """A spreadsheet that once had more rows ends with rows of empty cells."""
    mark = "." if separator == "," else mark
    folder = tmp_path_factory.mktemp("csv")
    wanted = [v / 10**places for v in values]
    cells = [f"{v:.{places}f}".replace(".", mark) for v in wanted]
    rows = [f"{k}{separator}{cell}" for k, cell in enumerate(cells)] + [separator] * empty
    try:
        run = plain(folder, text="\n".join([f"t{separator}p", *rows]))
    except UsageError as error:
        assert error.field == "decimal"
        assert places == 3
        return
    assert numbers(run) == pytest.approx(wanted)


def test_windows_may_have_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    text = Path(windows(tmp_path)).read_text().replace(",", ";").replace(".", ",")
    (tmp_path / "own.csv").write_text(f"# by hand\n{text}")
    check(scope(tmp_path, windows=str(tmp_path / "own.csv")), tmp_path / "run")


def test_a_windows_error_names_only_options_of_windows(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("start;end\n0,6;0,8\n1.2;1,4\n")
    asked = raised(UsageError, plain, tmp_path, decimal=".", windows=str(tmp_path / "w.csv"))
    (tmp_path / "w.csv").write_text("start,end\n0.6,x\n")
    refused = raised(DataError, plain, tmp_path, windows=str(tmp_path / "w.csv"))
    assert "decimal=" not in asked.remedy + refused.remedy


def test_ppk2_without_units_states_a_remedy(tmp_path: Path) -> None:
    source = table(tmp_path / "p.csv", "Timestamp,Current", T_S, WATTS)
    error = raised(UsageError, ppk2.open_import, source, supply_v=SUPPLY_V, windows=windows(tmp_path), says="no unit")
    assert "plain-csv" in error.remedy
    assert "source=" not in error.remedy


def test_a_supply_in_millivolts_is_refused(tmp_path: Path) -> None:
    source = table(tmp_path / "Main current - Arc.csv", "Timestamp,Value", T_S, WATTS)
    raised(UsageError, otii.open_import, source, says="supply_v is 1800", supply_v=1800.0, windows=windows(tmp_path))


# ---- units that the file states and the user declares otherwise ---------------------------------------------------


@pytest.mark.parametrize("header", [
    "I (mA)", "I [mA]", "I / mA", "I/mA", "I_mA", "current_ma", "I mA", "I (mA) mean", "I (V)", "I_mV", "I (dBm)",
    "I [a.u.]", "I (counts)", "I (%)", "I (core)", "I (mA rms)", "i_ma", "I (dBm) (core)",
])  # fmt: skip
def test_a_unit_that_contradicts_the_header_is_refused(header: str, tmp_path: Path) -> None:
    columns = (T_S, WATTS / SUPPLY_V)
    options: dict[str, Any] = {"power": None, "current": f"{header}:A", "supply_v": SUPPLY_V}
    error = raised(UsageError, plain, tmp_path, *columns, header=f"t,{header}", **options, says="declares A")
    assert header in error.message
    assert "overrule_header=true" in error.remedy
    assert "Declare ma" not in error.remedy
    check(plain(tmp_path, *columns, header=f"t,{header}", overrule_header=True, **options), tmp_path / "run")


def test_contradicting_units_in_time_and_unit_rows_are_refused(tmp_path: Path) -> None:
    raised(UsageError, scope, tmp_path, header="t_ms,Ch1", time="t_ms:s", says="states ms and time declares s")
    raised(UsageError, scope, tmp_path, below="(s),(mW)\n", says="'Ch1' states mW and power declares W")
    raised(UsageError, scope, tmp_path, header="t (min),Ch1", time="t (min):s", says="states min and time declares s")


@pytest.mark.parametrize(("header", "declared"), [
    ("I (mA)", "mA"), ("P", "W"), ("core_A", "W"), ("P (core) (mW)", "mW"), ("rail_io", "W"), ("Channel A", "uW"),
    ("t (UTC)", "iso"), ("power_w", "W"), ("I (µA)", "uA"), ("i_ua", "uA"), ("P (W rms)", "W"), ("t (S)", "s"),
    ("A_1", "mA"),
])  # fmt: skip
def test_an_agreeing_or_unitless_header_is_accepted(header: str, declared: str) -> None:
    agree(header, "", declared, "power")


def test_a_letter_in_a_header_may_be_a_name() -> None:
    agree("Channel A", "(mA)", "mA", "current")


# ---- what all importers of one trace have in common ----------------------------------------------

FORMATS = [joulescope_csv, joulescope_jls, otii, plain_csv, ppk2, socwatch]


@pytest.mark.parametrize("module", FORMATS, ids=lambda m: m.__name__.rpartition(".")[2])
def test_an_import_without_windows_is_refused_before_reading(module: Any, tmp_path: Path) -> None:
    assert raised(UsageError, module.open_import, tmp_path / "absent").field == "windows"


def test_a_value_out_of_range_is_named_with_its_option(tmp_path: Path) -> None:
    error = raised(UsageError, plain, tmp_path, sync_s=-1.0)
    assert (error.field, error.value) == ("sync_s", -1.0)


def test_a_wrong_folder_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Timestamp(ms),Current(uA)\n")
    for open_import, lack in ((energyrunner, "-energy.bin"), (mlperf_power, "spl.txt")):
        assert "rig list" in raised(DataError, open_import, tmp_path, says=lack).remedy


# ---- files of any length -----------------------------------------------------------------------


def columns(run: ImportedRun) -> list[np.ndarray]:
    """Return begin, end and value of all readings of the first rail; for a grid, only the values."""
    chunks = list(run.traces[0].chunks)
    names = ["value"] if chunks[0].start_tick is None else ["start_tick", "end_tick", "value"]
    return [np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in names]


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read in blocks of 701 rows."""
    monkeypatch.setattr(csv_table, "ROWS", 701)


@pytest.mark.parametrize("stamp", ["start", "middle", "end", None])
@pytest.mark.parametrize("jitter", [0.0, 0.3], ids=["grid", "stamped"])
def test_readings_are_block_independent(stamp: str | None, jitter: float, tmp_path: Path, monkeypatch: Patch) -> None:
    t = np.round(T_S + jitter / RATE_HZ * (np.arange(len(T_S)) % 5 == 4), 7)
    whole = plain(tmp_path, t, WATTS, stamp=stamp)
    wanted = columns(whole)
    monkeypatch.setattr(csv_table, "ROWS", 701)
    parts = plain(tmp_path, t, WATTS, stamp=stamp)

    assert len(wanted) == (3 if jitter else 1)
    assert (parts.t0_ns, parts.meters) == (whole.t0_ns, whole.meters)
    for one, other in zip(columns(parts), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_grid_that_bends_after_one_block_is_irregular(tmp_path: Path, blocks: None) -> None:
    t = np.where(T_S > 1.0, 1.0 + (T_S - 1.0) * 1.02, T_S)
    assert len(columns(plain(tmp_path, t, WATTS))) == 3


def test_an_invalid_reading_is_named_by_its_row(tmp_path: Path, blocks: None) -> None:
    lines = table(tmp_path / "a.csv", "t,p", T_S, WATTS).read_text().split("\n")
    lines[1503] = "0.751,broken"
    raised(RigError, plain, tmp_path, says="p is 'broken' in data row 1503", text="\n".join(lines))


def test_backward_stamps_between_blocks_are_refused(tmp_path: Path, blocks: None) -> None:
    with pytest.raises(RigError, match=r"reading 702 is 0\.35 s earlier than the reading before it"):
        plain(tmp_path, np.concatenate([T_S[:701], T_S[:701]]), WATTS[:1402])


def test_channel_windows_continue_across_blocks(tmp_path: Path, blocks: None) -> None:
    source = table(tmp_path / "a.csv", "Timestamp(ms),Current(uA),D0", T_S * 1e3, WATTS / 3.0 * 1e6, BUSY)
    run = ppk2.open_import(source, supply_v=3.0, window_channel="D0", inferences=5, idle="0:0.55,1.75:2.35")
    assert len(run.spans) == 4
    check(run, tmp_path / "run")


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "ROWS", 1 << 12)

    def peak_mb(rows: int) -> float:
        path = tmp_path / f"{rows}.csv"
        with path.open("w") as file:
            file.write("t,p\n")
            file.writelines(f"{k},0.001\n" for k in range(rows))
        run = plain_csv.open_import(path, time="t:ms", power="p:W", windows=windows(tmp_path))
        assert sum(len(chunk.value) for chunk in run.traces[0].chunks) == rows
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    assert peak_mb(1_500_000) < peak_mb(50_000) + 12.0  # one column of it is 12 MB


# ---- raw numbers --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".f32", ".f64", ".i16", ".npy"])
def test_raw_numbers_give_the_true_power(suffix: str, tmp_path: Path) -> None:
    source, options = tmp_path / f"a{suffix}", dict[str, Any](unit="mW", scale=1e3)
    match suffix:
        case ".i16":
            np.round(WATTS / 2e-7).astype("<i2").tofile(source)
            options = {"unit": "uW", "scale": 0.2}
        case ".npy":
            np.save(source, WATTS)
        case _:
            WATTS.astype({".f32": "<f4", ".f64": "<f8"}[suffix]).tofile(source)
    check(raw_numbers.open_import(source, rate_hz=RATE_HZ, windows=windows(tmp_path), **options), tmp_path / "run")


@pytest.mark.parametrize(("name", "content", "options", "field"), [
    ("a.f32", b"\0" * 8, {}, "rate_hz"), ("a.f32", b"\0" * 9, {"rate_hz": 1e3}, "source"),
    ("a.bin", b"\0" * 8, {"rate_hz": 1e3}, "source"), ("a.npy", b"\0" * 8, {"rate_hz": 1e3}, "source"),
    ("a.f32", b"\0" * 8, {"rate_hz": 1e3, "unit": "mA"}, "supply_v"),
    ("a.f32", b"\0" * 8, {"rate_hz": 1e3, "unit": "mV"}, "unit"),
])  # fmt: skip
def test_ambiguous_raw_numbers_are_refused(
    name: str, content: bytes, options: dict[str, Any], field: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    error = raised(RigError, raw_numbers.open_import, tmp_path / name, windows=windows(tmp_path), **options)
    assert error.field == field
