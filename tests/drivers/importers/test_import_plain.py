"""A CSV file with declared columns is imported, with its windows in a separate file."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from drivers.importers import csv_table, plain_csv
from rig.errors import DataError, RigError, UsageError
from rig.importing.write import write
from tests.support import import_traces
from tests.support.import_traces import BUSY, BUSY_W, RATE_HZ, SUPPLY_V, T_S, WATTS, check, plain, recorded, windows
from tests.support.raised import Patch, raised

SLOW_S, SLOW_W, _ = import_traces.trace(100.0)

# ---- plain CSV ----------------------------------------------------------------------------


def test_plain_columns_and_units_are_declared(tmp_path: Path) -> None:
    amps = WATTS / SUPPLY_V
    columns = (T_S * 1e6, WATTS * 1e3, amps * 1e6, 0.0 * T_S + 3e3, np.cumsum(WATTS))
    source = import_traces.table(tmp_path / "a.csv", "t,p,i,v,e", *columns)
    options: dict[str, Any] = {"time": "t:us", "windows": windows(tmp_path), "stamp": "start"}
    check(plain_csv.open_import(source, power="p:mW", **options), tmp_path / "a")
    check(plain_csv.open_import(source, current="i:uA", voltage="v:mV", **options), tmp_path / "b")
    check(plain_csv.open_import(source, current="i:uA", supply_v=SUPPLY_V, **options), tmp_path / "c")
    shunt = {"shunt_ohm": 0.5, "supply_v": 0.5 * SUPPLY_V}
    check(plain_csv.open_import(source, current="i:uV", **shunt, **options), tmp_path / "s")
    del options["time"], options["stamp"]
    check(plain_csv.open_import(source, power="p:mW", rate_hz=RATE_HZ, **options), tmp_path / "d")


@pytest.mark.parametrize("stamp", ["start", "middle", "end", None])
def test_plain_digital_channel_marks_the_windows(stamp: str | None, tmp_path: Path) -> None:
    t = T_S + {"start": 0.0, "end": 1.0}.get(str(stamp), 0.5) / RATE_HZ
    options: dict[str, Any] = {"header": "t,p,GPIO", "windows": None, "stamp": stamp, "inferences": 5}
    options["idle"] = import_traces.IDLE
    run = plain(tmp_path, t, WATTS, BUSY, window_channel="GPIO", **options)
    assert [s.off_tick - s.on_tick for s in run.spans] == [400] * 4
    check(run, tmp_path / "high")
    options |= {"time": None, "rate_hz": RATE_HZ} if stamp == "start" else {}
    check(plain(tmp_path, t, WATTS, ~BUSY, window_channel="GPIO", window_active="low", **options), tmp_path / "low")
    raised(DataError, plain, tmp_path, t, WATTS, 3.3 * BUSY, says="digits of 0 and 1", window_channel="GPIO", **options)


def test_plain_rails_add_up(tmp_path: Path) -> None:
    run = plain(tmp_path, T_S, 0.75 * WATTS, 0.25 * WATTS * 1e3, header="t,core,io", power="core:W;io:mW")
    _, result = recorded(run, tmp_path / "run")
    assert result.quantities["active_power_w"].value == pytest.approx(BUSY_W, rel=1e-3)


def test_a_column_that_is_a_sum_of_rails_is_refused(tmp_path: Path) -> None:
    """The total would hold the device twice."""
    noise = np.random.default_rng(1).normal(0.0, 0.02 * BUSY_W, (2, len(T_S)))
    core, io = 0.75 * WATTS + noise[0], 0.25 * WATTS + noise[1]
    header, power = "t,core,whole,io", "core:W;whole:W;io:W"
    raised(DataError, plain, tmp_path, T_S, core, core + io, io, header=header, power=power, says="whole is the sum of")
    plain(tmp_path, T_S, core, core + io + noise[0], io, header=header, power=power)
    plain(tmp_path, T_S, core, core + io, io, header=header, power="whole:W")


@pytest.mark.parametrize(("options", "field"), [
    ({"power": "p"}, "power"), ({"power": "p:bananas"}, "power"), ({"power": "p:V"}, "power"),
    ({"time": "t", "power": "p:W"}, "time"), ({"time": None, "power": "p:W"}, "time"),
    ({"current": "p:A"}, "supply_v"), ({"current": "p:mV", "supply_v": 3.0}, "current"),
    ({"current": "p:mA", "supply_v": 3.0, "shunt_ohm": 1.0}, "current"),
    ({"current": "p:mV", "supply_v": 3.0, "shunt_ohm": 0.0}, "shunt_ohm"),
    ({"power": "p:W", "energy": "p:J"}, "power"), ({}, "power"),
    ({"power": "p:W", "windows": None}, "windows"), ({"power": "p:W", "stamp": "somewhere"}, "stamp"),
    ({"power": "p:W", "kind": "maybe"}, "kind"), ({"power": "p:W", "supply_v": 3.0}, "supply_v"),
    ({"power": "p:W", "voltage": "v:V"}, "voltage"), ({"power": "p:W", "idle": "0.5:0.1"}, "idle"),
    ({"power": "p:W", "clock_tolerance": 0.9}, "clock_tolerance"),
])  # fmt: skip
def test_plain_asks_for_missing_options(options: dict[str, Any], field: str, tmp_path: Path) -> None:
    assert raised(UsageError, plain, tmp_path, **{"power": None} | options).field == field


def test_plain_iso_stamps_need_a_zone_or_an_offset(tmp_path: Path) -> None:
    stamps = np.datetime64("2026-03-01T12:00:00", "us") + np.round((SLOW_S + 0.005) * 1e6).astype("m8[us]")
    lines = ["when,p", *(f"{s},{w:.9g}" for s, w in zip(stamps, SLOW_W, strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    zero_s = 1772366400.0  # 2026-03-01T12:00:00Z
    options: dict[str, Any] = {"time": "when:iso", "power": "p:W", "windows": windows(tmp_path, zero_s=zero_s)}
    raised(UsageError, plain_csv.open_import, tmp_path / "a.csv", says="zone", **options)
    check(plain_csv.open_import(tmp_path / "a.csv", timezone="UTC", **options), tmp_path / "run")
    with pytest.raises(DataError, match="no window overlaps"):
        write(plain_csv.open_import(tmp_path / "a.csv", timezone="Asia/Tokyo", **options), tmp_path / "other")


def test_window_seconds_count_from_the_first_dated_row(tmp_path: Path) -> None:
    kept = (SLOW_S < 1.0) | (SLOW_S > 1.1)
    stamps = np.datetime64("2026-03-01T12:00:00", "us") + np.round(SLOW_S * 1e6).astype("m8[us]")
    lines = ["when,p", *(f"{s}Z,{w:.9g}" for s, w in zip(stamps[kept], SLOW_W[kept], strict=True))]
    options: dict[str, Any] = {"text": "\n".join(lines), "time": "when:iso"}
    run = plain(tmp_path, **options)
    said: list[str] = []
    write(run, tmp_path / "run", say=said.append)
    assert any("begins at 2026-03-01T12:00:01.000Z" in note for note in said)
    check(plain(tmp_path, **options), tmp_path / "again")
    with pytest.raises(DataError, match=r"from 2026-03-01T12:00:30\.000Z to .* from 2026-03-01T12:00:00\.000Z"):
        write(plain(tmp_path, idle="30:31", **options), tmp_path / "outside")


def test_dates_of_a_stated_form_are_read(tmp_path: Path) -> None:
    stamps = [datetime(2026, 3, 1, 13) + timedelta(seconds=s) for s in SLOW_S.tolist()]
    lines = ["when;p", *(f"{s:%d.%m.%Y %H:%M:%S,%f};{w:.9f}" for s, w in zip(stamps, SLOW_W, strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(lines).replace(";0.", ";0,"))
    options = {"power": "p:W", "stamp": "start", "timezone": "Europe/Berlin"}
    options |= {"windows": windows(tmp_path, zero_s=1772366400.0)}  # 2026-03-01T12:00:00Z
    check(plain_csv.open_import(tmp_path / "a.csv", time="when:%d.%m.%Y %H:%M:%S,%f", **options), tmp_path / "run")
    with pytest.raises(DataError, match="is not a time stamp") as caught:
        plain_csv.open_import(tmp_path / "a.csv", time="when:%Y-%m-%d", **options)
    assert caught.value.remedy.startswith("State the form")


def test_stamps_without_a_date_may_not_pass_midnight(tmp_path: Path) -> None:
    calibration = tmp_path / "meter.json"
    watts = {"unit": "W", "full_scale": 10.0, "of_reading_percent": 1.0, "of_range_percent": 0.5}
    known = {"instrument": "i", "reference": "r", "valid_from": "2026-01-01", "valid_until": "2026-12-31"}
    calibration.write_text(json.dumps(known | {"range": [watts]}))
    options: dict[str, Any] = {"time": "t:%H:%M:%S.%f", "timezone": "UTC"}
    run = plain(tmp_path, text="t,p\n23:59:57.5,1\n23:59:58.5,1\n", calibration=str(calibration), **options)
    assert any("state no year" in note for note in run.notes)
    caught = raised(DataError, plain, tmp_path, text="t,p\n23:59:59.5,1\n00:00:00.5,1\n", **options)
    assert "pass midnight, write dates" in caught.remedy


@pytest.mark.parametrize("stamp", ["2026-10-25T02:30:00", "2026-03-29T02:30:00"])
def test_ambiguous_or_skipped_local_time_is_refused(stamp: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"when,p\n{stamp},1\n{stamp}.5,1\n")
    options = {"time": "when:iso", "power": "p:W", "windows": windows(tmp_path)}
    with pytest.raises(DataError, match="clocks change") as caught:
        plain_csv.open_import(tmp_path / "a.csv", timezone="Europe/Berlin", **options)
    assert "timezone=+02:00" in caught.value.remedy
    assert plain_csv.open_import(tmp_path / "a.csv", timezone="+01:00", **options)


@pytest.mark.parametrize(("unit", "joules"), [("Wh", 3600.0), ("mWh", 3.6)])
def test_a_counter_of_watt_hours_is_energy(unit: str, joules: float, tmp_path: Path) -> None:
    columns = (T_S + 1 / RATE_HZ, np.cumsum(WATTS) / RATE_HZ / joules)
    run = plain(tmp_path, *columns, header=f"t,e ({unit})", power=None, energy=f"e ({unit}):{unit}")
    _, result = recorded(run, tmp_path / "run")
    found = result.quantities["active_power_w"]
    assert found.value == pytest.approx(BUSY_W, rel=1e-2)
    assert "clock rate, meter to device" in {c.source for c in found.components}  # joules over the clock's seconds


@pytest.mark.parametrize("jitter_s", [0.0, 0.001])
def test_a_falling_counter_is_refused_with_its_row(jitter_s: float, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(csv_table, "ROWS", 70)
    t = 0.01 * np.arange(240) + jitter_s * (np.arange(240) % 3 == 1)
    joules = np.arange(240.0)
    joules[3:6] -= (0.0, 3.0, np.nan)  # rounding may fall by a little, and a missing value hides nothing
    write(plain(tmp_path, t, joules, power=None, energy="p:J"), tmp_path / "whole")
    joules[140:] -= 140.0
    run = plain(tmp_path, t, joules, power=None, energy="p:J")
    raised(DataError, write, run, tmp_path / "run", says=r"counter of rail p falls by 139 J at 1\.4 s, in reading 141")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59+00:00", "2026-13-01T00:00:00Z", "7"])
def test_impossible_iso_stamps_are_refused(stamp: str, tmp_path: Path) -> None:
    raised(DataError, plain, tmp_path, text=f"when,p\n{stamp},1\n2026-01-01T00:00:00Z,1\n", time="when:iso")


def test_an_unstated_stamp_position_widens_the_bracket(tmp_path: Path) -> None:
    for stamp, width_ns in ((None, round(1e9 / RATE_HZ)), ("start", 0)):
        (bracket,) = plain(tmp_path, stamp=stamp).brackets["recording"]
        assert bracket.after_ns - bracket.before_ns == width_ns


# ---- windows in a file --------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "scale"), [("", 1.0), ("_ms", 1e3), (" (us)", 1e6)])
def test_windows_state_their_unit(unit: str, scale: float, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    check(plain(tmp_path, windows=windows(tmp_path / "own", unit, scale)), tmp_path / "run")


@pytest.mark.parametrize("text", [
    "", "start\n1", "start,end\n2,1", "start,end\n1,x", "start,end\n1,", "start,end,inferences\n1,2,0",
    "start,end,inferences\n1,2,1.5", "start,end,phase,inference\n1,2,,5", "start,end,phas\n1,2,idle",
    "start,end,phase\n1,2,mark", "start (min),end (min)\n1,2",
    "start,end\n1e300,2e300", "start,end\nnan,1", "start,end\n1,2,3", "start,end\n1,1",
    "start,end,phase\n1,1.2,Work\n1.4,1.6,work",
])  # fmt: skip
def test_impossible_windows_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text(text)
    raised(RigError, plain, tmp_path, SLOW_S, SLOW_W, windows=str(tmp_path / "w.csv"))


@pytest.mark.parametrize(("column", "cells"), [("", ""), (",inferences", ",")])
def test_the_option_inferences_fills_missing_counts(column: str, cells: str, tmp_path: Path) -> None:
    on_s, span_s = import_traces.ON_S, import_traces.SPAN_S
    rows = [f"{a},{a + span_s},{cells}" for a in on_s[1:]] + [f"0,0.5,idle{cells}", f"0.51,0.55,warmup{cells}"]
    rows += [f"{on_s[0]},{on_s[0] + span_s},{cells and ',5'}", f"1.75,2.35,idle{cells}"]
    (tmp_path / "w.csv").write_text("\n".join([f"start,end,phase{column}", *rows]))
    table: dict[str, Any] = {"windows": str(tmp_path / "w.csv")}
    check(plain(tmp_path, inferences=5, **table), tmp_path / "run")
    if column:
        caught = raised(DataError, plain, tmp_path, **table, says="window 1 has an empty cell of inferences")
        assert "inferences=NUMBER" in caught.remedy
    else:
        assert [s.executions for s in plain(tmp_path, **table).spans] == [1] * 5


@pytest.mark.parametrize("spoil", [
    lambda t, w: (np.concatenate([t[:50], t[49:]]), np.concatenate([w[:50], w[49:]])),
    lambda t, w: (t[::-1], w),
    lambda t, w: (np.where(np.arange(len(t)) == 7, np.nan, t), w),
    lambda t, w: (t * 1e12, w),
    lambda t, w: (t, np.where(np.arange(len(t)) == 7, 1e308, w)),
    lambda t, w: (t[:1], w[:1]),
    lambda t, w: (t - 1000.0, w),
], ids=["repeated", "backward", "nan", "far", "1e308", "one", "elsewhere"])  # fmt: skip
def test_impossible_stamps_and_readings_are_refused(spoil: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(DataError):
        write(plain(tmp_path, *spoil(SLOW_S, SLOW_W), stamp=None), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_equal_stamps_are_refused_with_a_remedy(tmp_path: Path) -> None:
    caught = raised(DataError, plain, tmp_path, np.floor(SLOW_S), SLOW_W, says="has the stamp of the reading before it")
    assert "rate_hz=NUMBER" in caught.remedy


def test_windows_of_a_unix_time_trace_use_unix_time(tmp_path: Path) -> None:
    text = "\n".join(["t,p", *(f"{s + 1790000000.0:.2f},{w}" for s, w in zip(SLOW_S, SLOW_W, strict=True))])
    caught = raised(DataError, write, plain(tmp_path, text=text), tmp_path / "run", says="no window overlaps")
    assert "counts from 1970" in caught.remedy


@settings(max_examples=8)
@given(st.floats(-1e6, 1e6), st.sampled_from([50.0, 997.0, 1000.0, 3333.0]), st.sampled_from(["s", "ms", "us"]))
def test_time_origin_and_unit_change_no_figure(
    tmp_path_factory: pytest.TempPathFactory, zero_s: float, rate_hz: float, unit: str
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    zero_s = round(zero_s, 3)
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    t, watts, _ = import_traces.trace(rate_hz)
    lines = ["t,p", *(f"{(x + zero_s) * scale!r},{w!r}" for x, w in zip(t.tolist(), watts.tolist(), strict=True))]
    _, result = recorded(plain(folder, text="\n".join(lines), time=f"t:{unit}", zero_s=zero_s), folder / "run")
    assert result.quantities["active_power_w"].value == pytest.approx(BUSY_W, rel=2e-3)
